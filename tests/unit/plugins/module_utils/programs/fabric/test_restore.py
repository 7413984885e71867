"""The restorer against a fake kernel: the state of a node afterwards, whatever it was before."""

from __future__ import annotations

import errno
import json
import os
import pathlib
import subprocess
import sys
import time
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.fabric import restore
from ansible_collections.dgxspark.cluster.plugins.module_utils.source import archive_of
from ansible_collections.dgxspark.cluster.tests.unit.fake_host import FakeHost
from ansible_collections.dgxspark.cluster.tests.unit.fakes import FakeNode, lab, spark

ARP = {"arp_ignore": 1, "arp_announce": 2, "rp_filter": 2}


def document(node: FakeNode, count: int = 3, **vf: t.Any) -> dict[str, t.Any]:
    return {
        "version": 1,
        "functions": [
            {
                "slot": f"p0f{number}",
                "pci": pci,
                "vf_count": count,
                "mtu": 9000,
                "up": True,
                "eswitch": "legacy",
                "arp": ARP,
                "vfs": [
                    {"index": i, "mac": f"02:d6:00:00:0{number}:{i:02x}", "mtu": 9000, "up": True, "arp": ARP} | vf
                    for i in range(count)
                ],
            }
            for number, pci in enumerate(node.vf_pattern)
        ],
    }


def state(node: FakeNode) -> dict[str, t.Any]:
    """The state of the host's fabric interfaces: MAC, MTU, link, sysctls; and what functions store for VFs."""
    found: dict[str, t.Any] = {}
    for device in node.devices.values():
        if device.pci:
            sysctls = {k: int(pathlib.Path(node.proc, "sys/net/ipv4/conf", device.name, k).read_text()) for k in ARP}
            found[device.name] = (device.mac, device.mtu, device.up, sysctls)
    return found | {pci: [(v.mac, v.trust, v.spoofchk) for v in table] for pci, table in node.vf_tables.items()}


def is_as_said(node: FakeNode, wanted: dict[str, t.Any]) -> None:
    for function in wanted["functions"]:
        assert len(node.vf_tables[function["pci"]]) == function["vf_count"]
        pf = node.pf(function["pci"])
        assert state(node)[pf.name][1:] == (9000, True, ARP)
        for vf in function["vfs"]:
            address = dict(node._vfs(function["pci"]))[vf["index"]]
            device = node.pf(address)
            assert state(node)[device.name] == (vf["mac"], 9000, True, ARP)
            assert node.vf_tables[function["pci"]][vf["index"]].mac == vf["mac"]


@pytest.fixture(params=[spark, lab])
def node(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> FakeNode:
    made = request.param(tmp_path, vfs=0, **({"ports": [0]} if request.param is spark else {}))
    assert isinstance(made, FakeNode)
    return made


def test_a_bare_node_gets_everything_and_then_nothing_more(node: FakeNode) -> None:
    host, wanted = FakeHost(node), document(node)
    _done, problems = restore.restore(wanted, host)
    assert not problems
    is_as_said(node, wanted)
    host.changes()
    assert restore.restore(wanted, host) == ([], [])
    assert host.changes() == []


def test_a_vf_s_driver_sees_its_mac_from_the_first(node: FakeNode) -> None:
    host = FakeHost(node)
    restore.restore(document(node), host)
    log = host.changes()
    last_mac = max(i for i, line in enumerate(log) if " mac " in line)
    first_probe = min(i for i, line in enumerate(log) if "drivers_probe" in line)
    assert last_mac < first_probe
    assert not [line for line in log if "unbind" in line]


class Loading(FakeHost):
    """The driver's module is just being loaded: it has bound the last VF of each function, which has no interface yet."""

    def __init__(self, node: FakeNode) -> None:
        super().__init__(node)
        self.coming: set[str] = set()

    def write(self, path: str, value: str) -> None:
        super().write(path, value)
        parts = path.split("/")
        if parts[-1] == "sriov_numvfs" and value != "0":
            _index, last = self.node._vfs(parts[-2])[-1]
            self.node.bind(last, self.vf_driver(last))
            self.coming.add(last)
        elif parts[-1] == "unbind":
            self.coming.discard(value)
        elif parts[-1] == "drivers_probe":
            self.coming.clear()

    def netdev(self, address: str) -> str | None:
        return None if address in self.coming else super().netdev(address)


@pytest.mark.parametrize("count", [1, 3])
def test_a_driver_that_comes_while_vfs_are_made_does_not_keep_them_from_their_macs(node: FakeNode, count: int) -> None:
    host, wanted = Loading(node), document(node, count)
    restore.restore(wanted, host)
    is_as_said(node, wanted)


def test_another_count_goes_through_none(node: FakeNode) -> None:
    host = FakeHost(node)
    restore.restore(document(node, 1), host)
    restore.restore(document(node, 3), host)
    is_as_said(node, document(node, 3))
    restore.restore(document(node, 0), host)
    assert all(table == [] for table in node.vf_tables.values())


def test_a_vf_in_another_namespace_keeps_the_count_and_is_left_alone(node: FakeNode) -> None:
    host = FakeHost(node)
    restore.restore(document(node), host)
    name = node.pf(dict(node._vfs(next(iter(node.vf_pattern))))[1]).name
    node.add_namespace("cni-1")
    node.move(name, "cni-1", "net1")
    host.changes()
    assert restore.restore(document(node), host) == ([], [])
    assert host.changes() == []
    done, problems = restore.restore(document(node, 2), host)
    assert "p0f0v1 is not on the host" in " ".join(problems)
    assert next(len(table) for table in node.vf_tables.values()) == 3
    assert "net1" in node.namespaces["cni-1"].devices
    assert not [line for line in done if line.startswith("p0f0 ")]


@pytest.mark.parametrize("mac", [None, "3a:00:00:00:00:99"])
def test_a_vf_that_comes_back_gets_its_settings(node: FakeNode, mac: str | None) -> None:
    host, wanted = FakeHost(node), document(node)
    restore.restore(wanted, host)
    address = dict(node._vfs(next(iter(node.vf_pattern))))[1]
    device = node.pf(address)
    name = device.name
    node.add_namespace("cni-1")
    node.move(name, "cni-1", "net1")
    device.mtu = 1500
    node.move("net1", None)
    if mac:
        device.mac = mac
    node.sync()
    host.changes()
    assert restore.main(["dev", node.pf(address).name], host, config=_config(node, wanted)) == 0
    is_as_said(node, wanted)
    assert node.pf(address).name == name
    others = [line for line in host.changes() if "net/" in line and name not in line and "/net1/" not in line]
    assert others == []


def test_an_interface_that_has_gone_again_is_no_failure(node: FakeNode) -> None:
    host = FakeHost(node)
    assert restore.main(["dev", "nowhere"], host, config=_config(node, document(node))) == 0
    assert host.changes() == []


def test_a_function_that_comes_late_gets_its_vfs(tmp_path: pathlib.Path) -> None:
    node = spark(tmp_path, vfs=0, ports=[0])
    host, wanted = FakeHost(node), document(node)
    assert restore.main(["dev", "enp1s0f0np0"], host, config=_config(node, wanted)) == 0
    assert [len(table) for table in node.vf_tables.values()] == [3, 0]
    assert restore.main(["dev", "enP2p1s0f0np0"], host, config=_config(node, wanted)) == 0
    is_as_said(node, wanted)


def test_boot_goes_on_without_a_function_that_has_no_cable(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = spark(tmp_path, vfs=0, ports=[0])
    host, wanted = FakeHost(node), document(node)
    gone = wanted["functions"][0] | {"slot": "p1f0", "pci": "0000:01:00.1"}
    everything = wanted | {"functions": [gone, *wanted["functions"]]}
    assert restore.main(["boot"], host, config=_config(node, everything)) == 0
    is_as_said(node, wanted)
    assert "p1f0" in capsys.readouterr().out
    assert host.now < restore.PCI_WAIT


def test_boot_waits_for_an_interface_that_is_coming(tmp_path: pathlib.Path) -> None:
    node = spark(tmp_path, vfs=0, ports=[0])
    wanted = document(node)
    late = node.pf("0002:01:00.0")
    node.unbind("0002:01:00.0")

    class Slow(FakeHost):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if self.now > 5 and self.driver("0002:01:00.0") is None:
                (self.node.root / "sys/bus/pci/devices/0002:01:00.0/driver").symlink_to("../../drivers/mlx5_core")
                self.node.add_device(late)

    assert restore.main(["boot"], Slow(node), config=_config(node, wanted)) == 0
    is_as_said(node, wanted)


def test_boot_lets_udev_name_a_function_first(tmp_path: pathlib.Path) -> None:
    """On older kernels, an interface that is brought up before udev renames it keeps its wrong name."""
    node = spark(tmp_path, vfs=0, ports=[0])
    data = node.root / "run/udev/data"
    data.mkdir(parents=True)

    class Naming(FakeHost):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if self.now <= 2:
                assert not self.log
            else:
                for device in self.node.devices.values():
                    (data / f"n{device.ifindex}").touch()

    host = Naming(node)
    assert restore.main(["boot"], host, config=_config(node, document(node))) == 0
    assert host.log and 2 < host.now < restore.PCI_WAIT


def test_boot_does_not_wait_for_ever(tmp_path: pathlib.Path) -> None:
    node = spark(tmp_path, vfs=0, ports=[0])
    node.unbind("0002:01:00.0")
    host = FakeHost(node)
    restore.main(["boot"], host, config=_config(node, document(node)))
    assert restore.PCI_WAIT < host.now < 2 * restore.PCI_WAIT


def test_trust_and_spoof_check_are_left_alone_unless_said(node: FakeNode) -> None:
    host = FakeHost(node)
    restore.restore(document(node), host)
    before = state(node)
    restore.restore(document(node, trust=True, spoof_check=False), host)
    for pci in node.vf_pattern:
        assert {(v.trust, v.spoofchk) for v in node.vf_tables[pci]} == {(True, False)}
    restore.restore(document(node), host)
    assert {(v.trust, v.spoofchk) for v in node.vf_tables[pci]} == {(True, False)}
    assert {k: v for k, v in state(node).items() if k not in node.vf_pattern} == {
        k: v for k, v in before.items() if k not in node.vf_pattern
    }


def test_what_another_has_changed_is_put_right_and_nothing_else(node: FakeNode) -> None:
    host, wanted = FakeHost(node), document(node)
    restore.restore(wanted, host)
    address = dict(node._vfs(next(iter(node.vf_pattern))))[2]
    name = node.pf(address).name
    node.pf(address).mtu = 1500
    node.sync()
    pathlib.Path(node.proc, "sys/net/ipv4/conf", name, "arp_ignore").write_text("0\n")
    host.changes()
    restore.restore(wanted, host)
    is_as_said(node, wanted)
    assert len(host.changes()) == 2


def test_an_hca_without_node_guid_is_rebound(tmp_path: pathlib.Path) -> None:
    node = spark(tmp_path, vfs=0, ports=[0])
    host, wanted = FakeHost(node), document(node)
    restore.restore(wanted, host)
    address = dict(node._vfs("0000:01:00.0"))[0]
    guid = pathlib.Path(node.sysfs, "bus/pci/devices", address, "infiniband", node.pf(address).hca or "", "node_guid")
    guid.write_text("0000:0000:0000:0000\n")
    host.changes()
    restore.restore(wanted, host)
    assert f"/sys/bus/pci/drivers_probe={address}" in host.changes()


@pytest.mark.parametrize("gone", [True, False])
def test_a_driver_that_lets_go_by_itself_is_no_failure(tmp_path: pathlib.Path, gone: bool) -> None:
    node = spark(tmp_path, vfs=0, ports=[0])
    wanted = document(node, count=1)

    class Host(FakeHost):
        def write(self, path: str, value: str) -> None:
            if path.endswith("driver/unbind"):
                if gone:
                    self.node.unbind(value)
                raise restore.RestoreError(f"writing {value!r} to {path}: No such file or directory")
            super().write(path, value)

    restore.restore(wanted, FakeHost(node))
    (_index, address) = node._vfs("0000:01:00.0")[0]
    guid = pathlib.Path(node.sysfs, "bus/pci/devices", address, "infiniband", node.pf(address).hca or "", "node_guid")
    guid.write_text("0000:0000:0000:0000\n")
    _done, problems = restore.restore(wanted, Host(node))
    assert bool(problems) != gone
    assert gone or "driver/unbind" in problems[0]
    if gone:
        is_as_said(node, wanted)


def test_a_fault_of_one_function_does_not_keep_the_other_from_its_settings(node: FakeNode) -> None:
    host, wanted = FakeHost(node), document(node)
    first, second = [function["pci"] for function in wanted["functions"]][:2]
    host.fail[f"{first}/sriov_numvfs"] = OSError(errno.ENOSPC, "No space left on device")
    _done, problems = restore.restore(wanted, host)
    assert any("No space left on device" in problem and "p0f0" in problem for problem in problems)
    assert [vf.mac for vf in node.vf_tables[second]] == [vf["mac"] for vf in wanted["functions"][1]["vfs"]]
    assert host.read(host.pci(first, "sriov_drivers_autoprobe")) == "1"


def test_a_config_that_cannot_be_read_is_one_sentence(node: FakeNode, capsys: pytest.CaptureFixture[str]) -> None:
    path = node.root / "fabric.json"
    path.write_text("{")
    assert restore.main(["boot"], FakeHost(node), config=str(path)) == 1
    error = capsys.readouterr().err
    assert str(path) in error and "sriov_roce" in error


def test_it_runs_by_itself_on_a_bare_python(tmp_path: pathlib.Path) -> None:
    program = tmp_path / "fabric-restore"
    program.write_bytes(archive_of(restore))
    done = subprocess.run(
        [sys.executable, "-I", "-S", program, "sideways"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and "usage" in done.stderr


def _config(node: FakeNode, wanted: dict[str, t.Any]) -> str:
    path = node.root / "fabric.json"
    path.write_text(json.dumps(wanted))
    return str(path)


def test_a_write_that_the_kernel_does_not_end_is_given_up(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening a pipe that nobody reads never returns, like a write to sriov_numvfs while a VF is held open."""
    path = tmp_path / "sriov_numvfs"
    os.mkfifo(path)
    monkeypatch.setattr(restore, "WRITE_WAIT", 0.3)
    began = time.monotonic()
    with pytest.raises(restore.RestoreError, match=r"sriov_numvfs.*has not returned within 0\.3 s.*fuser"):
        restore.KernelHost().write(str(path), "0")
    assert time.monotonic() - began < 5


def test_what_the_kernel_says_to_a_bounded_write_is_passed_on(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "sriov_numvfs"
    path.write_text("4\n")
    restore.KernelHost().write(str(path), "2")
    assert path.read_text() == "2"
    with pytest.raises(restore.RestoreError, match="No such file"):
        restore.KernelHost().write(str(tmp_path / "gone/sriov_numvfs"), "2")
    with pytest.raises(restore.RestoreError, match="No space left"):
        (tmp_path / "full").mkdir()
        (tmp_path / "full/sriov_numvfs").symlink_to("/dev/full")
        restore.KernelHost().write(str(tmp_path / "full/sriov_numvfs"), "2")
