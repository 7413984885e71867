"""What is read of /sys, on trees laid out as the kernel's."""

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.sysfs import GID_GAP, Sysfs
from ansible_collections.dgxspark.cluster.tests.unit.fakes import FakeNode, lab, spark

IPV4 = "0000:0000:0000:0000:0000:ffff:0a64:0001"
LOCAL = "fe80:0000:0000:0000:3800:00ff:fe01:0000"


def gids(node: FakeNode, hca: str) -> list[tuple[int, str | None, str | None]]:
    return [(gid.index, gid.type, gid.netdev) for gid in Sysfs(node.sysfs).hca(hca).ports[0].gids]


def test_physical_functions_are_found_by_device_id_and_vfs_are_not_among_them(tmp_path: pathlib.Path) -> None:
    node = spark(tmp_path, vfs=2)
    assert Sysfs(node.sysfs).physical_functions(["15B3:1021"]) == [
        "0000:01:00.0",
        "0000:01:00.1",
        "0002:01:00.0",
        "0002:01:00.1",
    ]
    # Some adapters give VFs the id of their PF.
    assert len(Sysfs(node.sysfs).physical_functions(["15b3:1021", "15b3:101e"])) == 4
    assert Sysfs(node.sysfs).physical_functions(["8086:10c9"]) == []


def test_vfs_come_in_order_of_number_not_of_text(tmp_path: pathlib.Path) -> None:
    node = spark(tmp_path, vfs=0, ports=[0])
    node.vf_pattern["0000:01:00.0"] = ("x{index}", "0000:01:02.{index}", "15b3:101e", None)
    node.make_vfs("0000:01:00.0", 12)
    assert [index for index, _pci in Sysfs(node.sysfs).virtual_functions("0000:01:00.0")] == list(range(12))


def test_a_link_that_is_down_has_no_speed_and_no_carrier(tmp_path: pathlib.Path) -> None:
    node = spark(tmp_path, vfs=1)
    up, down = Sysfs(node.sysfs).netdev("enp1s0f0np0"), Sysfs(node.sysfs).netdev("enp1s0f0v0")
    assert (up.operstate, up.carrier, up.speed_mbps) == ("up", True, 100000)
    assert (down.operstate, down.carrier, down.speed_mbps) == ("down", None, None)
    node.devices["enp1s0f0np0"].carrier = False
    node.sync()
    pulled = Sysfs(node.sysfs).netdev("enp1s0f0np0")
    assert (pulled.carrier, pulled.speed_mbps) == (False, None)  # the kernel says -1 for an unknown speed


def test_the_hca_of_an_mlx5_function_is_its_child(tmp_path: pathlib.Path) -> None:
    sysfs = Sysfs(spark(tmp_path, vfs=1).sysfs)
    assert sysfs.hca_of("0002:01:01.0", None) == "roceP2p1s0f0v0"


@pytest.mark.parametrize("parent", [True, False], ids=["parent", "ndevs"])
def test_the_hca_of_a_soft_roce_netdev_is_what_the_kernel_says(tmp_path: pathlib.Path, parent: bool) -> None:
    node = lab(tmp_path, vfs=3)
    if not parent:
        for file in tmp_path.glob("sys/class/infiniband/*/parent"):
            file.unlink()
    sysfs = Sysfs(node.sysfs)
    assert sysfs.hca_of("0000:02:10.2", "enP2p1s0f0v2") == "roce_y2"
    assert sysfs.hca_of("0000:01:10.0", "enp1s0f0v0") == "roce_x0"
    assert sysfs.hca_of("0000:01:00.0", "enp1s0f0np0") is None


def test_in_switchdev_mode_the_uplink_is_the_function_s_netdev(tmp_path: pathlib.Path) -> None:
    node = spark(tmp_path, vfs=0)
    for name in ("aaa0", "zzz0"):  # representors, children of the same PCI function
        (tmp_path / f"sys/bus/pci/devices/0000:01:00.0/net/{name}").mkdir()
        (tmp_path / f"sys/class/net/{name}").mkdir()
        (tmp_path / f"sys/class/net/{name}/phys_port_name").write_text("pf0vf0\n")
    assert Sysfs(node.sysfs).netdev_of("0000:01:00.0") == "enp1s0f0np0"


def test_empty_and_unreadable_gid_entries_are_skipped(tmp_path: pathlib.Path) -> None:
    node = lab(tmp_path, vfs=1)
    node.gids("roce_x0", [(LOCAL, "RoCE v2", "enp1s0f0v0"), None, None, (IPV4, "RoCE v2", "enp1s0f0v0")])
    gid = tmp_path / "sys/class/infiniband/roce_x0/ports/1/gids/1"
    gid.unlink()
    gid.mkdir()
    assert gids(node, "roce_x0") == [(0, "RoCE v2", "enp1s0f0v0"), (3, "RoCE v2", "enp1s0f0v0")]


def test_an_entry_without_attributes_is_told_as_it_is(tmp_path: pathlib.Path) -> None:
    node = lab(tmp_path, vfs=1)
    node.gids("roce_x0", [(IPV4, "RoCE v2", "enp1s0f0v0")])
    for what in ("types", "ndevs"):
        (tmp_path / f"sys/class/infiniband/roce_x0/ports/1/gid_attrs/{what}/0").unlink()
    assert gids(node, "roce_x0") == [(0, None, None)]


def test_a_large_table_is_read_as_far_as_it_can_be_used(tmp_path: pathlib.Path) -> None:
    node = lab(tmp_path, vfs=1)
    entry = (IPV4, "RoCE v2", "enp1s0f0v0")
    gap = [None] * (GID_GAP - 1)
    node.gids("roce_x0", [entry, *gap, entry, *gap, entry, None, *gap, entry])
    assert [index for index, _type, _netdev in gids(node, "roce_x0")] == [0, GID_GAP, 2 * GID_GAP]


def test_a_port_s_attributes_lose_their_numbers(tmp_path: pathlib.Path) -> None:
    node = spark(tmp_path, vfs=1)
    (port,) = Sysfs(node.sysfs).hca("rocep1s0f0").ports
    assert (port.state, port.phys_state, port.link_layer, port.rate_gbps) == ("ACTIVE", "LinkUp", "Ethernet", 100.0)
    (port,) = Sysfs(node.sysfs).hca("rocep1s0f0v0").ports
    assert (port.state, port.phys_state) == ("DOWN", "Disabled")


def test_what_is_absent_is_unknown(tmp_path: pathlib.Path) -> None:
    sysfs = Sysfs(str(tmp_path / "nothing"))
    assert sysfs.physical_functions(["15b3:1021"]) == []
    assert sysfs.netdev("x").mtu is None
    assert sysfs.hca("x").ports == ()
    assert sysfs.hca_of("0000:01:00.0", "x") is None
    assert sysfs.device_id("0000:01:00.0") is None


def test_of_several_hcas_for_a_name_the_one_made_of_its_mac_is_meant(tmp_path: pathlib.Path) -> None:
    node = lab(tmp_path, vfs=3)
    # Other pods have a netdev of this name too, and their RDMA devices are seen from everywhere.
    for hca in ("roce_x0", "roce_x2"):
        (tmp_path / f"sys/class/infiniband/{hca}/parent").write_text("enp1s0f0v1\n")
    assert Sysfs(node.sysfs).hca_of(None, "enp1s0f0v1") == "roce_x1"
