"""The real SR-IOV network device plugin and its stand-in with the role's own ConfigMap and DaemonSet: both offer and hand out the same.

They run on a machine apart; the test is their kubelet (kubelet_side.py). PCI functions are files of a made-up /sys over veths; that
of a real VF with soft-RoCE is in tests/nodes' virtual machines. RDMA devices are files, too: that a pod can use one is not run.
"""

from __future__ import annotations

import json
import pathlib
import time
import typing as t
from collections.abc import Iterator

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
    # By an image of an owner's own there is no container that waits: here a late VF shall be late.
    choices = {"hca": hca, "node_names": {"spark1": NODE}, "images": {"sriov_device_plugin": lane.PLUGIN}}
    config, daemon = platform(fabric, choices)["sriov_device_plugin"]["objects"]
    return config, daemon


def scenario(machine: Apart, hca: str, image: pathlib.Path) -> Plain:
    config, daemon = objects(hca)
    seen: Plain = {}
    for number, (name, pci) in enumerate(FUNCTIONS.items()):
        if name != LATE:
            # One VF has no RDMA device.
            machine.function(pci, f"vf{number}", f"mlx5_{number}" if name != "p0f0v1" else "")
    machine.run("mkdir -p /dev/shm && true")
    command = machine.container(daemon, 0, image, {config["metadata"]["name"]: config["data"]})
    for turn in ("first", "late", "restarted"):
        kubelet = Kubelet(machine.root)
        if turn in ("first", "restarted"):
            running = machine.daemon(command, f"plugin-{turn}.log")
        if turn == "late":
            machine.function(FUNCTIONS[LATE], "vf9", "mlx5_9")
        found = kubelet.look(15 if turn == "late" else 8)
        seen[turn] = {
            name: {key: value for key, value in told.items() if key != "socket"} for name, told in found.items()
        }
        kubelet.stop()
        if turn != "first":
            running.terminate()
            running.wait(20)
    return seen


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, str], Plain]]:
    built = lane.Lane()
    built.build(machines=False)
    print(real.version(VARIABLE))
    found = {}
    for kind in ("real", "stand-in"):
        for hca in ("pci", "virtual"):
            folder = tmp_path_factory.mktemp(f"{kind}-{hca}")
            image = built.images / "plugin.tar"
            if kind == "real":
                image = folder / "plugin.tar"
                real.plugin(image, lane.PLUGIN)
            machine = Apart(folder, built)
            began = time.monotonic()
            try:
                found[kind, hca] = scenario(machine, hca, image)
            finally:
                machine.close()
                for log in folder.glob("*.log"):
                    print(f"--- {kind} {hca}: {log.name}\n{log.read_text(errors='replace')[-4000:]}")
            print(f"{kind} {hca}: {time.monotonic() - began:.0f} s\n{json.dumps(found[kind, hca], indent=1)}")
    yield found


def resources(*names: str) -> set[str]:
    return {f"dgxspark.cluster/{name}" for name in names}


@pytest.mark.parametrize("kind", ["real", "stand-in"])
def test_a_node_offers_the_vfs_that_are_there_when_the_plugin_starts(
    seen: dict[tuple[str, str], Plain], kind: str
) -> None:
    # With isRdma a VF without an RDMA device is no device of the pool, which is then passed over.
    assert set(seen[kind, "pci"]["first"]) == resources("p0f0v0", "p0f1v0")
    assert set(seen[kind, "virtual"]["first"]) == resources("p0f0v0", "p0f0v1", "p0f1v0")
    for hca in ("pci", "virtual"):
        # A late one is not seen until it starts again.
        assert resources(LATE).isdisjoint(seen[kind, hca]["late"])
        assert set(seen[kind, hca]["restarted"]) == set(seen[kind, hca]["first"]) | resources(LATE)


@pytest.mark.parametrize("kind", ["real", "stand-in"])
def test_a_rank_is_told_its_vf_and_has_its_verbs_device(seen: dict[tuple[str, str], Plain], kind: str) -> None:
    told = seen[kind, "pci"]["first"]["dgxspark.cluster/p0f1v0"]
    assert told["devices"] == {"0000:02:10.0": "Healthy"}
    answer = told["allocated"]["0000:02:10.0"]
    assert answer["envs"]["PCIDEVICE_DGXSPARK_CLUSTER_P0F1V0"] == "0000:02:10.0"
    assert "/dev/infiniband/uverbs2" in answer["devices"]


def test_both_offer_and_hand_out_the_same(seen: dict[tuple[str, str], Plain]) -> None:
    for hca in ("pci", "virtual"):
        for turn in ("first", "late", "restarted"):
            assert seen["stand-in", hca][turn] == seen["real", hca][turn], (hca, turn)
