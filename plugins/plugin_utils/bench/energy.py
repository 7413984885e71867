# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The energy of a benchmark's levels: the readings of the nodes' GPU power, cut to each level's window. Pure."""

from __future__ import annotations

import datetime
import itertools
import math
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils import foreign

Plain = dict[str, t.Any]
Sample = tuple[float, float]
GAP_S = 5.0  # the longest time without a reading over which the power is taken to change evenly
LEAST = 3  # readings of each node within a level
MOST_W = 10000.0  # a node that reports more lies
_WHY = 200  # characters


@dataclass(frozen=True, slots=True)
class Readings:
    """One node's. offset_s: how far its clock is ahead of the controller's, if known. problem: why there are none, or no more."""

    offset_s: float | None
    samples: tuple[Sample, ...]
    problem: str


def readings(once: t.Mapping[str, t.Any], whole: t.Mapping[str, t.Any]) -> Readings:
    """Return a node's readings. once, whole: results of module power_samples, before and during the benchmark; a node wrote them."""
    told = whole.get("samples")
    found = sorted(filter(None, map(_sample, told if isinstance(told, list) else ())))
    offset = once.get("offset_s")
    said = next((str(each[key]) for each in (whole, once) for key in ("problem", "msg") if each.get(key)), "")
    problem = foreign.line(said, _WHY) or ("" if found else "its GPU's power was not read")
    if not isinstance(offset, float) or not math.isfinite(offset):
        return Readings(None, (), problem or "its clock was not read")
    return Readings(offset, tuple(found), problem)


def _sample(pair: t.Any) -> Sample | None:
    if not isinstance(pair, (list, tuple)) or len(pair) != 2:
        return None
    at, watts = (float(each) if type(each) in (int, float) else math.nan for each in pair)
    return (at, watts) if math.isfinite(at) and 0 <= watts <= MOST_W else None


def joined(report: t.Mapping[str, t.Any], nodes: t.Mapping[str, Readings], clock: Readings | None = None) -> Plain:
    """Return the report with the energy of each level, and in `power` whose it is, or why there is none.

    nodes: the readings of every node with a rank, by host. clock: those of the node whose clock the report has; None: the controller's.
    """
    problems = [] if nodes else ["no node of the model is known"]
    # A node that has no reading itself is named with its level below.
    if clock and clock.offset_s is None and all(node.samples for node in nodes.values()):
        problems, nodes = [f"the clock of the node that measured is unknown: {clock.problem}"], {}
    ahead_s = (clock.offset_s if clock else None) or 0.0
    workloads = []
    for workload in report["workloads"]:
        levels = []
        without: dict[str, list[str]] = {}
        for level in workload["levels"]:
            energy, why = _energy(level, nodes, ahead_s) if nodes else (None, "")
            if why:
                without.setdefault(why, []).append(str(level["n"]))
            levels.append({**level, "energy": energy})
        problems += [f"{workload['name']}, {', '.join(numbers)} at once: {why}" for why, numbers in without.items()]
        workloads.append({**workload, "levels": levels})
    power = {"hosts": list(nodes), "problem": "; ".join(problems) or None}
    return {**report, "workloads": workloads, "power": power}


def _energy(level: t.Mapping[str, t.Any], nodes: t.Mapping[str, Readings], ahead_s: float) -> tuple[Plain | None, str]:
    """Return the energy of a level over all nodes; or None, and why."""
    began, ended = (_seconds(level[key]) - ahead_s for key in ("began", "ended"))
    if ended <= began:
        return None, "nothing was asked"
    joules, count = 0.0, 0
    for host, node in nodes.items():
        offset = node.offset_s or 0.0  # without one there are no readings
        window = began + offset, ended + offset
        within = [sample for sample in node.samples if window[0] <= sample[0] <= window[1]]
        if len(within) < LEAST:
            lasted = (
                f"{len(within)} readings of the power in the {ended - began:.1f} s of this level, {LEAST} are needed"
            )
            return None, f"{host}: {node.problem or lasted}"
        used = _joules(node.samples, *window)
        if used is None:
            return None, f"{host}: {node.problem or f'no reading of the power for more than {GAP_S:.0f} s'}"
        joules, count = joules + used, count + len(within)
    tokens = level["figures"]["tokens"]
    return {
        "joules": joules,
        "watts": joules / (ended - began),
        "tokens_per_joule": tokens / joules if joules and tokens else None,
        "readings": count,
    }, ""


def _joules(samples: t.Sequence[Sample], began: float, ended: float) -> float | None:
    """Return the integral of the power over a window, which the readings may miss by at most GAP_S at either end; else None."""
    inner = [sample for sample in samples if began <= sample[0] <= ended]
    before = [sample for sample in samples if began - GAP_S <= sample[0] < began]
    after = [sample for sample in samples if ended < sample[0] <= ended + GAP_S]
    first = _at(before[-1], inner[0], began) if before else (began, inner[0][1])
    last = _at(inner[-1], after[0], ended) if after else (ended, inner[-1][1])
    line = [first, *inner, last]
    steps = list(itertools.pairwise(line))
    if any(late - early > GAP_S for (early, _low), (late, _high) in steps):
        return None
    return sum((late - early) * (low + high) / 2 for (early, low), (late, high) in steps)


def _at(one: Sample, other: Sample, at: float) -> Sample:
    (early, low), (late, high) = one, other
    return at, low + (high - low) * (at - early) / (late - early)


def _seconds(moment: str) -> float:
    return datetime.datetime.fromisoformat(moment).timestamp()
