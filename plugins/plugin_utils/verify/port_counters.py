# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What RDMA port counters and NCCL's log prove about a run: which functions of which hosts carried it.

The *functions* of a port share its cable; a port whose traffic uses only one of them has half its bandwidth.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.counters import (
    PortDelta,
    counters_of,
    deltas,
)
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.values import Evidence, Place, Plain


@dataclass(frozen=True, slots=True)
class Carried:
    """What carried a run on one host.

    used: the places (host and slot) that carried traffic. idle: those known not to have. unknown: why the counters prove
    nothing, or None if they do.
    """

    host: str
    used: frozenset[Place]
    idle: frozenset[Place]
    unknown: str | None = None
    moved_bytes: int = 0
    lost: tuple[str, ...] = ()

    def halves(self, ports: t.Mapping[Place, int]) -> tuple[Place, ...]:
        """Return the idle functions of ports whose other function was used."""
        busy = {ports[place] for place in self.used}
        return tuple(sorted(place for place in self.idle if ports[place] in busy))


def ports_of(evidence: Evidence, host: str) -> dict[Place, int]:
    """Return the port of each planned function of a host."""
    planned = evidence.plan.get(host)
    return {Place(host, f.slot): f.port for f in planned.functions} if planned else {}


def hcas_of(evidence: Evidence, host: str) -> dict[str, Place]:
    """Return the function of each HCA in the host's facts or plan, including VFs' HCAs."""
    found: dict[str, Place] = {}
    planned = evidence.plan.get(host)
    for function in planned.functions if planned else ():
        place = Place(host, function.slot)
        seen = evidence.function(host, function)
        names = [function.hca, *(vf.hca for vf in function.vfs)]
        if seen is not None:
            names += [seen.hca.name if seen.hca else None, *(vf.hca.name for vf in seen.vfs if vf.hca)]
        found |= {name: place for name in names if name}
    return found


def carried(evidence: Evidence, counters: t.Any, where: str) -> dict[str, Carried]:
    """Judge each host's counters, read before and after a run.

    counters: by host `before` and `after`, each a result of module `roce_counters`. A function carried the run if one of
    its HCAs moved at least `wire.min_bytes` of the thresholds, or `wire.min_packets` if the device counts packets only.
    Raises CollectionError for malformed input.
    """
    if not isinstance(counters, t.Mapping):
        raise CollectionError(f"{where}: a dictionary by host is needed, not {type(counters).__name__}.")
    return {host: _carried(evidence, host, readings, f"{where}.{host}") for host, readings in counters.items()}


def _carried(evidence: Evidence, host: str, readings: t.Any, where: str) -> Carried:
    if not isinstance(readings, t.Mapping):
        raise CollectionError(f"{where}: a dictionary with `before` and `after` is needed.")
    nothing: frozenset[Place] = frozenset()
    for key in ("before", "after"):
        if not readings.get(key):
            return Carried(host, nothing, nothing, f"there is no `{key}` reading on {host}")
    before, after = (counters_of(readings[key], f"{where}.{key}") for key in ("before", "after"))
    known = hcas_of(evidence, host)
    moved: dict[Place, list[PortDelta]] = {}
    for delta in deltas(before, after):
        if delta.hca in known:
            moved.setdefault(known[delta.hca], []).append(delta)
    if not moved:
        return Carried(host, nothing, nothing, f"no RDMA device of the fabric was read on {host}")
    used = {place for place, ports in moved.items() if any(_busy(evidence, delta) for delta in ports)}
    doubtful = {place for place, ports in moved.items() if any(delta.unknown for delta in ports)} - used
    if doubtful:
        place = min(doubtful)
        delta = next(delta for delta in moved[place] if delta.unknown)
        return Carried(host, frozenset(used), nothing, f"{place}: {delta.hca}: {delta.unknown}")
    every = [delta for ports in moved.values() for delta in ports]
    lost = tuple(f"{d.hca}: {name} +{count}" for d in every for name, count in sorted(d.lost.items()))
    total = sum(delta.moved_bytes or 0 for delta in every)
    return Carried(host, frozenset(used), frozenset(set(moved) - used), moved_bytes=total, lost=lost)


def _busy(evidence: Evidence, delta: PortDelta) -> bool:
    least = evidence.thresholds["wire"]
    if delta.moved_bytes is not None:
        return delta.moved_bytes >= int(least["min_bytes"])
    return delta.moved_packets is not None and delta.moved_packets >= int(least["min_packets"])


def taken(transport: Plain, hosts: t.Sequence[str]) -> dict[str, list[str]]:
    """Return the HCAs that channels between nodes used, by host, from the result of `nccl_transport`.

    hosts: of the ranks, in order, since the log knows only container names. Considers only the communicator of all ranks,
    because its numbers are the ranks'.
    """
    whole = {c["id"] for c in transport.get("communicators") or () if c.get("nranks") == len(hosts)}
    found: dict[str, dict[str, None]] = {}
    for link in transport.get("links") or ():
        if link.get("communicator") in whole and str(link.get("transport", "")).startswith("NET/"):
            for port in link.get("ports") or ():
                found.setdefault(hosts[link["rank"]], {})[port["name"]] = None
    return {host: list(names) for host, names in found.items()}


def signs(
    evidence: Evidence, hosts: t.Collection[str], transport: Plain | None, wire: t.Mapping[str, Carried]
) -> frozenset[str]:
    """Return what a run's transport log and counters prove, by the names that bands use.

    hosts: of the run; evidence from only some of them proves nothing about all. transport: the result of
    `nccl_transport`, with `hcas` (see `taken`). wire: the counters' verdict, by host.
    """
    found = set()
    if transport:
        hcas = transport.get("hcas") or {}
        if transport.get("verdict") == "ib":
            found.add("log_ib")
            places = {host: _places(evidence, host, names) for host, names in hcas.items()}
            found |= _halves(evidence, hosts, "log", places)
        elif transport.get("verdict") == "socket":
            found.add("log_socket")
    if wire and not any(seen.unknown for seen in wire.values()):
        used = {host: seen.used for host, seen in wire.items()}
        whole = set(hosts) <= set(used)
        if all(used.values()):
            found |= {"wire_used"} if whole else set()
            found |= _halves(evidence, hosts, "wire", used)
        elif whole and not any(used.values()):
            found.add("wire_idle")
    return frozenset(found)


def _places(evidence: Evidence, host: str, names: t.Iterable[str]) -> frozenset[Place]:
    known = hcas_of(evidence, host)
    return frozenset(known[name] for name in names if name in known)


def _halves(
    evidence: Evidence, hosts: t.Collection[str], source: str, used: t.Mapping[str, t.Collection[Place]]
) -> set[str]:
    """Return whether some host used only half of a port, or every host used all functions of the ports in use."""
    if not used or not all(used.values()):
        return set()
    whole = []
    for host, places in used.items():
        ports = ports_of(evidence, host)
        busy = {ports[place] for place in places}
        whole.append(all(place in places for place, port in ports.items() if port in busy))
    if not all(whole):
        return {f"{source}_one_function"}
    return {f"{source}_all_functions"} if set(hosts) <= set(used) else set()
