# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What RDMA port counters and NCCL's log prove of a run: which functions of which hosts carried it.

The *functions* of a port share its cable; a port whose traffic takes one of them alone has half its bandwidth.
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

    used: the places (host and slot) that carried something. idle: those that did not, of which nothing else is known.
    unknown: why nothing can be said, None where something can.
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
    """Return the function of each HCA that the host's facts or its plan know, VFs' included."""
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
    """Judge the counters of each host, read before and after a run.

    counters: by host `before` and `after`, each what module `roce_counters` returned. A function has carried the run
    where one of its HCAs moved `wire.min_bytes` of the thresholds; where the device counts packets only,
    `wire.min_packets`. Raises CollectionError for a wrong form.
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
            return Carried(host, nothing, nothing, f"there is no reading {key} on {host}")
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
    """Return the HCAs that channels between nodes took, by host, of what `nccl_transport` returned.

    hosts: of the ranks, in order; the log knows but names of containers. Only the communicator of all ranks is looked at,
    since its numbers are the ranks'.
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
    """Return what the transport log and the counters of a run prove, by the names that bands use.

    hosts: of the run; what is known of some of them alone proves nothing of all. transport: what `nccl_transport`
    returned, with `hcas` (see `taken`). wire: of the counters, by host.
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
    """Return whether on some host a port was used by half, or on every host all functions of the ports in use."""
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
