"""netplan's file, the devices that stanzas mean, clashes and drift."""

from __future__ import annotations

import dataclasses
import fnmatch
import ipaddress
import itertools
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric import netplan
from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.netplan import Device, is_meant
from ansible_collections.dgxspark.cluster.plugins.module_utils.system import read_system
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import (
    Function,
    Netdev,
    Netplan,
    NetplanFile,
    NetplanStanza,
    Node,
    Place,
    Vf,
)
from ansible_collections.dgxspark.cluster.tests.unit.netplan_fakes import planned_host, text_of

needs_netplan = pytest.mark.skipif(not shutil.which("netplan"), reason="not run: netplan is not installed here")

V0 = Device("enp1s0f0v0", "02:d6:01:00:00:00", "igbvf")
PF0 = Device("enp1s0f0np0", "4c:bb:47:00:00:01", "igb")
ETH = Device("enP7s7", "52:54:00:00:00:01", "virtio_net")


def stanza(identity: str, /, kind: str = "ethernets", set_name: str | None = None, **match: object) -> NetplanStanza:
    return NetplanStanza(kind, identity, dict(match), set_name)


def file(path: str, *stanzas: NetplanStanza, error: str | None = None) -> NetplanFile:
    return NetplanFile(path, "0" * 64, "0600", stanzas, error)


def ours() -> NetplanFile:
    return netplan.own_file(netplan.render(planned_host()), "", netplan.PATH)


# --- the file -------------------------------------------------------------------------------------------------------


def test_every_vf_is_matched_by_its_mac_and_only_vfs_have_addresses() -> None:
    ethernets = netplan.render(planned_host(vfs=2))["network"]["ethernets"]
    assert ethernets["dgx-p0f1v1"]["match"]["macaddress"] == "02:d6:01:01:00:01"
    assert ethernets["dgx-p0f1v1"]["addresses"] == ["10.100.9.1/24"]
    assert ethernets["dgx-p0f1"]["match"] == {"name": "enP2p1s0f0np0"}
    assert "addresses" not in ethernets["dgx-p0f1"]
    assert len(ethernets) == 6
    for one in ethernets.values():
        assert one["optional"] is True
        assert one["mtu"] == 9000
        assert one["link-local"] == []
        assert one["dhcp4"] is False
        assert "set-name" not in one
        assert "renderer" not in one


@given(vfs=st.integers(0, 7), renderer=st.sampled_from([None, "networkd", "NetworkManager"]))
def test_the_file_never_clashes_with_itself(vfs: int, renderer: str | None) -> None:
    planned = planned_host(vfs)
    own = netplan.own_file(netplan.render(planned, renderer), "", netplan.PATH)
    devices = netplan.planned_devices(planned)
    assert netplan.find_clashes([own], devices, netplan.PATH) == []
    for device in devices:
        name = f"{('enp1s0f0', 'enP2p1s0f0')[int(device.mac[10])]}v{device.mac[-1]}" if device.mac else None
        named = dataclasses.replace(device, name=device.name or name)
        assert [s.id for s in own.stanzas if is_meant(s, named)], f"{device} is configured by nothing"


def generate(tmp_path: pathlib.Path, renderer: str | None) -> dict[str, str]:
    folder = tmp_path / "etc/netplan"
    folder.mkdir(parents=True)
    (folder / "90.yaml").write_text(yaml.safe_dump(netplan.render(planned_host(), renderer), sort_keys=False))
    (folder / "90.yaml").chmod(0o600)
    done = subprocess.run(
        ["netplan", "generate", "--root-dir", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return {p.name: p.read_text() for p in (tmp_path / "run").rglob("*") if p.is_file()}


@needs_netplan
def test_what_networkd_gets(tmp_path: pathlib.Path) -> None:
    made = generate(tmp_path, None)
    vf = made["10-netplan-dgx-p0f0v0.network"]
    assert "Address=10.100.0.1/24" in vf
    assert "LinkLocalAddressing=no" in vf
    assert "MTUBytes=9000" in vf
    assert "RequiredForOnline=no" in vf
    assert "PermanentMACAddress=02:d6:01:00:00:00" in vf
    assert "Address=" not in made["10-netplan-dgx-p0f0.network"].replace("LinkLocalAddressing=", "")


@needs_netplan
def test_no_link_file_takes_a_vf_that_has_not_been_named_yet(tmp_path: pathlib.Path) -> None:
    """udev takes the first .link file that matches a device by its kernel name; ours has no naming policy."""
    for name, text in generate(tmp_path, None).items():
        if name.endswith(".link"):
            pattern = re.search(r"^OriginalName=(.+)$", text, re.MULTILINE)
            assert pattern, f"{name} is taken whatever the device is called"
            assert not is_meant(stanza("x", name=pattern[1]), Device("eth3"))


@needs_netplan
def test_what_networkmanager_gets(tmp_path: pathlib.Path) -> None:
    made = generate(tmp_path, "NetworkManager")
    vf, pf = (made[f"netplan-dgx-p0f0{what}.nmconnection"] for what in ("v0", ""))
    assert "address1=10.100.0.1/24" in vf
    assert "mac-address=02:d6:01:00:00:00" in vf
    assert "\ninterface-name=enp1s0f0v0\n" in vf, "netplan apply neither disconnects nor flushes another"
    assert "\ninterface-name=enp1s0f0np0\n" in pf
    for text in (vf, pf):
        assert "mtu=9000" in text
        assert "method=link-local" not in text, "169.254 addresses give GIDs that are not valid here"
        assert "method=ignore" not in text, "the kernel then makes fe80 addresses"
    assert not [name for name in made if name.endswith(".network")]


@given(vfs=st.integers(1, 7), names=st.sampled_from(["enp1s0f0v{}", "rail{}", None]))
def test_netplan_finds_every_device_of_ours_that_networkmanager_has(vfs: int, names: str | None) -> None:
    """`netplan apply` disconnects what a line `interface-name=` names: only then is a new address given (netplan 0.107 to 1.2)."""
    planned = planned_host(vfs)
    one = planned.functions[0]
    there = tuple(dataclasses.replace(vf, netdev=names and names.format(vf.index)) for vf in one.vfs)
    planned = dataclasses.replace(planned, functions=(dataclasses.replace(one, vfs=there), *planned.functions[1:]))
    devices = [names.format(i) if names else f"enp1s0f0v{i}" for i in range(vfs)] + ["enp1s0f0np0", "enP7s7"]
    found = [
        device
        for stanza in netplan.render(planned, netplan.MANAGER)["network"]["ethernets"].values()
        for device in fnmatch.filter(devices, profile_name(stanza))
    ]
    assert sorted(found) == sorted(devices[:-1])


def profile_name(stanza: dict[str, Any]) -> str:
    """The value of `interface-name=` in a profile, as src/nm.c writes it and netplan_cli/cli/utils.py reads it."""
    name = str(stanza["match"].get("name", ""))
    return f"{name};" if set(name) & set("*[]?") else name


def test_functions_with_other_names_have_vfs_with_other_names() -> None:
    planned = planned_host()
    renamed = tuple(dataclasses.replace(f, netdev=f"eth{i}") for i, f in enumerate(planned.functions))
    ethernets = netplan.render(dataclasses.replace(planned, functions=renamed))["network"]["ethernets"]
    assert ethernets["dgx-p0f0v0"]["match"] == {"macaddress": "02:d6:01:00:00:00"}


# --- which device a stanza means --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "device", "meant"),
    [
        (stanza("enP7s7"), ETH, True),
        (stanza("enP7s7"), PF0, False),
        (stanza("any", name="en*"), ETH, True),
        (stanza("any", name="eth*"), ETH, False),
        (stanza("any", name="!eth*"), ETH, True),
        (stanza("any", name="EN*"), ETH, False),
        (stanza("any", macaddress="52:54:00:00:00:01"), ETH, True),
        (stanza("any", macaddress="52:54:00:00:00:01".upper()), ETH, True),
        (stanza("any", macaddress="52:54:00:00:00:02"), ETH, False),
        (stanza("any", driver="virtio*"), ETH, True),
        (stanza("any", driver=["igb", "igbvf"]), V0, True),
        (stanza("any", driver=["igb"]), V0, False),
        (stanza("any", driver="igbvf", name="enp1*"), V0, True),
        (stanza("any", driver="igbvf", name="enp2*"), V0, False),
        (stanza("any", driver="igb"), Device("ghost", "02:00:00:00:00:01"), False),
        (stanza("mgmt", name="eth0", set_name="enP7s7"), ETH, True),
        (stanza("mgmt", name="eth0", macaddress="52:54:00:00:00:09", set_name="enP7s7"), ETH, False),
        (stanza("enP7s7", kind="bonds"), ETH, False),
        (stanza("enP7s7", kind="wifis"), ETH, True),
    ],
)
def test_a_stanza_means_a_device_by_id_name_mac_or_driver(one: NetplanStanza, device: Device, meant: bool) -> None:
    assert is_meant(one, device) is meant


@given(st.lists(st.integers(10, 59), min_size=6, max_size=6))
def test_a_mac_that_yaml_took_for_a_number_is_still_that_mac(digits: list[int]) -> None:
    text = ":".join(map(str, digits))
    read = yaml.safe_load(text)
    assert isinstance(read, int)
    assert netplan.normal_mac(read) == text
    assert is_meant(stanza("any", macaddress=read), Device("eth0", text))


# --- clashes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("theirs", "device"),
    [
        (stanza("enp1s0f0np0"), PF0),
        (stanza("mine", name="enp1s0f0*"), PF0),
        (stanza("mine", driver="igb"), PF0),
        (stanza("mine", macaddress="02:d6:01:00:00:00"), V0),
        (stanza("enp1s0f0v0"), V0),
    ],
)
def test_a_clash_names_files_stanzas_and_device(theirs: NetplanStanza, device: Device) -> None:
    foreign = netplan.judge_clashes(
        [file("/etc/netplan/40-cx7.yaml", theirs), ours()], [PF0, V0, ETH], netplan.PATH, "refuse"
    )
    text = "\n".join(map(str, foreign.findings))
    for word in ("/etc/netplan/40-cx7.yaml", netplan.PATH, theirs.id, "dgx-p0f0", str(device.name), "absorb"):
        assert word in text
    assert foreign.stanzas == ()


def test_absorbing_takes_fabric_stanzas_and_only_those() -> None:
    files = [file("/etc/netplan/40-cx7.yaml", stanza("enp1s0f0np0"), stanza("enp1s0f1np1"), stanza("enP7s7")), ours()]
    foreign = netplan.judge_clashes(files, [PF0, V0, ETH], netplan.PATH, "absorb")
    assert [claim.id for claim in foreign.stanzas] == ["enp1s0f0np0"]
    assert foreign.findings == ()


def test_a_stanza_that_also_means_the_management_interface_is_never_absorbed() -> None:
    files = [file("/etc/netplan/10-all.yaml", stanza("all", name="e*")), ours()]
    foreign = netplan.judge_clashes(files, [PF0, V0, ETH], netplan.PATH, "absorb")
    assert foreign.stanzas == ()
    assert "enP7s7" in str(foreign.findings[0])


def test_two_stanzas_for_a_device_that_is_none_of_ours_are_refused_even_when_absorbing() -> None:
    files = [
        file("/etc/netplan/01.yaml", stanza("enP7s7")),
        file("/etc/netplan/50.yaml", stanza("m", name="enP*")),
        ours(),
    ]
    foreign = netplan.judge_clashes(files, [PF0, V0, ETH], netplan.PATH, "absorb")
    text = str(foreign.findings[0])
    assert "/etc/netplan/01.yaml" in text
    assert "/etc/netplan/50.yaml" in text
    assert foreign.stanzas == ()


def test_one_stanza_in_two_parts_is_one_stanza_to_netplan() -> None:
    files = [file("/etc/netplan/01.yaml", stanza("enP7s7")), file("/etc/netplan/50.yaml", stanza("enP7s7")), ours()]
    assert netplan.find_clashes(files, [PF0, V0, ETH], netplan.PATH) == []


def test_a_stanza_with_the_id_of_ours_clashes_whatever_it_matches() -> None:
    files = [file("/etc/netplan/01.yaml", stanza("dgx-p0f0", name="wlan0")), ours()]
    foreign = netplan.judge_clashes(files, [PF0, V0, ETH], netplan.PATH, "refuse")
    assert "/etc/netplan/01.yaml" in str(foreign.findings[0])


def test_a_file_that_cannot_be_read_is_refused_by_name_and_line() -> None:
    files = [file("/etc/netplan/60-bad.yaml", error="line 3: not valid YAML"), ours()]
    foreign = netplan.judge_clashes(files, [PF0], netplan.PATH, "absorb")
    assert "/etc/netplan/60-bad.yaml" in str(foreign.findings[0])
    assert "line 3" in str(foreign.findings[0])


@given(st.permutations([PF0, V0, ETH]), st.permutations(["a", "b"]))
def test_what_is_absorbed_does_not_hang_on_any_order(devices: list[Device], names: list[str]) -> None:
    files = [*(file(f"/etc/netplan/{n}.yaml", stanza(f"{n}-pf", driver="igb*")) for n in names), ours()]
    for order in itertools.permutations(files):
        foreign = netplan.judge_clashes(list(order), devices, netplan.PATH, "absorb")
        assert {claim.id for claim in foreign.stanzas} == {"a-pf", "b-pf"}


# --- drift ------------------------------------------------------------------------------------------------------------


def node(**changes: object) -> Node:
    """A node on which all is as planned."""
    planned = planned_host()
    own = netplan.own_file(netplan.render(planned), text_of(planned), netplan.PATH)
    functions = tuple(
        Function(
            pci=f"0000:0{number + 1}:00.0",
            netdev=Netdev(function.netdev, f"4c:bb:47:00:00:0{number}", 9000),
            vfs=tuple(
                Vf(
                    index=vf.index,
                    pci="",
                    netdev=Netdev(f"vf{number}", vf.mac, 9000, ipv4=(f"{vf.address}/{vf.prefix}",)),
                    place=Place("host"),
                )
                for vf in function.vfs
            ),
        )
        for number, function in enumerate(planned.functions)
    )
    return Node(**{"functions": functions, "netplan": Netplan("networkd", files=(own,)), **changes})  # type: ignore[arg-type]


def drift(of: Node) -> dict[str, str]:
    planned = planned_host()
    return {change.what: change.subject for change in netplan.drift(of, planned, text_of(planned))}


def vf_in(of: Node, **changes: object) -> Node:
    first = of.functions[0]
    changed = dataclasses.replace(first.vfs[0], **changes)  # type: ignore[arg-type]
    return dataclasses.replace(of, functions=(dataclasses.replace(first, vfs=(changed,)), *of.functions[1:]))


def test_a_node_that_is_as_planned_does_not_differ() -> None:
    assert drift(node()) == {}


def test_what_differs_is_told() -> None:
    own = node().netplan.files[0]
    assert drift(node(netplan=Netplan("networkd"))) == {"file": netplan.PATH}
    assert drift(node(netplan=Netplan(files=(dataclasses.replace(own, sha256="1" * 64),)))) == {"file": netplan.PATH}
    assert drift(node(netplan=Netplan(files=(dataclasses.replace(own, mode="0644"),)))) == {"mode": netplan.PATH}
    assert "unconfirmed change" in drift(node(netplan=Netplan(files=(own,), pending="abc")))
    foreign = file("/etc/netplan/40-cx7.yaml", stanza("enp1s0f0np0"))
    assert "netplan stanzas" in drift(node(netplan=Netplan(files=(foreign, own))))
    bad = file("/etc/netplan/40-cx7.yaml", error="line 1: not valid YAML")
    assert drift(node(netplan=Netplan(files=(bad, own)))) == {"netplan file": "/etc/netplan/40-cx7.yaml"}


def test_a_vf_on_the_host_without_its_address_or_mtu_differs() -> None:
    vf = node().functions[0].vfs[0].netdev
    assert vf
    assert drift(vf_in(node(), netdev=dataclasses.replace(vf, ipv4=()))) == {"IPv4": "vf0"}
    assert drift(vf_in(node(), netdev=dataclasses.replace(vf, mtu=1500))) == {"MTU": "vf0"}


def test_a_vf_without_the_route_of_its_address_differs() -> None:
    """A link that is down has no routes, and gets them with its link; a node of which routes were not read has none to judge."""
    vf = node().functions[0].vfs[0].netdev
    assert vf
    network = str(ipaddress.ip_interface(vf.ipv4[0]).network)
    for networks, state, found in (
        ((), "up", {"route": "vf0"}),
        ((), "unknown", {"route": "vf0"}),
        ((), "down", {}),
        (None, "up", {}),
        ((network,), "up", {}),
        (("0.0.0.0/0",), "up", {"route": "vf0"}),
    ):
        assert drift(vf_in(node(), netdev=dataclasses.replace(vf, routes=networks, operstate=state))) == found


def test_a_vf_that_gets_another_mac_and_address_tells_both_addresses() -> None:
    """A host whose index changes: until its MAC is changed, the VF is known by its function and index alone."""
    vf = node().functions[0].vfs[0].netdev
    assert vf
    moved = dataclasses.replace(vf, mac="02:d6:00:09:00:00", ipv4=("10.100.0.9/24",))
    planned = planned_host()
    found = netplan.drift(vf_in(node(), netdev=moved), planned, text_of(planned))
    assert [(c.subject, c.what, c.before, c.after) for c in found] == [
        ("vf0", "IPv4", ["10.100.0.9/24"], list(vf.ipv4))
    ]
    nobody = dataclasses.replace(moved, ipv4=())  # as the kernel makes it
    assert netplan.drift(vf_in(node(), netdev=nobody), planned, text_of(planned)) == []


def test_a_vf_in_a_pod_or_gone_is_not_netplan_s_business() -> None:
    vf = node().functions[0].vfs[0].netdev
    assert vf
    bare = dataclasses.replace(vf, ipv4=(), mtu=1500)
    assert drift(vf_in(node(), netdev=bare, place=Place("pod", "/run/netns/cni-1", 1))) == {}
    assert drift(vf_in(node(), netdev=None, place=Place("unbound"))) == {}


def python(command: Sequence[str]) -> tuple[int, str, str]:
    """Run a program as the node's Python."""
    done = subprocess.run([sys.executable, *command[1:]], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(("match", "claims"), [("match: {}", True), ("", False), ("match: {name: enP7s7}", False)])
def test_a_match_without_a_condition_claims_every_device(tmp_path: pathlib.Path, match: str, claims: bool) -> None:
    """As netplan writes NetworkManager's connection of no interface: it is DHCP on every port."""
    folder = tmp_path / "etc" / "netplan"
    folder.mkdir(parents=True)
    (folder / "90-NM-66.yaml").write_text(
        f"network: {{ethernets: {{NM-66: {{renderer: NetworkManager, {match or 'optional: true'}, dhcp4: true}}}}}}\n"
    )

    files = read_system(python, system_root=str(tmp_path))[0].files
    own = NetplanFile(netplan.PATH, "", "0600", (stanza("dgxspark-p0f0v0", macaddress=V0.mac),), None)
    clashes = netplan.find_clashes([*files, own], [V0], netplan.PATH)
    assert bool(clashes) == claims
    assert is_meant(files[0].stanzas[0], PF0) == claims


# --- what applying interrupts -----------------------------------------------------------------------------------------

# An owner's stanza, the renderer of all, an interface with an address, and whether `netplan apply` takes it down.
APPLIED = [
    ("ethernets: {NM-1: {match: {name: enP7s7}}}", "NetworkManager", "enP7s7", True),
    ("ethernets: {enP7s7: {dhcp4: true}}", "NetworkManager", "enP7s7", True),
    ("ethernets: {x: {match: {macaddress: '52:54:00:00:00:01'}, set-name: enP7s7}}", "NetworkManager", "enP7s7", True),
    ("bonds: {bond0: {interfaces: []}}", "NetworkManager", "bond0", True),
    ("ethernets: {renderer: NetworkManager, enP7s7: {}}", "networkd", "enP7s7", True),
    ("ethernets: {enP7s7: {renderer: NetworkManager}}", "networkd", "enP7s7", True),
    ("wifis: {wlP9s9: {}}", "networkd", "wlP9s9", True),
    ("wifis: {NM-2: {match: {}, renderer: NetworkManager}}", "NetworkManager", "wlP9s9", True),
    ("wifis: {NM-2: {match: {}, renderer: NetworkManager}}", "NetworkManager", "enP7s7", False),
    ("ethernets: {enP7s7: {}}", "networkd", "enP7s7", False),
    ("ethernets: {enP7s7: {renderer: networkd}}", "NetworkManager", "enP7s7", False),
    ("ethernets: {NM-1: {match: {name: 'enP*'}}}", "NetworkManager", "enP7s7", False),  # netplan does not find it
    ("ethernets: {NM-1: {match: {}}}", "NetworkManager", "enP7s7", False),
    ("ethernets: {enP7s8: {}}", "NetworkManager", "enP7s7", False),
]


def test_what_netplan_takes_down_whenever_it_is_applied(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "etc/netplan"
    folder.mkdir(parents=True)
    for number, (stanza, renderer, _name, _down) in enumerate(APPLIED):
        (folder / f"{number:02}.yaml").write_text(f"network: {{renderer: {renderer}, {stanza}}}\n")
    files = read_system(python, system_root=str(tmp_path))[0].files
    for (stanza, renderer, name, down), file in zip(APPLIED, files, strict=True):
        other = (Netdev(name, ipv4=("192.168.50.168/24",)),)
        found = netplan.interruptions(Node(netplan=Netplan(renderer, files=(file,)), other=other))
        assert bool(found) == down, stanza
        for words in (name, "192.168.50.168/24", file.path) if found else ():
            assert words in str(found[0])
