"""What the memory guard installs on a node, for every hardware class, and which figures it refuses."""

from __future__ import annotations

import json
import re
import shlex
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.load_guard import CONFIG
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.memory_guard import plan

CLASSES = knowledge.load("memory_guard")


def files(planned: dict[str, t.Any]) -> dict[str, str]:
    return {file["path"]: file["content"] for file in planned["files"]}


def earlyoom(content: str) -> list[str]:
    return shlex.split(re.findall(r"^ExecStart=(.+)$", content, re.M)[0])


@pytest.mark.parametrize("name", CLASSES)
def test_every_class_makes_a_whole_guard(name: str) -> None:
    entry, planned = CLASSES[name], plan(name)
    there = files(planned)
    for protected in entry["protected"]:
        content = there[f"/etc/systemd/system/{protected['unit']}.d/50-dgxspark-memory.conf"]
        assert (f"MemoryMin={protected.get('min_mib')}M" in content) == ("min_mib" in protected)
        assert ("[Slice]" in content) == protected["unit"].endswith(".slice")
    words = earlyoom(there["/etc/systemd/system/earlyoom.service.d/60-dgxspark-kill.conf"])
    assert words[words.index("-M") + 1] == f"{entry['kill']['term_mib'] * 1024},{entry['kill']['kill_mib'] * 1024}"
    assert words[words.index("-s") + 1] == "100", "swap must not hold it back"
    assert json.loads(there[CONFIG]) == entry["load"]
    compile(there["/usr/local/lib/dgxspark/load-guard"], "load-guard", "exec")
    assert set(planned["restart"]) <= set(planned["enable"])


# A process's name in the kernel (at most 15 characters), and whether it is to be killed first.
NAMES = {
    "sglang::schedul": True, "VLLM::Worker_TP": True, "VLLM::EngineCor": True, "ray::RayWorkerW": True, "python3": True,
    "python": True, "pt_main_thread": True, "cicc": True,
    "sshd": False, "sshd-session": False, "systemd-journal": False, "systemd": False, "k3s-server": False, "k3s": False,
    "containerd-shim": False, "coredns": False, "multus-daemon": False, "nvidia-device-p": False, "pause": False,
}  # fmt: skip


@pytest.mark.parametrize("comm", NAMES)
def test_engines_go_first_and_what_the_node_is_reached_by_last(comm: str) -> None:
    assert len(comm) <= 15
    words = earlyoom(files(plan("spark"))["/etc/systemd/system/earlyoom.service.d/60-dgxspark-kill.conf"])
    prefer, avoid = (words[words.index(flag) + 1] for flag in ("--prefer", "--avoid"))
    assert bool(re.search(prefer, comm)) == NAMES[comm]
    assert bool(re.search(avoid, comm)) != NAMES[comm]


def test_parts_can_be_left_out() -> None:
    only = plan("spark", {}, ["protected"])
    assert not only["earlyoom"] and only["enable"] == []
    assert all(path.endswith("50-dgxspark-memory.conf") for path in files(only))
    assert plan("spark", {}, ["load"])["adjust"] == {}


def test_the_owner_s_figures_lie_over_the_class_s() -> None:
    planned = plan("spark", {"kill": {"term_mib": 768}})
    assert "-M 786432,524288" in files(planned)["/etc/systemd/system/earlyoom.service.d/60-dgxspark-kill.conf"]


@pytest.mark.parametrize(
    ("overrides", "needle"),
    [
        ({"kill": {"term_mib": 100, "kill_mib": 200}}, "kill.kill_mib 200"),
        ({"load": {"floor_mib": 512}}, "load.floor_mib 512"),
        ({"kill": {"termmib": 3}}, "termmib"),
        ({"kill": {"prefer": ["a b"]}}, "kill.prefer"),
        ({"kill": {"avoid": ["50%"]}}, "kill.avoid"),
        (
            {"protected": [{"unit": "system.slice", "min_mib": 8}, {"unit": "ssh.service", "min_mib": 9}]},
            "system.slice",
        ),
        ({"protected": [{"unit": "ssh"}]}, "protected.0.unit"),
    ],
)
def test_figures_that_contradict_are_refused(overrides: dict[str, t.Any], needle: str) -> None:
    with pytest.raises(CollectionError) as caught:
        plan("spark", overrides)
    assert needle in str(caught.value)
    assert "memory_guard" in str(caught.value)


def test_an_unknown_class_is_told() -> None:
    with pytest.raises(CollectionError, match=r"memory_guard_profile: .*Known: lab, spark"):
        plan("sparc")
