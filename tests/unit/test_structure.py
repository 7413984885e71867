"""No two packages import each other, and every import has one direction."""

from __future__ import annotations

import ast
import functools
import pathlib
import re
import sys
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.tests.unit.owner import ROOT

PLUGINS = ROOT / "plugins"
OWN = "ansible_collections.dgxspark.cluster.plugins."
# One package each: the fabric's modules read the node's state by modules that know the fabric's files; the doctor is two files.
TOGETHER = frozenset(
    (
        "module_utils/fabric",
        "module_utils/facts",
        "module_utils/system",
        "plugin_utils/doctor",
        "plugin_utils/doctor_hardware",
    )
)


def package(module: str) -> str:
    """Return the folder, or the file beside the folders, that a module belongs to."""
    return "/".join(module.split(".")[:2])


@functools.cache
def edges() -> dict[str, dict[str, str]]:
    """Return each package's imports of others, with a file that has it."""
    found: dict[str, dict[str, str]] = {}
    for folder in ("plugin_utils", "module_utils"):
        for path in sorted((PLUGINS / folder).rglob("*.py")):
            own = package(".".join(path.relative_to(PLUGINS).with_suffix("").parts))
            for module in imported(path):
                if package(module) != own:
                    found.setdefault(own, {}).setdefault(package(module), str(path.relative_to(ROOT)))
    return found


def imported(path: pathlib.Path) -> t.Iterator[str]:
    """Yield the modules of ours that a file imports, with what it imports of them."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and f"{node.module}.".startswith(OWN):
            yield from (f"{node.module}.{each.name}".removeprefix(OWN) for each in node.names)


def test_no_packages_import_each_other() -> None:
    known = edges()

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        left = [start]
        while left:
            for other in known.get(left.pop(), {}):
                if other not in found:
                    found.add(other)
                    left.append(other)
        return found

    circles = {
        one: sorted(other for other in reached(one) if one in reached(other)) for one in known if one in reached(one)
    }
    assert {one for one in circles if one not in TOGETHER} == set(), circles


WALKS = ("A VF's address", "A setting", "A log's line")


def walk(title: str) -> list[tuple[pathlib.Path, list[str]]]:
    """Return the files of a walk through the code, in the order of CONTRIBUTING.md, each with the functions that it names there."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    drawn = text.partition(f"### {title}")[2].partition("```\n")[2].partition("```")[0]
    found: list[tuple[pathlib.Path, list[str]]] = []
    for line in drawn.splitlines():
        if named := re.search(r"([\w/]+\.py)\b(.*)", line):
            (path,) = (each for each in PLUGINS.rglob("*.py") if f"/{each}".endswith(f"/{named[1]}"))
            found.append((path, []))
        found[-1][1].extend(re.findall(r"\b(\w+)\(\)", named[2] if named else line))
    return found


@pytest.mark.parametrize("title", WALKS)
def test_what_contributing_walks_through_is_there_and_is_short(title: str) -> None:
    """At most eight files, and at most once back to one that came before."""
    steps = walk(title)
    for path, functions in steps:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert functions or path.name == "api.py", path
        assert set(functions) <= defined | {"Reader"}, path
    files = [path for path, _functions in steps]
    assert 4 <= len(set(files)) <= 8
    assert len(files) - len(set(files)) <= 1


# What is no source: a document that owners do not have, and a principle.
NO_SOURCE = re.compile(r"\bDESIGN\b|Nothing is guessed")


def test_what_ships_names_no_document_that_owners_lack() -> None:
    folders = ("docs/docsite", "inventories", "knowledge", "playbooks", "plugins", "roles")
    files = [
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".md", ".py", ".rst", ".yml")
    ]
    named = {str(path.relative_to(ROOT)) for path in files if NO_SOURCE.search(path.read_text(encoding="utf-8"))}
    assert not named


def test_a_finding_s_source_that_is_a_file_is_there() -> None:
    """The planner's own findings name guides and knowledge that ship."""
    files = [
        *(PLUGINS / "plugin_utils" / "planner").rglob("*.py"),
        *(PLUGINS / "plugin_utils" / "serving").glob("*.py"),
    ]
    named = {
        name
        for path in files
        for name in re.findall(r'"((?:docs|knowledge)/[\w/.-]+)"', path.read_text(encoding="utf-8"))
    }
    assert named
    assert not {name for name in named if not (ROOT / name).exists()}


def test_what_is_wanted_has_a_name_that_says_what_it_is() -> None:
    """Six classes were named Wanted, two Signature, three Host; two tables were named ELSEWHERE."""
    files = [path for folder in ("plugin_utils", "module_utils") for path in (PLUGINS / folder).rglob("*.py")]
    names = [
        name for path in files for name in re.findall(r"^class (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert not {"Wanted", "Once"} & set(names)
    assert names.count("Signature") == names.count("Host") == 1
    assert not [
        str(path) for path in files if re.search(r"^ELSEWHERE\b", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]


def test_no_file_beside_a_program_has_the_name_of_a_module_of_python() -> None:
    """A program's own folder comes first where it imports from: our file would stand in for Python's, in libraries, too."""
    programs = [
        path
        for folder in ("plugin_utils", "module_utils")
        for path in (PLUGINS / folder).rglob("*.py")
        if "__main__" in path.read_text(encoding="utf-8")
    ]
    beside = {each for path in programs for each in path.parent.iterdir() if each.suffix == ".py" or each.is_dir()}
    assert programs and sorted(each.name for each in beside if each.stem in sys.stdlib_module_names) == []
