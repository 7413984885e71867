"""The planner has one way in, and its layers import downwards only."""

from __future__ import annotations

import ast
import pathlib
import re
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner import api
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving import cluster
from ansible_collections.dgxspark.cluster.tests.unit.owner import ROOT

PLANNER = ROOT / "plugins" / "plugin_utils" / "planner"
NAME = "ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner"
# What a layer imports of the planner: itself, and these.
BELOW = {
    "vocabulary": set(),
    "model": {"vocabulary"},
    "profile": {"vocabulary", "model"},
    "judgement": {"vocabulary", "model", "profile"},
    "authoring": {"vocabulary", "model", "profile", "judgement"},
    "recipes": {"vocabulary", "model", "profile", "judgement"},
    "inspection": {"vocabulary", "model", "profile", "judgement"},
}
MODULES = sorted(path.relative_to(PLANNER) for path in PLANNER.rglob("*.py"))
OUTSIDE = sorted(
    path.relative_to(ROOT)
    for folder in ("lab", "plugins", "roles", "tools")
    for path in (ROOT / folder).rglob("*.py")
    if PLANNER not in path.parents
)


def imported(path: pathlib.Path) -> t.Iterator[str]:
    """Yield each module that a file imports by its full name, with what is imported of it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            own = [*NAME.split("."), *path.relative_to(PLANNER).parts[:-1]] if node.level else []
            above = own[: len(own) - node.level + 1]
            yield from (".".join([*above, *filter(None, [node.module]), each.name]) for each in node.names)


def inner(path: pathlib.Path) -> set[str]:
    """Return what a file imports of the planner: the names below it."""
    return {name.removeprefix(f"{NAME}.") for name in imported(path) if name.startswith(f"{NAME}.")}


def test_every_module_of_the_planner_is_in_a_layer() -> None:
    assert {str(path.parent) for path in MODULES} == {".", *BELOW}
    assert [str(path) for path in MODULES if path.parent == pathlib.Path()] == ["api.py"]


@pytest.mark.parametrize("path", [path for path in MODULES if len(path.parts) > 1], ids=str)
def test_a_layer_imports_itself_and_those_below(path: pathlib.Path) -> None:
    layer = path.parts[0]
    above = {name for name in inner(PLANNER / path) if name.split(".")[0] not in {layer, *BELOW[layer]}}
    assert not above, f"{path} imports {', '.join(sorted(above))}, which is not below {layer}"


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_the_planner_names_itself_relatively(path: pathlib.Path) -> None:
    assert f"from {NAME}" not in (PLANNER / path).read_text(encoding="utf-8"), "write `from ..model import …`"


def test_others_import_the_api_alone() -> None:
    """Tests and benchmarks may look inside; what ships and what makes knowledge may not."""
    inside = {
        str(path): sorted(found)
        for path in OUTSIDE
        if NAME in (ROOT / path).read_text(encoding="utf-8")
        if (found := {name for name in absolute(ROOT / path) if name.split(".")[0] != "api"})
    }
    assert not inside


def absolute(path: pathlib.Path) -> set[str]:
    """Return what a file outside the planner imports of it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(f"{NAME}."):
            found |= {f"{node.module}.{each.name}".removeprefix(f"{NAME}.") for each in node.names}
    return found


def test_the_api_names_what_it_has() -> None:
    assert api.__doc__ is not None
    assert len(api.__all__) == len(set(api.__all__))
    for name in api.__all__:
        assert getattr(api, name, None) is not None, name
        assert not callable(getattr(api, name)) or getattr(api, name).__doc__, f"{name} says nothing of itself"


# Words of a cluster: what knows them is plugin_utils/serving, which gives the planner a `Cluster`.
OF_A_CLUSTER = re.compile(
    r"\b(?:vf_index|kubernetes|kube|namespace|fabric_plan|PlannedHost|roce_info|plugin_utils\.nccl)\b"
)


@pytest.mark.parametrize("path", [path for path in MODULES if path.parts[0] != "recipes"], ids=str)
def test_the_planner_knows_no_cluster(path: pathlib.Path) -> None:
    code = ast.unparse(without_documentation(ast.parse((PLANNER / path).read_text(encoding="utf-8"))))
    assert not OF_A_CLUSTER.findall(code)


def without_documentation(tree: ast.Module) -> ast.Module:
    """Return the code alone."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return tree


def test_a_cluster_is_what_the_planner_asks_for() -> None:
    own: api.Cluster = cluster.read({"hosts": ["spark1", "spark2"], "free_gib": 90.0})
    assert api.ANYWHERE.hosts is None
    assert own.hosts == ["spark1", "spark2"]
    assert own.machines(["spark1"], api.Free(100.0, 110.0)).free == api.Free(90.0, 90.0)


def test_judging_has_four_steps_that_bind_each_name_once() -> None:
    """Each step takes the typed results before it and makes one of its own; none changes what another made."""
    steps = {"sizes.py": ("resolve", "size"), "verdict.py": ("rule", "compare", "judge", "_decided")}
    for file, names in steps.items():
        tree = ast.parse((PLANNER / "judgement" / file).read_text(encoding="utf-8"))
        made = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        for name in names:
            bound = [
                each.id
                for each in ast.walk(made[name])
                if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
            ]
            changed = [each for each in ast.walk(made[name]) if isinstance(each, ast.AugAssign)]
            assert not [
                each for each in set(bound) if bound.count(each) > 1 and each not in ("found", "key", "value")
            ], name
            assert not changed, name
