"""The layout that CONTRIBUTING.md promises: what may import what, and how long a file may get."""

from __future__ import annotations

import ast
import importlib
import pathlib
import re
import subprocess
import sys

import pytest
import yaml

from ansible_collections.dgxspark.cluster.tests.unit.owner import ROOT

PLUGINS = ROOT / "plugins"
PLANNER = PLUGINS / "plugin_utils" / "planner"
OWN = "ansible_collections.dgxspark.cluster.plugins"
THIN = ("modules", "action", "filter", "lookup")


def python_files(*folders: str) -> list[pathlib.Path]:
    return [
        path for folder in folders for path in sorted((ROOT / folder).rglob("*.py")) if "__pycache__" not in path.parts
    ]


def imports(path: pathlib.Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                # The planner alone names itself relatively, so that it can be lifted out; test_layers.py judges those.
                assert PLANNER in path.parents, f"{path}: relative import; name the collection in full"
                continue
            found |= (
                {f"{node.module}.{alias.name}" for alias in node.names} if node.module == OWN else {str(node.module)}
            )
    return found


def code_lines(path: pathlib.Path) -> int:
    """Count lines of code: without blank lines, comments and standalone strings (documentation)."""
    text = path.read_text(encoding="utf-8")
    documentation: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, (ast.Assign, ast.Expr))
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            documentation |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return sum(
        1
        for number, line in enumerate(text.splitlines(), 1)
        if number not in documentation and line.strip() and not line.strip().startswith("#")
    )


@pytest.mark.parametrize("path", python_files("plugins/filter"), ids=str)
def test_a_filter_imports_what_it_needs_when_it_is_called(path: pathlib.Path) -> None:
    """Ansible imports every filter file in each process that uses one filter: importing the whole core costs 0.7 s each time."""
    head = [node.module for node in ast.parse(path.read_text("utf-8")).body if isinstance(node, ast.ImportFrom)]
    ours = {str(module) for module in head if str(module).startswith(OWN)}
    assert ours <= {f"{OWN}.plugin_utils.filters", f"{OWN}.module_utils.values"}, "as_filter(name, 'module:function')"


def test_every_filter_finds_its_function() -> None:
    """No linter checks for a function that is named by a string."""
    for path in python_files("plugins/filter"):
        for found in re.findall(r'as_filter\("\w+", "([\w.]+):(\w+)"', path.read_text("utf-8")):
            assert callable(getattr(importlib.import_module(f"{OWN}.plugin_utils.{found[0]}"), found[1])), path


@pytest.mark.parametrize("path", python_files("plugins/module_utils"), ids=str)
def test_what_runs_on_nodes_needs_the_standard_library_only(path: pathlib.Path) -> None:
    foreign = {
        name
        for name in imports(path)
        if name.split(".")[0] not in sys.stdlib_module_names
        and not name.startswith((f"{OWN}.module_utils", "ansible.module_utils"))
        and not (path.parent / f"{name}.py").exists()  # lies beside it where it runs without the collection
    }
    assert not foreign


@pytest.mark.parametrize("path", python_files("plugins/modules"), ids=str)
def test_modules_do_not_import_what_runs_on_the_controller(path: pathlib.Path) -> None:
    assert not {name for name in imports(path) if name.startswith(f"{OWN}.plugin_utils")}


@pytest.mark.parametrize("path", python_files("plugins/plugin_utils", "plugins/module_utils"), ids=str)
def test_the_core_does_not_know_its_fronts(path: pathlib.Path) -> None:
    fronts = tuple(f"{OWN}.{front}" for front in THIN)
    assert not {name for name in imports(path) if name.startswith(fronts)}


def kinds_read() -> dict[str, set[str]]:
    """Return each kind of knowledge with the files of the plugins that read it; a kind is named by text or by a constant."""
    files = {
        path: ast.parse(path.read_text(encoding="utf-8"))
        for path in python_files("plugins")
        if path.parent.name != "lookup"  # shows an owner any kind
    }
    constants = {
        (path.stem, node.targets[0].id): node.value.value
        for path, tree in files.items()
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
    }
    found: dict[str, set[str]] = {}
    for path, tree in files.items():
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and ast.unparse(node.func) in {f"knowledge.{name}" for name in ("load", "shared", "get", "Library")}
            ):
                named = node.args[0]
                if isinstance(named, ast.Constant):
                    kind = named.value
                else:
                    module, _dot, name = ast.unparse(named).rpartition(".")
                    kind = constants.get((module or path.stem, name), f"{ast.unparse(named)}?")
                found.setdefault(kind, set()).add(str(path.relative_to(ROOT / "plugins")))
    return found


def test_a_kind_of_knowledge_has_one_reader() -> None:
    """What it means is decided in one file; others ask that file."""
    read = kinds_read()
    assert {"hardware", "images", "platform", "profile", "signatures", "versions"} <= set(read)
    assert not {kind: sorted(files) for kind, files in read.items() if len(files) > 1 or kind.endswith("?")}


@pytest.mark.parametrize("path", python_files(*(f"plugins/{front}" for front in THIN)), ids=str)
def test_fronts_are_thin(path: pathlib.Path) -> None:
    assert code_lines(path) <= (60 if path.parent.name == "action" else 100)


@pytest.mark.parametrize("path", python_files("plugins/action"), ids=str)
def test_actions_open_alike(path: pathlib.Path) -> None:
    """Arguments, check mode and expected errors are handled in one place."""
    assert "class ActionModule(ControllerAction):" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", python_files("plugins/action"), ids=str)
def test_what_documents_an_action_ends_alike(path: pathlib.Path) -> None:
    """For seven actions the module has work of its own, on the node."""
    text = (PLUGINS / "modules" / path.name).read_text(encoding="utf-8")
    assert (
        path.stem
        in ("nccl_transport", "netplan_vf", "node_health", "power_samples", "roce_info", "sriov_vf", "unit_files")
        or "\nmain = controller_only(ARGUMENTS" in text
    )


@pytest.mark.parametrize("path", python_files("plugins", "lab", "tools", "benchmarks"), ids=str)
def test_files_can_be_read_in_a_sitting(path: pathlib.Path) -> None:
    assert code_lines(path) <= 400


# What else moves a file into place, or locks one, and why.
MOVES = {
    "module_utils/beneath.py": "moves a file that it has written in parts, or a link, by folder descriptors",
    "module_utils/k3s/install.py": "copies a large file in blocks",
    "module_utils/programs/rank/patches.py": "runs as a single file in any image, and keeps a file's mode and owner",
    "plugin_utils/bundle/registry.py": "moves a download that was written in parts",
    "plugin_utils/bundle/transfer.py": "moves a download that was written in parts",
}
LOCKS = {
    "module_utils/fabric/turn.py": "the locked file is what is read and written",
    "plugin_utils/matrix/journal.py": "hands the lock's descriptor on to the processes of a case",
    "plugin_utils/live.py": "hands the lock's descriptor on to the program that draws",
}


@pytest.mark.parametrize(
    ("one", "what", "others"),
    [
        ("module_utils/programs/files.py", r"\bos\.(?:replace|rename)\(|\b\w+\.replace\(\w+\)", MOVES),
        ("module_utils/programs/locks.py", r"\bfcntl\.(?:flock|lockf)\(", LOCKS),
    ],
)
def test_modules_and_programs_have_one_atomic_write_and_one_lock(one: str, what: str, others: dict[str, str]) -> None:
    texts = {str(path.relative_to(PLUGINS)): path.read_text(encoding="utf-8") for path in python_files("plugins")}
    found = {
        name for name, text in texts.items() if re.search(what, text) and ("\nimport os\n" in text or "pathlib" in text)
    }
    assert found == {one, *others}


@pytest.mark.parametrize("path", sorted((ROOT / "roles").glob("*/tasks/*.yml")), ids=str)
def test_task_files_can_be_read_in_a_sitting(path: pathlib.Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 80


@pytest.mark.parametrize("role", sorted(path for path in (ROOT / "roles").iterdir() if path.is_dir()), ids=str)
def test_roles_can_be_read_in_a_sitting(role: pathlib.Path) -> None:
    """Eight task files are enough."""
    assert len(list((role / "tasks").iterdir())) <= 8


@pytest.mark.parametrize("path", sorted((ROOT / "playbooks").rglob("*.yml")), ids=str)
def test_a_playbook_plans_the_fabric_once(path: pathlib.Path) -> None:
    """What to do about nodes that contradict the inventory is decided in the action, not by tasks."""
    assert path.read_text(encoding="utf-8").count("dgxspark.cluster.fabric_plan") <= 1


def test_other_collections_are_named_if_and_only_if_something_shipped_uses_them() -> None:
    """galaxy.yml makes each owner install them. Used: a module, filter or lookup in a task, or a module that an action calls."""
    named = set(yaml.safe_load((ROOT / "galaxy.yml").read_text(encoding="utf-8"))["dependencies"])
    tasks = [path for folder in ("playbooks", "roles", "inventories") for path in (ROOT / folder).rglob("*.yml")]
    lines = [line for path in tasks for line in path.read_text(encoding="utf-8").splitlines() if "#" not in line]
    calls = [path.read_text(encoding="utf-8") for path in (ROOT / "plugins" / "action").glob("*.py")]
    used = set(re.findall(r"\b((?:ansible|community|kubernetes)\.[a-z]+)\.[a-z0-9_]+(?::|\b(?!\.))", "\n".join(lines)))
    used |= set(re.findall(r"\"((?:ansible|community|kubernetes)\.[a-z]+)\.[a-z0-9_]+\"", "\n".join(calls)))
    assert used - {"ansible.builtin", "ansible.legacy"} == named


def test_nothing_points_outside_the_repository() -> None:
    """Only .ci/run may use the lanes and fixtures that lie beside a checkout."""
    pattern = re.compile(r"\.\./shared|/work/")
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split("\0")
    own = str(pathlib.Path(__file__).resolve().relative_to(ROOT))
    files = [ROOT / name for name in listed if name and name != own and not name.startswith(".ci/")]
    assert files
    assert not [
        str(f) for f in files if f.is_file() and pattern.search(f.read_text(encoding="utf-8", errors="replace"))
    ]


def test_nothing_is_imported_from_a_file_of_tests() -> None:
    """What two of them need is in tests/support, or in another module that pytest does not collect."""
    files = python_files("tests", "lab", "tools", "benchmarks")
    collected = {path.stem for path in files if path.stem.startswith("test_")}
    taken = {
        f"{path.relative_to(ROOT)}: {word}"
        for path in files
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for word in [getattr(node, "module", None) or "", *(alias.name for alias in node.names)]
        if word.rpartition(".")[2] in collected
    }
    assert not taken
