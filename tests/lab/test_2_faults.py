"""Faults on real kernels: each is made by hand on a node, and the proof must name its cause, where it is."""

from __future__ import annotations

import pathlib

import pytest
from harness import lab, make_so, play, prove, sh, wait_for

V0 = "enp1s0f0v0"  # function 0, VF 0
TWIN = "enP2p1s0f0v0"  # function 1, VF 0: the same wire


@pytest.fixture(autouse=True)
def whole_fabric() -> None:
    make_so()


def test_an_address_removed(report: pathlib.Path) -> None:
    sh("spark2", f"ip -4 address flush dev {V0}")
    proof = prove(report, "spark[1:2]")
    assert proof.verdict == "failed"
    assert proof.code != 0
    assert "spark2" in proof.causes
    assert "only link-local" in proof.causes or "no IPv4" in proof.causes
    assert proof.told_on_the_page()
    # and site.yml repairs what is not as planned, though every file is
    make_so()
    assert prove(report, "spark[1:2]").verdict == "passed"


def test_mtu_1500_on_one_node(report: pathlib.Path) -> None:
    sh("spark3", f"ip link set {V0} mtu 1500")
    proof = prove(report, "~^spark[23]$")
    assert proof.verdict == "failed"
    assert "spark3" in proof.causes
    assert "1500" in proof.causes
    assert proof.told_on_the_page()
    make_so()


def test_link_of_one_function_down(report: pathlib.Path) -> None:
    lab("link", "spark4", "2", "down")  # the second function: p0f1
    try:
        proof = prove(report, "~^spark[34]$")
    finally:
        lab("link", "spark4", "2", "up")
    assert proof.verdict == "failed"
    assert "spark4" in proof.causes
    assert "link" in proof.causes
    assert "p0f1" in proof.causes
    assert proof.told_on_the_page()


def test_a_twin_that_answers(report: pathlib.Path) -> None:
    sh("spark1", "for k in all default " + f"{V0} {TWIN}; do sysctl -qw net.ipv4.conf.$k.arp_ignore=0; done")
    proof = prove(report, "spark[1:2]")
    assert proof.verdict == "failed"
    assert "arp_ignore" in proof.causes
    assert "spark1" in proof.causes
    assert proof.told_on_the_page()
    make_so()


def test_two_hosts_pinned_to_one_index() -> None:
    """Refused by the plan; no node is touched."""
    before = sh("spark1", "ip -br address")
    refused = play("site.yml", "-e", "dgxspark_fabric_index=3", limit="spark[1:2]")
    assert refused.code != 0
    assert "spark1" in refused.output
    assert "spark2" in refused.output
    assert "dgxspark_fabric_index" in refused.output
    assert sh("spark1", "ip -br address") == before


@pytest.mark.long
def test_a_node_that_is_down_is_a_finding(report: pathlib.Path) -> None:
    proof = prove(
        report,
        "spark[1:2]",
        "-e",
        '{"ansible_port": "{{ 1 if inventory_hostname == \'spark2\' else 22200 + lab_node }}"}',
    )
    assert proof.verdict == "incomplete"
    assert proof.code != 0
    assert "INCOMPLETE" in proof.report["headline"]


@pytest.mark.long
def test_a_reboot_brings_all_of_it_back_without_ansible(report: pathlib.Path) -> None:
    names = f"{V0} enp1s0f0v1 {TWIN} enP2p1s0f0v1"
    look = f"for d in {names}; do ip -br link show $d; ip -br -4 address show $d; sysctl -n net.ipv4.conf.$d.arp_ignore; done"
    before = sh("spark2", look)
    boot = sh("spark2", "cat /proc/sys/kernel/random/boot_id")
    sh("spark2", "systemctl reboot", check=False)
    wait_for(lambda: sh("spark2", "cat /proc/sys/kernel/random/boot_id", check=False) not in ("", boot), 180, "reboot")
    wait_for(lambda: sh("spark2", look, check=False) == before, 90, "the fabric after a reboot")
    assert prove(report, "spark[1:2]").verdict == "passed"
    again = play("site.yml", "--tags", "fabric")
    assert not any(again.changed.values()), again.output


@pytest.mark.long
def test_a_queue_pair_without_addresses_has_no_route() -> None:
    """The failure behind it all, by the kernel itself: GID 0 alone, and no address or route of the netdev that fits."""
    hca, over = "rocep1s0f0v0", sh("spark2", "ip -4 -o address show dev enp1s0f0v1 | awk '{print $4}'").split("/")[0]

    def pingpong(gid_index: int) -> str:
        words = f"ibv_rc_pingpong -d {hca} -g {gid_index} -n 10"
        sh("spark2", f"systemctl stop peer 2>/dev/null; systemd-run -q --collect --unit=peer {words}; sleep 3")
        client = sh("spark1", f"timeout 60 {words} {over} 2>&1; echo exit=$?")
        return client + sh("spark2", "journalctl -q -o cat -u peer -n 20")  # either end may be the one that says it

    for node in ("spark1", "spark2"):
        sh(node, f"ip address flush dev {V0}")
    assert "Failed to modify QP" in (said := pingpong(0)), said
    make_so()
    mapped = f"head -n1 /sys/class/infiniband/{hca}/ports/1/gids/1"
    assert "ffff:" in sh("spark1", mapped) + sh("spark2", mapped)
    assert "exit=0" in (said := pingpong(1)), said
