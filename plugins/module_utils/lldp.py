# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The neighbours of interfaces according to LLDP, from whatever listens to it on the node.

systemd-networkd reports them as JSON from 257 on; before, its frames are in /run/systemd/netif/lldp, one file for each interface
index, each frame after its length in eight octets. lldpd answers through `lldpctl`. If neither runs, nothing is known.
"""

from __future__ import annotations

import pathlib
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.commands import Run, run_json
from ansible_collections.dgxspark.cluster.plugins.module_utils.sysfs import Sysfs

_FRAME_MOST = 4096  # bytes, systemd's own limit
_BRIDGE = 1 << 2  # capability bit (IEEE 802.1AB, 8.5.8)
_CHASSIS, _PORT, _NAME, _CAPABILITIES = 1, 2, 5, 7
# The subtypes of a chassis or port id that are a MAC.
_MAC_KIND = {_CHASSIS: 4, _PORT: 3}


@dataclass(frozen=True, slots=True)
class Neighbour:
    """One neighbour of an interface. chassis, port: its own names (a MAC in lower case). bridge: whether it is a switch."""

    netdev: str
    chassis: str | None = None
    port: str | None = None
    system: str | None = None
    bridge: bool = False


def read_lldp(sysfs: Sysfs, run: Run, netdevs: t.Sequence[str], system_root: str = "") -> list[Neighbour]:
    """Return the neighbours of these interfaces; [] if nothing on the node listens to LLDP."""
    said = run_json(run, ["networkctl", "lldp", "--json=short"])
    found = list(_of_networkd(said)) if isinstance(said, dict) else []
    for name in netdevs:
        index = sysfs.number("class/net", name, "ifindex")
        if index is not None:
            found += _of_file(name, pathlib.Path(f"{system_root}/run/systemd/netif/lldp/{index}"))
    said = run_json(run, ["lldpctl", "-f", "json0"])
    found += list(_of_lldpd(said)) if isinstance(said, dict) else []
    return [each for each in dict.fromkeys(found) if each.netdev in netdevs]


def _of_networkd(said: t.Mapping[str, t.Any]) -> t.Iterator[Neighbour]:
    for interface in said.get("Neighbors") or ():
        for one in interface.get("Neighbors") or ():
            yield Neighbour(
                str(interface.get("InterfaceName")),
                _text(one.get("ChassisID")),
                _text(one.get("PortID")),
                _text(one.get("SystemName"), keep=True),
                bool(int(one.get("EnabledCapabilities") or 0) & _BRIDGE),
            )


def _of_file(netdev: str, path: pathlib.Path) -> t.Iterator[Neighbour]:
    try:
        data = path.read_bytes()
    except OSError:
        return
    while len(data) > 8:
        size = int.from_bytes(data[:8], "little")
        if not 0 < size <= _FRAME_MOST:
            return
        yield parse_frame(netdev, data[8 : 8 + size])
        data = data[8 + size :]


def parse_frame(netdev: str, frame: bytes) -> Neighbour:
    """Parse an LLDP frame, including its Ethernet header. Missing values, and those of an unknown form, are None."""
    values: dict[int, str | None] = {}
    bridge, at = False, 14
    while at + 2 <= len(frame):
        head = int.from_bytes(frame[at : at + 2], "big")
        kind, size = head >> 9, head & 0x1FF
        value = frame[at + 2 : at + 2 + size]
        at += 2 + size
        if kind == 0:
            break
        if kind in _MAC_KIND and value:
            is_mac = value[0] == _MAC_KIND[kind] and len(value) == 7
            values[kind] = value[1:].hex(":") if is_mac else _text(value[1:].decode(errors="replace"))
        elif kind == _NAME:
            values[kind] = _text(value.decode(errors="replace"), keep=True)
        elif kind == _CAPABILITIES and len(value) == 4:
            bridge = bool(int.from_bytes(value[2:], "big") & _BRIDGE)
    return Neighbour(netdev, values.get(_CHASSIS), values.get(_PORT), values.get(_NAME), bridge)


def _of_lldpd(said: t.Mapping[str, t.Any]) -> t.Iterator[Neighbour]:
    for top in _list(said.get("lldp")):
        for interface in _list(top.get("interface")):
            chassis = next(iter(_list(interface.get("chassis"))), {})
            port = next(iter(_list(interface.get("port"))), {})
            able = [one for one in _list(chassis.get("capability")) if one.get("enabled")]
            yield Neighbour(
                str(interface.get("name")),
                _text(_value(chassis.get("id"))),
                _text(_value(port.get("id"))),
                _text(_value(chassis.get("name")), keep=True),
                any(one.get("type") == "Bridge" for one in able),
            )


def _list(value: t.Any) -> list[dict[str, t.Any]]:
    listed = value if isinstance(value, list) else [value]
    return [one for one in listed if isinstance(one, dict)]


def _value(value: t.Any) -> t.Any:
    return next((one.get("value") for one in _list(value)), None)


def _text(value: t.Any, keep: bool = False) -> str | None:
    text = "".join(letter for letter in str(value or "") if letter.isprintable()).strip()[:80]
    return (text if keep else text.lower()) or None
