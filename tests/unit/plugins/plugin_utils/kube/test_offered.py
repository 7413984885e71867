"""What nodes offer of their VFs, compared with the plan, and why they offer less."""

from __future__ import annotations

import copy
import pathlib
import subprocess

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import to_plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.offered import Watch, offered
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.platform import platform
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.serving import serving
from ansible_collections.dgxspark.cluster.tests.support.offered import ALL, Plain, cluster
from ansible_collections.dgxspark.cluster.tests.unit import kube_inputs as inputs
from ansible_collections.dgxspark.cluster.tests.unit.fabric_inputs import names, node

HOSTS = {name: name for name in names(4)}


def test_nodes_that_offer_what_is_planned_need_nothing() -> None:
    assert offered(cluster(), HOSTS) == {"lacking": [], "restart": {}, "pending": []}


def test_a_plugin_that_runs_and_offers_less_is_to_start_again() -> None:
    found = offered(cluster(spark3=ALL[:3]), HOSTS)
    assert found["restart"] == {"spark3": ("plugin-spark3", "1-spark3")} and not found["pending"]
    assert found["lacking"][0].startswith("spark3: node spark3 does not offer dgxspark.cluster/p0f1v1: ")
    # Nothing is reported about a node outside this run.
    assert not offered(cluster(spark3=ALL[:3]), {"spark1": "spark1"})["lacking"]
    # A kubelet reports zero for devices that are gone.
    there = cluster()
    there[1]["status"]["allocatable"][ALL[0]] = "0"
    assert list(offered(there, HOSTS)["restart"]) == ["spark1"]


def test_ranks_are_held_up_by_what_they_ask_for_alone() -> None:
    served = serving(inputs.plan(), inputs.fabric(4), {"image": inputs.PINNED})
    ranks = [*served["workers"], *served["head"]]
    spare = cluster(spark3=[ALL[0], ALL[2]])  # VF 1 is another instance's
    assert offered(spare, HOSTS)["lacking"]
    assert not offered(spare, HOSTS, ranks)["lacking"]
    assert list(offered(cluster(spark2=[ALL[2]]), HOSTS, ranks)["restart"]) == ["spark2"]


def test_each_plugin_starts_again_once_and_not_before_it_has_had_its_time() -> None:
    first = offered(cluster(spark2=[], spark3=[]), HOSTS)
    watch = Watch(20)
    assert not watch.due(first, 0) and not watch.due(first, 19)
    assert watch.due(first, 20) == {"spark2": "plugin-spark2", "spark3": "plugin-spark3"}
    assert not watch.over(first, 20), "what has just been started again is waited for"
    again = {**first, "restart": {"spark3": ("plugin-spark3", "2")}}
    # Its new pod has its own time, and is not restarted again; when that time is over, so is the waiting.
    assert not watch.due(again, 30) and not watch.over(again, 49)
    assert not watch.due(again, 50) and watch.over(again, 50)
    # A pending one is waited for.
    assert not watch.over({**again, "pending": ["spark4"]}, 50)


@pytest.mark.parametrize(
    ("status", "text"),
    [
        ({"containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such host"}}}]}, "ImagePullBackOff no such host"),
        ({"conditions": [{"type": "Ready", "status": "False"}]}, "is not ready"),
    ],
)  # fmt: skip
def test_a_plugin_that_does_not_work_yet_is_named(status: Plain, text: str) -> None:
    found = offered(cluster(status, spark2=[]), HOSTS)
    assert found["pending"] == ["spark2"] and not found["restart"]
    assert text in found["lacking"][0]
    without = [each for each in cluster(spark2=[]) if each["metadata"]["name"] != "plugin-spark2"]
    assert "has no pod there" in offered(without, HOSTS)["lacking"][0]


def test_the_node_s_own_facts_say_why() -> None:
    facts = {"spark1": to_plain(node(host=1, vfs=2))}
    there = cluster(spark1=ALL[1:])
    assert "RDMA devices are there" in offered(there, HOSTS, None, facts)["lacking"][0]
    bare = copy.deepcopy(facts)
    for function in bare["spark1"]["functions"]:
        for vf in function["vfs"]:
            vf["hca"] = None
    assert "has no RDMA device" in offered(there, HOSTS, None, bare)["lacking"][0]
    assert "netns shared" in offered(there, HOSTS, None, bare)["lacking"][0]
    assert "has no VF" in offered(there, HOSTS, None, {"spark1": to_plain(node(host=1, vfs=0))})["lacking"][0]


@pytest.mark.parametrize("hca", ["pci", "virtual"])
def test_the_plugin_starts_when_its_devices_are_there_and_after_a_while_without(
    tmp_path: pathlib.Path, hca: str
) -> None:
    objects = platform(inputs.fabric(4), {"hca": hca})["sriov_device_plugin"]["objects"]
    config, daemon = objects
    spec = daemon["spec"]["template"]["spec"]
    (wait,) = spec["initContainers"]
    assert wait["image"] == spec["containers"][0]["image"]
    assert {mount["name"] for mount in wait["volumeMounts"]} == {"config"}
    (tmp_path / "spark1.json").write_text(config["data"]["spark1.json"], encoding="utf-8")
    command = [
        word.replace("120", "2").replace("/etc/pcidp", str(tmp_path)).replace("/sys/bus/pci/devices", str(tmp_path))
        for word in wait["command"]
    ]

    def run() -> str:
        ran = subprocess.run(
            command, check=True, capture_output=True, text=True, env={"NODE_NAME": "spark1", "PATH": "/usr/bin:/bin"}
        )
        return ran.stdout

    vfs = [vf["pci"] for function in inputs.fabric(4)["spark1"]["functions"] for vf in function["vfs"]]
    # A lab's soft-RoCE device is not below its function: there the VF itself is waited for, and requested without RDMA.
    below = "infiniband/mlx5_2" if hca == "pci" else "net"
    assert f'"isRdma": {"true" if hca == "pci" else "false"}' in config["data"]["spark1.json"]
    for pci in vfs[1:]:
        (tmp_path / pci / below).mkdir(parents=True)
    assert run().splitlines() == [
        f"{vfs[0]} has no RDMA device after 2 s: it is offered once this pod has been replaced."
    ]
    (tmp_path / vfs[0] / below).mkdir(parents=True)
    assert run() == ""
    # An owner's own image may have no shell.
    own = platform(inputs.fabric(4), {"images": {"sriov_device_plugin": inputs.PINNED}})["sriov_device_plugin"][
        "objects"
    ]
    assert "initContainers" not in own[1]["spec"]["template"]["spec"]
