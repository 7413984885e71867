# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verify's values: what to prove (paths), what was seen (evidence), and the outcome (results, steps)."""

from __future__ import annotations

import functools
import typing as t
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils import foreign
from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.gids import GidEntry, judge
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import (
    CollectionError,
    Finding,
    Function,
    Node,
    PlannedFunction,
    PlannedHost,
    PlannedVf,
    Vf,
    from_plain,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import answer, unreached

# warn: passed, but needs attention. unknown: it ran, but the result proves nothing.
Status = t.Literal["pass", "warn", "fail", "unknown", "not run", "not applicable"]
Plain = dict[str, t.Any]


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A host, one of its functions, or a VF of that: the subject of a result, and where its cause lies."""

    host: str
    slot: str | None = None
    vf: int | None = None

    def __str__(self) -> str:
        vf = "" if self.vf is None else f"v{self.vf}"
        return f"{self.host} {self.slot}{vf}" if self.slot else self.host

    def covers(self, other: Place) -> bool:
        """Whether `other` is this place or a part of it."""
        return self.host == other.host and self.slot in (None, other.slot) and (self.vf is None or self.vf == other.vf)


@dataclass(frozen=True, slots=True)
class End:
    """One end of a path: a planned VF of a planned host."""

    host: str
    function: PlannedFunction
    vf: PlannedVf

    @property
    def place(self) -> Place:
        """Where it is."""
        return Place(self.host, self.function.slot, self.vf.index)

    def __str__(self) -> str:
        return str(self.place)


@dataclass(frozen=True, slots=True)
class Path:
    """Two VFs of two hosts that share a segment and a subnet, in the order of the plan."""

    a: End
    b: End
    segment: str

    @property
    def id(self) -> str:
        """A name shared by both ends and the report."""
        return f"{self.a}-{self.b}".replace(" ", ":")

    @property
    def ends(self) -> tuple[End, End]:
        """Both ends."""
        return self.a, self.b

    def __str__(self) -> str:
        return f"{self.a} - {self.b}"


@dataclass(frozen=True, slots=True)
class Result:
    """One thing to prove. A failure has a `cause` (a stable id), the place at fault (`blame`), and a remedy.

    required: whether the verdict is incomplete if it was not run. ends: the places that take part. suspected: whether
    the cause is only likely.
    """

    subject: str
    status: Status
    ends: tuple[Place, ...]
    message: str = ""
    cause: str | None = None
    blame: Place | None = None
    remedy: str = ""
    required: bool = True
    figures: dict[str, t.Any] = field(default_factory=dict)
    suspected: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """One step of verify with all its results."""

    id: str
    title: str
    required: bool
    results: tuple[Result, ...]

    def count(self, status: Status) -> int:
        """Return how many results have this status."""
        return sum(result.status == status for result in self.results)

    @property
    def status(self) -> Status:
        """fail beats not run beats unknown beats pass. A step with nothing run is not run, not passed."""
        if not self.results:
            return "not applicable"
        if self.count("fail"):
            return "fail"
        statuses: tuple[Status, ...] = ("not run", "unknown")
        for status in statuses:
            if any(result.status == status and result.required for result in self.results):
                return status
        if self.count("pass") or self.count("warn"):
            return "pass"
        return "unknown" if self.count("unknown") else "not run"


@dataclass(frozen=True, slots=True)
class HostEvidence:
    """What was seen on one host within the limit. error: why nothing was (unreachable, or gathering facts failed)."""

    node: Node | None = None
    error: str | None = None
    probe: Plain | None = None
    probe_error: str | None = None
    rdma: tuple[Plain, ...] = ()
    rdma_error: str | None = None
    power: tuple[Plain, ...] | None = None
    power_mhz: int | None = None
    power_error: str | None = None


@dataclass(frozen=True)
class Evidence:
    """All the input that verify judges. `hosts` has only the hosts within the limit.

    `more`: `plan_fault`; `bands` (entries of `knowledge/bands`); `knowledge_dirs` (the owner's); and the input of the steps
    `nccl`, `pod`, `tokens`, `wire` beyond the fabric: each a dictionary documented by its judge, or absent if it was not run.
    """

    topology: str
    plan: dict[str, PlannedHost]
    paths: tuple[Path, ...]
    hosts: dict[str, HostEvidence]
    thresholds: Plain
    more: Plain = field(default_factory=dict)

    def node(self, host: str) -> Node | None:
        """Return the host's facts, or None if it was not seen."""
        seen = self.hosts.get(host)
        return seen.node if seen else None

    @functools.cached_property
    def functions(self) -> dict[Place, Function]:
        """The hosts' functions that are in the plan, by their planned place."""
        return {
            Place(name, planned.slot): function
            for name, seen in self.hosts.items()
            for planned in (self.plan[name].functions if seen.node else ())
            if seen.node and (function := seen.node.function(planned.pci, planned.netdev))
        }

    @functools.cached_property
    def vfs(self) -> dict[Place, Vf]:
        """The hosts' VFs of planned functions, whether or not the VFs are planned."""
        return {Place(p.host, p.slot, vf.index): vf for p, function in self.functions.items() for vf in function.vfs}

    def function(self, host: str, planned: PlannedFunction) -> Function | None:
        """Return the host's function for a planned one."""
        return self.functions.get(Place(host, planned.slot))

    def vf(self, end: End) -> Vf | None:
        """Return the host's VF for a planned one."""
        return self.vfs.get(end.place)

    @functools.cached_property
    def gids(self) -> dict[str, tuple[list[GidEntry], list[Finding]]]:
        """For each host that was seen: its valid GID entries, and what is wrong with the others."""
        return {
            name: judge(seen.node, self.plan[name].functions)
            for name, seen in self.hosts.items()
            if seen.node is not None
        }

    @functools.cached_property
    def gid_entries(self) -> dict[Place, GidEntry]:
        """The valid GID entry of each VF that has one."""
        return {Place(name, e.slot, e.vf): e for name, (entries, _f) in self.gids.items() for e in entries}

    @functools.cached_property
    def answers(self) -> dict[tuple[str, str, str, str], Plain]:
        """The probes' answers by kind (`arp`, `ping`), host, netdev and requested address."""
        return {
            (kind, name, answer["netdev"], answer["address"]): answer
            for name, seen in self.hosts.items()
            for kind in ("arp", "ping")
            for answer in (seen.probe or {}).get(kind, ())
        }

    def not_here(self, host: str) -> tuple[str, bool] | None:
        """Return why nothing can be proven about a host, and whether it should have been, or None if it was seen."""
        seen = self.hosts.get(host)
        if seen is None:
            return f"{host} is outside the limit", False
        if seen.node is None:
            return f"{host} was not seen: {unreached.plain(seen.error or 'no facts')}", True
        return None

    def not_on_host(self, end: End) -> tuple[str, bool] | None:
        """Return why an end cannot send test traffic, and whether it should, or None if it can."""
        absent = self.not_here(end.host)
        if absent:
            return absent
        vf = self.vf(end)
        if vf is None:
            return f"{end} does not exist", True
        if vf.place.state == "pod":
            return f"{end} is in a live pod: not run here, the rank's preflight tests it", False
        if vf.place.state != "host" or vf.netdev is None:
            return f"{end} is {vf.place.state}", True
        return None

    def blocked(self, ends: t.Iterable[End]) -> tuple[str, bool] | None:
        """Return why a test between these ends cannot run. Reasons that make it not required come first."""
        reasons = [reason for end in ends if (reason := self.not_on_host(end))]
        return min(reasons, key=lambda reason: reason[1]) if reasons else None


EARLIER = {"error": "an earlier part of this run failed on it"}  # for a host that this run did not get to


def evidence_of(
    plan: t.Mapping[str, t.Any],
    hosts: t.Mapping[str, t.Any],
    thresholds: t.Mapping[str, t.Any],
    more: t.Mapping[str, t.Any] | None = None,
) -> Evidence:
    """Build the evidence from plain values.

    plan: of `fabric_plan`. hosts: by name, for each host within the limit: `facts` (a plain Node or None), `error`,
    `probe` and `probe_error` (the result of `fabric_probe`, or why there is none), `rdma` (a list of its answers) and
    `rdma_error` (why some are missing), `power` (what differs from the planned clock limit of `power_mhz`) or `power_error`.
    thresholds: an entry of `knowledge/thresholds`. Raises CollectionError for malformed input.
    """
    for name, value in (("plan", plan), ("hosts", hosts), ("thresholds", thresholds)):
        if not isinstance(value, t.Mapping):
            raise CollectionError(f"{name}: a dictionary is needed, not {type(value).__name__}.")
    planned = {name: from_plain(PlannedHost, host, f"plan.hosts.{name}") for name, host in plan["hosts"].items()}
    strangers = [name for name in hosts if name not in planned]
    if strangers:
        raise CollectionError(f"hosts: {strangers[0]} is not in the plan, which has {', '.join(planned) or 'no host'}.")
    return Evidence(
        topology=str(plan["topology"]),
        plan=planned,
        paths=tuple(_paths(plan, planned)),
        hosts={name: _host(name, value) for name, value in hosts.items()},
        thresholds=dict(thresholds),
        more=dict(more or {}),
    )


def _host(name: str, value: t.Any) -> HostEvidence:
    if not isinstance(value, t.Mapping):
        raise CollectionError(f"hosts.{name}: a dictionary is needed, not {type(value).__name__}.")
    value = foreign.facts(value, name)
    facts = value.get("facts")
    return HostEvidence(
        node=foreign.read_in(Node, facts, f"hosts.{name}.facts") if facts else None,
        error=answer.reason({"msg": value["error"]}) if value.get("error") else None,
        probe=value.get("probe"),
        probe_error=value.get("probe_error"),
        rdma=tuple(value.get("rdma") or ()),
        rdma_error=value.get("rdma_error"),
        power=tuple(value["power"]) if value.get("power") is not None else None,
        power_mhz=value.get("power_mhz"),
        power_error=value.get("power_error"),
    )


def _paths(plan: t.Mapping[str, t.Any], planned: t.Mapping[str, PlannedHost]) -> t.Iterator[Path]:
    ends = {
        (name, function.slot, vf.index): End(name, function, vf)
        for name, host in planned.items()
        for function in host.functions
        for vf in function.vfs
    }
    for pair in plan["pairs"]:
        for path in pair["paths"]:
            yield Path(
                ends[pair["a"], path["slot_a"], path["vf"]],
                ends[pair["b"], path["slot_b"], path["vf"]],
                pair["segment"],
            )
