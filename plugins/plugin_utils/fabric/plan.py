# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fabric plan: the target state of each function and VF of every host. Pure, and the same whichever host computes it.

Addresses and MACs depend only on the settings, the hosts' order (or pinned numbers) and the hardware class. Facts from
the nodes only add names to the plan, or make it fail.
"""

from __future__ import annotations

import itertools
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import (
    CollectionError,
    Finding,
    Function,
    PlannedFunction,
    PlannedHost,
    PlannedVf,
    to_plain,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import ip
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric import addresses, hosts, segments, subnets
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.hosts import Expected, HostInput
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.settings import (
    VARIABLE,
    Hardware,
    Settings,
    read_settings,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.topologies import TOPOLOGIES

SCHEMA = 1
_SHOWN = 12  # findings in one message

Plain = dict[str, t.Any]


class Plan(t.TypedDict):
    """The plan in its plain form. `hosts` holds the plain form of PlannedHost by name."""

    schema: int
    topology: str
    mtu: int
    hosts: dict[str, Plain]
    segments: list[Plain]
    subnets: list[Plain]
    pairs: list[Plain]
    notes: list[str]


def fabric_plan(inputs: t.Sequence[HostInput], raw: t.Any, entry: t.Mapping[str, t.Any]) -> Plan:
    """Plan the fabric.

    inputs: the hosts of the fabric's group in inventory order. raw: `dgxspark_fabric` as the owner wrote it. entry: the
    hardware class. Raises CollectionError with all findings at once if the plan would be wrong.
    """
    ip.require_netaddr()
    hardware = Hardware.of(entry)
    settings, findings = read_settings(raw, hardware)
    numbers, more = hosts.indexes(inputs)
    findings += more + hosts.one_machine(inputs)
    named: dict[str, dict[str, Expected]] = {}
    for host in inputs:
        named[host.name], more = hosts.expected(host, hardware)
        findings += more
    if settings is not None and not inputs and not findings:
        findings.append(_no_hosts(settings))
    refuse(findings)
    settings = t.cast(Settings, settings)  # None comes with a finding, refused above
    joined, findings = segments.segments(settings, hardware, [host.name for host in inputs])
    refuse(findings)
    ends = subnets.ends(joined, hardware)
    lanes, findings = subnets.subnets(settings, hardware, ends)
    refuse(findings)
    made = [subnet for lane in lanes.values() for subnet in lane]
    findings = subnets.misfits(made, numbers)

    ends_of: dict[str, list[subnets.End]] = {host.name: [] for host in inputs}
    for end in sorted(ends, key=lambda end: end.slot.slot):
        ends_of[end.host].append(end)
    functions: dict[str, dict[str, Function]] = {}
    for host in inputs:
        wanted = [named[host.name][end.slot.slot] for end in ends_of[host.name]]
        functions[host.name], more = hosts.resolve(host, wanted, hardware, len(settings.purposes))
        findings += more
    ours = {host: {function.pci for function in found.values()} for host, found in functions.items()}
    findings += subnets.overlaps(made, subnets.obstacles(settings, inputs, ours))
    refuse(findings)

    planned = {
        host.name: PlannedHost(
            name=host.name,
            index=numbers[host.name],
            detected=host.node is not None,
            functions=tuple(
                _function(
                    end,
                    numbers[host.name],
                    settings,
                    named[host.name][end.slot.slot],
                    functions[host.name].get(end.slot.slot),
                    lanes[end.segment.id, end.lane],
                )
                for end in ends_of[host.name]
            ),
        )
        for host in inputs
    }
    refuse(_mac_clashes(inputs, planned, ours))
    return {
        "schema": SCHEMA,
        "topology": settings.topology,
        "mtu": settings.mtu,
        "hosts": {name: to_plain(host) for name, host in planned.items()},
        "segments": [
            {"id": segment.id, "members": [{"host": host, "port": port} for host, port in segment.members]}
            for segment in joined
        ],
        "subnets": [_subnet(subnet, numbers) for subnet in made],
        "pairs": [pair for segment in joined for pair in _pairs(segment, lanes, settings, numbers)],
        "notes": list(_notes(settings, inputs, joined)),
    }


def refuse(findings: t.Sequence[Finding]) -> None:
    """Raise CollectionError with all findings, if there are any."""
    if not findings:
        return
    told = [str(finding) for finding in findings[:_SHOWN]]
    if len(told) == 1:
        raise CollectionError(f"The fabric cannot be planned. {told[0]}", findings=findings)
    rest = f" … and {len(findings) - _SHOWN} more." if len(findings) > _SHOWN else ""
    listed = " ".join(f"({number}) {text}" for number, text in enumerate(told, 1))
    raise CollectionError(
        f"The fabric cannot be planned, for {len(findings)} reasons: {listed}{rest}", findings=findings
    )


def _no_hosts(settings: Settings) -> Finding:
    return Finding(
        "hosts.none",
        "error",
        f"{VARIABLE}.group",
        f"the inventory has no group {settings.group}, or no host in it.",
        "Put the Sparks there, as inventories/example/hosts.yml does, or name their group.",
    )


def _function(
    end: subnets.End,
    index: int,
    settings: Settings,
    expected: Expected,
    seen: Function | None,
    lane: t.Sequence[subnets.Subnet],
) -> PlannedFunction:
    netdev = seen.netdev if seen else None
    there = {vf.index: vf for vf in seen.vfs} if seen else {}
    vfs = []
    for subnet in lane:
        vf = there.get(subnet.vf)
        # A pod's namespace may rename an interface, so that name is not its name on the host.
        on_host = vf is not None and vf.netdev is not None and vf.place.state == "host"
        vfs.append(
            PlannedVf(
                index=subnet.vf,
                purpose=settings.purposes[subnet.vf],
                mac=addresses.mac(settings.mac_prefix, index, end.slot.port, end.slot.function, subnet.vf),
                address=addresses.address(subnet.network.first + index),
                prefix=subnet.network.prefix,
                subnet=str(subnet.network),
                mtu=settings.mtu,
                netdev=vf.netdev.name if vf and vf.netdev and on_host else None,
                pci=vf.pci if vf else None,
                hca=vf.hca.name if vf and vf.hca else None,
            )
        )
    return PlannedFunction(
        slot=end.slot.slot,
        port=end.slot.port,
        function=end.slot.function,
        segment=end.segment.id,
        netdev=netdev.name if netdev else expected.netdev,
        pci=seen.pci if seen else expected.pci,
        mtu=settings.mtu,
        vfs=tuple(vfs),
        mac=netdev.mac if netdev else None,
        hca=seen.hca.name if seen and seen.hca else None,
    )


def _subnet(subnet: subnets.Subnet, numbers: t.Mapping[str, int]) -> Plain:
    first = subnet.network.first
    return {
        "subnet": str(subnet.network),
        "key": subnet.key,
        "segment": subnet.segment,
        "slot": subnet.lane,
        "vf": subnet.vf,
        "members": {end.host: addresses.address(first + numbers[end.host]) for end in subnet.ends},
    }


def _pairs(
    segment: segments.Segment,
    lanes: t.Mapping[tuple[str, str], t.Sequence[subnets.Subnet]],
    settings: Settings,
    numbers: t.Mapping[str, int],
) -> t.Iterator[Plain]:
    """Yield each pair of hosts on a segment with its paths: function by function, for each VF index."""
    rows: list[tuple[int, str, dict[str, tuple[str, str]]]] = [
        (
            subnet.vf,
            settings.purposes[subnet.vf],
            {
                end.host: (end.slot.slot, addresses.address(subnet.network.first + numbers[end.host]))
                for end in subnet.ends
            },
        )
        for (name, _lane), lane in lanes.items()
        if name == segment.id
        for subnet in lane
    ]
    rows.sort(key=lambda row: row[0])
    members = list(dict.fromkeys(host for host, _port in segment.members))
    for a, b in itertools.combinations(members, 2):
        paths = [
            {
                "vf": vf,
                "purpose": purpose,
                "slot_a": by_host[a][0],
                "slot_b": by_host[b][0],
                "address_a": by_host[a][1],
                "address_b": by_host[b][1],
            }
            for vf, purpose, by_host in rows
            if a in by_host and b in by_host
        ]
        yield {"a": a, "b": b, "segment": segment.id, "paths": paths}


def _mac_clashes(
    inputs: t.Sequence[HostInput], planned: t.Mapping[str, PlannedHost], ours: t.Mapping[str, t.Collection[str]]
) -> list[Finding]:
    """Find planned MACs that other interfaces already have. VFs of planned functions get theirs from the plan."""
    macs = {
        vf.mac: (host.name, f"{function.slot}v{vf.index}")
        for host in planned.values()
        for function in host.functions
        for vf in function.vfs
    }
    findings = []
    for host in inputs:
        node = host.node
        seen = [(f.netdev.name, f.netdev.mac) for f in (node.functions if node else ()) if f.netdev]
        for function in node.functions if node else ():
            if function.pci not in ours[host.name]:
                seen += [(f"VF {vf.pci}", vf.netdev.mac if vf.netdev else vf.admin_mac) for vf in function.vfs]
        for netdev in node.other if node else ():
            # An interface stacked on a VF (a VLAN, a bridge) legitimately has the VF's MAC.
            if netdev.mac and macs.get(netdev.mac.lower(), ("",))[0] != host.name:
                seen.append((netdev.name, netdev.mac))
        for name, mac in seen:
            if mac and mac.lower() in macs:
                owner, vf_name = macs[mac.lower()]
                message = f"the MAC {mac} planned for {vf_name} of {owner} is that of {name} on {host.name} already."
                remedy = "Choose another prefix, such as 02:d7."
                findings.append(Finding("plan.mac-clash", "error", f"{VARIABLE}.mac_prefix", message, remedy))
    return findings


def _notes(settings: Settings, inputs: t.Sequence[HostInput], joined: t.Sequence[segments.Segment]) -> t.Iterator[str]:
    topology = TOPOLOGIES[settings.topology]
    if topology.by == "nothing":
        yield f"{inputs[0].name} is a single host (topology {topology.name}): there is no fabric to build."
    elif len(inputs) == 1:
        yield f"{inputs[0].name} is alone on the switch: its VFs are created, but there is no pair to prove."
    elif topology.some_apart and len(inputs) > 3:
        yield "In a ring, each host reaches only its two neighbours: pairs that share no cable are not proven."
    if topology.neighbours:
        alike = [segment for segment in joined if len({port for _host, port in segment.members}) == 1]
        for segment in alike:
            (one, port), (other, _port) = segment.members
            yield (
                f"{segment.id} joins port {port} of {one} to port {port} of {other}, which is advised against in a {settings.topology}: "
                "lead each cable from one host's port to the other number of the next, as the instructions for three Sparks do."
            )
    if any(segment.id != segments.SWITCH for segment in joined):
        yield "Cables: " + "; ".join(
            f"{segment.id} {' to '.join(f'{host} port {port}' for host, port in segment.members)}" for segment in joined
        )
