# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who is connected to whom: from received probes and LLDP to wires, and from wires to a topology."""

from __future__ import annotations

import typing as t
from collections import defaultdict
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import Finding, Severity
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric import topologies
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.settings import Cable

End = tuple[str, int]  # a host and its port


@dataclass(frozen=True, slots=True)
class Wire:
    """Ports on one medium: a cable between two, or a switch. switch: its LLDP name, "" for one without a name."""

    ends: tuple[End, ...]
    switch: str | None = None

    @property
    def is_switch(self) -> bool:
        """Whether it has more than a cable's two ends."""
        return self.switch is not None

    @property
    def hosts(self) -> list[str]:
        """Its hosts, without duplicates, in order."""
        return list(dict.fromkeys(host for host, _port in self.ends))

    def __str__(self) -> str:
        ends = [f"{host}:{port}" for host, port in self.ends]
        if self.switch is None:
            return " - ".join(ends)
        return f"switch{f' {self.switch}' if self.switch else ''}: {', '.join(ends)}"


@dataclass(slots=True)
class Layout:
    """The topology, None if the wires form none; ports: for a switch; cables: for other topologies. wires: all that were seen."""

    wires: tuple[Wire, ...] = ()
    topology: str | None = None
    ports: tuple[int, ...] = ()
    cables: tuple[Cable, ...] = ()
    findings: list[Finding] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)

    def used(self, host: str) -> tuple[int, ...]:
        """Return a host's ports in use."""
        if self.topology == "switch":
            return self.ports
        return tuple(sorted({port for cable in self.cables for name, port in cable if name == host}))

    def note(self, kind: str, severity: Severity, where: str, message: str, remedy: str) -> None:
        """Add a finding."""
        self.findings.append(Finding(f"cables.{kind}", severity, where, message, remedy))


def wires(hosts: t.Sequence[str], calls: t.Iterable[tuple[End, End]], bridges: t.Mapping[End, str]) -> list[Wire]:
    """Return the wires.

    hosts: in order. calls: pairs of ports of which one heard the other. bridges: the switch's LLDP name by port. Ports that heard
    nobody share a wire if LLDP names the same switch for them.
    """
    joined: dict[End, set[End]] = defaultdict(set)
    for one, other in calls:
        if one != other:
            joined[one].add(other)
            joined[other].add(one)
    silent: dict[str, list[End]] = defaultdict(list)
    for end, name in bridges.items():
        if end not in joined:
            silent[name].append(end)
    for named, alone in silent.items():
        on_it = next((end for end, name in bridges.items() if name == named and end in joined), alone[0])
        for end in alone:
            joined[end].add(on_it)
            joined[on_it].add(end)
    order = {host: number for number, host in enumerate(hosts)}
    found, todo = [], sorted(joined, key=lambda end: (order[end[0]], end[1]))
    while todo:
        group, edge = {todo[0]}, [todo[0]]
        while edge:
            new = joined[edge.pop()] - group
            group |= new
            edge += new
        ends = [end for end in todo if end in group]
        todo = [end for end in todo if end not in group]
        switch: str | None = next((bridges[end] for end in ends if end in bridges), None)
        if switch is None and (len(ends) > 2 or len({host for host, _port in ends}) < len(ends)):
            switch = ""
        found.append(Wire(tuple(ends), switch))
    return found


def layout(hosts: t.Sequence[str], found: t.Sequence[Wire]) -> Layout:
    """Return the topology that the wires form; findings say why they form none, or which of them are left out."""
    made = Layout(wires=tuple(found))
    if len(hosts) == 1:
        made.topology = "single"
        return made
    used = [wire for wire in found if len(wire.hosts) > 1]
    for wire in found:
        if wire not in used and len(wire.ends) > 1:
            made.note(
                "loop", "warning", str(wire), "its ends are of one host.", "A cable joins two hosts: take it out."
            )
    switches = [wire for wire in used if wire.is_switch]
    lonely = [host for host in hosts if not any(host in wire.hosts for wire in used)]
    if lonely:
        made.note(
            "none",
            "error",
            ", ".join(lonely),
            "no frame of another host arrived on any of its ports, and none of its frames arrived at another host.",
            "Check that its cable is plugged in at both ends, that the ports are up, and that they are in one VLAN. If the nodes "
            "are slow to start, listen longer: -e dgxspark_discover_window=30.",
        )
    elif not switches:
        _direct_or_ring(made, hosts, used)
    else:
        _switched(made, hosts, switches, [wire for wire in used if not wire.is_switch])
    return made


def _direct_or_ring(made: Layout, hosts: t.Sequence[str], cables: t.Sequence[Wire]) -> None:
    made.topology = topologies.cabled(len(hosts)).name
    made.cables = tuple((wire.ends[0], wire.ends[1]) for wire in cables)
    made.assumed.append(
        "Two ports that hear only each other, and for which LLDP names no switch, are assumed to be the two ends of a cable."
    )


def _switched(made: Layout, hosts: t.Sequence[str], switches: t.Sequence[Wire], cables: t.Sequence[Wire]) -> None:
    on = {end: number for number, wire in enumerate(switches) for end in wire.ends}
    ports = sorted({port for _host, port in on})
    by_all = [port for port in ports if all((host, port) in on for host in hosts)]
    common = [port for port in by_all if len({on[host, port] for host in hosts}) == 1]
    if not common:
        told = "; ".join(map(str, [*switches, *cables]))
        made.note(
            "ports",
            "error",
            ", ".join(hosts),
            f"no port connects all hosts to one switch: {told}.",
            "Plug the same port of each host, such as port 0, into the switch; or cable them to each other without a switch.",
        )
        return
    made.topology, made.ports = "switch", tuple(common)
    rest = [f"{host}:{port}" for host, port in on if port not in common] + [str(cable) for cable in cables]
    if rest:
        made.note(
            "left-out",
            "warning",
            ", ".join(rest),
            "it is plugged in, but left out of the fabric: not all hosts have it.",
            "Plug the same ports of all hosts into the switch to use them.",
        )
