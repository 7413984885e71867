"""What a refusal of the fabric's plan advises is done as it says, and there is a plan.

A case: what the owner has, a word or two of the remedy, and what the owner has after doing it.
"""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, Netdev
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.hosts import HostInput
from ansible_collections.dgxspark.cluster.tests.unit.fabric_inputs import CLASS, function, make, node

Fabric = tuple[t.Any, dict[str, t.Any]]


def switch(hosts: t.Any = 2, **settings: t.Any) -> Fabric:
    return hosts, {"topology": "switch", **settings}


def host(name: str = "spark1", **more: t.Any) -> HostInput:
    return HostInput(name, **more)


def ring(*cables: tuple[str, str], hosts: int = 3) -> Fabric:
    return hosts, {"topology": "ring" if hosts > 3 else "triangle", "cables": [list(cable) for cable in cables]}


AROUND = (("spark1:1", "spark2:0"), ("spark2:1", "spark3:0"), ("spark3:1", "spark1:0"))
FIRMWARE = "mstconfig -d 0000:0a:00.0 set SRIOV_EN=1 NUM_OF_VFS=4"
DUCK = Netdev("duck0", ipv4=("10.100.0.9/24",))
# id, before, a part of the remedy, after
CASES: list[tuple[str, Fabric, str, Fabric]] = [
    ("settings.missing", (2, {}), "Set it to one of", switch()),
    ("settings.missing", switch(mtu=None), "leave the key out for its default", switch()),
    (
        "settings.missing",
        (3, {"topology": "triangle", "hardware": "bare"}),
        "Name the ports in use (0, 1)",
        (3, {"topology": "triangle", "hardware": "bare", "ports": [0, 1]}),
    ),
    ("settings.unknown-key", switch(vf_cont=3), "vf_count", switch(vf_count=3)),
    ("settings.type", switch(mtu="big"), "guide_fabric", switch(mtu=9000)),
    ("settings.type", (2, {"topology": "swich"}), "switch", switch()),
    ("settings.range", switch(mtu=9999), "guide_fabric", switch(mtu=9500)),
    ("settings.range", switch(vf_count=9), "Configure fewer", switch(vf_count=8)),
    ("settings.range", switch(vf_count=9), "raise dgxspark_fabric.vf_stride", switch(vf_count=9, vf_stride=16)),
    ("settings.range", switch(mac_prefix="03:d6"), "Choose 02, 06, 0a", switch(mac_prefix="06:d6")),
    ("settings.range", switch(mac_prefix="00:d6"), "Choose 02, 06, 0a", switch(mac_prefix="0a:d6")),
    ("settings.network", switch(address_pool="224.0.0.0/16"), "Choose a private network", switch(address_pool="10.9.0.0/16")),
    ("settings.network", switch(address_pool="10.9.0.0/31"), "Choose a larger network", switch(address_pool="10.9.0.0/16")),
    ("settings.duplicate", switch(ports=[0, 0]), "Name each once", switch(ports=[0])),
    (
        "settings.duplicate",
        switch(vfs=[{"index": 0, "purpose": "serving"}, {"index": 0, "purpose": "bench"}]),
        "Name each VF once",
        switch(vfs=[{"index": 0, "purpose": "serving"}, {"index": 1, "purpose": "bench"}]),
    ),
    ("settings.cables", switch(cables=[["spark1:0", "spark2:0"]]), "Leave the key out", switch()),
    (
        "settings.ports",
        (2, {"topology": "direct", "ports": [1], "cables": [["spark1:0", "spark2:0"]]}),
        "Leave it out",
        (2, {"topology": "direct", "cables": [["spark1:0", "spark2:0"]]}),
    ),
    ("hosts.none", switch(0), "Put the Sparks there", switch(2)),
    ("hosts.duplicate", switch([host(), host()]), "Name each host once", switch([host()])),
    ("hosts.duplicate", switch([host(functions={"p0f0": {"netdev": "a"}, "p0f1": {"netdev": "a"}})]), "a different function",
     switch([host(functions={"p0f0": {"netdev": "a"}, "p0f1": {"netdev": "b"}})])),
    ("hosts.type", switch([host(index="2")]), "without quotes", switch([host(index=2)])),
    ("hosts.type", switch([host(functions=["eth0"])]), "{p0f0: {netdev: enp1s0f0np0}}", switch([host(functions={"p0f0": {"netdev": "enp1s0f0np0"}})])),
    ("hosts.type", switch([host(functions={"p0f0": {}})]), "{netdev: enp1s0f0np0}", switch([host(functions={"p0f0": {"netdev": "enp1s0f0np0"}})])),
    ("hosts.unknown", switch([host(functions={"p0f2": {"netdev": "a"}})]), "p0f", switch([host(functions={"p0f1": {"netdev": "a"}})])),
    ("hosts.range", switch([host(index=0)]), "counted from 1", switch([host(index=1)])),
    ("hosts.index-clash", switch([host(index=2), host("spark2")]), "Pin one of them to a free number", switch([host(index=2), host("spark2", index=1)])),
    ("hosts.one-machine", switch([host(management="192.0.2.1"), host("two", management="192.0.2.1")]), "Remove one of the two",
     switch([host(management="192.0.2.1")])),
    ("hosts.one-machine", switch([host(management="192.0.2.1"), host("two", management="192.0.2.1")]), "correct its ansible_host",
     switch([host(management="192.0.2.1"), host("two", management="192.0.2.2")])),
    ("hosts.ambiguous", switch([host(node=node(function(0, netdev="eth0x1"), function(1, netdev="eth0x0")))]), "by pci or by netdev alone",
     switch([host(node=node(function(0, netdev="eth0x1"), function(1, netdev="eth0x0")),
                  functions={"p0f0": {"pci": "0000:0a:00.0"}, "p0f1": {"pci": "0001:0a:00.0"}})])),
    ("hosts.missing-function", switch([host(node=node(function(0), function(1)))], ports=[0, 1]), "plug it in", switch([host(node=node())], ports=[0, 1])),
    ("hosts.missing-function", switch([host(node=node(function(0), function(1)))], ports=[0, 1]), "leave the port out of",
     switch([host(node=node(function(0), function(1)))], ports=[0])),
    ("hosts.missing-function", switch([host(node=node(function(0, netdev="rail0", pci="0009:0a:00.0"), function(1)))]), "name the function in the host's",
     switch([host(node=node(function(0, netdev="rail0", pci="0009:0a:00.0"), function(1)), functions={"p0f0": {"netdev": "rail0"}})])),
    ("hosts.no-vfs", switch([host(node=node(function(0, totalvfs=0), function(1)))]), FIRMWARE,
     switch([host(node=node(function(0, totalvfs=4), function(1)))])),
    ("hosts.too-many-vfs", switch([host(node=node(function(0, totalvfs=2), function(1)))]), "vf_count to 2",
     switch([host(node=node(function(0, totalvfs=2), function(1)))], vf_count=2)),
    ("hosts.too-many-vfs", switch([host(node=node(function(0, totalvfs=2), function(1)))]), FIRMWARE,
     switch([host(node=node(function(0, totalvfs=4), function(1)))])),
    ("segments.hosts", (3, {"topology": "direct"}), "", (2, {"topology": "direct"})),
    ("segments.ports", (3, {"topology": "triangle", "ports": [0]}), "", (3, {"topology": "triangle"})),
    ("segments.unknown", ring(("spark1:1", "sparc2:0"), *AROUND[1:]), "spark2", ring(*AROUND)),
    ("segments.unknown", ring(("spark1:1", "spark2:5"), *AROUND[1:]), "ports 0, 1", ring(*AROUND)),
    ("segments.port-twice", ring(("spark1:1", "spark2:0"), ("spark2:1", "spark3:0"), ("spark3:0", "spark1:0")), "another port", ring(*AROUND)),
    ("segments.self", ring(("spark1:1", "spark1:0"), *AROUND[1:]), "joins two hosts", ring(*AROUND)),
    ("segments.no-cable", ring(("spark1:0", "spark2:0")), "Add one", ring(*AROUND)),
    ("segments.no-cable", ring(*AROUND, hosts=4), "remove spark4 from the group",
     ring(*AROUND)),
    ("segments.disconnected", ring(("spark1:0", "spark2:0"), ("spark1:1", "spark2:1"), ("spark3:0", "spark4:0"), ("spark3:1", "spark4:1"), hosts=4),
     "joins them all", ring(("spark1:1", "spark2:0"), ("spark2:1", "spark3:0"), ("spark3:1", "spark4:0"), ("spark4:1", "spark1:0"), hosts=4)),
    ("segments.shape", ring(("spark1:0", "spark2:0"), ("spark2:1", "spark3:0")), "two cables, to two other hosts", ring(*AROUND)),
    ("subnets.pool-too-small", switch(address_pool="10.9.0.0/23"), "Choose a larger pool", switch(address_pool="10.9.0.0/16")),
    ("subnets.pool-too-small", switch(address_pool="10.9.0.0/23"), "a longer subnet_prefix", switch(address_pool="10.9.0.0/23", subnet_prefix=29)),
    ("subnets.unknown", switch(subnets={"switch/p0f0/99": "10.9.0.0/24"}), "switch/p0f0/", switch(subnets={"switch/p0f0/0": "10.9.0.0/24"})),
    ("subnets.index", switch([host(index=77)], subnet_prefix=26), "Make the subnets larger (dgxspark_fabric.subnet_prefix)",
     switch([host(index=77)], subnet_prefix=24)),
    ("subnets.index", switch([host(index=77)], subnet_prefix=26), "a smaller number", switch([host(index=7)], subnet_prefix=26)),
    ("subnets.overlap", switch([host(node=node(other=(DUCK,)))]), "Choose another network for the fabric",
     switch([host(node=node(other=(DUCK,)))], address_pool="10.9.0.0/16")),
    ("subnets.overlap", switch(subnets={"switch/p0f0/0": "10.42.1.0/24"}), "Choose another subnet", switch(subnets={"switch/p0f0/0": "10.9.1.0/24"})),
    ("subnets.overlap", switch(subnets={"switch/p0f0/0": "10.9.1.0/24", "switch/p0f1/0": "10.9.1.0/24"}), "a subnet of its own",
     switch(subnets={"switch/p0f0/0": "10.9.1.0/24", "switch/p0f1/0": "10.9.2.0/24"})),
    ("plan.mac-clash", switch([host(node=node(other=(Netdev("eth9", mac="02:d6:00:02:00:00"),))), host("spark2")]), "such as 02:d7",
     switch([host(node=node(other=(Netdev("eth9", mac="02:d6:00:02:00:00"),))), host("spark2")], mac_prefix="02:d7")),
]  # fmt: skip
COVERED = {case[0] for case in CASES}


def planned(fabric: Fabric) -> t.Any:
    hosts, settings = fabric
    entry = CLASS
    if settings.get("hardware") == "bare":
        entry, settings = {**CLASS, "default_ports": {}}, {k: v for k, v in settings.items() if k != "hardware"}
    return make(hosts, settings, entry)


@pytest.mark.parametrize(("kind", "before", "words", "after"), CASES, ids=[f"{case[0]}-{case[2]}" for case in CASES])
def test_after_its_remedy_there_is_a_plan(kind: str, before: Fabric, words: str, after: Fabric) -> None:
    with pytest.raises(CollectionError) as refused:
        planned(before)
    told = [finding for finding in refused.value.findings if finding.id == kind]
    assert told, [dataclasses.asdict(finding) for finding in refused.value.findings]
    assert any(words in finding.remedy for finding in told), [finding.remedy for finding in told]
    assert planned(after)["hosts"]
