"""What the fabric roles did, seen from outside them: `ip`, sysfs, `ibv_devinfo` on each node.

The expectations are written out here for the lab inventory (two functions, two VFs each, 10.100.0.0/16, MTU 9000), not
computed by the planner that is under test.
"""

from __future__ import annotations

import atexit
import ipaddress
import json
import os
import shutil
import tempfile

import pytest

# How many of the four Sparks a scenario boots. testinfra does not evaluate templates in an inventory, so it is given
# the lab's ssh configuration.
NODES = {"default": 2}.get(os.environ.get("MOLECULE_SCENARIO_NAME", ""), 4)
CACHE = os.environ.get("DGXSPARK_LAB_CACHE") or os.path.expanduser("~/.cache/dgxspark-lab")
PORT = int(os.environ.get("DGXSPARK_LAB_PORT") or 22200)
# A login costs an emulated node more than most commands do: one serves all tests of a node.
SOCKETS = tempfile.mkdtemp(prefix="dgxspark-")
atexit.register(shutil.rmtree, SOCKETS, ignore_errors=True)
MASTER = f"  ControlMaster auto\n  ControlPath {SOCKETS}/%C\n  ControlPersist 10\n"
SSH = "".join(
    f"Host spark{number}\n  HostName 127.0.0.1\n  Port {PORT + number}\n  User root\n  IdentityFile {CACHE}/id_lab\n"
    f"  HostKeyAlias dgxspark-lab\n  UserKnownHostsFile {CACHE}/known_hosts\n{MASTER}"
    for number in range(1, NODES + 1)
)
with tempfile.NamedTemporaryFile("w", prefix="dgxspark-ssh-", delete=False) as _file:
    _file.write(SSH)
atexit.register(os.unlink, _file.name)
testinfra_hosts = [f"ssh://spark{number}?ssh_config={_file.name}" for number in range(1, NODES + 1)]

FUNCTIONS = {"enp1s0f0np0": "enp1s0f0v", "enP2p1s0f0np0": "enP2p1s0f0v"}
VFS = [(pf, f"{stem}{index}") for pf, stem in FUNCTIONS.items() for index in range(2)]


@pytest.fixture
def links(host):  # type: ignore[no-untyped-def]
    return {link["ifname"]: link for link in json.loads(host.check_output("ip -j -d address show"))}


def ipv4(link: dict) -> list[ipaddress.IPv4Interface]:
    return [
        ipaddress.IPv4Interface(f"{a['local']}/{a['prefixlen']}") for a in link["addr_info"] if a["family"] == "inet"
    ]


@pytest.mark.parametrize("pf", FUNCTIONS)
def test_each_function_has_its_vfs(host, pf):  # type: ignore[no-untyped-def]
    assert host.file(f"/sys/class/net/{pf}/device/sriov_numvfs").content_string.strip() == "2"


@pytest.mark.parametrize(("pf", "vf"), VFS)
def test_a_vf_is_up_with_large_frames_its_own_mac_and_one_address(host, links, pf, vf):  # type: ignore[no-untyped-def]
    link = links[vf]
    assert "UP" in link["flags"]
    assert link["mtu"] == links[pf]["mtu"] == 9000
    assert link["address"].startswith("02:")
    addresses = ipv4(link)
    assert len(addresses) == 1
    assert addresses[0].ip in ipaddress.ip_network("10.100.0.0/16")


def test_no_two_vfs_share_a_subnet_or_a_mac(links):  # type: ignore[no-untyped-def]
    names = [vf for _pf, vf in VFS]
    assert len({ipv4(links[name])[0].network for name in names}) == len(names)
    assert len({links[name]["address"] for name in names}) == len(names)


@pytest.mark.parametrize(("pf", "vf"), VFS)
@pytest.mark.parametrize(("key", "value"), [("arp_ignore", 1), ("arp_announce", 2), ("rp_filter", 2)])
def test_twins_do_not_answer_for_each_other(host, pf, vf, key, value):  # type: ignore[no-untyped-def]
    for name in (pf, vf):
        assert host.file(f"/proc/sys/net/ipv4/conf/{name}/{key}").content_string.strip() == str(value)


@pytest.mark.parametrize(("pf", "vf"), VFS)
def test_the_gid_of_a_vf_is_its_own_ipv4(host, links, pf, vf):  # type: ignore[no-untyped-def]
    """ibv_devinfo is rdma-core's own view; the RDMA device of a VF is found by the link that `rdma` reports."""
    devices = {link["netdev"]: link["ifname"] for link in json.loads(host.check_output("rdma -j link show"))}
    table = host.check_output(f"ibv_devinfo -v -d {devices[vf]}")
    assert f"::ffff:{ipv4(links[vf])[0].ip}" in table
    assert "PORT_ACTIVE" in table


def test_what_restores_it_at_boot_is_enabled(host):  # type: ignore[no-untyped-def]
    assert host.service("dgxspark-fabric").is_enabled


def test_the_netplan_file_is_for_root_only(host):  # type: ignore[no-untyped-def]
    assert host.file("/etc/netplan/90-dgxspark-fabric.yaml").mode == 0o600


def test_no_unconfirmed_change_is_left(host):  # type: ignore[no-untyped-def]
    assert not host.file("/var/lib/dgxspark/netplan/pending").exists
