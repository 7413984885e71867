"""VFs inside network namespaces, as pods have them: live ones are left alone, dead ones are freed when told to."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest
from harness import NODES, make_so, play, prove, sh, wait_for

pytestmark = pytest.mark.long

VFS = {"enp1s0f0v0": "rocep1s0f0v0", "enP2p1s0f0v0": "roceP2p1s0f0v0"}


def address(node: str, device: str) -> str:
    return sh(node, f"ip -4 -o address show dev {device} | awk '{{print $4}}'")


@pytest.fixture(scope="module")
def serving() -> Iterator[dict[str, str]]:
    """Move VF 0 of both functions of spark1 into a namespace with a process, address and GID there."""
    make_so()
    addresses = {device: address("spark1", device) for device in VFS}
    sh("spark1", "ip netns add cni-test; systemd-run -q --unit=pod ip netns exec cni-test sleep infinity")
    for device, hca in VFS.items():
        sh(
            "spark1",
            f"ip link set {device} netns cni-test; cd /; ip netns exec cni-test sh -c '"
            f"ip link set {device} mtu 9000 up; ip address add {addresses[device]} dev {device};"
            f" rdma link add {hca} type rxe netdev {device}'",
        )
    yield addresses
    sh("spark1", "systemctl stop pod; ip netns delete cni-test 2>/dev/null; true")


def test_a_run_over_a_serving_node_changes_nothing(serving: dict[str, str]) -> None:
    run = make_so()
    assert run.changed == dict.fromkeys(run.changed, 0)
    assert set(NODES) <= set(run.changed)
    for device in VFS:
        assert sh("spark1", f"ip netns exec cni-test ip -br link show {device}"), "the live pod's VF was taken away"


def test_the_count_is_not_changed_under_a_live_pod(serving: dict[str, str]) -> None:
    refused = play(
        "site.yml",
        "--tags",
        "fabric",
        "-e",
        '{"dgxspark_fabric": {"hardware": "lab", "topology": "switch", "vf_count": 1}}',
    )
    assert refused.code != 0
    assert "cni-test" in refused.output
    assert sh("spark1", "cat /sys/class/net/enp1s0f0np0/device/sriov_numvfs") == "2"


def test_a_vf_that_comes_back_gets_its_settings_by_itself(serving: dict[str, str]) -> None:
    """As the real CNI plugin leaves it: down, MTU 1500, no address. (The namespace is empty from here on.)"""
    for device, hca in VFS.items():
        sh(
            "spark1",
            f"ip netns exec cni-test rdma link delete {hca}; ip -n cni-test address flush dev {device};"
            f" ip -n cni-test link set {device} down mtu 1500; ip -n cni-test link set {device} netns 1",
        )
    for device, hca in VFS.items():
        wait_for(lambda d=device: address("spark1", d) == serving[d], 60, f"address of {device}")
        wait_for(lambda d=device: "mtu 9000" in sh("spark1", f"ip link show {d}"), 30, f"MTU of {device}")
        wanted = serving[device].split("/")[0].split(".")
        mapped = f"0000:0000:0000:0000:0000:ffff:{int(wanted[0]):02x}{int(wanted[1]):02x}:{int(wanted[2]):02x}{int(wanted[3]):02x}"
        wait_for(
            lambda h=hca, m=mapped: (
                m in sh("spark1", f"head -q -n1 /sys/class/infiniband/{h}/ports/1/gids/[0-9]", check=False)
            ),
            60,
            f"GID of {device}",
        )


def test_a_vf_of_a_dead_namespace_is_named_and_freed_on_request(report: pathlib.Path) -> None:
    make_so()
    sh("spark1", "ip netns add cni-dead; ip link set enp1s0f0v0 netns cni-dead")
    proof = prove(report, "spark[1:2]")
    assert proof.verdict == "failed"
    assert "stranded" in proof.causes and "spark1 p0f0v0" in proof.causes
    assert proof.told_on_the_page()
    refused = play("site.yml", "--tags", "fabric")
    assert refused.code != 0
    assert "cni-dead" in refused.output
    assert "sriov_roce_reset_stranded" in refused.output
    freed = play("site.yml", "--tags", "fabric", "-e", "sriov_roce_reset_stranded=true")
    assert freed.code == 0, freed.output
    assert address("spark1", "enp1s0f0v0").startswith("10.100.")
    assert "cni-dead" not in sh("spark1", "ls /run/netns 2>/dev/null; true")
