"""Each finding of the fabric has a test that carries out its remedy, or stands in the list with the reason why none does.

The findings are read from the code, the list is benchmarks/fabric_remedies.yml.
"""

from __future__ import annotations

import ast
import pathlib
import re
from collections.abc import Iterator

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIST = ROOT / "benchmarks" / "fabric_remedies.yml"
FILES = (
    *(ROOT / "plugins/module_utils/fabric").glob("*.py"),
    *(ROOT / "plugins/plugin_utils/fabric").glob("*.py"),
    *(ROOT / f"plugins/plugin_utils/verify/{name}.py" for name in ("links", "traffic", "outliers")),
    ROOT / "plugins/plugin_utils/doctor.py",
    ROOT / "plugins/plugin_utils/doctor_hardware.py",
    ROOT / "plugins/plugin_utils/unreached.py",
)
LAYERS = [
    "arp",
    "clock",
    "function",
    "gid",
    "hosts",
    "link",
    "mtu",
    "netplan",
    "node",
    "plan",
    "rdma",
    "segments",
    "settings",
    "sriov",
    "subnets",
    "unit",
    "vf",
]
DOTTED = re.compile(rf"({'|'.join(LAYERS)})\.[a-z0-9-]+")
PREFIX = re.compile(r"[a-z]+\.")
NONE_OF_THESE = {"sriov.record"}  # the beginning of two


def _prefixes(tree: ast.AST) -> Iterator[tuple[str, str, int]]:
    """Yield functions that make a finding of a kind, one of their arguments: name, beginning of the id, the argument's place."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        names = [argument.arg for argument in function.args.args]
        for text in ast.walk(function):
            if not isinstance(text, ast.JoinedStr) or len(text.values) != 2:
                continue
            first, second = text.values
            if (
                isinstance(first, ast.Constant)
                and PREFIX.fullmatch(str(first.value))
                and isinstance(second, ast.FormattedValue)
                and isinstance(second.value, ast.Name)
                and second.value.id in names
            ):
                yield function.name, str(first.value), names.index(second.value.id) - (names[0] == "self")


def found(text: str) -> set[str]:
    """Return the ids of a module's findings: those written out, and those made of a kind."""
    tree = ast.parse(text)
    kinds = {name: (prefix, place) for name, prefix, place in _prefixes(tree)}
    ids = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and DOTTED.fullmatch(node.value):
            ids.add(node.value)
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in kinds:
                prefix, place = kinds[called]
                kind = node.args[place]
                assert isinstance(kind, ast.Constant), f"{called}: its kind is not written out"
                ids.add(f"{prefix}{kind.value}")
    return ids


def test_each_finding_is_in_the_list_once() -> None:
    told = [finding for entry in yaml.safe_load(LIST.read_text("utf-8")) for finding in entry["findings"]]
    assert len(told) == len(set(told))
    made = {each for file in FILES for each in found(file.read_text("utf-8"))} - NONE_OF_THESE
    # What traffic.py makes of a program's status.
    assert made | {"rdma.hang", "rdma.failed"} == set(told)


def test_each_has_its_test_or_the_reason_why_there_is_none() -> None:
    for entry in yaml.safe_load(LIST.read_text("utf-8")):
        assert set(entry) in ({"findings", "tests"}, {"findings", "not_run"}), entry
        for test in entry.get("tests", ()):
            path, _colons, name = test.partition("::")
            text = (ROOT / path).read_text("utf-8")
            name, _bracket, case = name.partition("[")
            assert f"def {name}(" in text, test
            assert not case or case.removesuffix("]") in text, test


def test_the_reader_sees_each_way_in_which_a_finding_is_made() -> None:
    text = (
        'def _wrong(kind, message): return Finding(f"hosts.{kind}", message)\n'
        '_wrong("range", "it is")\nFinding("plan.clash", "error")\nX = {"down": ("mtu.down", "why")}\n"names.json"'
    )
    assert found(text) == {"hosts.range", "plan.clash", "mtu.down"}
