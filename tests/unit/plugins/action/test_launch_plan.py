"""The action plugin launch_plan: arguments in, a plan or one clear failure out; no node is asked."""

from __future__ import annotations

import types
import typing as t

import pytest
from ansible.errors import AnsibleError
from ansible.playbook.task import Task

from ansible_collections.dgxspark.cluster.plugins.action.launch_plan import ActionModule

HOSTS = ["spark1", "spark2", "spark3", "spark4"]


def run(check: bool = False, **arguments: t.Any) -> dict[str, t.Any]:
    task = Task()
    task.args = arguments
    task.check_mode = check
    connection = types.SimpleNamespace(_shell=types.SimpleNamespace(tmpdir=None))
    return dict(ActionModule(task, connection, None, None, None, None).run(task_vars={}))


@pytest.mark.parametrize("check", [False, True])
def test_a_plan_changes_nothing(check: bool) -> None:
    result = run(check, profile="nemotron-3-ultra-550b-nvfp4", cluster={"hosts": HOSTS, "free_gib": 100.7})
    assert result["changed"] is False
    assert not result.get("failed")
    assert result["plan"]["verdict"] == "proven"
    assert [rank["host"] for rank in result["plan"]["ranks"]] == HOSTS


def test_a_blocked_plan_fails_with_its_reasons() -> None:
    asked = {
        "profile": "nemotron-3-ultra-550b-nvfp4",
        "cluster": {"hosts": HOSTS, "free_gib": 100.7},
        "overrides": {"settings": {"mem_fraction_static": 0.85}},
    }
    result = run(**asked)
    assert result["failed"]
    assert "Set mem_fraction_static to 0.90" in result["msg"]
    assert result["plan"]["verdict"] == "blocked"
    assert not run(**asked, fail_when_blocked=False).get("failed")


def test_a_shape_chooses_the_variant_unless_the_owner_does() -> None:
    asked = {"profile": "gemma-4-31b-it", "cluster": {"hosts": HOSTS}, "traffic_shape": "throughput"}
    assert run(**asked)["plan"]["variant"] == "steps-4"
    assert run(**asked, overrides={"variant": "plain"})["plan"]["variant"] == "plain"


def test_an_expected_error_is_one_sentence_with_profile_and_key() -> None:
    result = run(profile="glm-4.7-nvfp4", cluster={"hosts": HOSTS}, overrides={"parallel": {"tp": "four"}})
    assert result["failed"]
    assert result["msg"].startswith("dgxspark.cluster.launch_plan: profile 'glm-4.7-nvfp4': parallel.tp: 'four'")


def test_an_unknown_argument_is_refused() -> None:
    with pytest.raises(AnsibleError, match="profil_name"):
        run(profile="glm-4.7-nvfp4", profil_name="x")
