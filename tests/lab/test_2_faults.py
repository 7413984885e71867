"""Faults on real kernels: each is made by hand on a node, and the proof must name its cause and its place."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator

import pytest
from harness import NODES, WHOLE, Proof, lab, make_so, play, prove, sh, wait_for

V0 = "enp1s0f0v0"  # function 0, VF 0
V1 = "enp1s0f0v1"
TWIN = "enP2p1s0f0v0"  # function 1, VF 0: the same wire


@pytest.fixture
def whole_fabric() -> None:
    make_so()


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proof]:
    """Prove a fabric with a fault on each node: their causes must be told apart. What comes after mends them."""
    report = tmp_path_factory.mktemp("faults") / "report.json"
    if not set(NODES) <= WHOLE:  # as the main job leaves it
        make_so()
    WHOLE.clear()
    sh("spark1", "for k in all default " + f"{V0} {TWIN}; do sysctl -qw net.ipv4.conf.$k.arp_ignore=0; done")
    sh("spark2", f"ip -4 address flush dev {V1}")
    sh("spark3", f"ip link set {V0} mtu 1500")
    lab("link", "spark4", "2", "down")  # the second function: p0f1
    try:
        yield prove(report)
    finally:
        lab("link", "spark4", "2", "up")


def test_faults_end_the_proof_and_stand_on_the_page(broken: Proof) -> None:
    assert broken.verdict == "failed"
    assert broken.code != 0
    assert broken.told_on_the_page()


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("spark1", "arp_ignore"),  # a twin on the same wire answers for it
        ("spark2 p0f0v1", "only link-local|no IPv4"),  # an address that was removed
        ("spark3 p0f0v0", "1500"),
        ("spark4 p0f1", "link"),
    ],
)
def test_a_fault_is_named_where_it_is(broken: Proof, where: str, words: str) -> None:
    causes = [cause for cause in broken.report["causes"] if cause["where"].startswith(where)]
    assert causes, broken.causes
    assert any(re.search(words, cause["message"]) for cause in causes), broken.causes


@pytest.mark.long
@pytest.mark.usefixtures("broken")
def test_site_mends_them_all(report: pathlib.Path) -> None:
    lab("link", "spark4", "2", "up")
    make_so()
    mended = prove(report, "spark[1:4]", "-e", "dgxspark_verify_mode=quick")
    assert mended.verdict == "passed", mended.output


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
@pytest.mark.usefixtures("whole_fabric")
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
@pytest.mark.usefixtures("whole_fabric")
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
@pytest.mark.usefixtures("whole_fabric")
def test_a_queue_pair_without_addresses_has_no_route() -> None:
    """The underlying failure, from the kernel itself: only GID 0, and no matching address or route on the netdev."""
    hca, over = "rocep1s0f0v0", sh("spark2", "ip -4 -o address show dev enp1s0f0v1 | awk '{print $4}'").split("/")[0]

    def pingpong(gid_index: int) -> str:
        words = f"ibv_rc_pingpong -d {hca} -g {gid_index} -n 10"
        sh("spark2", f"systemctl stop peer 2>/dev/null; systemd-run -q --collect --unit=peer {words}; sleep 3")
        client = sh("spark1", f"timeout 60 {words} {over} 2>&1; echo exit=$?")
        return client + sh("spark2", "journalctl -q -o cat -u peer -n 20")  # either end may report it

    for node in ("spark1", "spark2"):
        sh(node, f"ip address flush dev {V0}")
    assert "Failed to modify QP" in (said := pingpong(0)), said
    make_so()
    mapped = f"head -n1 /sys/class/infiniband/{hca}/ports/1/gids/1"
    assert "ffff:" in sh("spark1", mapped) + sh("spark2", mapped)
    assert "exit=0" in (said := pingpong(1)), said
