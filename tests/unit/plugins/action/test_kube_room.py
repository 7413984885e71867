"""The actions kube_memory and kube_image_room: what a node lacks is reported, and nothing fails because of it."""

from __future__ import annotations

import types
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.action import kube_memory
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import Node, to_plain
from ansible_collections.dgxspark.cluster.tests.unit.actions import play, run

GIB = 1024**2  # in KiB
Plain = dict[str, t.Any]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[Plain]:
    """The results of reading the node, one after the other; the last one is repeated."""
    now, listed = [0.0], list[Plain]()

    def sleep(seconds: float) -> None:
        now[0] += seconds

    def execute(_self: t.Any, *, module_name: str, module_args: Plain, task_vars: Plain) -> Plain:
        assert (module_name, module_args) == ("dgxspark.cluster.roce_info", {"device_ids": ["15b3:1021"]})
        return listed.pop(0) if len(listed) > 1 else listed[0]

    monkeypatch.setattr(kube_memory, "time", types.SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    monkeypatch.setattr(kube_memory.ActionModule, "_execute_module", execute)
    return listed


def free(gib: float) -> Plain:
    return {"roce": to_plain(Node(mem_available_kib=int(gib * GIB)))}


def lacking(needed: float | None, timeout: int = 0) -> list[str]:
    made = run("kube_memory", play({"spark1": {}}), needed_gib=needed, device_ids=["15b3:1021"], timeout=timeout)
    assert not made.get("failed"), made
    return list(made["lacking"])


def test_memory_that_comes_back_is_waited_for(answers: list[Plain]) -> None:
    answers += [free(20), free(60), free(110)]
    assert lacking(100, 20) == []
    answers[:] = [free(20)]
    assert [text.split(" GiB")[0] for text in lacking(100, 20)] == ["spark1: 20.0"]
    assert lacking(None) == []


def test_a_node_that_cannot_be_read_lacks_it(answers: list[Plain]) -> None:
    answers.append({"failed": True, "msg": "no root"})
    assert lacking(100, 20) == ["spark1: its memory could not be measured: no root"]


def test_room_is_judged_by_the_disks_that_were_read() -> None:
    disk = {"mount": "/", "size_total": 1000 * 2**30, "size_available": 100 * 2**30}
    role = {
        "k8s_dgx_plan": {"ranks": [{"host": "spark1"}, {"host": "spark2"}]},
        "k8s_dgx_node_names": {"spark2": "second"},
        "k8s_dgx_disk_reserve_gib": 20,
        "k8s_dgx_image_room_gib": 90,
    }
    hostvars: dict[str, Plain] = {
        "spark1": {"mounted": {"ansible_facts": {"ansible_mounts": [disk]}}},
        "spark2": {"mounted": {"skipped": True}},
    }
    nodes = [
        {"metadata": {"name": name}, "status": {"images": [{"names": ["other:1"], "sizeBytes": 1}]}}
        for name in ("spark1", "second")
    ]
    asked = {"image": "registry.example/engine:1", "nodes": nodes}
    made = run("kube_image_room", play(hostvars, **role), **asked)
    assert (made["lacking"], made["need_gib"], made["problems"]) == (["spark1", "spark2"], 90.0, [])
    made = run("kube_image_room", play(hostvars, **role), **asked, mounts="mounted")
    assert [text.split(":")[0] for text in made["problems"]] == ["spark1"]
