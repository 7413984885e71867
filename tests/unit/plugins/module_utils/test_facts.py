"""read_node on fake nodes: hardware, VFs wherever they are, and what the system says."""

from __future__ import annotations

import json
import pathlib
import types
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils import facts
from ansible_collections.dgxspark.cluster.plugins.module_utils.facts import read_node
from ansible_collections.dgxspark.cluster.plugins.module_utils.sysfs import Sysfs
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import (
    CollectionError,
    Node,
    Vf,
    from_plain,
    to_plain,
)
from ansible_collections.dgxspark.cluster.tests.unit.fakes import Device, FakeNode, lab, spark


def read(node: FakeNode, **more: t.Any) -> Node:
    return read_node(
        Sysfs(node.sysfs), node.run, device_ids=node.device_ids, **{**node.roots, "enter": node.enter, **more}
    )


def vf(node: FakeNode, index: int, function: int = 0, **more: t.Any) -> Vf:
    return read(node, **more).functions[function].vfs[index]


def addresses(found: Vf) -> list[str | None]:
    assert found.hca
    return [gid.ipv4 for port in found.hca.ports for gid in port.gids if gid.ipv4]


# --- hardware -----------------------------------------------------------------------------------------------------


def test_a_spark_shows_its_functions_and_vfs(tmp_path: pathlib.Path) -> None:
    node = spark(tmp_path, vfs=2)
    functions = read(node).functions
    assert [(f.pci, f.netdev and f.netdev.name, f.hca and f.hca.name, f.phys_port) for f in functions] == [
        ("0000:01:00.0", "enp1s0f0np0", "rocep1s0f0", "p0"),
        ("0000:01:00.1", "enp1s0f1np1", "rocep1s0f1", "p1"),
        ("0002:01:00.0", "enP2p1s0f0np0", "roceP2p1s0f0", "p0"),
        ("0002:01:00.1", "enP2p1s0f1np1", "roceP2p1s0f1", "p1"),
    ]
    first = functions[0]
    assert (first.device_id, first.driver, first.totalvfs, first.numvfs) == ("15b3:1021", "mlx5_core", 16, 2)
    assert (first.eswitch, first.firmware) == ("legacy", "28.45.4028")
    assert [(v.index, v.pci, v.netdev and v.netdev.name, v.place.state) for v in first.vfs] == [
        (0, "0000:01:01.0", "enp1s0f0v0", "host"),
        (1, "0000:01:01.1", "enp1s0f0v1", "host"),
    ]


def test_one_go_needs_few_commands(tmp_path: pathlib.Path) -> None:
    node = spark(tmp_path)
    (tmp_path / "etc/netplan/a.yaml").write_text("network: {version: 2}\n")
    (tmp_path / "etc/netplan/b.yaml").write_text("network: {version: 2}\n")
    read(node, units=["a.service", "b.service"])
    assert node.run.count("devlink") == 4  # one for each mlx5 function
    others = [call[0] for call in node.run.calls if call[0] != "devlink"]
    # ip: interfaces with their addresses, and routes. systemctl: the states of units by name, and those of ours that have failed.
    assert sorted(others) == ["/usr/bin/python3", "ibv_devinfo", "ip", "ip", "rdma", "systemctl", "systemctl"]


def test_a_repeated_check_needs_one_command(tmp_path: pathlib.Path) -> None:
    node = lab(tmp_path)
    node.address("enp1s0f0v0", "10.100.0.1/24")
    assert addresses(vf(node, 0, details=False)) == ["10.100.0.1"]
    assert [call[0] for call in node.run.calls] == ["ip"]


def test_no_devlink_for_what_has_no_eswitch(tmp_path: pathlib.Path) -> None:
    node = lab(tmp_path)
    assert read(node).functions[0].eswitch is None
    assert node.run.count("devlink") == 0


def test_what_the_pf_holds_for_its_vfs(tmp_path: pathlib.Path) -> None:
    node = lab(tmp_path, vfs=2)
    node.run(
        ["ip", "link", "set", "enp1s0f0np0", "vf", "1", "mac", "02:d6:00:00:00:01", "trust", "on", "spoofchk", "off"]
    )
    held = [(v.admin_mac, v.trust, v.spoof_check) for v in read(node).functions[0].vfs]
    assert held == [("00:00:00:00:00:00", False, True), ("02:d6:00:00:00:01", True, False)]


def test_addresses_mtu_and_arp_sysctls_of_a_netdev(tmp_path: pathlib.Path) -> None:
    node = lab(tmp_path, vfs=1)
    node.devices["enp1s0f0v0"].mtu = 9000
    node.address("enp1s0f0v0", "10.100.0.1/24", "10.9.0.1/16")
    conf = tmp_path / "proc/sys/net/ipv4/conf/enp1s0f0v0"
    for name, value in (("arp_ignore", 1), ("arp_announce", 2), ("rp_filter", 2)):
        (conf / name).write_text(f"{value}\n")
    netdev = vf(node, 0).netdev
    assert netdev and netdev.mtu == 9000 and netdev.ipv4 == ("10.100.0.1/24", "10.9.0.1/16")
    assert (netdev.arp.arp_ignore, netdev.arp.arp_announce, netdev.arp.rp_filter) == (1, 2, 2)


def test_the_networks_to_which_a_netdev_has_a_route(tmp_path: pathlib.Path) -> None:
    node = lab(tmp_path, vfs=1)
    node.address("enp1s0f0v0", "10.100.0.1/24")
    routes = [
        {"dst": "default", "gateway": "10.0.2.2", "dev": "ens3"},
        {"dst": "10.100.0.0/24", "dev": "enp1s0f0v0", "protocol": "kernel", "scope": "link"},
        {"type": "local", "dst": "10.100.0.1", "dev": "enp1s0f0v0", "table": "local"},
        {"type": "broadcast", "dst": "10.100.0.255", "dev": "enp1s0f0v0", "table": "local"},
        {"dst": "10.7.0.0/16", "table": "7", "nexthops": [{"dev": "enp1s0f0v0"}, {"dev": "ens3"}]},
        {"type": "blackhole", "dst": "10.8.0.0/16"},
    ]
    node.run.on(["ip", "-j", "-4", "route", "show", "table", "all"], (0, json.dumps(routes), ""))
    netdev = vf(node, 0).netdev
    assert netdev and netdev.routes == ("10.100.0.0/24", "10.7.0.0/16")
    node.run.on(["ip", "-j", "-4", "route", "show", "table", "all"], (1, "", "no"))
    netdev = vf(node, 0).netdev
    assert netdev and netdev.routes is None


def test_active_mtu_comes_of_libibverbs(tmp_path: pathlib.Path) -> None:
    node = spark(tmp_path, vfs=1)
    assert (read(node).functions[0].hca or pytest.fail()).ports[0].active_mtu is None  # not installed
    node.run.on(
        ["ibv_devinfo"],
        (
            0,
            "hca_id:\trocep1s0f0v0\n\ttransport:\t\tInfiniBand (0)\n\t\tport:\t1\n\t\t\tmax_mtu:\t\t4096 (5)\n"
            "\t\t\tactive_mtu:\t\t1024 (3)\n\nhca_id:\trocep1s0f0\n\t\tport:\t1\n\t\t\tactive_mtu:\t\t4096 (5)\n",
            "",
        ),
    )
    function = read(node).functions[0]
    assert function.hca and function.hca.ports[0].active_mtu == 4096
    assert function.vfs[0].hca and function.vfs[0].hca.ports[0].active_mtu == 1024
    assert (read(node).functions[1].hca or pytest.fail()).ports[0].active_mtu is None


@pytest.mark.parametrize("nested", [True, False], ids=["iproute2 6.1", "iproute2 6.10"])
def test_users_are_processes_with_queue_pairs(tmp_path: pathlib.Path, nested: bool) -> None:
    node = spark(tmp_path, vfs=2)
    entries: list[dict[str, t.Any]] = [
        {"ifindex": 1, "ifname": "rocep1s0f0v1", "port": 1, "lqpn": 1, "type": "GSI", "comm": "ib_core"},
        {"ifindex": 1, "ifname": "rocep1s0f0v1", "lqpn": 17, "type": "RC", "pid": 4711, "comm": "python3"},
        {"ifindex": 1, "ifname": "rocep1s0f0v1", "lqpn": 18, "type": "RC", "pid": 4711, "comm": "python3"},
        {"ifindex": 1, "ifname": "rocep1s0f0v1", "lqpn": 19, "type": "RC", "pid": 99, "comm": "ib_write_bw"},
    ]
    node.queue_pairs = [[entry] for entry in entries] if nested else entries  # type: ignore[misc]
    found = read(node).functions[0].vfs
    assert found[0].users == ()
    assert found[1].users == ("ib_write_bw (99)", "python3 (4711)")


def test_who_has_an_rdma_device_open_is_seen_without_a_queue_pair(tmp_path: pathlib.Path) -> None:
    node = spark(tmp_path, vfs=2)
    node.open_device("rocep1s0f0v1", "4711", "python3")
    node.open_device("rocep1s0f0v1", "99", "ibacm")
    (tmp_path / "proc/4711/fd/7").symlink_to("/dev/null")
    found = read(node).functions[0].vfs
    assert (found[0].open_by, found[1].open_by) == ((), ("ibacm (99)", "python3 (4711)"))
    assert found[1].users == ()


@pytest.mark.parametrize(("said", "mode"), [("Y", "shared"), ("N", "exclusive"), (None, None)])
def test_rdma_s_namespace_mode_is_read(tmp_path: pathlib.Path, said: str | None, mode: str | None) -> None:
    node = spark(tmp_path, vfs=0)
    if said:
        node._text("sys/module/ib_core/parameters/netns_mode", f"{said}\n")
    assert read(node).rdma_netns == mode


def test_no_ip_is_one_clear_error(tmp_path: pathlib.Path) -> None:
    node = lab(tmp_path)
    node.run.on(["ip", "-j", "-d", "addr", "show"], (127, "", "ip: not found"))
    with pytest.raises(CollectionError, match="iproute2"):
        read(node)


# --- where VFs are --------------------------------------------------------------------------------------------------


def test_a_vf_in_a_live_pod_is_read_there(tmp_path: pathlib.Path) -> None:
    node = lab(tmp_path, vfs=2)
    pod = node.add_namespace("cni-1", pids=2)
    node.move("enp1s0f0v1", "cni-1", "net1")
    pod.devices["net1"].mtu = 9000
    (pathlib.Path(pod.proc) / "sys/net/ipv4/conf/net1/arp_ignore").write_text("1\n")
    node.address("net1", "10.100.0.7/24")
    node.add_rxe("net1", "rxe_there")
    found = vf(node, 1)
    assert (found.place.state, found.place.pids, found.place.netns) == ("pod", 2, f"{node.netns}/cni-1")
    assert found.netdev and (found.netdev.name, found.netdev.mtu) == ("net1", 9000)
    assert found.netdev.ipv4 == ("10.100.0.7/24",) and found.netdev.arp.arp_ignore == 1
    assert found.hca and found.hca.name == "rxe_there" and addresses(found) == ["10.100.0.7"]
    assert vf(node, 0).place.state == "host"


def test_pods_whose_netdevs_have_one_name_are_told_apart(tmp_path: pathlib.Path) -> None:
    node = lab(tmp_path, vfs=2)
    for index in (0, 1):
        node.add_namespace(f"cni-{index}")
        node.move(f"enp1s0f0v{index}", f"cni-{index}", "net1")
        device = node.namespaces[f"cni-{index}"].devices["net1"]
        device.hca, device.up, device.ipv4 = f"rxe{index}", True, [f"10.100.{index}.1/24"]
    node.sync()
    found = read(node).functions[0].vfs
    assert [(v.netdev and v.netdev.name, v.hca and v.hca.name) for v in found] == [("net1", "rxe0"), ("net1", "rxe1")]
    assert [addresses(v) for v in found] == [["10.100.0.1"], ["10.100.1.1"]]


def test_soft_roce_is_destroyed_by_the_move(tmp_path: pathlib.Path) -> None:
    node = lab(tmp_path, vfs=1)
    node.add_namespace("cni-1")
    node.move("enp1s0f0v0", "cni-1")
    found = vf(node, 0)
    assert found.place.state == "pod" and found.netdev and found.hca is None


def test_mlx5_keeps_its_hca_on_the_host(tmp_path: pathlib.Path) -> None:
    node = spark(tmp_path, vfs=1)
    node.add_namespace("cni-1")
    node.move("enp1s0f0v0", "cni-1", "net1")
    node.address("net1", "10.100.0.7/24")
    found = vf(node, 0)
    assert found.place.state == "pod" and found.hca and found.hca.name == "rocep1s0f0v0"
    assert addresses(found) == ["10.100.0.7"] * 2  # RoCE v1 and v2
    assert {gid.netdev for gid in found.hca.ports[0].gids} == {"net1"}


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> t.Callable[..., list[float]]:
    """Let only sleep advance the clock; the arguments say what the node does in each pause."""

    def patch(*between: t.Callable[[], t.Any]) -> list[float]:
        now, todo = [0.0], list(between)

        def sleep(seconds: float) -> None:
            now.append(now[-1] + seconds)
            if todo:
                todo.pop(0)()

        monkeypatch.setattr(facts, "SETTLE_S", 20.0)
        monkeypatch.setattr(facts, "time", types.SimpleNamespace(sleep=sleep, monotonic=lambda: now[-1]))
        return now

    return patch


def test_a_vf_in_a_namespace_without_processes_is_stranded(tmp_path: pathlib.Path, looks: t.Any) -> None:
    looks()
    node = spark(tmp_path, vfs=1)
    node.add_namespace("cni-1", pids=1)
    node.move("enp1s0f0v0", "cni-1")
    node.end_processes("cni-1")
    place = vf(node, 0).place
    assert (place.state, place.pids, place.netns) == ("stranded", 0, f"{node.netns}/cni-1")


def test_a_vf_of_a_pod_in_the_making_is_not_stranded(tmp_path: pathlib.Path, looks: t.Any) -> None:
    """Its namespace gets its VFs before its first process: it is looked at again."""
    node = lab(tmp_path, vfs=2)
    node.add_namespace("cni-1", pids=0)
    node.move("enp1s0f0v1", "cni-1", "net1")
    looks(lambda: node.address("net1", "10.100.0.7/24"), lambda: node._process("4711", "cni-1"))
    found = vf(node, 1)
    assert (found.place.state, found.place.pids) == ("pod", 1)
    assert found.netdev and found.netdev.ipv4 == ("10.100.0.7/24",)


def test_a_vf_that_a_failed_sandbox_gives_back_is_on_the_host(tmp_path: pathlib.Path, looks: t.Any) -> None:
    node = spark(tmp_path, vfs=1)
    for name in ("cni-1", "cni-2"):
        node.add_namespace(name, pids=0)
    node.move("enp1s0f0v0", "cni-1")
    seen = looks(lambda: node.move("enp1s0f0v0", "cni-2"), lambda: node.move("enp1s0f0v0", None))
    found = vf(node, 0)
    assert found.place.state == "host" and found.netdev and found.netdev.name == "enp1s0f0v0"
    assert len(seen) == 3


@pytest.mark.parametrize("moves", [0, 100])
def test_a_vf_that_stays_without_processes_is_stranded(tmp_path: pathlib.Path, looks: t.Any, moves: int) -> None:
    """Also where it is in another namespace each time, which must not be looked at for ever."""
    node = spark(tmp_path, vfs=1)
    for name in ("cni-0", "cni-1"):
        node.add_namespace(name, pids=0)
    node.move("enp1s0f0v0", "cni-0")
    seen = looks(*(lambda n=n: node.move("enp1s0f0v0", f"cni-{(n + 1) % 2}") for n in range(moves)))
    assert vf(node, 0).place.state == "stranded"
    assert 20 <= seen[-1] <= (61 if moves else 21)


def test_a_namespace_without_a_name_is_found_by_its_processes(tmp_path: pathlib.Path) -> None:
    node = spark(tmp_path, vfs=1)
    node.add_namespace("docker", pids=3, named=False)
    node.move("enp1s0f0v0", "docker")
    place = vf(node, 0).place
    assert (place.state, place.pids) == ("pod", 3)
    assert place.netns and place.netns.startswith(node.proc)


def test_a_vf_without_driver_or_netdev_is_unbound(tmp_path: pathlib.Path) -> None:
    node = spark(tmp_path, vfs=2)
    node.unbind("0000:01:01.0")
    found = vf(node, 0)
    assert (found.place.state, found.driver, found.netdev) == ("unbound", None, None)
    node.bind("0000:01:01.0", "vfio-pci")
    node._forget(node, node.devices["enp1s0f0v0"])
    found = vf(node, 0)
    assert (found.place.state, found.driver) == ("unbound", "vfio-pci")


def test_leftover_names_of_removed_namespaces_do_not_matter(tmp_path: pathlib.Path) -> None:
    node = spark(tmp_path, vfs=1)
    (pathlib.Path(node.netns) / "cni-gone").symlink_to("/nonexistent")
    (pathlib.Path(node.netns) / "cni-file").symlink_to("/proc/self/status")  # of another file system: no namespace
    node.add_namespace("cni-1")
    node.move("enp1s0f0v0", "cni-1")
    assert vf(node, 0).place.state == "pod"


def test_other_namespaces_are_left_alone_while_all_vfs_are_on_the_host(tmp_path: pathlib.Path) -> None:
    node = spark(tmp_path, vfs=1)
    node.add_namespace("cni-1", pids=1)
    node.unbind("0000:01:01.0")  # without a driver it has no netdev anywhere
    entered: list[str] = []
    read(node, enter=lambda path, reader: entered.append(path))
    assert entered == []


def test_no_namespace_is_entered_after_the_last_vf_was_found(tmp_path: pathlib.Path) -> None:
    node = spark(tmp_path, vfs=1)
    for name in ("cni-1", "cni-2", "cni-3"):
        node.add_namespace(name)
    node.move("enp1s0f0v0", "cni-2")
    entered: list[str] = []

    def enter(path: str, reader: t.Any) -> t.Any:
        entered.append(pathlib.Path(path).name)
        return node.enter(path, reader)

    assert vf(node, 0, enter=enter).place.state == "pod"
    assert entered == ["cni-1", "cni-2"]


def test_a_namespace_that_cannot_be_read_matters_if_a_vf_stays_missing(tmp_path: pathlib.Path) -> None:
    node = spark(tmp_path, vfs=1)
    node.add_namespace("cni-1")
    node.add_namespace("cni-2")
    node.move("enp1s0f0v0", "cni-2")

    def enter(path: str, reader: t.Any, refused: str = "cni-1") -> t.Any:
        if path.endswith(refused):
            raise CollectionError(f"network namespace {path} cannot be read: no.")
        return node.enter(path, reader)

    assert vf(node, 0, enter=enter).place.state == "pod"
    with pytest.raises(CollectionError, match=r"0000:01:01\.0.*cni-2"):
        read(node, enter=lambda path, reader: enter(path, reader, "cni-2"))


def test_a_vf_that_comes_back_meanwhile_is_on_the_host(tmp_path: pathlib.Path) -> None:
    node = spark(tmp_path, vfs=1)
    node.add_namespace("cni-1")
    node.move("enp1s0f0v0", "cni-1")

    def enter(path: str, _reader: t.Any) -> t.Any:
        node.move("enp1s0f0v0", None)
        raise CollectionError(f"network namespace {path} cannot be read: it is gone.")

    found = vf(node, 0, enter=enter)
    assert found.place.state == "host" and found.netdev and found.netdev.name == "enp1s0f0v0"


# --- the system ---------------------------------------------------------------------------------------------------


def test_memory_kernel_and_other_interfaces(tmp_path: pathlib.Path) -> None:
    node = spark(tmp_path, vfs=1)
    node.add_device(Device("lo", None, "00:00:00:00:00:00", ipv4=["127.0.0.1/8"]))
    node.add_device(Device("wlan0", None, "00:00:00:00:00:01"))
    node.address("enp1s0f0v0", "10.100.0.1/24")
    node.add_namespace("cni-1")
    node.move("enP2p1s0f0v0", "cni-1", "enP7s7")  # a pod's netdev may have a name that the host has too
    found = read(node)
    assert (found.mem_available_kib, found.kernel, found.ranks) == (117440512, "6.12.0-fake", ())
    assert [(other.name, other.ipv4) for other in found.other] == [("enP7s7", ("192.168.1.11/24",))]


def test_ranks_are_known_by_their_supervisor(tmp_path: pathlib.Path) -> None:
    node = spark(tmp_path, vfs=0)
    programs = {
        "4711": ["python3", "/dgxspark/supervisor.py", "/dgxspark/rank3.json"],
        "4712": ["vim", "/home/me/supervisor.py", "/dgxspark/rank3.json"],
        "4713": [],
    }
    for pid, words in programs.items():
        place = pathlib.Path(node.proc, pid)
        place.mkdir()
        (place / "cmdline").write_text("".join(f"{word}\0" for word in words))
    assert read(node).ranks == ("rank3 (4711)",)


NETPLAN = """
network:
  version: 2
  wifis:
    wlan0:
      access-points: {home: {password: "very secret"}}
  ethernets:
    fabric:
      match: {macaddress: "02:d6:00:00:00:01", driver: [mlx5_core, igbvf]}
      set-name: fab0
      addresses: [10.0.0.1/24]
    enp1s0f0np0:
"""


def test_netplan_s_files_tell_what_finds_clashes_and_no_secret(tmp_path: pathlib.Path) -> None:
    node = spark(tmp_path, vfs=0)
    (tmp_path / "etc/netplan/40-cx7.yaml").write_text(NETPLAN)
    (tmp_path / "etc/netplan/40-cx7.yaml").chmod(0o600)
    (tmp_path / "etc/netplan/40-cx7.yaml.bak").write_text("not read")
    found = read(node)
    (file,) = found.netplan.files
    assert (file.path, file.mode, file.error) == ("/etc/netplan/40-cx7.yaml", "0600", None)
    assert len(file.sha256) == 64
    assert [(s.kind, s.id, s.match, s.set_name) for s in file.stanzas] == [
        ("wifis", "wlan0", {}, None),
        ("ethernets", "fabric", {"macaddress": "02:d6:00:00:00:01", "driver": ["mlx5_core", "igbvf"]}, "fab0"),
        ("ethernets", "enp1s0f0np0", {}, None),
    ]
    assert "secret" not in json.dumps(to_plain(found))


def test_files_shadow_those_of_the_same_name_in_lesser_folders(tmp_path: pathlib.Path) -> None:
    node = spark(tmp_path, vfs=0)
    for folder, names in (("lib", "abc"), ("etc", "bc"), ("run", "c")):
        (tmp_path / f"{folder}/netplan").mkdir(parents=True, exist_ok=True)
        for name in names:
            (tmp_path / f"{folder}/netplan/{name}.yaml").write_text(f"network: {{ethernets: {{{folder}: {{}}}}}}")
    files = read(node).netplan.files
    assert [(f.path, f.stanzas[0].id) for f in files] == [
        ("/lib/netplan/a.yaml", "lib"),
        ("/etc/netplan/b.yaml", "etc"),
        ("/run/netplan/c.yaml", "run"),
    ]


@pytest.mark.parametrize(
    "text",
    ["network: {wifis: {w: {password: 'very secret}}}", "network:\n\t- very secret", "[very secret]", "very secret"],
)
def test_an_unparsable_file_is_told_without_quoting_it(tmp_path: pathlib.Path, text: str) -> None:
    node = spark(tmp_path, vfs=0)
    (tmp_path / "etc/netplan/a.yaml").write_text(text)
    (tmp_path / "etc/netplan/b.yaml").write_text("network: {ethernets: {x: {}}}")
    bad, good = read(node).netplan.files
    assert bad.error and not bad.stanzas and "secret" not in bad.error
    assert good.error is None and len(good.stanzas) == 1


def test_no_system_python_is_an_error_of_each_file(tmp_path: pathlib.Path) -> None:
    node = spark(tmp_path, vfs=0)
    node.run.on(["/usr/bin/python3", "-c"], (127, "", "no such file"))
    (tmp_path / "etc/netplan/a.yaml").write_text(NETPLAN)
    (file,) = read(node).netplan.files
    assert file.error and file.sha256


@pytest.mark.parametrize(
    ("files", "services", "renderer"),
    [
        (["renderer: NetworkManager"], {"systemd-networkd.service": ("enabled", "active")}, "NetworkManager"),
        (["renderer: networkd", "renderer: NetworkManager"], {}, "NetworkManager"),  # the later file wins
        (["version: 2"], {"NetworkManager.service": ("enabled", "active")}, "NetworkManager"),
        ([], dict.fromkeys(("NetworkManager.service", "systemd-networkd.service"), ("enabled", "active")), "networkd"),
        ([], {"NetworkManager.service": ("enabled", "inactive")}, None),
    ],
)
def test_renderer(
    tmp_path: pathlib.Path, files: list[str], services: dict[str, tuple[str, str]], renderer: str | None
) -> None:
    node = spark(tmp_path, vfs=0)
    node.units = services
    for number, text in enumerate(files):
        (tmp_path / f"etc/netplan/{number}.yaml").write_text(f"network: {{{text}}}\n")
    assert read(node).netplan.renderer == renderer


def test_an_unconfirmed_change_is_told_by_its_id(tmp_path: pathlib.Path) -> None:
    node = spark(tmp_path, vfs=0)
    assert read(node).netplan.pending is None
    pending = tmp_path / "var/lib/dgxspark/netplan/pending"
    pending.parent.mkdir(parents=True)
    pending.write_text("20260101T000000-1\n")
    assert read(node).netplan.pending == "20260101T000000-1"
    pending.write_text("")  # there is a change, though nobody can say which
    assert read(node).netplan.pending == "unknown"


def test_netplan_s_version(tmp_path: pathlib.Path) -> None:
    node = spark(tmp_path, vfs=0)
    status = tmp_path / "var/lib/dpkg/status"
    status.parent.mkdir(parents=True)
    status.write_text(
        "Package: a\nVersion: 9\n\nPackage: netplan.io\nStatus: ok\nVersion: 1.1.2-7\n\nPackage: b\nVersion: 3\n"
    )
    assert read(node).netplan.version == "1.1.2-7"


def test_files_and_units_asked_for(tmp_path: pathlib.Path) -> None:
    node = spark(tmp_path, vfs=0)
    (tmp_path / "etc/x").write_text("abc")
    (tmp_path / "etc/x").chmod(0o640)
    node.units = {"a.service": ("enabled", "inactive"), "b.service": ("disabled", "active")}
    found = read(node, files=["/etc/x", "/etc/absent", "/etc"], units=["b.service", "a.service", "c.service"])
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert [(f.path, f.sha256, f.mode) for f in found.files[:2]] == [
        ("/etc/x", digest, "0640"),
        ("/etc/absent", None, None),
    ]
    assert found.files[2].sha256 is None and found.files[2].mode
    assert found.units == {"b.service": "disabled", "a.service": "enabled", "c.service": "not-found"}


def test_no_systemd_is_unknown(tmp_path: pathlib.Path) -> None:
    node = spark(tmp_path, vfs=0)
    node.run.on(["systemctl"], (127, "", ""))
    node.run.on(["systemctl", "show"], (1, "", "System has not been booted with systemd"))
    assert read(node, units=["a.service"]).units == {"a.service": "unknown"}


@pytest.mark.parametrize("make", [spark, lab])
def test_a_node_survives_the_way_through_ansible(tmp_path: pathlib.Path, make: t.Any) -> None:
    node = make(tmp_path, vfs=2)
    node.add_namespace("cni-1")
    node.address("enp1s0f0v0", "10.100.0.1/24")
    node.move("enp1s0f0v1", "cni-1")
    (tmp_path / "etc/netplan/a.yaml").write_text(NETPLAN)
    found = read(node, units=["a"], files=["/etc/x"])
    assert from_plain(Node, json.loads(json.dumps(to_plain(found)))) == found
