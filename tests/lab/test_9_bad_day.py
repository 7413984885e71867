"""The fabric on a bad day: a lossy wire, hosts in another order, a host that left and comes back, one host at a time.

The guest's kernel has no sch_netem: the switch's ports delay, reorder and drop (`lab/lab port`). NetworkManager:
test_9_renderers.py.
"""

from __future__ import annotations

import pathlib
import re
import shutil

import pytest
import yaml
from harness import NODES, ROOT, lab, make_so, play, prove, sh

pytestmark = pytest.mark.long

LOSS = (
    "nft add table inet loss; nft add chain inet loss in '{ type filter hook input priority 0; }';"
    " nft add rule inet loss in udp dport 4791 limit rate over 200/second burst 5 packets drop"
)
ADDRESSES = "ip -br -4 address show | grep -E '^en.*v[0-9]' | awk '{print $1, $3}' | sort"


def inventory(folder: pathlib.Path, *hosts: str, **variables: int) -> pathlib.Path:
    """Return the lab's inventory with these hosts in this order; variables: the pinned index of each."""
    place = folder / "-".join(hosts)
    shutil.copytree(ROOT / "inventories/lab", place)
    tree = yaml.safe_load((place / "hosts.yml").read_text())
    group = tree["all"]["children"]["spark"]["children"]["dgx"]
    pins = {name: {"dgxspark_fabric_index": index} for name, index in variables.items()}
    group["hosts"] = {name: group["hosts"][name] | pins.get(name, {}) for name in hosts}
    (place / "hosts.yml").write_text(yaml.safe_dump(tree, sort_keys=False))
    return place


def addresses() -> dict[str, str]:
    return {node: sh(node, ADDRESSES) for node in NODES}


def test_a_wire_that_loses_packets_is_named_with_its_node(report: pathlib.Path) -> None:
    make_so()
    sh("spark2", LOSS)
    try:
        proof = prove(report)
    finally:
        sh("spark2", "nft delete table inet loss")
    # Lost packets are sent again: the test passes with a warning if it is still fast enough. The lab has no minimum speed.
    assert all("spark2" in cause["where"] + cause["message"] for cause in proof.report["causes"]), proof.causes
    warned = [each["where"] for each in proof.report["warnings"] if each["id"] == "rdma.repeated"]
    assert any(where.startswith("spark2 ") for where in warned), proof.report["warnings"]
    assert not [each for each in prove(report).report["warnings"] if each["id"] == "rdma.repeated"]


def test_a_switch_port_with_a_smaller_mtu_is_named_with_what_to_set(report: pathlib.Path) -> None:
    make_so()
    lab("port", "spark2", "1", "mtu=1500")
    try:
        proof = prove(report)
    finally:
        lab("port", "spark2", "1", "well")
    assert proof.verdict == "failed"
    (cause,) = proof.report["causes"]
    assert (cause["id"], cause["where"]) == ("mtu.path", "spark2 p0f0")
    assert "switch ports" in cause["remedy"]


def test_a_wire_that_reorders_passes_and_is_named_where_it_is(report: pathlib.Path) -> None:
    make_so()
    lab("port", "spark2", "1", "delay=15", "reorder=25")
    try:
        proof = prove(report)
    finally:
        lab("port", "spark2", "1", "well")
    assert proof.verdict == "passed", proof.output
    grown = {
        each["where"]: sum(map(int, re.findall(r"\+(\d+)", each["message"])))
        for each in proof.report["warnings"]
        if each["id"] == "rdma.repeated"
    }
    # Its peers see it, too; nobody as often as the node behind that port.
    assert max(grown, key=grown.__getitem__).startswith("spark2 p0f0"), grown


def test_hosts_in_another_order_change_nothing_where_they_are_pinned(tmp_path: pathlib.Path) -> None:
    make_so()
    before = addresses()
    pins = {name: number for number, name in enumerate(NODES, 1)}
    turned = inventory(tmp_path, *reversed(NODES), **pins)
    run = play("site.yml", "--tags", "fabric", inventory=turned)
    assert run.code == 0, run.output
    assert not any(run.changed.values()), run.output
    assert addresses() == before


def test_a_host_that_left_the_group_and_comes_back_has_its_identity_again(tmp_path: pathlib.Path) -> None:
    make_so()
    before = addresses()
    without = inventory(tmp_path, "spark1", "spark3", "spark4", spark3=3, spark4=4)
    run = play("site.yml", "--tags", "fabric", inventory=without, limit="spark1,spark3,spark4")
    assert run.code == 0, run.output
    assert not any(run.changed.values()), run.output
    assert play("playbooks/teardown.yml", "--tags", "fabric", limit="~^spark2$").code == 0
    assert sh("spark2", ADDRESSES) == ""
    make_so()
    assert addresses() == before


def test_one_host_at_a_time_comes_to_the_same(report: pathlib.Path) -> None:
    assert play("playbooks/teardown.yml", "--tags", "fabric").code == 0
    made = play("site.yml", "--tags", "fabric", "--forks", "1")
    assert made.code == 0, made.output
    # Both ends of a test run at the same time: with too few forks, verify says so, and what to do.
    refused = play("playbooks/verify.yml", "--forks", "1")
    assert refused.code != 0 and "Run it with --forks 4" in refused.output
    assert prove(report).verdict == "passed"
    again = play("site.yml", "--tags", "fabric", "--forks", "1")
    assert not any(again.changed.values()), again.output
