# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A remedy is a plan, too: what a finding's remedy changes is planned before it is said.

A change passes if the plan with it is not blocked and no longer has the finding. If it leads to another error that has a
remedy of its own, both are tried together. What does not pass is not said.
"""

from __future__ import annotations

import dataclasses
import json
import typing as t
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import SEVERITIES, Finding

from .rules import Offer

Change = t.Mapping[str, t.Any]  # settings (None: left out) and parallel
TRIES = 24  # plans made for one plan's remedies
STEPS = 3  # remedies that are taken together
NONE = "No change of settings that is known here leads to a plan that passes."
LATER = "Plan again once the errors are mended: until then no change of settings for this is known to pass."


@dataclass(frozen=True)
class Outcome:
    """What a plan says. offers: the changes that its findings' remedies name, by their ids."""

    findings: tuple[Finding, ...]
    offers: t.Mapping[str, Offer]

    @property
    def errors(self) -> list[Finding]:
        """Return what blocks the plan."""
        return [found for found in self.findings if found.severity == "error"]


@dataclass
class _Tries:
    """Plans with changes, each made once and no more than TRIES of them. plan: returns None if there is no such plan."""

    plan: t.Callable[[Change], Outcome | None]
    start: Outcome
    made: dict[str, Outcome | None] = field(default_factory=dict)

    def outcome(self, change: Change) -> Outcome | None:
        key = json.dumps(change, sort_keys=True, default=str)
        if key not in self.made:
            if len(self.made) >= TRIES:
                return None
            self.made[key] = self.plan(change)
        return self.made[key]

    def way(self, finding: Finding, change: Change | None) -> Change | None:
        """Return the change that passes, with what it needs besides; None if there is none."""
        for _step in range(STEPS):
            outcome = self.outcome(change) if change else None
            if change is None or outcome is None:
                return None
            if not outcome.errors:
                return change if self._better(finding, outcome) else None
            change = self._further(change, outcome) if finding.severity == "error" else None
        return None

    def _better(self, finding: Finding, outcome: Outcome) -> bool:
        """Whether the finding is gone, and nothing as bad has come."""
        bad = SEVERITIES[: 1 + SEVERITIES.index("warning")]
        before = {found.id for found in self.start.findings}
        new = {found.id for found in outcome.findings if found.severity in bad} - before
        return all(found.id != finding.id for found in outcome.findings) and (finding.severity == "error" or not new)

    def _further(self, change: Change, outcome: Outcome) -> Change | None:
        """Return the change with the remedy of an error that is left, if fewer errors are left with it."""
        for error in outcome.errors:
            for fix in outcome.offers[error.id].fixes if error.id in outcome.offers else ():
                more = _together(change, fix) if fix else None
                after = self.outcome(more) if more else None
                if after and len(after.errors) < len(outcome.errors):
                    return more
        return None


def _together(one: Change, other: Change) -> Change | None:
    """Return both changes; None if they contradict each other."""
    both: dict[str, dict[str, t.Any]] = {kind: dict(values) for kind, values in one.items()}
    for kind, values in other.items():
        into = both.setdefault(kind, {})
        if any(name in into and into[name] != value for name, value in values.items()):
            return None
        into |= values
    return both


def described(change: Change) -> str:
    """Say a change: `set a to 1 and b to 2, leave c out, with tp 2 and pp 1 on 2 nodes`."""
    settings, spread = change.get("settings", {}), dict(change.get("parallel", {}))
    given = [f"{name} to {_shown(value)}" for name, value in settings.items() if value is not None]
    dropped = [name for name, value in settings.items() if value is None]
    nodes = spread.pop("nodes", None)
    split = " and ".join(f"{name} {value}" for name, value in spread.items())
    where = f"{nodes} node{'' if nodes == 1 else 's'}" if nodes else ""
    parts = [
        f"set {' and '.join(given)}" if given else "",
        f"leave out {' and '.join(dropped)}" if dropped else "",
        f"use {split}{f' on {where}' if where else ''}" if split else f"use {where}" if where else "",
    ]
    return ", ".join(filter(None, parts))


def _shown(value: t.Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def planned(
    start: Outcome, plan: t.Callable[[Change], Outcome | None]
) -> tuple[list[Finding], dict[str, list[Change]]]:
    """Return the plan's findings with remedies that pass, and their changes by the finding's id.

    plan: the same plan with a change. While a plan is blocked, only its errors' remedies are tried: the others come after.
    """
    tries = _Tries(plan, start)
    blocked = bool(start.errors)
    told, ways = [], {}
    for found in start.findings:
        offer = start.offers.get(found.id)
        if offer is None:
            told.append(found)
            continue
        later = blocked and found.severity != "error"
        passing = [None if later else tries.way(found, fix) for fix in offer.fixes]
        kept = [way for number, way in enumerate(passing) if way and way not in passing[:number]]
        ways[found.id] = kept
        if passing != list(offer.fixes) or None in passing:
            text = _sentence(kept) if kept else LATER if later else NONE
            found = dataclasses.replace(found, remedy=f"{offer.before}{text} {offer.otherwise}".strip())
        told.append(found)
    return told, ways


def _sentence(ways: t.Sequence[Change]) -> str:
    said = "; or ".join(map(described, ways))
    return f"{said[:1].upper()}{said[1:]}."
