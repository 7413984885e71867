# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One model by several groups of ranks side by side: which Sparks make a group, and how many groups suit a traffic.

One large group answers a single request soonest. Several small ones have less to exchange, so together they make more tokens for many
users, as long as the model and the contexts fit into one of them.
"""

from __future__ import annotations

import math
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import MIXED, SHAPES, promised_speed

Plain = dict[str, t.Any]
Plan = t.Callable[[int], Plain]  # a group's plan, by its number of Sparks

LEVELS = (1, 4, 8)
MANY = 8  # requests at once of a group, the most that is estimated


@dataclass(frozen=True)
class Division:
    """A number of groups of a number of Sparks. speeds: of one group, by requests at once. refused: why it is none."""

    groups: int
    sparks: int
    speeds: t.Mapping[int, float]
    kv_tokens: int | None = None
    refused: str = ""

    def total(self, requests: int) -> float | None:
        """Return the tokens/s of all groups for so many requests at once, shared out evenly; None beyond what is known."""
        each = requests / self.groups
        if each <= 1:  # some groups wait
            return requests * self.speeds[1] if 1 in self.speeds else None
        below = max((level for level in self.speeds if level <= each), default=None)
        above = min((level for level in self.speeds if level >= each), default=None)
        if below is None or above is None:
            return None
        share = (each - below) / (above - below) if above > below else 0.0
        return self.groups * (self.speeds[below] * (1 - share) + self.speeds[above] * share)

    @property
    def most(self) -> float | None:
        """The tokens/s with MANY requests in each group."""
        return self.total(MANY * self.groups)


def members(hosts: t.Sequence[str], groups: int) -> list[tuple[str, ...]]:
    """Return the groups, neighbours together. CollectionError if they would not be equal."""
    if groups < 1 or len(hosts) % groups:
        fit = ", ".join(str(n) for n in range(1, len(hosts) + 1) if len(hosts) % n == 0)
        raise CollectionError(
            f"k8s_dgx_replicas: {groups} equal groups of {len(hosts)} Sparks are not possible; {fit} are."
        )
    size = len(hosts) // groups
    return [tuple(hosts[start : start + size]) for start in range(0, len(hosts), size)]


def divisions(sparks: int, plan: Plan) -> list[Division]:
    """Return all ways to divide a number of Sparks, the largest groups first."""
    return [_division(sparks, groups, plan) for groups in range(1, sparks + 1) if sparks % groups == 0]


def _division(sparks: int, groups: int, plan: Plan) -> Division:
    size = sparks // groups
    try:
        made = plan(size)
    except CollectionError as exc:
        return Division(groups, size, {}, refused=str(exc))
    speeds = {level: speed for level in LEVELS if (speed := promised_speed(made, level)) is not None}
    errors = [finding["message"] for finding in made["findings"] if finding["severity"] == "error"]
    refused = (errors or ["it would not run"])[0] if made["verdict"] == "blocked" else ""
    return Division(groups, size, speeds, (made.get("memory") or {}).get("kv_tokens"), refused)


def choose(found: t.Sequence[Division], shape: str) -> Division:
    """Return the division for a traffic shape. CollectionError if none runs, or none has a speed to choose by.

    single: the fastest for one request. agents: for four. throughput: the most with every group busy. mixed: the best geometric mean of
    these three, each as a share of the best.
    """
    if shape != MIXED and shape not in SHAPES:
        raise CollectionError(f"traffic shape: {shape!r} is not one of {', '.join((*SHAPES, MIXED))}.")
    merits: dict[str, t.Callable[[Division], float | None]] = {
        "single": lambda one: one.total(1),
        "agents": lambda one: one.total(4),
        "throughput": lambda one: one.most,
    }
    able = [one for one in found if not one.refused]
    if not able:
        raise CollectionError(
            "No division of these Sparks runs the model: " + " ".join(dict.fromkeys(d.refused for d in found))
        )
    known = [one for one in able if all(merit(one) for merit in merits.values())]
    if not known:
        raise CollectionError(
            "Nothing is known about the model's speed. State how many groups you want (k8s_dgx_replicas)."
        )
    best = {name: max(merit(one) or 0.0 for one in known) for name, merit in merits.items()}
    wanted = list(merits) if shape == MIXED else [shape]
    return max(known, key=lambda one: math.prod((merits[name](one) or 0.0) / best[name] for name in wanted))


def table(found: t.Sequence[Division], chosen: Division | None = None) -> list[str]:
    """Return the divisions for a terminal."""
    head = ("GROUPS", "SPARKS EACH", "1 REQUEST", "4 REQUESTS", f"{MANY} IN EACH GROUP", "TOKENS OF CACHE EACH", "")
    rows: list[tuple[str, ...]] = [head]
    for one in found:
        if one.refused:
            rows.append((str(one.groups), str(one.sparks), "-", "-", "-", "-", f"does not run: {one.refused[:100]}"))
            continue
        speeds = (one.total(1), one.total(4), one.most)
        figures = tuple("?" if speed is None else f"{speed:.0f}" for speed in speeds)
        cache = "?" if one.kv_tokens is None else str(one.kv_tokens)
        rows.append((str(one.groups), str(one.sparks), *figures, cache, "<- chosen" if one == chosen else ""))
    widths = [max(len(row[n]) for row in rows) for n in range(len(head))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


@dataclass(frozen=True)
class Group:
    """An instance that is one of the groups: its Sparks, and the variables of its run of `serve`."""

    name: str
    hosts: tuple[str, ...]
    variables: Plain


def overrides_of(overrides: t.Mapping[str, t.Any], sparks: int) -> Plain:
    """Return the overrides of a group of that many Sparks, without its instance: tensors are cut over all of them."""
    of_group = {key: value for key, value in overrides.items() if key != "instance"}
    return {**of_group, "parallel": {"nodes": sparks, "tp": sparks, **(of_group.get("parallel") or {})}}


def instances(divided: t.Sequence[t.Sequence[str]], overrides: t.Mapping[str, t.Any], state: str) -> list[Group]:
    """Return each group with its name and variables. One group alone keeps the instance's own name."""
    own = dict(overrides.get("instance") or {})
    made = []
    for number, hosts in enumerate(divided, 1):
        name = str(own.get("name", "default"))
        name = f"{name}-{number}" if len(divided) > 1 else name
        of_group = {**overrides_of(overrides, len(hosts)), "instance": {**own, "name": name}}
        made.append(Group(name, tuple(hosts), {"k8s_dgx_overrides": of_group, "k8s_dgx_state": state}))
    return made
