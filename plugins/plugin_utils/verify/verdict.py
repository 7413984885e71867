# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From results to a verdict and its causes: root causes come first, each with its consequences listed under it."""

from __future__ import annotations

import typing as t
from collections import defaultdict
from dataclasses import dataclass, replace

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.values import Place, Result, Step

Verdict = t.Literal["passed", "failed", "incomplete"]

# What the ranks do over the fabric.
_BEYOND = ("nccl.", "tokens.", "wire.")
# Kinds of causes, the lowest layer first. A cause explains failures of later kinds at the places it covers; if the second
# entry is given, only of these kinds.
_LAYERS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("plan.", ()),
    ("function.", ()),
    # netplan's files know a VF by its MAC: one with another MAC gets no address, and is not brought up. No cable changes a MAC.
    ("vf.mac", ()),
    ("link.down", ()),
    ("vf.count", ("vf.missing", "gid.vf-missing", "arp.", "mtu.", "rdma.", *_BEYOND)),
    ("vf.", ()),
    ("gid.no-ipv4", ()),
    ("gid.wrong-ipv4", ()),
    ("link.address", ("arp.", "mtu.", "rdma.", *_BEYOND)),
    ("link.route", ("arp.", "mtu.", "rdma.", *_BEYOND)),
    ("link.mtu", ("mtu.", "rdma.", *_BEYOND)),
    ("link.speed", ("rdma.slow", *_BEYOND)),
    ("arp.", ("mtu.", "rdma.", *_BEYOND)),
    ("mtu.", ("rdma.", *_BEYOND)),
    ("gid.", ("rdma.", *_BEYOND)),
    ("rdma.", ()),
    ("power.", ("power.",)),
    ("nccl.", ()),
    ("tokens.", ()),
    ("wire.", ()),
)
_RDMA = next(number for number, (prefix, _explains) in enumerate(_LAYERS) if prefix == "rdma.")


@dataclass(frozen=True, slots=True)
class Cause:
    """Why something failed: its id, its place, the message, the remedy, the results that show it, and the consequences.

    suspected: whether it is only likely.
    """

    id: str
    where: str
    message: str
    remedy: str
    seen: tuple[str, ...]
    consequences: tuple[str, ...]
    suspected: bool = False


def verdict(steps: t.Sequence[Step]) -> Verdict:
    """failed if anything failed, incomplete if a required step was not run or is unknown, else passed."""
    if any(step.status == "fail" for step in steps):
        return "failed"
    if any(step.required and step.status in ("not run", "unknown") for step in steps):
        return "incomplete"
    return "passed"


def layer(cause: str) -> int:
    """Return the layer of a kind of cause (0 is the lowest); unlisted kinds come last."""
    return next((n for n, (prefix, _explains) in enumerate(_LAYERS) if cause.startswith(prefix)), len(_LAYERS))


def locate(results: t.Sequence[Result]) -> list[Result]:
    """Blame a function for failures without a place of their own, if everything it took part in failed.

    It must have failed to reach at least two different peers, and some other function must be fine: one path alone does
    not say which end is at fault, and if all paths fail, no single function is to blame.
    """
    loose = [r for r in results if r.status == "fail" and r.blame is None and len(r.ends) == 2]
    passed = {Place(end.host, end.slot) for r in results if r.status == "pass" and len(r.ends) == 2 for end in r.ends}
    peers: dict[Place, set[str]] = defaultdict(set)
    for result in loose:
        for end, other in (result.ends, result.ends[::-1]):
            peers[Place(end.host, end.slot)].add(other.host)
    suspects = {place for place, hosts in peers.items() if len(hosts) > 1 and place not in passed} if passed else set()
    found = []
    for result in results:
        candidate = result.status == "fail" and result.blame is None and len(result.ends) == 2
        blamed = suspects & {Place(end.host, end.slot) for end in result.ends} if candidate else set()
        found.append(replace(result, blame=blamed.pop()) if len(blamed) == 1 else result)
    return found


@dataclass(slots=True)
class _Fault:
    """All failures of one kind at one place."""

    key: tuple[str, str]
    results: list[Result]
    follows: list[str]
    between: set[frozenset[Place]]  # the pairs of ends that showed it

    @property
    def cause(self) -> str:
        return self.key[0]

    @property
    def blame(self) -> Place | None:
        return self.results[0].blame

    def explains(self, result: Result, cause: str) -> bool:
        """Whether a failure of the kind `cause` follows from this one."""
        if self.key == _key(result):
            return False
        # A failure with a known place follows from causes at that place; one without follows from causes at one of its
        # ends, or between the same two ends, where the cause itself need not have a place.
        places = [result.blame] if result.blame else list(result.ends)
        same = result.blame is None and len(result.ends) == 2 and frozenset(result.ends) in self.between
        depth = layer(self.cause)
        # Ranks use the whole host, so any fault of its fabric may show there.
        whole = depth <= _RDMA < layer(cause) and any(place.host == self.blame.host for place in places if self.blame)
        if not same and not whole and not any(self.blame.covers(place) for place in places if self.blame):
            return False
        if depth == layer(cause):
            # A function that is down brings its VFs down.
            return self.cause == cause and result.blame is not None
        only = _LAYERS[depth][1] if depth < len(_LAYERS) else ()
        return depth < layer(cause) and (not only or cause.startswith(only))


def causes(steps: t.Sequence[Step]) -> list[Cause]:
    """Return the root causes, the lowest layer first, each with the failures that follow from it."""
    failed = [result for step in steps for result in locate(step.results) if result.status == "fail"]
    faults: dict[tuple[str, str], _Fault] = {}
    index = _Index(defaultdict(dict), defaultdict(dict))
    for result in failed:
        key = _key(result)
        fault = faults.setdefault(key, _Fault(key, [], [], set()))
        fault.results.append(result)
        fault.between.add(frozenset(result.ends))
        index.by_ends[frozenset(result.ends)][key] = fault
        if result.blame:
            index.by_host[result.blame.host][key] = fault
    roots: dict[tuple[str, str], list[Result]] = defaultdict(list)
    for result in failed:
        root = _root(result, index)
        if root is None:
            roots[_key(result)].append(result)
        else:
            root.follows.append(f"{result.subject}: {result.cause}")
    # The same cause at several places of a host counts once: an owner fixes it in one go.
    of_host: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    for key, group in roots.items():
        blame = group[0].blame
        of_host[key[0], blame.host if blame else key[1]].append(key)
    made = [
        _cause([roots[key] for key in keys], [f for key in keys for f in faults[key].follows])
        for keys in of_host.values()
    ]
    return sorted(made, key=lambda cause: (layer(cause.id), -len(cause.consequences), cause.where))


def _key(result: Result) -> tuple[str, str]:
    # Without a place, failures of one kind are grouped by their hosts.
    where = str(result.blame or " - ".join(sorted({end.host for end in result.ends})) or result.subject)
    return result.cause or "", where


@dataclass(frozen=True, slots=True)
class _Index:
    """Faults by the host of their place, if that is known, and by the pair of ends that showed them."""

    by_host: dict[str, dict[tuple[str, str], _Fault]]
    by_ends: dict[frozenset[Place], dict[tuple[str, str], _Fault]]


def _root(result: Result, index: _Index) -> _Fault | None:
    """Follow explanations to a fault that nothing explains, or None if nothing explains the failure itself."""
    found: _Fault | None = None
    while True:
        near = dict(index.by_ends.get(frozenset(result.ends), {}))
        for place in (result.blame,) if result.blame else result.ends:
            near |= index.by_host.get(place.host, {})
        reasons = [fault for fault in near.values() if fault.explains(result, result.cause or "")]
        if not reasons:
            return found
        found = min(reasons, key=lambda fault: (layer(fault.cause), len(fault.key[1])))
        result = found.results[0]


def _cause(groups: t.Sequence[t.Sequence[Result]], consequences: t.Sequence[str]) -> Cause:
    first = groups[0][0]
    places = list(dict.fromkeys(_key(group[0])[1] for group in groups))
    if first.blame:
        # "spark2 p0f0v0, p0f0v1"
        places = [places[0], *(place.removeprefix(f"{first.blame.host} ") for place in places[1:])]
    results = [result for group in groups for result in group]
    messages = dict.fromkeys(result.message.rstrip(".") for result in results)
    more = f" (and {len(messages) - 1} more like it)" if len(messages) > 1 else ""
    return Cause(
        id=first.cause or "",
        where=", ".join(places),
        message=f"{next(iter(messages))}{more}.",
        remedy=first.remedy,
        seen=tuple(result.subject for result in results),
        consequences=tuple(consequences),
        suspected=all(result.suspected for result in results),
    )
