# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The only reader of /sys. The root is a parameter, so that tests can provide their own tree.

A missing or unreadable attribute is None: the kernel answers EINVAL for the speed or carrier of a link that is down, and
for the type of an empty GID entry.
"""

from __future__ import annotations

import os
import re
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import Gid, Hca, Netdev, Port

# The kernel puts a GID into the first free entry. An entry after this many empty ones was made when all entries before it were
# in use; nothing that this collection configures comes near, and rxe's table has 1024 entries.
GID_GAP = 32

_PCI = re.compile(r"^[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")
_GIDRVINFO = 0x00000003  # ETHTOOL_GDRVINFO
_SIOCETHTOOL = 0x8946


class Sysfs:
    """One reading of a sysfs tree. Expensive results are cached: make a new one to look again."""

    def __init__(self, root: str = "/sys") -> None:
        self.root = root
        self._hcas_of_netdev: dict[str, list[str]] | None = None

    # --- attributes -------------------------------------------------------------------------------------------------

    def path(self, *parts: str) -> str:
        """Return the path of something below the root."""
        return "/".join((self.root, *parts))

    def read(self, *parts: str) -> str | None:
        """Return an attribute's text, stripped, or None."""
        try:
            return _read(self.path(*parts))
        except OSError:
            return None

    def number(self, *parts: str) -> int | None:
        """Return an attribute's number (decimal or 0x…), or None."""
        text = self.read(*parts)
        try:
            return int(text, 0) if text else None
        except ValueError:
            return None

    def names(self, *parts: str) -> list[str]:
        """Return the names in a folder, sorted; a missing folder is empty."""
        try:
            return sorted(os.listdir(self.path(*parts)))  # noqa: PTH208 - pathlib costs more, on slow cores
        except OSError:
            return []

    def target(self, *parts: str) -> str | None:
        """Return the last part of a link's target, or None."""
        try:
            return os.readlink(self.path(*parts)).rsplit("/", 1)[-1]  # noqa: PTH115
        except OSError:
            return None

    # --- PCI --------------------------------------------------------------------------------------------------------

    def device_id(self, pci: str) -> str | None:
        """Return `vendor:device` of a PCI function, such as `15b3:1021`."""
        vendor = self.number("bus/pci/devices", pci, "vendor")
        device = self.number("bus/pci/devices", pci, "device")
        return None if vendor is None or device is None else f"{vendor:04x}:{device:04x}"

    def physical_functions(self, device_ids: t.Collection[str]) -> list[str]:
        """Return the PCI addresses of the functions with one of these ids, VFs left out, in order of address."""
        wanted = {device_id.lower() for device_id in device_ids}
        return [
            pci
            for pci in self.names("bus/pci/devices")
            if self.device_id(pci) in wanted and self.target("bus/pci/devices", pci, "physfn") is None
        ]

    def virtual_functions(self, pci: str) -> list[tuple[int, str]]:
        """Return index and PCI address of a function's VFs, in order of index."""
        found = []
        for name in self.names("bus/pci/devices", pci):
            if name.startswith("virtfn") and name[6:].isdigit():
                target = self.target("bus/pci/devices", pci, name)
                if target:
                    found.append((int(name[6:]), target))
        return sorted(found)

    def driver(self, pci: str) -> str | None:
        """Return the name of a PCI function's driver."""
        return self.target("bus/pci/devices", pci, "driver")

    def netdev_of(self, pci: str) -> str | None:
        """Return the netdev of a PCI function that is visible here (in this namespace), or None.

        In switchdev mode a PF has its VFs' representors beside its own uplink: the uplink's port name is `pN`.
        """
        names = self.names("bus/pci/devices", pci, "net")
        if len(names) > 1:
            names.sort(key=lambda name: self.number("class/net", name, "ifindex") or 0)
            own = [n for n in names if re.fullmatch(r"(p\d+)?", self.read("class/net", n, "phys_port_name") or "")]
            names = own or names
        return names[0] if names else None

    def pci_of(self, netdev: str) -> str | None:
        """Return the PCI address of a netdev, or None for a virtual one."""
        target = self.target("class/net", netdev, "device")
        return target if target and _PCI.match(target) else None

    # --- network interfaces -----------------------------------------------------------------------------------------

    def netdev(self, name: str) -> Netdev:
        """Return what sysfs knows of a netdev: everything except addresses and sysctls."""
        carrier = self.read("class/net", name, "carrier")
        speed = self.number("class/net", name, "speed")
        return Netdev(
            name=name,
            mac=self.read("class/net", name, "address") or None,
            mtu=self.number("class/net", name, "mtu"),
            operstate=self.read("class/net", name, "operstate") or None,
            carrier=None if carrier is None else carrier == "1",
            speed_mbps=speed if speed is not None and speed > 0 else None,
        )

    def driver_info(self, netdev: str) -> tuple[str | None, str | None]:
        """Return driver version and firmware version of a netdev, as `ethtool -i` shows them."""
        if os.path.realpath(self.root) != "/sys":
            return None, None  # not this machine's tree: the ioctl would reach another device of that name
        import array
        import fcntl
        import socket
        import struct

        buffer = array.array("B", struct.pack("I", _GIDRVINFO) + bytes(192))
        request = struct.pack("16sP", netdev.encode()[:15], buffer.buffer_info()[0])
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                fcntl.ioctl(sock, _SIOCETHTOOL, request + bytes(16))
        except OSError:
            return None, None
        raw = buffer.tobytes()
        version, firmware = (raw[at : at + 32].split(b"\0", 1)[0].decode(errors="replace").strip() for at in (36, 68))
        return version or None, firmware if firmware not in ("", "N/A") else None

    # --- RDMA -------------------------------------------------------------------------------------------------------

    def hca_of(self, pci: str | None, netdev: str | None) -> str | None:
        """Return the HCA of a PCI function or netdev: by the kernel's links, never by a name.

        A hardware device (mlx5) is a child of the PCI function; soft-RoCE (rxe) names its netdev in `parent`;
        else the GID table says which netdev its entries belong to.
        """
        own = self.names("bus/pci/devices", pci, "infiniband") if pci else []
        if own:
            return own[0]
        if netdev is None:
            return None
        if self._hcas_of_netdev is None:
            self._hcas_of_netdev = self._hcas_by_netdev()
        candidates = self._hcas_of_netdev.get(netdev, [])
        if len(candidates) > 1:
            # RDMA devices are visible from every namespace, and pods have netdevs of the same name: the GUID derives from the MAC.
            guid = _guid(self.read("class/net", netdev, "address") or "")
            candidates.sort(key=lambda hca: self.read("class/infiniband", hca, "node_guid") != guid)
        return candidates[0] if candidates else None

    def _hcas_by_netdev(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for hca in self.names("class/infiniband"):
            parent = self.read("class/infiniband", hca, "parent")
            if parent:
                found.setdefault(parent, []).append(hca)
            elif not _PCI.match(self.target("class/infiniband", hca, "device") or ""):
                netdevs = {gid.netdev for port in self.hca(hca).ports for gid in port.gids if gid.netdev}
                for netdev in netdevs:
                    found.setdefault(netdev, []).append(hca)
        return found

    def hca(self, name: str) -> Hca:
        """Return an HCA with its ports and their used GID entries (`active_mtu` is not in sysfs)."""
        return Hca(
            name=name,
            node_guid=self.read("class/infiniband", name, "node_guid") or None,
            ports=tuple(
                self._port(name, int(port))
                for port in sorted(self.names("class/infiniband", name, "ports"), key=lambda text: (len(text), text))
                if port.isdigit()
            ),
        )

    def _port(self, hca: str, number: int) -> Port:
        at = ("class/infiniband", hca, "ports", str(number))
        rate = re.match(r"[\d.]+", self.read(*at, "rate") or "")
        return Port(
            number=number,
            state=_after_colon(self.read(*at, "state")),
            phys_state=_after_colon(self.read(*at, "phys_state")),
            link_layer=self.read(*at, "link_layer") or None,
            rate_gbps=float(rate.group()) if rate else None,
            gids=tuple(self._gids(self.path(*at))),
        )

    def _gids(self, port: str) -> t.Iterator[Gid]:
        index, empty = 0, 0
        while empty < GID_GAP:
            try:
                text = _read(f"{port}/gids/{index}")
            except FileNotFoundError:
                return  # the end of the table
            except OSError:
                text = ""
            if text.replace(":", "").strip("0"):
                empty = 0
                kind, netdev = (_try_read(f"{port}/gid_attrs/{what}/{index}") for what in ("types", "ndevs"))
                yield Gid(index=index, gid=text, type=kind, netdev=netdev)
            else:
                empty += 1
            index += 1


def _read(path: str) -> str:
    # Unbuffered: hundreds of small attributes are read, and each layer of io costs on a slow core.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 4096).decode(errors="replace").strip("\0 \n\t")
    finally:
        os.close(descriptor)


def _try_read(path: str) -> str | None:
    try:
        return _read(path) or None
    except OSError:
        return None


def _after_colon(text: str | None) -> str | None:
    return text.split(":", 1)[-1].strip() or None if text else None


def _guid(mac: str) -> str:
    """Return the EUI-64 of a MAC in sysfs's GUID format, or "" for anything but a MAC."""
    parts = mac.split(":")
    if len(parts) != 6:
        return ""
    a, b, c, d, e, f = parts
    return f"{int(a, 16) ^ 2:02x}{b}:{c}ff:fe{d}:{e}{f}"
