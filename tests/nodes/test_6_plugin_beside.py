"""The real SR-IOV network device plugin and its stand-in with the role's own ConfigMap and DaemonSet: both offer and hand out the same.

They run on a machine apart; the test is their kubelet (kubelet_side.py). PCI functions are files in a made-up /sys over veths; real
VFs with soft-RoCE are in tests/nodes' virtual machines. RDMA devices are files too: that a pod can use one is not tested.
"""

from __future__ import annotations

import json
import pathlib
import time
import typing as t

import pytest

pytest.importorskip("grpc", reason="not run: PyPI's grpcio is not installed here")

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.platform import platform
from ansible_collections.dgxspark.cluster.tests.nodes import lane, real
from ansible_collections.dgxspark.cluster.tests.nodes.apart import NODE, Apart
from ansible_collections.dgxspark.cluster.tests.nodes.kubelet_side import Kubelet
from ansible_collections.dgxspark.cluster.tests.unit import kube_inputs as inputs

VARIABLE = "DGXSPARK_REAL_SRIOVDP"
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(bool(lane.why_not()), reason=lane.why_not()),
    pytest.mark.skipif(bool(real.why_not(VARIABLE)), reason=real.why_not(VARIABLE)),
]
Plain = dict[str, t.Any]
FUNCTIONS = {"p0f0v0": "0000:01:10.0", "p0f0v1": "0000:01:10.2", "p0f1v0": "0000:02:10.0", "p0f1v1": "0000:02:10.2"}
LATE = "p0f1v1"


def objects(hca: str) -> tuple[Plain, Plain]:
    """Return the ConfigMap and the DaemonSet, for the machine's functions."""
    fabric = json.loads(json.dumps(inputs.fabric(4)))
    for function in fabric["spark1"]["functions"]:
        for vf in function["vfs"]:
            vf["pci"] = FUNCTIONS[f"{function['slot']}v{vf['index']}"]
    # With an owner's own image there is no init container that waits for VFs, so the late one can be late.
    choices = {"hca": hca, "node_names": {"spark1": NODE}, "images": {"sriov_device_plugin": lane.PLUGIN}}
    config, daemon = platform(fabric, choices)["sriov_device_plugin"]["objects"]
    return config, daemon


def scenario(machine: Apart, hca: str, image: pathlib.Path) -> Plain:
    """Start the plugin, add a late VF, give one to a pod, restart the plugin; return what a kubelet hears from it each time."""
    config, daemon = objects(hca)
    seen: Plain = {}
    for number, (name, pci) in enumerate(FUNCTIONS.items()):
        if name != LATE:
            # One VF has no RDMA device.
            machine.function(pci, f"vf{number}", f"mlx5_{number}" if name != "p0f0v1" else "")
    command = machine.container(daemon, 0, image, {config["metadata"]["name"]: config["data"]})

    def heard(seconds: float) -> Plain:
        kubelet = Kubelet(machine.root)
        found = kubelet.look(seconds)
        kubelet.stop()
        return {
            name: {key: value for key, value in told.items() if key not in ("socket", "by")}
            for name, told in found.items()
        }

    running = machine.daemon(command, "plugin-first.log")
    seen["first"] = heard(8)
    machine.function(FUNCTIONS[LATE], "vf9", "mlx5_9")
    # A pod's VF has left the node's namespace; its function has not.
    (machine.root / "sys/bus/pci/devices" / FUNCTIONS["p0f0v0"] / "net/vf0").rmdir()
    seen["late"] = heard(8)
    machine.stop(running)
    running = machine.daemon(command, "plugin-restarted.log")
    seen["restarted"] = heard(8)
    machine.stop(running)
    return seen


class Seen:
    """What was seen of each, run on first use."""

    def __init__(self, folders: pytest.TempPathFactory) -> None:
        self.folders = folders
        self.found: dict[tuple[str, str], Plain] = {}
        print(real.version(VARIABLE))

    def of(self, kind: str, hca: str) -> Plain:
        if (kind, hca) not in self.found:
            self.found[kind, hca] = self.look(kind, hca)
        return self.found[kind, hca]

    def look(self, kind: str, hca: str) -> Plain:
        folder = self.folders.mktemp(f"{kind}-{hca}")
        built = lane.Lane()
        if kind == "stand-in":
            built.build(machines=False)
            image = built.images / "plugin.tar"
        else:
            image = folder / "plugin.tar"
            real.plugin(image, lane.PLUGIN)
        machine = Apart(folder, built)
        began = time.monotonic()
        try:
            found = scenario(machine, hca, image)
        finally:
            machine.close()
            for log in folder.glob("*.log"):
                print(f"--- {kind} {hca}: {log.name}\n{log.read_text(errors='replace')[-4000:]}")
        print(f"{kind} {hca}: {time.monotonic() - began:.0f} s\n{json.dumps(found, indent=1)}")
        return found


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    return Seen(tmp_path_factory)


def resources(*names: str) -> set[str]:
    return {f"dgxspark.cluster/{name}" for name in names}


@pytest.mark.parametrize("kind", ["real", "stand-in"])
def test_a_node_offers_the_vfs_that_are_there_when_the_plugin_starts(seen: Seen, kind: str) -> None:
    # With isRdma, a VF without an RDMA device is not in its pool, and the empty pool is skipped.
    assert set(seen.of(kind, "pci")["first"]) == resources("p0f0v0", "p0f1v0")
    assert set(seen.of(kind, "virtual")["first"]) == resources("p0f0v0", "p0f0v1", "p0f1v0")
    for hca in ("pci", "virtual"):
        found = seen.of(kind, hca)
        # A late VF is not seen until the plugin restarts; one that a pod has is offered all the while.
        assert set(found["late"]) == set(found["first"])
        assert set(found["restarted"]) == set(found["first"]) | resources(LATE)


@pytest.mark.parametrize("kind", ["real", "stand-in"])
def test_a_rank_is_told_its_vf_and_has_its_verbs_device(seen: Seen, kind: str) -> None:
    told = seen.of(kind, "pci")["first"]["dgxspark.cluster/p0f1v0"]
    assert told["devices"] == {"0000:02:10.0": "Healthy"}
    answer = told["allocated"]["0000:02:10.0"]
    assert answer["envs"]["PCIDEVICE_DGXSPARK_CLUSTER_P0F1V0"] == "0000:02:10.0"
    assert "/dev/infiniband/uverbs2" in answer["devices"]
    # In the lab, a rank gets no verbs device from the plugin.
    told = seen.of(kind, "virtual")["first"]["dgxspark.cluster/p0f1v0"]
    assert told["allocated"]["0000:02:10.0"]["devices"] == []


@pytest.mark.parametrize("hca", ["pci", "virtual"])
def test_both_offer_and_hand_out_the_same(seen: Seen, hca: str) -> None:
    assert seen.of("stand-in", hca) == seen.of("real", hca)
