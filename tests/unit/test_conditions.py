"""What a task may do only under its condition, and what it must not show: conditions evaluated by Ansible itself, without a play."""

from __future__ import annotations

import functools
import pathlib
import typing as t

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from ansible_collections.dgxspark.cluster.plugins.module_utils import secret_names

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = sorted(
    [*ROOT.glob("playbooks/**/*.yml"), *ROOT.glob("roles/*/tasks/*.yml"), *ROOT.glob("roles/*/handlers/*.yml")]
)
LOADER = DataLoader()


@functools.cache
def plain(path: pathlib.Path) -> t.Any:
    return yaml.load(path.read_text("utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def tasks(entries: t.Any) -> t.Iterator[dict[str, t.Any]]:
    """Yield the tasks of a play or a file of tasks, those in blocks too."""
    for entry in entries or ():
        if "name" in entry and "hosts" not in entry:
            yield entry
        for key in ("pre_tasks", "tasks", "post_tasks", "block", "rescue", "always"):
            yield from tasks(entry.get(key))


def conditions(file: str, name: str) -> list[str]:
    """Return the conditions of the one task with this name and module."""
    (task,) = [task for task in tasks(plain(ROOT / file)) if task["name"] == name]
    when = task["when"]
    return when if isinstance(when, list) else [when]


TEARDOWN = {"__teardown_kubernetes": True, "__teardown_all": True}
REPO = {"__model_weights_repo": {"fetch": True, "lacking": []}, "ansible_check_mode": False}
INSTALLED = {"__k3s_plan": {"installed": True}, "__k3s_joins": False, "ansible_check_mode": False}
ROLL = {"k8s_dgx_memory_check": True, "__k8s_dgx_change": {"action": "start"}, "ansible_check_mode": False}


@pytest.mark.parametrize(
    ("file", "name", "runs", "but"),
    [
        # An earlyoom that the owner has installed stays.
        (
            "roles/memory_guard/tasks/absent.yml",
            "Remove earlyoom if the role installed it",
            {"__memory_guard_removed": {"package_ours": True}},
            [{"__memory_guard_removed": {"package_ours": False}}],
        ),
        # All Sparks share one cluster: its objects go only with all of them.
        (
            "playbooks/teardown.yml",
            "Remove models and platform from the cluster",
            TEARDOWN,
            [{"__teardown_all": False}, {"__teardown_kubernetes": False}],
        ),
        (
            "roles/model_weights/tasks/present.yml",
            "Download and copy the weights",
            REPO,
            [{"ansible_check_mode": True}, {"__model_weights_repo": {"fetch": False, "lacking": []}}],
        ),
        # A restart stops whatever runs there.
        (
            "roles/spark_update/tasks/restart.yml",
            "Restart it",
            {
                "spark_update_reboot": "auto",
                "__spark_update_turn": {"restart": True},
                "__spark_update_asks": {"stat": {"exists": False}},
            },
            [{"spark_update_reboot": "never"}, {"__spark_update_turn": {"restart": False}}],
        ),
        (
            "roles/spark_update/tasks/change.yml",
            "Drain it",
            {"spark_update_kubernetes": True, "__spark_update_turn": {"install": [], "restart": True}},
            [{"spark_update_kubernetes": False}, {"__spark_update_turn": {"install": [], "restart": False}}],
        ),
        (
            "roles/k3s/tasks/turn.yml",
            "Drain the node of its ranks",
            INSTALLED,
            [{"ansible_check_mode": True}, {"__k3s_plan": {"installed": False}}, {"__k3s_joins": True}],
        ),
        (
            "roles/k8s_dgx/tasks/roll.yml",
            "Stop the new ranks, and restore the old ones",
            {"k8s_dgx_on_failure": "restore"},
            [{"k8s_dgx_on_failure": "keep"}],
        ),
        (
            "roles/k8s_dgx/tasks/roll.yml",
            "Check the free memory",
            ROLL,
            [{"k8s_dgx_memory_check": False}, {"__k8s_dgx_change": {"action": "none"}}, {"ansible_check_mode": True}],
        ),
        (
            "roles/netplan_vf/tasks/main.yml",
            "Remove the fabric's netplan file",
            {"netplan_vf_state": "absent"},
            [{"netplan_vf_state": "present"}],
        ),
        (
            "roles/k8s_platform/tasks/main.yml",
            "Remove all parts",
            {"k8s_platform_state": "absent"},
            [{"k8s_platform_state": "present"}],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_removes_stops_or_moves_runs_only_then(
    file: str, name: str, runs: dict[str, t.Any], but: list[dict[str, t.Any]]
) -> None:
    written = conditions(file, name)
    for more in ({}, *but):
        templar = Templar(LOADER, variables=runs | more)
        held = [templar.evaluate_conditional(trust_as_template(condition)) for condition in written]
        assert all(held) == (not more), more


def test_what_is_registered_under_a_secret_s_name_is_not_logged() -> None:
    found = [
        (path.relative_to(ROOT), task["name"], task.get("no_log"))
        for path in FILES
        for task in tasks(plain(path))
        if secret_names.kind(str(task.get("register", "")))
    ]
    assert len(found) >= 3
    assert [each for each in found if each[2] is not True] == []


def test_a_file_with_an_administrator_s_access_is_its_owner_s_alone() -> None:
    found = [
        (path.relative_to(ROOT), task["name"], task["ansible.builtin.copy"].get("mode"), task.get("no_log"))
        for path in FILES
        for task in tasks(plain(path))
        if "kubeconfig" in str(task.get("ansible.builtin.copy", {}).get("dest", ""))
    ]
    assert found
    assert {(mode, hidden) for _path, _name, mode, hidden in found} == {("0600", True)}
