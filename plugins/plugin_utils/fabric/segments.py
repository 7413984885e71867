# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Topologies: which ports share a segment (one L2 domain: the switch, or one cable), and what is wrong with the cabling."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import Finding
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.settings import (
    VARIABLE,
    Cable,
    Hardware,
    Settings,
    near,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.topologies import TOPOLOGIES

SWITCH = "switch"


@dataclass(frozen=True, slots=True)
class Segment:
    """One L2 domain. `number` (from 0) is its place in the pool; `members` are its (host, port) in inventory order."""

    id: str
    number: int
    members: tuple[tuple[str, int], ...]


def _wrong(kind: str, key: str, message: str, remedy: str) -> Finding:
    return Finding(f"segments.{kind}", "error", f"{VARIABLE}.{key}" if key else VARIABLE, message, remedy)


def segments(
    settings: Settings, hardware: Hardware, hosts: t.Sequence[str]
) -> tuple[tuple[Segment, ...], list[Finding]]:
    """Return the segments of a topology, numbered so that appending a host renumbers none.

    hosts: in inventory order. Cabling that the topology does not allow is returned as findings.
    """
    topology = TOPOLOGIES[settings.topology]
    if not topology.takes(len(hosts)):
        return (), [
            _wrong(
                "hosts",
                "topology",
                f"topology {settings.topology} joins {topology.hosts} host{'s' if topology.least > 1 else ''}, "
                f"but the group {settings.group} has {len(hosts)}: {_some(hosts)}.",
                f"Choose another topology, or correct the hosts in the group {settings.group}.",
            )
        ]
    if topology.by == "nothing":
        return (), []
    if topology.by == "switch":
        return (Segment(SWITCH, 0, tuple((host, port) for host in hosts for port in settings.ports)),), []
    if settings.cables is None:
        cables, findings = _default_cables(settings, hosts)
    else:
        cables, findings = _numbered(settings.cables), _check_cables(settings, hardware, hosts)
    findings = findings or _check_shape(settings, hosts, [cable for _number, cable in cables])
    order = {host: position for position, host in enumerate(hosts)}
    made = (
        Segment(f"cable{number + 1}", number, tuple(sorted(cable, key=lambda end: (order[end[0]], end[1]))))
        for number, cable in cables
        if not findings
    )
    return tuple(made), findings


def _some(names: t.Sequence[str], limit: int = 8) -> str:
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more if names else "none"


def _numbered(cables: t.Sequence[Cable]) -> list[tuple[int, Cable]]:
    return list(enumerate(cables))


def _default_cables(settings: Settings, hosts: t.Sequence[str]) -> tuple[list[tuple[int, Cable]], list[Finding]]:
    """Cable in order. A direct cable has the number of its port, a ring's cable that of the host at its outgoing end."""
    if TOPOLOGIES[settings.topology].by == "like ports":
        first, second = hosts
        return [(port, ((first, port), (second, port))) for port in settings.ports], []
    if len(settings.ports) != 2:
        return [], [
            _wrong(
                "ports",
                "ports",
                f"topology {settings.topology} takes two ports of each host, but {_listed(settings.ports)} "
                f"{'is' if len(settings.ports) == 1 else 'are'} in use.",
                f"Name two in {VARIABLE}.ports, or say which cable goes where in {VARIABLE}.cables.",
            )
        ]
    into, out = settings.ports
    following = [*hosts[1:], hosts[0]]
    return _numbered([((host, out), (other, into)) for host, other in zip(hosts, following, strict=True)]), []


def _listed(ports: t.Sequence[int]) -> str:
    return f"port{'s' if len(ports) > 1 else ''} {', '.join(map(str, ports))}"


def _check_cables(settings: Settings, hardware: Hardware, hosts: t.Sequence[str]) -> list[Finding]:
    findings: list[Finding] = []
    known, used = set(hosts), dict[tuple[str, int], int]()
    for number, cable in enumerate(settings.cables or ()):
        key = f"cables[{number}]"
        for host, port in cable:
            end = f"{host}:{port}"
            if host not in known:
                message = f"{end}: there is no host {host} in the group {settings.group}."
                findings.append(_wrong("unknown", key, message, near(host, hosts)))
            elif port not in hardware.ports:
                message = f"{end}: hardware class {hardware.id} has no port {port}."
                findings.append(_wrong("unknown", key, message, f"It has {_listed(hardware.ports)}."))
            elif (host, port) in used and cable[0] != cable[1]:
                message = f"{end} is already in cables[{used[host, port]}], and a port takes one cable."
                findings.append(_wrong("port-twice", key, message, "Give one of the two another port."))
            used.setdefault((host, port), number)
        if cable[0][0] == cable[1][0]:
            message = f"{cable[0][0]}:{cable[0][1]} and {cable[1][0]}:{cable[1][1]} are on the same host."
            findings.append(_wrong("self", key, message, "A cable joins two hosts."))
    return findings


def _check_shape(settings: Settings, hosts: t.Sequence[str], cables: t.Sequence[Cable]) -> list[Finding]:
    """Find hosts without a cable, and cables that do not form the topology."""
    ends: dict[str, list[str]] = {host: [] for host in hosts}
    for (host, _port), (other, _other_port) in cables:
        ends[host].append(other)
        ends[other].append(host)
    bare = [host for host in hosts if not ends[host]]
    if bare:
        message = f"{_some(bare)} {'has' if len(bare) == 1 else 'have'} no cable."
        remedy = f"Add one, or remove {bare[0]} from the group {settings.group}."
        return [_wrong("no-cable", "cables", message, remedy)]
    apart = _apart(ends)
    if apart:
        message = f"the hosts are not connected: no path leads from {hosts[0]} to {_some(apart)}."
        return [_wrong("disconnected", "cables", message, f"A {settings.topology} joins them all.")]
    if TOPOLOGIES[settings.topology].neighbours:
        for host in hosts:
            if len(ends[host]) != 2 or len(set(ends[host])) != 2:
                message = f"{host} has cables to {', '.join(sorted(ends[host]))}."
                remedy = f"In a {settings.topology} each host has two cables, to two other hosts."
                return [_wrong("shape", "cables", message, remedy)]
    return []


def _apart(ends: t.Mapping[str, t.Sequence[str]]) -> list[str]:
    """Return the hosts that the first one cannot reach."""
    todo = [next(iter(ends))]
    reached = set(todo)
    while todo:
        new = set(ends[todo.pop()]) - reached
        reached |= new
        todo += new
    return [host for host in ends if host not in reached]
