"""A fake node for tests: a sysfs and proc tree, network namespaces and a command runner that agree with one another.

    node = spark(tmp_path, vfs=2)                       # or lab(tmp_path), or FakeNode(tmp_path) and add_pf by hand
    node.address("enp1s0f0v0", "10.100.1.1/24")         # `ip` shows it and, while the link is up, the GID table has it
    node.down("enp1s0f0v1")
    node.add_namespace("cni-1", pids=2)
    node.move("enp1s0f0v1", "cni-1")                    # as a CNI plugin does
    node.run.on(("ethtool",), (0, "…", ""))             # script a command: longest, then latest matching prefix wins
    read_node(Sysfs(node.sysfs), node.run, device_ids=node.device_ids, **node.roots, enter=node.enter)

What the kernel would do, it does: `node.write(path, text)` stands for writing to sysfs (`sriov_numvfs`, a driver's
`bind` and `unbind`), and `node.run` knows `ip -j -d addr show`, `ip -j -d link show`, `ip link set …` (up, down, mtu,
address, netns, `vf N mac|trust|spoofchk …`), devlink's eswitch mode, `rdma -j resource show qp` (`node.queue_pairs`),
`ip -j -4 route show table all`, `ip -4 route add NETWORK …`, `systemctl show` (`node.units`) and `python3 -c …`, which is really run.
A command that it does not know counts as not installed: status 127. `node.run.calls` has every argv.

Two kinds of HCA, each seen from every namespace (RDMA's shared mode). mlx5: a child of the PCI function, GIDs in pairs
of RoCE v1 and v2, outlives its netdev's move to another namespace. rxe: names its netdev in `parent`, RoCE v2 only,
destroyed by the move.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import typing as t
from dataclasses import dataclass, field
from ipaddress import IPv4Interface

Result = tuple[int, str, str]


class FakeRun:
    """A scripted command runner: call it with an argv, get (exit status, stdout, stderr)."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self._answers: list[tuple[tuple[str, ...], Result | t.Callable[[list[str]], Result]]] = []

    def on(self, prefix: t.Sequence[str], answer: Result | t.Callable[[list[str]], Result]) -> None:
        """Answer commands that begin with `prefix`, by a result or a function of the argv."""
        self._answers.append((tuple(prefix), answer))

    def __call__(self, argv: t.Sequence[str]) -> Result:
        self.calls.append(list(argv))
        matching = [
            (len(prefix), number)
            for number, (prefix, _answer) in enumerate(self._answers)
            if tuple(argv[: len(prefix)]) == prefix
        ]
        if not matching:
            return 127, "", f"{argv[0]}: not found"
        answer = self._answers[max(matching)[1]][1]
        return answer(list(argv)) if callable(answer) else answer

    def count(self, *prefix: str) -> int:
        """How many calls began with this prefix."""
        return sum(tuple(call[: len(prefix)]) == prefix for call in self.calls)


@dataclass
class Device:
    """A netdev; `pci` is None for a virtual one. Change `up`, `carrier`, … and call `node.sync()`."""

    name: str
    pci: str | None
    mac: str
    mtu: int = 1500
    up: bool = True
    carrier: bool = True
    speed: int = 100000
    ipv4: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)  # networks whose route is gone
    hca: str | None = None
    kind: str = "mlx5"  # of its HCA: mlx5 or rxe
    port_name: str | None = None
    ifindex: int = 0


@dataclass
class VfTable:
    """What a PF stores for one VF."""

    mac: str = "00:00:00:00:00:00"
    trust: bool = False
    spoofchk: bool = True


class Net:
    """A network namespace with its own view of sysfs and /proc/sys."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.sysfs = str(root / "sys")
        self.proc = str(root / "proc")
        self.devices: dict[str, Device] = {}
        self.run = FakeRun()
        for folder in ("sys/class/net", "sys/class/infiniband", "sys/bus/pci/devices", "proc/sys/net/ipv4/conf"):
            (root / folder).mkdir(parents=True, exist_ok=True)


class FakeNode(Net):
    """The host, its PCI functions and its other namespaces."""

    def __init__(self, root: pathlib.Path) -> None:
        super().__init__(root)
        self.device_ids: list[str] = []
        self.netns = str(root / "run/netns")
        self.namespaces: dict[str, Net] = {}
        self.vf_tables: dict[str, list[VfTable]] = {}
        self.vf_pattern: dict[str, tuple[str, str, str, str | None]] = {}  # PF -> VF netdev, PCI, id, HCA patterns
        self.queue_pairs: list[dict[str, t.Any]] = []
        self.units: dict[str, tuple[str, str]] = {"systemd-networkd.service": ("enabled", "active")}
        self._laid: dict[str, str] = {}
        self._processes = 100
        self._ifindex = 1
        pathlib.Path(self.netns).mkdir(parents=True)
        (root / "nsfs").mkdir()
        (root / "nsfs/host").write_text("")
        self._process("self", "host")
        self._process("1", "host")
        self._text("proc/meminfo", "MemTotal: 127600000 kB\nMemAvailable: 117440512 kB\n")
        self._text("proc/sys/kernel/osrelease", "6.12.0-fake\n")
        (root / "etc/netplan").mkdir(parents=True)
        self._kernel(self)
        self.run.on(("devlink", "-j", "dev", "eswitch", "show"), self._devlink)
        self.run.on(("rdma", "-j", "resource", "show", "qp"), lambda _argv: (0, json.dumps(self.queue_pairs), ""))
        self.run.on(("systemctl", "show"), self._systemctl)
        self.run.on(("/usr/bin/python3", "-c"), _python)

    @property
    def roots(self) -> dict[str, str]:
        """The roots that `read_node` and the modules take beside sysfs."""
        return {"proc_root": self.proc, "netns_root": self.netns, "system_root": str(self.root)}

    # --- hardware ---------------------------------------------------------------------------------------------------

    def add_pf(
        self,
        pci: str,
        netdev: str,
        *,
        device_id: str = "15b3:1021",
        driver: str = "mlx5_core",
        totalvfs: int | None = 16,
        vf_netdev: str = "{stem}v{index}",
        vf_pci: str = "",
        vf_id: str = "15b3:101e",
        hca: str | None = None,
        vf_hca: str | None = None,
        mac: str = "",
        port_name: str | None = "p0",
        speed: int = 100000,
    ) -> Device:
        """Add a PCI function with its netdev. Patterns know {stem} (netdev without npN), {index} and {pf} (its HCA)."""
        self._pci(pci, device_id, driver)
        if totalvfs is not None:
            self._text(f"sys/bus/pci/devices/{pci}/sriov_totalvfs", f"{totalvfs}\n")
            self._text(f"sys/bus/pci/devices/{pci}/sriov_numvfs", "0\n")
        if device_id not in self.device_ids:
            self.device_ids.append(device_id)
        self.vf_pattern[pci] = (vf_netdev, vf_pci, vf_id, vf_hca)
        self.vf_tables[pci] = []
        number = len(self.vf_pattern)
        kind = "mlx5" if driver == "mlx5_core" else "rxe"
        device = Device(
            netdev, pci, mac or f"4c:bb:47:00:00:{number:02x}", hca=hca, kind=kind, speed=speed, port_name=port_name
        )
        return self.add_device(device)

    def add_device(self, device: Device, net: Net | None = None) -> Device:
        """Add a netdev of any kind (a management interface: `Device("eth0", None, "52:…", ipv4=["10.0.2.15/24"])`)."""
        self._plug(device, net or self)
        self.sync()
        return device

    def _plug(self, device: Device, net: Net) -> None:
        self._ifindex += 1
        device.ifindex = self._ifindex
        net.devices[device.name] = device

    def make_vfs(self, pci: str, count: int) -> None:
        """What the kernel does when `count` is written to sriov_numvfs."""
        netdev, address, device_id, hca = self.vf_pattern[pci]
        pf = self.pf(pci)
        stem = _stem(pf.name)
        for index, vf_pci in self._vfs(pci):
            for net in (self, *self.namespaces.values()):
                for device in [d for d in net.devices.values() if d.pci == vf_pci]:
                    self._forget(net, device)
            (self.root / f"sys/bus/pci/devices/{pci}/virtfn{index}").unlink()
            shutil.rmtree(self.root / f"sys/bus/pci/devices/{vf_pci}")
        self._text(f"sys/bus/pci/devices/{pci}/sriov_numvfs", f"{count}\n")
        self.vf_tables[pci] = [VfTable() for _index in range(count)]
        driver = "mlx5_core" if pf.kind == "mlx5" else "igbvf"
        for index in range(count):
            slot = int(pci[-1])
            vf_pci = address.format(index=index) or f"{pci[:-4]}{1 + slot + index // 8 * 2:02x}.{index % 8}"
            self._pci(vf_pci, device_id, driver)
            (self.root / f"sys/bus/pci/devices/{pci}/virtfn{index}").symlink_to(f"../{vf_pci}")
            (self.root / f"sys/bus/pci/devices/{vf_pci}/physfn").symlink_to(f"../{pci}")
            self._probe(vf_pci, pci, index, netdev.format(stem=stem, index=index), hca)
        self.sync()

    def _probe(self, vf_pci: str, pci: str, index: int, name: str, hca: str | None) -> None:
        pf, admin = self.pf(pci), self.vf_tables[pci][index].mac
        mac = admin if admin != "00:00:00:00:00:00" else f"3a:00:{pci[2:4]}:{pci[5:7]}:{pci[-1]}0:{index:02x}"
        pattern = (hca or "").format(pf=pf.hca, index=index, netdev=name) or None
        self._plug(Device(name, vf_pci, mac, up=False, hca=pattern, kind=pf.kind, speed=pf.speed), self)

    def pf(self, pci: str) -> Device:
        """The netdev of a PF on the host."""
        return next(device for device in self.devices.values() if device.pci == pci)

    def _vfs(self, pci: str) -> list[tuple[int, str]]:
        folder = self.root / f"sys/bus/pci/devices/{pci}"
        return sorted((int(link.name[6:]), link.readlink().name) for link in folder.glob("virtfn*"))

    def unbind(self, pci: str) -> None:
        """Unbind the driver from a PCI function: its netdev and HCA go, wherever they are."""
        for net in (self, *self.namespaces.values()):
            for device in [d for d in net.devices.values() if d.pci == pci]:
                self._forget(net, device)
        (self.root / f"sys/bus/pci/devices/{pci}/driver").unlink()
        self.sync()

    def bind(self, pci: str, driver: str) -> None:
        """Bind a VF to its driver: the netdev comes back under its old name, down, with the MAC that the PF stores for it."""
        (self.root / f"sys/bus/pci/devices/{pci}/driver").symlink_to(f"../../drivers/{driver}")
        for pf, (netdev, _address, _device_id, hca) in self.vf_pattern.items():
            for index, vf in self._vfs(pf):
                if vf == pci:
                    self._probe(vf, pf, index, netdev.format(stem=_stem(self.pf(pf).name), index=index), hca)
        self.sync()

    def write(self, path: str, text: str) -> None:
        """Imitate a write to sysfs: `sriov_numvfs`, a driver's `bind` and `unbind`; anything else is just stored."""
        parts = pathlib.Path(path).parts
        if parts[-1] == "sriov_numvfs":
            held = (self.root / f"sys/bus/pci/devices/{parts[-2]}/sriov_numvfs").read_text().strip()
            if held != "0" and text.strip() not in ("0", held):
                raise OSError(16, "Device or resource busy", path)
            total = (self.root / f"sys/bus/pci/devices/{parts[-2]}/sriov_totalvfs").read_text()
            if int(text) > int(total):
                raise OSError(34, "Numerical result out of range", path)
            if held != text.strip():
                self.make_vfs(parts[-2], int(text))
        elif parts[-1] == "unbind":
            self.unbind(text.strip())
        elif parts[-1] == "bind":
            self.bind(text.strip(), parts[-2])
        else:
            pathlib.Path(path).write_text(text)

    # --- changes to netdevs -------------------------------------------------------------------------------------------

    def find(self, netdev: str) -> tuple[Net, Device]:
        """The namespace and device of a netdev name; the host is searched first."""
        for net in (self, *self.namespaces.values()):
            if netdev in net.devices:
                return net, net.devices[netdev]
        raise KeyError(netdev)

    def address(self, netdev: str, *addresses: str, up: bool = True) -> None:
        """Bring a netdev up with these addresses ("a.b.c.d/prefix") instead of those it has."""
        device = self.find(netdev)[1]
        device.ipv4, device.up = list(addresses), up
        self.sync()

    def down(self, netdev: str) -> None:
        """Bring a netdev down."""
        self.find(netdev)[1].up = False
        self.sync()

    def add_namespace(self, name: str, *, pids: int = 1, named: bool = True) -> Net:
        """Add a network namespace with this many processes; a named one has a mount under /run/netns."""
        net = self.namespaces[name] = Net(self.root / "namespaces" / name)
        (self.root / f"nsfs/{name}").write_text("")
        if named:
            (pathlib.Path(self.netns) / name).symlink_to(self.root / f"nsfs/{name}")
        for _number in range(pids):
            self._processes += 1
            self._process(str(self._processes), name)
        self._kernel(net)
        self._laid.clear()  # existing HCAs show in the new namespace too
        self.sync()
        return net

    def end_processes(self, name: str) -> None:
        """End all processes of a namespace; a named one remains without processes."""
        for process in pathlib.Path(self.proc).glob("[0-9]*"):
            if (process / "ns/net").readlink().name == name:
                shutil.rmtree(process)

    def move(self, netdev: str, namespace: str | None, name: str | None = None) -> None:
        """Move a netdev to a namespace (None: the host), as the kernel does: down, without addresses."""
        source, device = self.find(netdev)
        target = self.namespaces[namespace] if namespace else self
        self._forget(source, device)
        device.up, device.ipv4, device.name = False, [], name or device.name
        if device.kind == "rxe":
            device.hca = None
        target.devices[device.name] = device
        self.sync()

    def add_rxe(self, netdev: str, hca: str) -> None:
        """`rdma link add HCA type rxe netdev NETDEV`, where the netdev is."""
        self.find(netdev)[1].hca = hca
        self.sync()

    def open_device(self, hca: str, pid: str, comm: str) -> None:
        """Add a process of the host that has an HCA's device file open."""
        number = len(list((self.root / "sys/class").glob("infiniband_verbs/*")))
        verbs = self.root / f"sys/class/infiniband_verbs/uverbs{number}"
        at = next((p.parent for p in verbs.parent.glob("*/ibdev") if p.read_text().strip() == hca), verbs)
        self._text(str((at / "ibdev").relative_to(self.root)), f"{hca}\n")
        self._text(str((at / "dev").relative_to(self.root)), f"231:{192 + number}\n")
        self._process(pid, "host")
        self._text(f"proc/{pid}/comm", f"{comm}\n")
        (self.root / f"proc/{pid}/fd").mkdir()
        (self.root / f"proc/{pid}/fd/3").symlink_to(f"/dev/infiniband/{at.name}")

    def enter(self, path: str, reader: t.Callable[[t.Any, t.Any, str], t.Any]) -> t.Any:
        """The `enter` argument of read_node: call the reader with a namespace's sysfs, runner and /proc."""
        from ansible_collections.dgxspark.cluster.plugins.module_utils.sysfs import Sysfs

        net = self.namespaces[pathlib.Path(os.path.realpath(path)).name]
        return json.loads(json.dumps(reader(Sysfs(net.sysfs), net.run, net.proc)))

    # --- writing the trees ----------------------------------------------------------------------------------------------

    def sync(self) -> None:
        """Bring the trees up to date with the devices. What has not changed is not rewritten."""
        for net in (self, *self.namespaces.values()):
            for device in net.devices.values():
                key, state = f"{net.root}/{device.name}", repr(device)
                if self._laid.get(key) == state:
                    continue
                self._laid[key] = state
                self._lay_netdev(net, device)
                if device.hca:
                    self._lay_hca(device)

    def _lay_netdev(self, net: Net, device: Device) -> None:
        at = net.root / f"sys/class/net/{device.name}"
        shutil.rmtree(at, ignore_errors=True)
        at.mkdir()
        running = device.up and device.carrier
        values: dict[str, t.Any] = {
            "address": device.mac,
            "mtu": device.mtu,
            "ifindex": device.ifindex,
            "operstate": "up" if running else "down",
        }
        if device.up:  # the kernel answers EINVAL while it is down
            values["carrier"] = int(device.carrier)
            values["speed"] = device.speed if device.carrier else -1
        if device.port_name:
            values["phys_port_name"] = device.port_name
        for name, value in values.items():
            (at / name).write_text(f"{value}\n")
        conf = net.root / f"proc/sys/net/ipv4/conf/{device.name}"
        if not conf.is_dir():
            conf.mkdir()
            for name in ("arp_ignore", "arp_announce", "rp_filter"):
                (conf / name).write_text("0\n")
        if device.pci:
            (at / "device").symlink_to(f"../../../bus/pci/devices/{device.pci}")
            if net is self:
                folder = self.root / f"sys/bus/pci/devices/{device.pci}/net/{device.name}"
                folder.mkdir(parents=True, exist_ok=True)

    def _lay_hca(self, device: Device) -> None:
        running = device.up and device.carrier
        values = {
            "node_guid": _eui64(device.mac)[20:],
            "fw_ver": "28.45.4028",
            "ports/1/state": "4: ACTIVE" if running else "1: DOWN",
            "ports/1/phys_state": "5: LinkUp" if running else "3: Disabled",
            "ports/1/link_layer": "Ethernet",
            "ports/1/rate": f"{device.speed // 1000} Gb/sec (2X NDR)",
        }
        if device.kind == "rxe":
            values["parent"] = device.name
        for net in (self, *self.namespaces.values()):  # in RDMA's shared mode it is seen from every namespace
            at = net.root / f"sys/class/infiniband/{device.hca}"
            shutil.rmtree(at, ignore_errors=True)
            for folder in ("gids", "gid_attrs/types", "gid_attrs/ndevs"):
                (at / "ports/1" / folder).mkdir(parents=True)
            for name, value in values.items():
                (at / name).write_text(f"{value}\n")
            if device.pci and device.kind == "mlx5":
                (at / "device").symlink_to(f"../../../bus/pci/devices/{device.pci}")
                child = net.root / f"sys/bus/pci/devices/{device.pci}/infiniband/{device.hca}"
                child.mkdir(parents=True, exist_ok=True)
        types = ["RoCE v2"] if device.kind == "rxe" else ["IB/RoCE v1", "RoCE v2"]
        addresses = [_mapped(text) for text in device.ipv4] if running else []
        self.gids(device.hca or "", [(g, k, device.name) for g in [_eui64(device.mac), *addresses] for k in types])

    def gids(self, hca: str, entries: t.Sequence[tuple[str, str, str] | None]) -> None:
        """Set a GID table by hand (until its netdev changes): (gid, type, netdev) or None for an empty entry."""
        for net in (self, *self.namespaces.values()):
            self._lay_gids(net.root / f"sys/class/infiniband/{hca}/ports/1", entries)

    def _lay_gids(self, port: pathlib.Path, entries: t.Sequence[tuple[str, str, str] | None]) -> None:
        for folder in ("gids", "gid_attrs/types", "gid_attrs/ndevs"):
            shutil.rmtree(port / folder)
            (port / folder).mkdir()
        for index, entry in enumerate([*entries, None, None, None]):
            gid, kind, netdev = entry or ("0000:" * 7 + "0000", "", "")
            (port / f"gids/{index}").write_text(f"{gid}\n")
            for folder, value in (("types", kind), ("ndevs", netdev)):
                if entry:
                    (port / f"gid_attrs/{folder}/{index}").write_text(f"{value}\n")
                else:  # there, but it cannot be read
                    (port / f"gid_attrs/{folder}/{index}").mkdir()

    def _forget(self, net: Net, device: Device) -> None:
        del net.devices[device.name]
        self._laid.pop(f"{net.root}/{device.name}", None)
        shutil.rmtree(net.root / f"sys/class/net/{device.name}", ignore_errors=True)
        shutil.rmtree(net.root / f"proc/sys/net/ipv4/conf/{device.name}", ignore_errors=True)
        if device.pci:
            shutil.rmtree(self.root / f"sys/bus/pci/devices/{device.pci}/net", ignore_errors=True)
        for place in (self, *self.namespaces.values()):
            if device.hca:
                shutil.rmtree(place.root / f"sys/class/infiniband/{device.hca}", ignore_errors=True)
                shutil.rmtree(place.root / f"sys/bus/pci/devices/{device.pci}/infiniband", ignore_errors=True)

    def _pci(self, pci: str, device_id: str, driver: str) -> None:
        at = self.root / f"sys/bus/pci/devices/{pci}"
        at.mkdir(parents=True)
        vendor, device = device_id.split(":")
        (at / "vendor").write_text(f"0x{vendor}\n")
        (at / "device").write_text(f"0x{device}\n")
        (self.root / f"sys/bus/pci/drivers/{driver}").mkdir(parents=True, exist_ok=True)
        (at / "driver").symlink_to(f"../../drivers/{driver}")

    def _process(self, pid: str, namespace: str) -> None:
        (self.root / f"proc/{pid}/ns").mkdir(parents=True)
        (self.root / f"proc/{pid}/ns/net").symlink_to(self.root / f"nsfs/{namespace}")

    def _text(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    # --- commands -------------------------------------------------------------------------------------------------------

    def _kernel(self, net: Net) -> None:
        for what in ("addr", "link"):
            net.run.on(("ip", "-j", "-d", what, "show"), lambda _argv: (0, json.dumps(self._links(net)), ""))
        net.run.on(("ip", "link", "set"), lambda argv: self._link_set(net, argv[3:]))
        net.run.on(("ip", "-j", "-4", "route", "show"), lambda _argv: (0, json.dumps(self._routes(net)), ""))
        net.run.on(("ip", "-4", "route", "add"), lambda argv: self._route_add(net, argv[4:]))

    def _routes(self, net: Net) -> list[dict[str, t.Any]]:
        """The connected routes; one that is lost, and taken by nobody else, is not there."""
        found = []
        for device in [device for device in net.devices.values() if device.up]:
            networks = [str(IPv4Interface(text).network) for text in device.ipv4]
            found += [
                {"dst": network, "dev": device.name, "protocol": "kernel", "scope": "link", "flags": []}
                for network in networks
                if network not in device.lost
            ]
        return found

    def _route_add(self, net: Net, words: list[str]) -> Result:
        network, device = words[0], net.devices[words[words.index("dev") + 1]]
        if any(route["dst"] == network for route in self._routes(net)):
            return 2, "", "RTNETLINK answers: File exists\n"
        device.lost.remove(network)
        return 0, "", ""

    def _links(self, net: Net) -> list[dict[str, t.Any]]:
        shown = []
        for device in net.devices.values():
            item: dict[str, t.Any] = {
                "ifindex": device.ifindex,
                "ifname": device.name,
                "flags": ["BROADCAST", *(["UP", "LOWER_UP"] if device.up else [])],
                "mtu": device.mtu,
                "operstate": "UP" if device.up and device.carrier else "DOWN",
                "address": device.mac,
                "addr_info": [
                    {"family": "inet", "local": text.split("/")[0], "prefixlen": int(text.split("/")[1])}
                    for text in device.ipv4
                ],
            }
            if device.pci:
                item |= {"parentbus": "pci", "parentdev": device.pci}
                if self.vf_tables.get(device.pci):
                    item["vfinfo_list"] = [
                        {"vf": n, "link_type": "ether", "address": v.mac, "spoofchk": v.spoofchk, "trust": v.trust}
                        for n, v in enumerate(self.vf_tables[device.pci])
                    ]
            shown.append(item)
        return shown

    def _link_set(self, net: Net, words: list[str]) -> Result:
        words = words[1:] if words[0] == "dev" else words
        if words[0] not in net.devices:
            return 1, "", f'Cannot find device "{words[0]}"\n'
        device, words = net.devices[words[0]], words[1:]
        while words:
            word = words.pop(0)
            if word in ("up", "down"):
                device.up = word == "up"
            elif word == "mtu":
                device.mtu = int(words.pop(0))
            elif word == "address":
                device.mac = words.pop(0)
            elif word == "netns":
                namespace = words.pop(0)
                self.move(device.name, None if namespace == "1" else namespace)
            elif word == "vf":
                table = self.vf_tables[device.pci or ""]
                index = int(words.pop(0))
                if index >= len(table):
                    return 2, "", "RTNETLINK answers: Invalid argument\n"
                while words and words[0] in ("mac", "trust", "spoofchk"):
                    key, value = words.pop(0), words.pop(0)
                    setattr(table[index], key, value if key == "mac" else value == "on")
            else:
                return 255, "", f'Error: argument "{word}" is wrong.\n'
        self.sync()
        return 0, "", ""

    def _devlink(self, argv: list[str]) -> Result:
        return 0, json.dumps({"dev": {argv[-1]: {"mode": "legacy", "inline-mode": "none"}}}), ""

    def _systemctl(self, argv: list[str]) -> Result:
        blocks = []
        for name in (word for word in argv[2:] if not word.startswith("-")):
            name = name if "." in name else f"{name}.service"
            enabled, active = self.units.get(name, ("", "inactive"))
            load = "loaded" if name in self.units else "not-found"
            blocks.append(f"Id={name}\nLoadState={load}\nActiveState={active}\nUnitFileState={enabled}\n")
        return 0, "\n".join(blocks), ""


def _python(argv: list[str]) -> Result:
    done = subprocess.run([sys.executable, *argv[1:]], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def _stem(netdev: str) -> str:
    return re.sub(r"np\d+$", "", netdev)


def _mapped(address: str) -> str:
    a, b, c, d = IPv4Interface(address).ip.packed
    return f"0000:0000:0000:0000:0000:ffff:{a:02x}{b:02x}:{c:02x}{d:02x}"


def _eui64(mac: str) -> str:
    a, b, c, d, e, f = (int(part, 16) for part in mac.split(":"))
    return f"fe80:0000:0000:0000:{a ^ 2:02x}{b:02x}:{c:02x}ff:fe{d:02x}:{e:02x}{f:02x}"


def spark(root: pathlib.Path, *, vfs: int = 4, ports: t.Sequence[int] = (0, 1)) -> FakeNode:
    """A DGX Spark: one ConnectX-7 (mlx5), two functions a port, and a management interface."""
    node = FakeNode(root)
    node.add_device(Device("enP7s7", None, "4c:bb:47:ff:00:01", ipv4=["192.168.1.11/24"], hca=None))
    for port in ports:
        for domain, stem, hca in (("0000", "enp1s0f", "rocep1s0f"), ("0002", "enP2p1s0f", "roceP2p1s0f")):
            pci = f"{domain}:01:00.{port}"
            node.add_pf(
                pci,
                f"{stem}{port}np{port}",
                hca=f"{hca}{port}",
                vf_hca="{pf}v{index}",
                port_name=f"p{port}",
                vf_pci=f"{domain}:01:{1 + port:02x}.{{index}}",
            )
            node.make_vfs(pci, vfs)
    return node


def lab(root: pathlib.Path, *, vfs: int = 4, rxe: bool = True) -> FakeNode:
    """A virtual Spark: two igb functions of one port. No netdev can be guessed from the names of the HCAs."""
    node = FakeNode(root)
    node.add_device(Device("ens3", None, "52:54:00:00:00:01", ipv4=["10.0.2.15/24"], hca=None))
    for number, netdev in ((1, "enp1s0f0np0"), (2, "enP2p1s0f0np0")):
        pci = f"0000:0{number}:00.0"
        node.add_pf(
            pci,
            netdev,
            device_id="8086:10c9",
            driver="igb",
            totalvfs=7,
            vf_id="8086:10ca",
            vf_pci=f"0000:0{number}:10.{{index}}",
            vf_hca=f"roce_{'xy'[number - 1]}{{index}}" if rxe else None,
            port_name=None,
            speed=1000,
        )
        node.make_vfs(pci, vfs)
    return node
