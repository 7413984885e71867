"""What must hold for every plan, whatever the fabric: checked with ipaddress, which the planner does not use."""

from __future__ import annotations

import dataclasses
import ipaddress
import itertools
import json
import pathlib
import typing as t

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import (
    CollectionError,
    Netdev,
    Place,
    PlannedHost,
    from_plain,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import ip, knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.hosts import HostInput
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.inventory import plan_of_inventory
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.plan import Plan
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.topologies import TOPOLOGIES
from ansible_collections.dgxspark.cluster.tests.unit.fabric_inputs import (
    CLASS,
    addresses,
    function,
    make,
    names,
    node,
    refusal,
)

COUNTS = {each.name: (each.least, each.most or (12 if each.cables else 24)) for each in TOPOLOGIES.values()}


@st.composite
def fabrics(draw: st.DrawFn, topologies: t.Sequence[str] = tuple(COUNTS)) -> tuple[int, dict[str, t.Any]]:
    """Draw a number of hosts and settings that go together."""
    topology = draw(st.sampled_from(topologies))
    hosts = draw(st.integers(*COUNTS[topology]))
    vf_count = draw(st.integers(1, 8))
    settings: dict[str, t.Any] = {
        "topology": topology,
        "vf_count": vf_count,
        "mtu": draw(st.sampled_from([1500, 4200, 9000])),
        "subnet_prefix": draw(st.integers(24, 27)),
        "address_pool": draw(st.sampled_from(["10.64.0.0/12", "172.20.0.0/14", "192.168.0.0/16"])),
        "mac_prefix": draw(st.sampled_from(["02:d6", "0a:00", "FE:fe"])),
    }
    if topology in ("direct", "switch"):
        settings["ports"] = draw(st.sampled_from([[0], [1], [0, 1], [1, 0]]))
    return hosts, settings


def every_vf(plan: Plan) -> list[tuple[str, dict[str, t.Any], dict[str, t.Any]]]:
    return [
        (name, planned, vf)
        for name, host in plan["hosts"].items()
        for planned in host["functions"]
        for vf in planned["vfs"]
    ]


@given(fabrics())
def test_every_vf_has_an_address_and_a_mac_of_its_own(fabric: tuple[int, dict[str, t.Any]]) -> None:
    plan = make(*fabric)
    vfs = [vf for _host, _function, vf in every_vf(plan)]
    assert len({vf["address"] for vf in vfs}) == len(vfs)
    assert len({vf["mac"] for vf in vfs}) == len(vfs)
    for vf in vfs:
        first_octet = int(vf["mac"][:2], 16)
        assert first_octet & 0b11 == 0b10  # locally administered, not multicast
        assert vf["mac"] == vf["mac"].lower()
        assert vf["mtu"] == fabric[1]["mtu"]


@given(fabrics())
def test_every_address_is_a_hosts_in_its_subnet_of_the_pool(fabric: tuple[int, dict[str, t.Any]]) -> None:
    plan = make(*fabric)
    pool = ipaddress.ip_network(fabric[1]["address_pool"])
    for name, _function, vf in every_vf(plan):
        subnet = ipaddress.ip_network(vf["subnet"])
        address = ipaddress.ip_address(vf["address"])
        assert subnet.prefixlen == vf["prefix"] == fabric[1]["subnet_prefix"]
        assert subnet.subnet_of(pool)
        assert address in subnet
        assert address not in (subnet.network_address, subnet.broadcast_address)
        assert int(address) - int(subnet.network_address) == plan["hosts"][name]["index"]


@given(fabrics())
def test_twins_are_in_different_subnets_and_no_two_subnets_overlap(fabric: tuple[int, dict[str, t.Any]]) -> None:
    plan = make(*fabric)
    for host in plan["hosts"].values():
        subnets = [vf["subnet"] for planned in host["functions"] for vf in planned["vfs"]]
        assert len(set(subnets)) == len(subnets)
    networks = sorted(ipaddress.ip_network(subnet["subnet"]) for subnet in plan["subnets"])
    assert not any(a.overlaps(b) for a, b in itertools.pairwise(networks))


@given(fabrics())
def test_a_subnet_stays_on_one_segment(fabric: tuple[int, dict[str, t.Any]]) -> None:
    plan = make(*fabric)
    segments: dict[str, set[str]] = {}
    for _host, planned, vf in every_vf(plan):
        segments.setdefault(vf["subnet"], set()).add(planned["segment"])
    assert all(len(of_subnet) == 1 for of_subnet in segments.values())
    members = {(s["subnet"], host): address for s in plan["subnets"] for host, address in s["members"].items()}
    assert members == {(vf["subnet"], name): vf["address"] for name, _function, vf in every_vf(plan)}


@given(fabrics())
def test_pairs_are_all_that_share_a_segment_with_all_paths(fabric: tuple[int, dict[str, t.Any]]) -> None:
    plan = make(*fabric)
    expected = {
        (segment["id"], *sorted(pair))
        for segment in plan["segments"]
        for pair in itertools.combinations({member["host"] for member in segment["members"]}, 2)
    }
    assert {(pair["segment"], *sorted((pair["a"], pair["b"]))) for pair in plan["pairs"]} == expected
    assert len(plan["pairs"]) == len(expected)
    found = {
        tuple(sorted((address, other)))
        for pair in plan["pairs"]
        for path in pair["paths"]
        for address, other in [(path["address_a"], path["address_b"])]
    }
    by_subnet = [subnet["members"].values() for subnet in plan["subnets"]]
    assert found == {tuple(sorted(two)) for members in by_subnet for two in itertools.combinations(members, 2)}
    known = addresses(plan)
    for pair in plan["pairs"]:
        for path in pair["paths"]:
            for end in ("a", "b"):
                mine = known[pair[end], path[f"slot_{end}"], path["vf"]][0]
                assert mine.split("/")[0] == path[f"address_{end}"]


@given(fabrics(), st.data())
def test_facts_add_names_and_move_nobody(fabric: tuple[int, dict[str, t.Any]], data: st.DataObject) -> None:
    """The plan of any subset of seen hosts has the addresses and MACs that the inventory alone gives."""
    hosts, settings = fabric
    seen = data.draw(st.sets(st.sampled_from(names(hosts))))
    vfs = data.draw(st.integers(0, 8))
    inputs = [
        HostInput(name, node=node(host=number, vfs=vfs) if name in seen else None)
        for number, name in enumerate(names(hosts), 1)
    ]
    plan = make(inputs, settings)
    assert addresses(plan) == addresses(make(hosts, settings))
    assert {name for name, host in plan["hosts"].items() if host["detected"]} == seen
    for name, _function, vf in every_vf(plan):
        assert (vf["hca"] is not None) == (name in seen and vf["index"] < vfs)


@given(fabrics(["switch"]), st.integers(1, 6))
def test_hosts_appended_on_a_switch_move_nobody(fabric: tuple[int, dict[str, t.Any]], more: int) -> None:
    hosts, settings = fabric
    before, after = addresses(make(hosts, settings)), addresses(make(hosts + more, settings))
    assert before.items() <= after.items()


@given(st.integers(3, 10), st.integers(1, 8))
def test_a_host_appended_to_a_ring_moves_the_plugged_end_alone(hosts: int, vfs: int) -> None:
    """The first host's incoming cable now comes from the new host; all other hosts keep their addresses."""
    settings = {"topology": "ring", "vf_count": vfs}
    before, after = addresses(make(hosts, settings)), addresses(make(hosts + 1, settings))
    moved = {(host, slot[:2]) for (host, slot, _vf), value in before.items() if after[host, slot, _vf] != value}
    assert moved == {("spark1", "p0")}


@given(fabrics(["switch"]), st.data())
def test_pinned_numbers_make_the_order_of_no_account(fabric: tuple[int, dict[str, t.Any]], data: st.DataObject) -> None:
    hosts, settings = fabric
    inputs = [HostInput(name, index=number) for number, name in enumerate(names(hosts), 1)]
    shuffled = data.draw(st.permutations(inputs))
    assert addresses(make(shuffled, settings)) == addresses(make(hosts, settings))


def test_a_subnet_takes_hosts_up_to_its_last_address_and_no_further() -> None:
    settings = {"topology": "switch", "subnet_prefix": 29}
    plan = make([HostInput("spark1", index=6)], settings)
    assert {int(ipaddress.ip_address(vf["address"])) % 8 for _host, _function, vf in every_vf(plan)} == {6}
    assert "its index 7 does not fit" in str(refusal([HostInput("spark1", index=7)], settings))


@given(fabrics(["switch", "direct"]))
def test_more_vfs_move_nobody(fabric: tuple[int, dict[str, t.Any]]) -> None:
    hosts, settings = fabric
    assert addresses(make(hosts, settings)).items() <= addresses(make(hosts, {**settings, "vf_count": 8})).items()


def test_a_second_cable_moves_nobody() -> None:
    one, two = make(2, {"topology": "direct"}), make(2, {"topology": "direct", "ports": [0, 1]})
    assert addresses(one).items() < addresses(two).items()


@given(fabrics())
def test_the_plan_is_plain_and_its_hosts_are_planned_hosts(fabric: tuple[int, dict[str, t.Any]]) -> None:
    plan = make(*fabric)
    assert json.loads(json.dumps(plan)) == plan
    for name, host in plan["hosts"].items():
        assert from_plain(PlannedHost, host).name == name


class AnsiblesText(str):
    """Like Ansible's own strings: a subclass, which YAML libraries will not write."""


class AnsiblesNumber(int):
    pass


def as_ansible_has_it(value: t.Any) -> t.Any:
    if isinstance(value, dict):
        return {as_ansible_has_it(key): as_ansible_has_it(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_ansible_has_it(item) for item in value]
    if isinstance(value, str):
        return AnsiblesText(value)
    return AnsiblesNumber(value) if isinstance(value, int) and not isinstance(value, bool) else value


def test_what_comes_of_ansible_leaves_as_plain_text_and_numbers() -> None:
    settings = {
        "topology": "direct",
        "hardware": "spark",
        "cables": [["spark1:0", "spark2:0"], ["spark1:1", "spark2:1"]],
        "mac_prefix": "02:aa",
        "vfs": [{"index": 0, "purpose": "bench"}],
        "subnets": {"cable1/f0/0": "172.30.0.0/24"},
        "mtu": 4000,
        "subnet_prefix": 25,
        "vf_count": 2,
    }
    functions = [
        {"pci": pci, "netdev": {"name": f"eth{number}"}, "totalvfs": 8}
        for number, pci in enumerate(["0000:01:00.0", "0000:01:00.1", "0002:01:00.0", "0002:01:00.1"])
    ]
    hostvars = {
        name: {
            "dgxspark_fabric_index": number,
            "dgxspark_fabric_functions": {"p0f0": {"netdev": "eth0", "pci": "0000:01:00.0"}},
            "dgxspark_roce": {"functions": functions},
        }
        for number, name in enumerate(names(2), 7)
    }
    plan = plan_of_inventory(*(as_ansible_has_it(value) for value in (names(2), settings, hostvars)))
    assert "eth0" in yaml.safe_dump(plan)


def test_single_has_nothing_to_make_and_says_so() -> None:
    plan = make(1, {"topology": "single"})
    assert plan["hosts"]["spark1"]["functions"] == []
    assert plan["pairs"] == plan["subnets"] == plan["segments"] == []
    assert "spark1 is a single host" in plan["notes"][0]


def test_the_example_inventory_has_the_golden_plan() -> None:
    """A change here renumbers the fabric of every owner who has these settings: it must be meant."""
    golden = json.loads((pathlib.Path(__file__).parent / "golden_example.json").read_text(encoding="utf-8"))
    settings = {"hardware": "spark", "topology": "switch", "vf_count": 4, "management_networks": ["192.0.2.0/24"]}
    hostvars = {name: {"ansible_host": f"192.0.2.1{number}"} for number, name in enumerate(names(4), 1)}
    assert plan_of_inventory(names(4), settings, hostvars) == golden


# --- what nodes show --------------------------------------------------------------------------------------------------


def test_a_seen_vf_brings_its_names() -> None:
    plan = make([HostInput("spark1", node=node(vfs=4))], {"topology": "switch"})
    planned = plan["hosts"]["spark1"]["functions"][1]
    assert (planned["netdev"], planned["pci"], planned["hca"]) == ("eth0x1", "0001:0a:00.0", "roce1")
    assert planned["mac"] == "48:b0:2d:00:01:01"
    vf = planned["vfs"][2]
    assert (vf["netdev"], vf["pci"], vf["hca"]) == ("eth0x1v2", "0001:0b:00.2", "roce1v2")


def test_a_vf_in_a_pod_keeps_its_hca_and_has_no_name_on_the_host() -> None:
    first = function(0, vfs=1)
    away = dataclasses.replace(first.vfs[0], netdev=Netdev("net1"), place=Place("pod", "/proc/7/ns/net", 3))
    seen = node(dataclasses.replace(first, vfs=(away,)), function(1))
    vf = make([HostInput("spark1", node=seen)], {"topology": "switch"})["hosts"]["spark1"]["functions"][0]["vfs"][0]
    assert (vf["netdev"], vf["pci"], vf["hca"]) == (None, "0000:0b:00.0", "roce0v0")


def test_a_renamed_function_is_found_by_its_address() -> None:
    seen = node(function(0, netdev="lan7"), function(1))
    plan = make([HostInput("spark1", node=seen)], {"topology": "switch"})
    assert plan["hosts"]["spark1"]["functions"][0]["netdev"] == "lan7"


def test_a_function_at_another_address_is_found_by_its_name() -> None:
    seen = node(function(0, pci="0003:01:00.0"), function(1))
    plan = make([HostInput("spark1", node=seen)], {"topology": "switch"})
    assert plan["hosts"]["spark1"]["functions"][0]["pci"] == "0003:01:00.0"


def test_what_the_owner_names_is_believed_before_and_after_the_node_is_seen() -> None:
    named = {"p0f0": {"netdev": "lan7"}, "p0f1": {"pci": "0003:01:00.1"}}
    unseen = make([HostInput("spark1", functions=named)], {"topology": "switch"})["hosts"]["spark1"]["functions"]
    assert [(f["netdev"], f["pci"]) for f in unseen] == [("lan7", None), ("eth0x1", "0003:01:00.1")]
    # The class's own names belong to other functions here, and are not mistaken for them.
    seen = node(
        function(2, netdev="lan7", pci="0009:00:00.0"),
        function(0, netdev="eth0x0"),
        function(3, netdev="wan", pci="0003:01:00.1"),
        function(1, netdev="eth0x1"),
    )
    plan = make([HostInput("spark1", functions=named, node=seen)], {"topology": "switch"})
    functions = plan["hosts"]["spark1"]["functions"]
    assert [(f["netdev"], f["pci"]) for f in functions] == [("lan7", "0009:00:00.0"), ("wan", "0003:01:00.1")]


def test_a_missing_function_is_refused_with_what_was_seen() -> None:
    told = refusal([HostInput("spark7", node=node(function(0)))], {"topology": "switch"})
    for part in ("spark7: p0f1", "eth0x1, 0001:0a:00.0", "Functions seen: eth0x0 (0000:0a:00.0)", "without a cable"):
        assert part in told


def test_functions_of_ports_that_are_not_used_may_be_missing() -> None:
    assert make([HostInput("spark1", node=node(function(0), function(1)))], {"topology": "switch"})


def test_a_name_and_an_address_of_two_functions_are_not_chosen_between() -> None:
    seen = node(function(0, netdev="eth0x1"), function(1, netdev="eth0x0"))
    told = refusal([HostInput("spark1", node=seen)], {"topology": "switch"})
    for part in ("spark1: p0f0", "0000:0a:00.0 is eth0x1", "eth0x0 is eth0x0 (0001:0a:00.0)", "only one can be meant"):
        assert part in told


@pytest.mark.parametrize("totalvfs", [0, None])
def test_no_vfs_in_the_firmware_is_refused_with_the_way_out(totalvfs: int | None) -> None:
    told = refusal(
        [HostInput("spark3", node=node(function(0), function(1, totalvfs=totalvfs)))], {"topology": "switch"}
    )
    for part in (
        "spark3: p0f1 eth0x1",
        "sriov_totalvfs",
        "SRIOV_EN=1",
        "NUM_OF_VFS=4",
        "mstconfig -d 0001:0a:00.0",
        "power",
    ):
        assert part in told
    assert "p0f0" not in told


def test_too_many_vfs_are_refused_with_both_numbers() -> None:
    told = refusal(
        [HostInput("spark3", node=node(function(0, totalvfs=4), function(1)))], {"topology": "switch", "vf_count": 6}
    )
    for part in (
        "spark3: p0f0 eth0x0",
        "offers 4 VFs",
        "dgxspark_fabric.vf_count is 6",
        "Set dgxspark_fabric.vf_count to 4",
    ):
        assert part in told


@pytest.mark.parametrize(
    ("seen", "what"),
    [
        (
            node(other=(Netdev("docker0", ipv4=("10.100.8.1/22",)),)),
            "10.100.8.1/22 that spark1 has on its interface docker0",
        ),
        (node(function(0, ipv4=("10.100.1.9/24",)), function(1)), "interface eth0x0"),
    ],
    ids=["another interface", "the function itself"],
)
def test_an_address_seen_in_a_planned_subnet_is_refused(seen: t.Any, what: str) -> None:
    told = refusal([HostInput("spark1", node=seen)], {"topology": "switch"})
    assert what in told
    assert "dgxspark_fabric.address_pool" in told


def test_an_address_of_a_vf_that_the_plan_does_not_manage_is_refused_unless_the_vf_is_ours() -> None:
    """A function that is no longer planned may still have our VFs, which go before new ones come: a switch replacing a ring."""

    def seen(mac: str) -> HostInput:
        stray = function(2, vfs=1)
        vf = dataclasses.replace(stray.vfs[0], admin_mac=mac, netdev=Netdev("stray", ipv4=("10.100.0.77/24",)))
        return HostInput("spark1", node=node(function(0), function(1), dataclasses.replace(stray, vfs=(vf,))))

    assert "interface stray" in refusal([seen("0a:00:00:00:00:01")], {"topology": "switch"})
    assert make([seen("02:d6:00:01:10:00")], {"topology": "switch"})["hosts"]


def test_addresses_of_vfs_in_the_plan_are_the_plans_to_change() -> None:
    first = function(0, vfs=1)
    vf = dataclasses.replace(first.vfs[0], netdev=Netdev("eth0x0v0", ipv4=("10.100.9.3/24",)))
    assert make(
        [HostInput("spark1", node=node(dataclasses.replace(first, vfs=(vf,)), function(1)))], {"topology": "switch"}
    )


def test_a_planned_mac_that_something_else_has_is_refused() -> None:
    seen = node(host=2, other=(Netdev("eth9", mac="02:D6:00:01:01:03"),))
    told = refusal([HostInput("spark1"), HostInput("spark2", node=seen)], {"topology": "switch"})
    for part in ("02:D6:00:01:01:03", "p0f1v3 of spark1", "eth9 on spark2", "dgxspark_fabric.mac_prefix"):
        assert part in told


def test_what_is_stacked_on_a_vf_may_have_its_mac() -> None:
    seen = node(other=(Netdev("eth0x0v0.7", mac="02:d6:00:01:00:00", ipv4=("192.0.2.7/32",)),))
    assert make([HostInput("spark1", node=seen)], {"topology": "switch"})


@pytest.mark.parametrize(
    ("first", "second", "one"),
    [
        ({"ansible_host": "192.0.2.11"}, {"ansible_host": "192.0.2.11"}, True),
        ({"ansible_host": "192.0.2.11"}, {"ansible_host": "192.0.2.11", "ansible_port": 22}, True),
        ({"ansible_host": "2001:db8::1"}, {"ansible_host": "2001:DB8::1"}, True),
        ({"ansible_host": "spark2"}, {}, True),
        ({"ansible_host": "fd00::11"}, {"ansible_host": "[FD00:0:0::11]"}, True),
        ({"ansible_host": "::ffff:192.0.2.11"}, {"ansible_host": "192.0.2.11"}, True),
        ({"ansible_host": "one.example."}, {"ansible_host": "One.example"}, True),
        ({"ansible_host": "192.0.2.11", "ansible_port": 2201}, {"ansible_host": "192.0.2.11"}, False),
        (
            {"ansible_host": "192.0.2.11", "ansible_ssh_common_args": "-J one"},
            {"ansible_host": "192.0.2.11", "ansible_ssh_common_args": "-J two"},
            False,
        ),
        ({"ansible_host": "127.0.0.1"}, {"ansible_host": "127.0.0.1"}, False),
        ({}, {}, False),
    ],
)
def test_one_address_under_two_names_is_refused_with_both(
    first: dict[str, t.Any], second: dict[str, t.Any], one: bool
) -> None:
    settings = {"topology": "switch", "hardware": "spark"}
    hostvars = {"spark1": first, "spark2": second, "spark3": {"ansible_host": "192.0.2.13"}}
    if not one:
        assert len(plan_of_inventory(list(hostvars), settings, hostvars)["hosts"]) == 3
        return
    with pytest.raises(CollectionError, match=r"spark1 and spark2.*one machine") as caught:
        plan_of_inventory(list(hostvars), settings, hostvars)
    assert [finding.id for finding in caught.value.findings] == ["hosts.one-machine"]


def test_one_machine_s_macs_under_two_names_are_refused_once_with_both() -> None:
    """Two DNS names of one node: only the node's facts show it."""
    hosts = [HostInput(f"spark{n}", management=f"192.0.2.{n}", node=node(host=max(n, 2), vfs=2)) for n in (1, 2, 3)]
    with pytest.raises(CollectionError, match=r"spark1 and spark2.*48:b0:2d:00:02:00") as caught:
        make(hosts, {"topology": "switch"})
    assert [finding.id for finding in caught.value.findings] == ["hosts.one-machine"]


def test_ipv6_networks_of_others_are_taken_and_overlap_nothing() -> None:
    """An owner whose management is IPv6 says so; the fabric has IPv4 alone."""
    plain = make(2, {"topology": "switch"})
    others = {"lab": "2001:db8:7::/48"}
    given = {
        "topology": "switch",
        "management_networks": ["2001:db8::/32", "192.0.2.0/24"],
        "reserved_networks": others,
    }
    assert addresses(make([HostInput(n, management="2001:db8::1" + n[-1]) for n in names(2)], given)) == addresses(
        plain
    )
    assert "management_networks[0]" in refusal(2, {"topology": "switch", "management_networks": ["2001:db8::1/32"]})


def test_without_netaddr_there_is_one_error_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ip, "NETADDR_ERROR", ImportError("No module named 'netaddr'"))
    with pytest.raises(CollectionError, match=r"pip install 'netaddr>=1\.0'"):
        make(2, {"topology": "switch"})


def test_all_reasons_are_told_at_once() -> None:
    told = refusal(2, {"topology": "switch", "mtu": 100, "vf_cont": 3, "address_pool": 5})
    for part in ("for 3 reasons", "mtu", "vf_cont", "Did you mean vf_count?", "address_pool"):
        assert part in told


def test_the_owners_subnet_is_taken_and_the_rest_stays() -> None:
    plain = make(2, {"topology": "switch"})
    key = "switch/p0f1/0"
    named = make(2, {"topology": "switch", "subnets": {key: "172.30.5.0/28"}})
    assert named["hosts"]["spark2"]["functions"][1]["vfs"][0]["address"] == "172.30.5.2"
    changed = {vf for vf, value in addresses(plain).items() if addresses(named)[vf] != value}
    assert changed == {("spark1", "p0f1", 0), ("spark2", "p0f1", 0)}


def test_purposes_are_as_named_and_the_rest_is_spare() -> None:
    def purposes(settings: dict[str, t.Any]) -> list[str]:
        plan = make(1, {"topology": "switch", **settings})
        return [vf["purpose"] for vf in plan["hosts"]["spark1"]["functions"][0]["vfs"]]

    assert purposes({}) == ["serving", "bench", "spare", "spare"]
    assert purposes({"vf_count": 1}) == ["serving"]
    assert purposes({"vf_count": 3, "vfs": [{"index": 2, "purpose": "storage"}]}) == ["spare", "spare", "storage"]


def test_the_class_is_no_real_one() -> None:
    """Otherwise these tests might pass only because of the shipped values."""
    assert not {slot["netdev"] for slot in CLASS["slots"]} & {"enp1s0f0np0", "enP2p1s0f0np0"}


@pytest.mark.parametrize("topology", ["direct", "ring", "switch"])
def test_a_topology_without_default_ports_is_refused_unless_the_owner_names_them(topology: str) -> None:
    """A plan of no pairs would look like success."""
    bare, hosts = {**CLASS, "default_ports": {}}, {"direct": 2, "ring": 4, "switch": 2}[topology]
    told = refusal(hosts, {"topology": topology}, bare)
    assert "dgxspark_fabric.ports: it is not set" in told and f"no default_ports of topology {topology}" in told
    ports = list(CLASS["default_ports"][topology])
    assert make(hosts, {"topology": topology, "ports": ports}, bare) == make(hosts, {"topology": topology})
    if topology == "direct":
        cables = [["spark1:0", "spark2:0"]]
        assert make(2, {"topology": topology, "cables": cables}, bare) == make(
            2, {"topology": topology, "cables": cables}
        )


def test_a_hardware_class_that_verify_cannot_judge_is_noted_in_the_plan(tmp_path: pathlib.Path) -> None:
    mine = {key: value for key, value in knowledge.get("hardware", "spark").items() if key != "origin"} | {"id": "mine"}
    place = tmp_path / "hardware" / "mine.yml"
    place.parent.mkdir()
    place.write_text(json.dumps(mine), encoding="utf-8")
    settings = {"topology": "switch", "hardware": "mine"}
    noted = plan_of_inventory(names(2), settings, {}, [str(tmp_path)])["notes"]
    assert "no thresholds" in noted[-1] and "id mine" in noted[-1]
    assert not any("thresholds" in note for note in plan_of_inventory(names(2), {"topology": "switch"}, {})["notes"])
