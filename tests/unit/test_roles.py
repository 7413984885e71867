"""Every role's argument specs document what its defaults offer, and nothing else."""

from __future__ import annotations

import pathlib

import pytest
import yaml

from ansible_collections.dgxspark.cluster.tests.unit.owner import ROOT

ROLES = sorted(path for path in (ROOT / "roles").iterdir() if path.is_dir()) if (ROOT / "roles").is_dir() else []
SHARED = {"dgxspark_fabric", "dgxspark_knowledge_dirs"}  # taken by several roles


def load(path: pathlib.Path) -> dict[str, object]:
    return yaml.safe_load(path.read_text(encoding="utf-8")) or {} if path.is_file() else {}


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_defaults_are_the_argument_specs(role: pathlib.Path) -> None:
    specs = load(role / "meta" / "argument_specs.yml")["argument_specs"]
    options = specs["main"]["options"]  # type: ignore[index]
    defaults = load(role / "defaults" / "main.yml")
    assert set(defaults) - SHARED == {name for name, spec in options.items() if not spec.get("required")} - SHARED
    for name, value in defaults.items():
        if name in options and "default" in options[name] and not (isinstance(value, str) and "{{" in value):
            assert options[name]["default"] == value, name


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_variables_carry_the_role_s_name(role: pathlib.Path) -> None:
    names = set(load(role / "defaults" / "main.yml"))
    assert not {name for name in names if not name.startswith(f"{role.name}_")} - SHARED
    assert not {name for name in load(role / "vars" / "main.yml") if not name.startswith(f"__{role.name}_")}


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_a_role_is_whole(role: pathlib.Path) -> None:
    for part in ("README.md", "defaults/main.yml", "meta/main.yml", "meta/argument_specs.yml", "tasks/main.yml"):
        assert (role / part).is_file(), part


def test_a_name_of_before_is_refused_with_one_that_there_is() -> None:
    """An owner who still sets it is told what to set instead."""
    offered = {name for role in ROLES for name in load(role / "defaults" / "main.yml")}
    renamed = load(ROOT / "roles" / "k8s_dgx" / "vars" / "main.yml")["__k8s_dgx_renamed"]
    assert renamed
    assert not set(renamed) & offered  # type: ignore[call-overload]
    for now in renamed.values():  # type: ignore[attr-defined]
        assert set(now.split(" and ")) <= offered, now
