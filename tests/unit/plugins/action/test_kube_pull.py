"""The action plugin kube_pull against a scripted API: pods are created, watched and always deleted."""

from __future__ import annotations

import types
import typing as t

import pytest
from ansible.playbook.task import Task

from ansible_collections.dgxspark.cluster.plugins.action import kube_pull
from ansible_collections.dgxspark.cluster.tests.support.pull_pods import (
    DIGEST,
    ENGINE,
    HOSTS,
    Plain,
    nodes,
    seen,
    served,
    waiting,
)


class Api:
    """Answers as kubernetes.core does. states: by host, the final state of its pod's container."""

    def __init__(self, having: t.Sequence[str] = (), **states: Plain) -> None:
        self.nodes, self.states = nodes(*having), states
        self.pods: dict[str, Plain] = {}
        self.made: list[str] = []

    def __call__(self, *, module_name: str, module_args: Plain, task_vars: t.Any) -> Plain:
        if module_name == "kubernetes.core.k8s":
            for each in module_args["resource_definition"]:
                name = each["metadata"]["name"]
                if module_args.get("state") == "absent":
                    self.pods.pop(name, None)
                else:
                    self.pods[name] = each
                    self.made.append(name.rpartition("-")[2])
            return {}
        listed = {"Node": self.nodes, "Pod": [self._seen(name) for name in self.pods]}
        return {"resources": listed.get(module_args["kind"], [])}

    def _seen(self, name: str) -> Plain:
        host = name.rpartition("-")[2]
        return seen(host, self.states.get(host, {"terminated": {}}), "" if host in self.states else DIGEST)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(kube_pull, "time", types.SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))


def run(api: Api, check: bool = False, **arguments: t.Any) -> dict[str, t.Any]:
    task = Task()
    task.args = {"served": served(), **arguments}
    task.check_mode = check
    connection = types.SimpleNamespace(_shell=types.SimpleNamespace(tmpdir=None), transport="ssh")
    action = kube_pull.ActionModule(task, connection, None, None, None, None)
    action._execute_module = api
    return dict(action.run(task_vars={}))


def test_pods_are_made_where_the_image_is_lacking_and_taken_away() -> None:
    api = Api(["spark1", "spark3"])
    made = run(api)
    assert not made.get("failed"), made
    assert (made["image"], made["digest"], made["lacking"]) == (ENGINE, DIGEST, ["spark2", "spark4"])
    assert made["digests"] == dict.fromkeys(HOSTS, DIGEST)
    assert (sorted(api.made), api.pods) == (["spark2", "spark4"], {})


def test_a_failure_and_a_time_that_is_over_name_each_host_and_leave_no_pod() -> None:
    api = Api(spark2=waiting("ErrImagePull", f"{ENGINE}: not found"), spark4=waiting("ContainerCreating", ""))
    made = run(api)
    assert made["failed"] and made["msg"].startswith("spark2: there is no such image.")
    assert made["msg"].endswith("Nothing was stopped.") and api.pods == {}
    api = Api(spark4=waiting("ContainerCreating", ""))
    made = run(api, timeout=30)
    assert made["failed"] and "spark4: the kubelet is still pulling after 30 s (k8s_dgx_image_timeout)." in made["msg"]
    assert api.pods == {}


def test_check_mode_and_nodes_that_have_it_make_no_pod() -> None:
    api = Api(["spark1"])
    made = run(api, check=True)
    assert (made["changed"], made["lacking"], api.made) == (True, ["spark2", "spark3", "spark4"], [])
    api = Api(HOSTS)
    made = run(api)
    assert (made["changed"], made["digest"], api.made) == (False, DIGEST, [])
