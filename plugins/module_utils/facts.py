# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read a node in one go and with few commands: its fabric functions, their VFs in whatever namespace, and the rest.

One `ip`; for `details` also another for routes, one `ibv_devinfo`, one `rdma`, two `systemctl`, one Python for netplan's files, and one
`devlink` for each mlx5 function. Everything else comes from sysfs and /proc.
"""

from __future__ import annotations

import os
import pathlib
import time
import typing as t
from dataclasses import dataclass, replace

from ansible_collections.dgxspark.cluster.plugins.module_utils.commands import Run, run_json
from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric import record, routes
from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.turn import at_work
from ansible_collections.dgxspark.cluster.plugins.module_utils.netns import Enter, entering, other_namespaces
from ansible_collections.dgxspark.cluster.plugins.module_utils.sysfs import Sysfs
from ansible_collections.dgxspark.cluster.plugins.module_utils.system import (
    failed_units,
    read_file,
    read_kernel,
    read_memory,
    read_ranks,
    read_system,
)
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import (
    Arp,
    CollectionError,
    Function,
    Hca,
    Netdev,
    Node,
    Place,
    Vf,
    from_plain,
    to_plain,
)

Links = t.Mapping[str, t.Mapping[str, t.Any]]

# A pod's namespace has no process while its VFs are moved in or out. CNI plugins take a second for that, several on an
# overloaded node: a namespace that has had none for this long is dead.
SETTLE_S = 20.0


def read_node(
    sysfs: Sysfs,
    run: Run,
    *,
    device_ids: t.Collection[str],
    files: t.Sequence[str] = (),
    units: t.Sequence[str] = (),
    proc_root: str = "/proc",
    netns_root: str = "/run/netns",
    system_root: str = "",
    enter: Enter | None = None,
    details: bool = True,
) -> Node:
    """Read a node.

    device_ids: PCI `vendor:device` of the fabric's physical functions. files: absolute paths to digest. units: systemd
    units whose enablement to read. The roots are parameters for tests. enter: how to read inside a network namespace
    (tests have their own). details: False reads only functions and VFs, without firmware, active_mtu, eswitch mode, users,
    netplan and units: enough for a repeated check.
    Takes up to 3 SETTLE_S longer if a VF is in a namespace without processes: it may belong to a pod that is starting.
    Raises CollectionError if `ip` fails, a file may not be read, or a VF's namespace cannot be entered.
    """

    # First: whoever begins after this sees that our run is newer, if it has claimed the node.
    changing = at_work(system_root)

    def look() -> tuple[list[Function], _Reading]:
        reading = _Reading(sysfs, run, proc_root, read_links(run), details)
        if details:
            reading.active_mtu = read_active_mtu(run, sysfs)
            reading.users = read_users(run, sysfs)
            reading.open_by = read_open(sysfs, proc_root)
            reading.routes = routes.read(run)
        functions = [reading.function(pci) for pci in sysfs.physical_functions(device_ids)]
        return _find_missing(functions, reading, netns_root, enter or entering(run)), reading

    functions, reading = _settled(look)
    if not details:
        return Node(functions=tuple(functions))
    netplan, states = read_system(run, units=units, system_root=system_root)
    fabric = {f.netdev.name for f in functions if f.netdev} | {
        v.netdev.name for f in functions for v in f.vfs if v.netdev and v.place.state == "host"
    }
    other = (reading.netdev(name) for name in reading.links if name not in fabric)
    return Node(
        kernel=read_kernel(proc_root),
        mem_available_kib=read_memory(proc_root),
        ranks=read_ranks(proc_root),
        functions=tuple(functions),
        netplan=netplan,
        other=tuple(n for n in other if any(not address.startswith("127.") for address in n.ipv4)),
        files=tuple(read_file(path, system_root) for path in files),
        units=states,
        failed=failed_units(run, "dgxspark-*"),
        changing=changing,
        record_fault=record.fault(system_root),
        rdma_netns=read_rdma_netns(sysfs),
    )


def read_links(run: Run) -> dict[str, dict[str, t.Any]]:
    """Return `ip`'s view of all interfaces of this namespace by name, with addresses and VF tables, in one call."""
    links = run_json(run, ["ip", "-j", "-d", "addr", "show"])
    if not isinstance(links, list):
        raise CollectionError("`ip -j -d addr show` gave no answer. The node needs iproute2 4.18 or newer.")
    return {link["ifname"]: link for link in links if "ifname" in link}


def read_active_mtu(run: Run, sysfs: Sysfs) -> dict[tuple[str, int], int]:
    """Return active_mtu by HCA and port, from libibverbs (sysfs does not have it); {} without its tools."""
    found: dict[tuple[str, int], int] = {}
    if not sysfs.names("class/infiniband"):
        return found
    hca, port = "", 0
    for line in run(["ibv_devinfo"])[1].splitlines():
        key, _colon, value = (part.strip() for part in line.partition(":"))
        if key == "hca_id":
            hca = value
        elif key == "port" and value.isascii() and value.isdigit():
            port = int(value)
        elif key == "active_mtu" and value.isascii() and value.split(" ")[0].isdigit():
            found[hca, port] = int(value.split(" ")[0])
    return found


def read_users(run: Run, sysfs: Sysfs) -> dict[str, tuple[str, ...]]:
    """Return the processes that have queue pairs, by HCA, as "comm (pid)". The kernel's own have no pid."""
    found: dict[str, set[str]] = {}
    if sysfs.names("class/infiniband"):
        for entry in _flat(run_json(run, ["rdma", "-j", "resource", "show", "qp"])):
            if entry.get("pid") and entry.get("ifname"):
                found.setdefault(str(entry["ifname"]), set()).add(f"{entry.get('comm', '?')} ({entry['pid']})")
    return {hca: tuple(sorted(users)) for hca, users in found.items()}


def read_open(sysfs: Sysfs, proc_root: str = "/proc") -> dict[str, tuple[str, ...]]:
    """Return the processes that have an HCA's device file open (/dev/infiniband/uverbsN), by HCA, as "comm (pid)".

    `rdma` does not list those without a queue pair, but the kernel waits for them before it removes the HCA. In a container
    the file may have another path: the device's number counts, if it can be read.
    """
    names, numbers = {}, {}
    for device in sysfs.names("class/infiniband_verbs"):
        hca = sysfs.read("class/infiniband_verbs", device, "ibdev")
        if hca:
            names[device] = hca
            numbers[sysfs.read("class/infiniband_verbs", device, "dev")] = hca
    if not names:
        return {}
    found: dict[str, set[str]] = {}
    for pid in filter(str.isdigit, _listed(proc_root)):
        for descriptor in _listed(f"{proc_root}/{pid}/fd"):
            hca = _opened(f"{proc_root}/{pid}/fd/{descriptor}", names, numbers)
            if hca:
                found.setdefault(hca, set()).add(f"{_text(f'{proc_root}/{pid}/comm') or '?'} ({pid})")
    return {hca: tuple(sorted(users)) for hca, users in found.items()}


def _opened(path: str, names: t.Mapping[str, str], numbers: t.Mapping[str | None, str]) -> str | None:
    try:
        target = os.readlink(path)  # noqa: PTH115 - pathlib is slower, and a node has thousands of these
    except OSError:  # closed in the meantime
        return None
    if not target.startswith("/dev/") and "uverbs" not in target:
        return None
    try:
        number = os.stat(path).st_rdev  # noqa: PTH116
    except OSError:
        return names.get(target.rsplit("/", 1)[-1])
    return numbers.get(f"{os.major(number)}:{os.minor(number)}")


def _listed(path: str) -> list[str]:
    try:
        return os.listdir(path)  # noqa: PTH208
    except OSError:  # the process has ended, or is another user's
        return []


def _text(path: str) -> str:
    try:
        return pathlib.Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def read_rdma_netns(sysfs: Sysfs) -> str | None:
    """Return whether RDMA devices are `shared` by all network namespaces or `exclusive` to one; None without RDMA."""
    said = sysfs.read("module/ib_core/parameters/netns_mode")
    return {"Y": "shared", "1": "shared", "N": "exclusive", "0": "exclusive"}.get(said or "")


def _flat(value: t.Any) -> t.Iterator[dict[str, t.Any]]:
    # iproute2 before 6.10 wraps each entry in a list of its own.
    if isinstance(value, dict):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _flat(item)


@dataclass
class _Reading:
    """One namespace, being read."""

    sysfs: Sysfs
    run: Run
    proc_root: str
    links: Links
    details: bool
    active_mtu: t.Mapping[tuple[str, int], int] | None = None
    users: t.Mapping[str, tuple[str, ...]] | None = None
    open_by: t.Mapping[str, tuple[str, ...]] | None = None
    routes: t.Mapping[str, tuple[str, ...]] | None = None

    def netdev(self, name: str) -> Netdev:
        conf = f"{self.proc_root}/sys/net/ipv4/conf/{name}"
        return replace(
            self.sysfs.netdev(name),
            ipv4=tuple(
                f"{address['local']}/{address['prefixlen']}"
                for address in self.links.get(name, {}).get("addr_info", ())
                if address.get("family") == "inet"
            ),
            arp=Arp(*(_number(f"{conf}/{key}") for key in ("arp_ignore", "arp_announce", "rp_filter"))),
            routes=None if self.routes is None else self.routes.get(name, ()),
        )

    def hca(self, pci: str | None, netdev: str | None) -> Hca | None:
        name = self.sysfs.hca_of(pci, netdev)
        if name is None:
            return None
        return self.completed(self.sysfs.hca(name))

    def completed(self, hca: Hca) -> Hca:
        mtus = self.active_mtu or {}
        return replace(hca, ports=tuple(replace(p, active_mtu=mtus.get((hca.name, p.number))) for p in hca.ports))

    def used(self, hca: Hca | None) -> dict[str, t.Any]:
        both = {"users": self.users or {}, "open_by": self.open_by or {}}
        return {key: seen.get(hca.name, ()) if hca else () for key, seen in both.items()}

    def function(self, pci: str) -> Function:
        sysfs = self.sysfs
        name, driver = sysfs.netdev_of(pci), sysfs.driver(pci)
        hca = self.hca(pci, name)
        version: str | None = None
        firmware: str | None = None
        eswitch: str | None = None
        if self.details:
            if name:
                version, firmware = sysfs.driver_info(name)
            firmware = firmware or (sysfs.read("class/infiniband", hca.name, "fw_ver") if hca else None) or None
            version = version or (sysfs.read("module", driver, "version") if driver else None)
            # Others (igb) have no devlink eswitch: devlink would only report an error.
            eswitch = read_eswitch(self.run, pci) if driver == "mlx5_core" else None
        table = {
            entry["vf"]: entry
            for entry in (self.links.get(name, {}).get("vfinfo_list", ()) if name else ())
            if "vf" in entry
        }
        return Function(
            pci=pci,
            device_id=sysfs.device_id(pci),
            driver=driver,
            driver_version=version,
            firmware=firmware,
            phys_port=sysfs.read("class/net", name, "phys_port_name") or None if name else None,
            phys_switch=sysfs.read("class/net", name, "phys_switch_id") or None if name else None,
            netdev=self.netdev(name) if name else None,
            hca=hca,
            totalvfs=sysfs.number("bus/pci/devices", pci, "sriov_totalvfs"),
            numvfs=sysfs.number("bus/pci/devices", pci, "sriov_numvfs"),
            eswitch=eswitch,
            vfs=tuple(self.vf(index, vf, table.get(index, {})) for index, vf in sysfs.virtual_functions(pci)),
        )

    def vf(self, index: int, pci: str, admin: t.Mapping[str, t.Any]) -> Vf:
        name = self.sysfs.netdev_of(pci)
        hca = self.hca(pci, name)
        return Vf(
            index=index,
            pci=pci,
            driver=self.sysfs.driver(pci),
            netdev=self.netdev(name) if name else None,
            hca=hca,
            admin_mac=admin.get("address"),
            trust=admin.get("trust"),
            spoof_check=admin.get("spoofchk"),
            place=Place("host") if name else Place("unbound"),
            **self.used(hca),
        )


def read_eswitch(run: Run, pci: str) -> str | None:
    """Return the eswitch mode of a PF (`legacy`, `switchdev`), or None if it has none or devlink is missing."""
    answer = run_json(run, ["devlink", "-j", "dev", "eswitch", "show", f"pci/{pci}"])
    device = answer.get("dev", {}).get(f"pci/{pci}", {}) if isinstance(answer, dict) else {}
    mode = device.get("mode")
    return str(mode) if mode else None


def _find_missing(functions: list[Function], reading: _Reading, netns_root: str, enter: Enter) -> list[Function]:
    """Look in the node's other network namespaces for VFs that have a driver but no netdev here."""
    missing = {vf.pci for function in functions for vf in function.vfs if vf.driver and not vf.netdev}
    if not missing:
        return functions
    found: dict[str, tuple[Netdev, Hca | None, Place]] = {}
    unread: list[str] = []
    for namespace in other_namespaces(reading.proc_root, netns_root):
        wanted = frozenset(missing - set(found))
        if not wanted:
            break
        place = Place("pod" if namespace.pids else "stranded", namespace.path, namespace.pids)
        try:
            answer = enter(namespace.path, lambda sysfs, run, proc, w=wanted: _look(sysfs, run, proc, w))  # type: ignore[misc]
        except CollectionError as exc:
            unread.append(str(exc))
            continue
        for pci, seen in answer.items():
            hca = from_plain(Hca, seen["hca"]) if seen["hca"] else None
            found[pci] = from_plain(Netdev, seen["netdev"]), hca, place
    # When a namespace disappears, its VFs return to the host.
    lost = [pci for pci in sorted(missing - set(found)) if not reading.sysfs.netdev_of(pci)]
    if lost and unread:
        raise CollectionError(f"VF {', '.join(lost)}: its netdev is not on the host, and {' '.join(unread)}")
    return [replace(function, vfs=tuple(_placed(vf, found, reading) for vf in function.vfs)) for function in functions]


def _settled(look: t.Callable[[], tuple[list[Function], _Reading]]) -> tuple[list[Function], _Reading]:
    """Look again until each VF in a namespace without processes has been there for SETTLE_S: until then it may be moving."""
    began, since = time.monotonic(), dict[tuple[str, str | None], float]()
    while True:
        functions, reading = look()
        now = time.monotonic()
        dead = [(v.pci, v.place.netns) for f in functions for v in f.vfs if v.place.state == "stranded"]
        since = {each: since.get(each, now) for each in dead}
        if now - began >= 3 * SETTLE_S or all(now - first >= SETTLE_S for first in since.values()):
            return functions, reading
        time.sleep(1)


def _placed(vf: Vf, found: t.Mapping[str, tuple[Netdev, Hca | None, Place]], reading: _Reading) -> Vf:
    if vf.pci in found:
        netdev, hca, place = found[vf.pci]
        # In RDMA's shared mode mlx5 keeps its HCA on the host, and the host's tools see the HCAs of all namespaces.
        hca = reading.completed(hca) if hca else vf.hca
        return replace(vf, netdev=netdev, hca=hca, place=place, **reading.used(hca))
    name = None if vf.netdev else reading.sysfs.netdev_of(vf.pci)
    if name:
        hca = reading.hca(vf.pci, name)
        return replace(vf, netdev=reading.netdev(name), hca=hca, place=Place("host"), **reading.used(hca))
    return vf


def _look(sysfs: Sysfs, run: Run, proc_root: str, wanted: t.Collection[str]) -> dict[str, t.Any]:
    """Runs inside a namespace: which of these PCI functions have their netdev here, and its properties."""
    here = {pci: name for name in sysfs.names("class/net") if (pci := sysfs.pci_of(name)) in wanted and pci}
    if not here:
        return {}
    reading = _Reading(sysfs, run, proc_root, read_links(run), details=False)
    return {
        pci: {"netdev": to_plain(reading.netdev(name)), "hca": to_plain(reading.hca(pci, name))}
        for pci, name in here.items()
    }


def _number(path: str) -> int | None:
    try:
        return int(pathlib.Path(path).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
