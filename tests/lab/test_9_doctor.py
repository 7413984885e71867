"""The doctor on real kernels: a settled cluster is well, each fault is named where it is, and nothing is changed."""

from __future__ import annotations

import pathlib

import pytest
from harness import NODES, look, make_so, sh

pytestmark = pytest.mark.long

V0 = "enp1s0f0v0"  # function 0, VF 0: p0f0v0
STATE = "ip -br address; ip -o link | grep -o ' mtu [0-9]*'; cat /etc/netplan/*.yaml; rdma link"


@pytest.fixture(scope="module", autouse=True)
def journals_of_their_own() -> None:
    """Clear the journals: the doctor reads those of this boot, in which other tests broke K3s and ran out of memory."""
    for node in NODES:
        sh(node, "journalctl --quiet --rotate; sleep 2; journalctl --quiet --vacuum-time=1s")


def state() -> dict[str, str]:
    return {node: sh(node, STATE) for node in NODES}


def test_what_drifted_is_named_where_it_is_and_left_alone(report: pathlib.Path) -> None:
    make_so()
    sh("spark3", f"ip link set {V0} mtu 1500")
    sh("spark2", f"ip -4 address flush dev {V0}")
    before = state()
    seen = look(report)
    assert seen.run.code != 0
    assert seen.report["verdict"] == "error"
    errors = [
        (finding["id"], finding["where"]) for finding in seen.report["findings"] if finding["severity"] == "error"
    ]
    assert sorted(errors) == [("gid.no-ipv4", "spark2 p0f0v0"), ("link.mtu", "spark3 p0f0v0")], seen.report["findings"]
    symptom = next(finding for finding in seen.report["findings"] if finding["id"] == "link.mtu")
    assert "1500" in symptom["symptom"] and "9000" in symptom["symptom"]
    assert symptom["cause"] and "netplan_vf" in symptom["remedy"]
    for words in ("spark3 p0f0v0", "[link.mtu]", "[gid.no-ipv4]"):
        assert words in seen.run.output
    assert state() == before


@pytest.mark.parametrize("mode", [(), ("--check",)], ids=str)
def test_a_settled_cluster_is_well(mode: tuple[str, ...], report: pathlib.Path) -> None:
    make_so()
    before = state()
    seen = look(report, *mode)
    assert seen.run.code == 0, seen.run.output
    assert seen.report["verdict"] == "well", seen.report["findings"]
    assert [host["status"] for host in seen.report["hosts"]] == ["seen"] * len(NODES)
    assert not any(seen.run.changed.values()), seen.run.output
    assert state() == before
