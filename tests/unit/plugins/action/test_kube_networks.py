"""The actions kube_multus and kube_devices against a scripted API: ranks wait until their nodes can give them networks and VFs."""

from __future__ import annotations

import types
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.action import kube_multus
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import ask
from ansible_collections.dgxspark.cluster.tests.support import others
from ansible_collections.dgxspark.cluster.tests.support.offered import ALL, cluster
from ansible_collections.dgxspark.cluster.tests.unit.actions import play, run
from ansible_collections.dgxspark.cluster.tests.unit.fabric_inputs import names

Plain = dict[str, t.Any]
HOSTS = {"spark1": "spark1", "spark2": "second"}


def pod(node: str, *ready: bool) -> Plain:
    return {"spec": {"nodeName": node}, "status": {"containerStatuses": [{"ready": each} for each in ready]}}


class Api:
    """Returns one list of pods after the other, the last one for ever; a string is an error. Only sleeping moves the clock."""

    def __init__(self, looks: list[list[Plain] | str]) -> None:
        self.looks, self.now = looks, 0.0
        self.others: list[Plain] = []  # DaemonSets
        self.theirs: dict[str, list[Plain]] = {}  # their pods, by selector

    def objects(self, _action: t.Any, kind: tuple[str, str], place: Plain, labels: t.Any, _vars: t.Any) -> list[Plain]:
        if kind == ("apps/v1", "DaemonSet"):
            assert (place, list(labels)) == ({"kubeconfig": "/k"}, [])
            return self.others
        assert (kind, place) == (("v1", "Pod"), {"kubeconfig": "/k", "namespace": "kube-system"})
        if list(labels) != ["app.kubernetes.io/managed-by=dgxspark.cluster", "dgxspark.cluster/part=multus"]:
            return self.theirs[",".join(labels)]
        look = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        if isinstance(look, str):
            raise CollectionError(look)
        return look

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def wait(monkeypatch: pytest.MonkeyPatch) -> t.Callable[..., tuple[Plain, float]]:
    def waited(*looks: list[Plain] | str, check: bool = False) -> tuple[Plain, float]:
        api = Api(list(looks))
        monkeypatch.setattr(ask, "objects", api.objects)
        monkeypatch.setattr(kube_multus, "time", types.SimpleNamespace(monotonic=lambda: api.now, sleep=api.sleep))
        return run("kube_multus", check=check, hosts=HOSTS, timeout=30, kubeconfig="/k"), api.now

    return waited


def test_multus_is_waited_for_on_the_nodes_of_all_ranks(wait: t.Callable[..., tuple[Plain, float]]) -> None:
    there = [pod("spark1", True), pod("second", True)]
    made, seconds = wait([], "no route", [pod("spark1", True), pod("second", False)], [pod("spark1", True)], there)
    assert (made["lacking"], made["changed"], made.get("failed"), seconds) == ([], False, None, 20)


@pytest.mark.parametrize("other", [[], [pod("second")], [pod("second", False)], [{"spec": {}}], [pod("spark2", True)]])
def test_nodes_without_it_are_named_when_the_time_is_over(
    wait: t.Callable[..., tuple[Plain, float]], other: list[Plain]
) -> None:
    made, seconds = wait([pod("spark1", True), *other])
    assert (made["failed"], made["lacking"], seconds) == (True, ["second"], 30)
    assert made["msg"].startswith(
        "Multus is not running on second after 30 s: ranks there would have no VFs. No rank was"
    )
    assert made["msg"].endswith(
        "started. `kubectl get pods -n kube-system -l dgxspark.cluster/part=multus -o wide` and `kubectl describe` of a pod there show why."
    )


def test_a_multus_of_others_counts_where_none_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    api = Api([[]])
    api.others, api.theirs = (
        [others.NVIDIA, others.MULTUS],
        {"app=kube-multus-ds": [pod("spark1", True), pod("second", True)]},
    )
    monkeypatch.setattr(ask, "objects", api.objects)
    assert run("kube_multus", check=True, hosts=HOSTS, timeout=30, kubeconfig="/k")["lacking"] == []


def test_an_api_that_does_not_answer_is_named_and_check_mode_asks_once(
    wait: t.Callable[..., tuple[Plain, float]],
) -> None:
    made, seconds = wait("the Kubernetes API did not answer: no route", check=True)
    assert (made["lacking"], seconds) == (["second", "spark1"], 0)
    assert "started. Last error: the Kubernetes API did not answer: no route. `kubectl get pods" in made["msg"]


def test_devices_are_looked_for_on_all_hosts_of_the_play_unless_some_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    there = cluster(spark3=ALL[:3])
    monkeypatch.setattr(ask, "objects", lambda _action, kind, *_more: [e for e in there if e["kind"] == kind[1]])
    variables = play({name: {} for name in names(4)})
    lacking = run("kube_devices", variables, check=True)["lacking"]
    assert [line.partition(":")[0] for line in lacking] == ["spark3"]
    assert not run("kube_devices", variables, check=True, hosts={"spark1": "spark1"})["lacking"]
    # The owner may name the nodes.
    renamed = {**variables, "k8s_platform_node_names": {"spark3": "spark1", "spark4": "spark3"}}
    lacking = run("kube_devices", renamed, check=True)["lacking"]
    assert [line.partition(":")[0] for line in lacking] == ["spark4"]
