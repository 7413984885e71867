"""The text of netplan's file, and the devices in it."""

from __future__ import annotations

import dataclasses
import typing as t
from typing import Any

import pytest
import yaml

from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric import netplan
from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.netplan import PATH
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import (
    CollectionError,
    Function,
    Netdev,
    Netplan,
    NetplanFile,
    NetplanStanza,
    Node,
    PlannedHost,
    from_plain,
    to_plain,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric import changes as differences
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.netplan_file import changes, file_of
from ansible_collections.dgxspark.cluster.tests.unit.netplan_fakes import planned_host

Plain = dict[str, t.Any]
PLANNED = to_plain(planned_host())


def test_the_text_says_whose_it_is_and_is_netplan_s_tree() -> None:
    made = file_of(PLANNED)
    assert made["content"].startswith("#")
    assert "dgxspark.cluster.netplan_vf" in made["content"]
    tree = yaml.safe_load(made["content"])
    assert tree["network"]["version"] == 2
    assert tree["network"]["ethernets"]["dgx-p0f0v0"]["match"]["macaddress"] == "02:d6:01:00:00:00"
    assert made["devices"][1] == {"name": None, "mac": "02:d6:01:00:00:00", "addresses": ["10.100.0.1/24"], "mtu": 9000}


MANAGER = Netplan(renderer="NetworkManager")


def test_networkmanager_is_named_in_each_stanza_and_never_for_the_file() -> None:
    network = yaml.safe_load(file_of(PLANNED, MANAGER)["content"])["network"]
    assert "renderer" not in network
    assert {stanza["renderer"] for stanza in network["ethernets"].values()} == {"NetworkManager"}


def named(name: str | None) -> dict[str, Any]:
    """The plan, with the name of the first VF as the node has it; None if it is in a pod, or not there yet."""
    planned = planned_host()
    first, other = planned.functions
    vf = dataclasses.replace(first.vfs[0], netdev=name)
    functions = (dataclasses.replace(first, vfs=(vf,)), other)
    return t.cast("dict[str, Any]", to_plain(dataclasses.replace(planned, functions=functions)))


def name_in(made: dict[str, Any]) -> object:
    return yaml.safe_load(made["content"])["network"]["ethernets"]["dgx-p0f0v0"]["match"].get("name")


def test_networkmanager_gets_the_name_that_a_vf_has_and_keeps_it_while_the_vf_is_in_a_pod() -> None:
    assert name_in(file_of(named("rail0"), MANAGER)) == "rail0"
    assert name_in(file_of(named(None), MANAGER)) == "enp1s0f0v0"  # systemd's name for it
    assert name_in(file_of(named(None))) == "en*"

    def written(name: object) -> Netplan:
        stanza = NetplanStanza("ethernets", "dgx-p0f0v0", {"name": name, "macaddress": "02:d6:01:00:00:00"})
        return Netplan("NetworkManager", files=(NetplanFile(PATH, "", "0600", (stanza,)),))

    assert name_in(file_of(named(None), written("rail0"))) == "rail0"
    assert name_in(file_of(named("rail1"), written("rail0"))) == "rail1"  # renamed: the next run says so
    for no_name in ("en*", "a name", "x" * 16, ["rail0"], "a/b"):
        assert name_in(file_of(named(None), written(no_name))) == "enp1s0f0v0"


def test_a_node_whose_vfs_have_gone_into_a_pod_is_as_planned() -> None:
    """The file is compared as text: a name that only the host knows must not come and go."""
    content = file_of(named("rail0"), MANAGER)["content"]
    stanzas = tuple(
        NetplanStanza("ethernets", id_, stanza["match"], renderer=stanza["renderer"])
        for id_, stanza in yaml.safe_load(content)["network"]["ethernets"].items()
    )
    file = NetplanFile(PATH, netplan.digest(content), "0600", stanzas)
    node = Node(netplan=Netplan("NetworkManager", files=(file,)))
    assert changes(node, from_plain(PlannedHost, named(None))) == []


def test_the_same_plan_gives_the_same_text() -> None:
    assert file_of(PLANNED) == file_of(to_plain(planned_host()))


def test_a_bad_plan_is_one_error() -> None:
    with pytest.raises(CollectionError, match="functions"):
        file_of({"name": "spark1", "index": 1, "detected": True})


# --- what would be refused, from the facts alone -------------------------------------------------------------------------


def seen(*files: NetplanFile) -> Plain:
    functions = tuple(
        Function(f"000{n}:01:00.0", netdev=Netdev(f.netdev, f"4c:bb:47:00:00:0{n}"), totalvfs=8, numvfs=0)
        for n, f in enumerate(planned_host().functions)
    )
    return t.cast(Plain, to_plain(Node(functions=functions, netplan=Netplan(files=files))))


def stanza(kind: str, name: str, *refers: str) -> NetplanStanza:
    return NetplanStanza(kind, name, refers=refers)


CLASHES = {
    "an interface": [stanza("ethernets", "enp1s0f0np0")],
    "a VLAN": [stanza("ethernets", "enp1s0f0np0"), stanza("vlans", "vlan10", "enp1s0f0np0")],
    "a bond": [stanza("ethernets", "enp1s0f0np0"), stanza("bonds", "bond0", "enp1s0f0np0")],
}


@pytest.mark.parametrize("absorb", ["refuse", "absorb"])
@pytest.mark.parametrize("what", CLASHES)
def test_what_the_module_would_refuse_is_known_before_a_node_is_touched(what: str, absorb: str) -> None:
    node = seen(NetplanFile("/etc/netplan/40-mine.yaml", "00", "0600", tuple(CLASHES[what])))
    found = differences.changes(PLANNED, node, parts=["netplan"], foreign_stanzas=absorb)["findings"]
    assert [f.id for f in found] == ([] if (what, absorb) == ("an interface", "absorb") else ["netplan.clash"])
    assert all("/etc/netplan/40-mine.yaml" in f.message for f in found)


@pytest.mark.parametrize(("ours", "ids"), [(False, ["netplan.occupied"]), (True, []), (None, [])])
def test_an_owners_file_at_our_path_is_refused_in_the_plan(ours: bool | None, ids: list[str]) -> None:
    node = seen(NetplanFile(PATH, "00", "0600", ours=ours))
    assert [f.id for f in differences.changes(PLANNED, node, parts=["netplan"])["findings"]] == ids


def test_a_file_that_cannot_be_read_is_refused_in_the_plan() -> None:
    node = seen(NetplanFile("/etc/netplan/50-broken.yaml", "00", "0600", error="line 3: not valid YAML"))
    (found,) = differences.changes(PLANNED, node, parts=["netplan"])["findings"]
    assert found.id == "netplan.unreadable" and "50-broken.yaml" in found.subject


@pytest.mark.parametrize(("service", "ids"), [("masked", ["netplan.masked"]), ("active", []), (None, [])])
def test_a_masked_service_is_refused_in_the_plan(service: str | None, ids: list[str]) -> None:
    node = seen()
    node["netplan"]["service"] = service
    assert [f.id for f in differences.changes(PLANNED, node, parts=["netplan"])["findings"]] == ids
