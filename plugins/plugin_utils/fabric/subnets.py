# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan's subnets: one per segment, function and VF index, at a place in the pool that no other change moves."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import Finding
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.addresses import (
    Network,
    Overlaps,
    carve,
    parse_host,
    parse_interface,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.hosts import INDEX, HostInput
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.segments import SWITCH, Segment
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.settings import (
    VARIABLE,
    Hardware,
    Settings,
    Slot,
    near,
)


@dataclass(frozen=True, slots=True)
class End:
    """A host's slot on a segment, which has VFs. `lane` says which slots of a segment share subnets."""

    host: str
    slot: Slot
    segment: Segment
    lane: str


@dataclass(frozen=True, slots=True)
class Subnet:
    """One subnet of the plan, with the ends whose VF `vf` has an address in it."""

    segment: str
    lane: str
    vf: int
    network: Network
    by_hand: bool
    ends: list[End] = field(default_factory=list)

    @property
    def key(self) -> str:
        """Its name in `dgxspark_fabric.subnets`."""
        return f"{self.segment}/{self.lane}/{self.vf}"

    @property
    def origin(self) -> str:
        """The setting that defines it."""
        return f"{VARIABLE}.subnets.{self.key}" if self.by_hand else f"{VARIABLE}.address_pool"


def ends(segments: t.Sequence[Segment], hardware: Hardware) -> list[End]:
    """Return the functions on all segments. On a cable, function f of one end shares subnets with f of the other."""
    return [
        End(host, slot, segment, slot.slot if segment.id == SWITCH else f"f{slot.function}")
        for segment in segments
        for host, port in segment.members
        for slot in hardware.of_port(port)
    ]


def subnets(
    settings: Settings, hardware: Hardware, on: t.Sequence[End]
) -> tuple[dict[tuple[str, str], list[Subnet]], list[Finding]]:
    """Return the subnets by segment and lane, in order of the VF index, and findings if they do not fit the pool."""
    made: dict[tuple[str, str], list[Subnet]] = {}
    short: list[int] = []
    for end in on:
        if (end.segment.id, end.lane) not in made:
            made[end.segment.id, end.lane] = list(_of_lane(settings, hardware, end, short))
        for subnet in made[end.segment.id, end.lane]:
            subnet.ends.append(end)
    findings = []
    if short:
        room = 1 << (settings.subnet_prefix - settings.pool.prefix)
        findings.append(
            Finding(
                "subnets.pool-too-small",
                "error",
                f"{VARIABLE}.address_pool",
                f"{settings.pool} has room for {room} subnets of {VARIABLE}.subnet_prefix /{settings.subnet_prefix}, "
                f"but subnet {max(short)}, counted from 0, is needed ({settings.vf_stride} are reserved for each function: "
                f"{VARIABLE}.vf_stride).",
                "Choose a larger pool, or a longer subnet_prefix.",
            )
        )
    known = [subnet.key for lane in made.values() for subnet in lane] + [key for key in settings.subnets if short]
    for key in settings.subnets:
        if key not in known:
            message = "the plan has no such subnet."
            findings.append(Finding("subnets.unknown", "error", f"{VARIABLE}.subnets.{key}", message, near(key, known)))
    return made, findings


def _of_lane(settings: Settings, hardware: Hardware, end: End, short: list[int]) -> t.Iterator[Subnet]:
    lanes, lane = hardware.functions, end.slot.function
    if end.segment.id == SWITCH:
        lanes, lane = (max(hardware.ports) + 1) * lanes, end.slot.port * lanes + lane
    for vf in range(len(settings.purposes)):
        number = (end.segment.number * lanes + lane) * settings.vf_stride + vf
        by_hand = settings.subnets.get(f"{end.segment.id}/{end.lane}/{vf}")
        network = by_hand or carve(settings.pool, settings.subnet_prefix, number)
        if network is None:
            short.append(number)
        else:
            yield Subnet(end.segment.id, end.lane, vf, network, by_hand is not None)


def misfits(made: t.Iterable[Subnet], indexes: t.Mapping[str, int]) -> list[Finding]:
    """Find hosts whose index is a subnet's broadcast address or beyond it: one finding per host."""
    found: dict[str, Finding] = {}
    for subnet in made:
        for end in subnet.ends:
            index = indexes[end.host]
            if index > subnet.network.most and end.host not in found:
                setting = subnet.origin if subnet.by_hand else f"{VARIABLE}.subnet_prefix"
                found[end.host] = Finding(
                    "subnets.index",
                    "error",
                    f"{end.host}: {INDEX}",
                    f"its index {index} does not fit the subnet {subnet.network} ({subnet.key}), whose hosts are 1 to "
                    f"{subnet.network.most}.",
                    f"Make the subnets larger ({setting}), or pin the host to a smaller number with {INDEX}.",
                )
    return list(found.values())


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A network or an address that no subnet may overlap, and a description of it."""

    network: Network
    what: str


def obstacles(
    settings: Settings, hosts: t.Sequence[HostInput], planned: t.Mapping[str, t.Collection[str]]
) -> list[Obstacle]:
    """Return everything that subnets may not overlap. planned: the PCI addresses of each host's functions in the plan."""
    found = [
        Obstacle(network, f"the management network {network} ({VARIABLE}.management_networks)")
        for network in settings.management
    ] + [
        Obstacle(network, f"the network {network} of the {name} ({VARIABLE}.reserved_networks.{name})")
        for name, network in settings.reserved.items()
    ]
    for host in hosts:
        seen = _interfaces(host, planned.get(host.name, ()), settings.mac_prefix)
        own = parse_host(host.management)
        told = own and any(network.overlaps(own) for network in settings.management)
        if own and not told and not any(address.split("/")[0] == host.management for _name, address in seen):
            found.append(Obstacle(own, f"the management address {host.management} of {host.name} (its ansible_host)"))
        for name, address in seen:
            try:
                network = parse_interface(address)
            except ValueError:
                continue
            found.append(Obstacle(network, f"the address {address} that {host.name} has on its interface {name}"))
    return found


def _interfaces(host: HostInput, planned: t.Collection[str], mac_prefix: str) -> list[tuple[str, str]]:
    """Return the addresses on interfaces that the plan does not manage.

    Omits our own VFs, recognised by their MAC, on functions that are no longer planned: they are removed first.
    """
    if host.node is None:
        return []
    netdevs = [*host.node.other, *(f.netdev for f in host.node.functions if f.netdev)]
    for function in host.node.functions:
        if function.pci not in planned:
            netdevs += [
                vf.netdev
                for vf in function.vfs
                if vf.netdev and not (vf.admin_mac or "").lower().startswith(mac_prefix.lower())
            ]
    return [(netdev.name, address) for netdev in netdevs for address in netdev.ipv4]


def overlaps(made: t.Sequence[Subnet], found: t.Iterable[Obstacle]) -> list[Finding]:
    """Find subnets that overlap an obstacle or each other (including twins in one subnet)."""
    index = Overlaps((subnet.network, position) for position, subnet in enumerate(made))
    findings = []
    for first, second in index.among_themselves():
        a, b = made[first], made[second]
        a, b = (b, a) if b.by_hand and not a.by_hand else (a, b)
        twins = a.segment == b.segment and a.vf == b.vf
        why = " Twin functions on one wire in one subnet would answer for each other." if twins else ""
        message = f"{a.network} ({a.key}) overlaps {b.network} ({b.key}, {b.origin}).{why}"
        findings.append(Finding("subnets.overlap", "error", a.origin, message, "Give each a subnet of its own."))
    for obstacle in found:
        hit = [made[position] for position in index.of(obstacle.network)]
        if hit:
            others = f" and {len(hit) - 1} more overlap" if len(hit) > 1 else " overlaps"
            message = f"the subnet {hit[0].network} ({hit[0].key}){others} {obstacle.what}."
            remedy = "Choose another network for the fabric." if not hit[0].by_hand else "Choose another subnet."
            findings.append(Finding("subnets.overlap", "error", hit[0].origin, message, remedy))
    return findings
