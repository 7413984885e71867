# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a plan judged and what it did not, for lack of facts, tables or evidence: silence is no approval."""

from __future__ import annotations

import typing as t

from ..vocabulary.arguments import NEWER

Plain = dict[str, t.Any]
WHAT = ("flags", "rules", "memory", "speed", "platform")


def judged(plan: t.Mapping[str, t.Any], kernel_known: bool) -> dict[str, str]:
    """Return for each part of a plan why it was not judged, or an empty string.

    kernel_known: whether a kernel was read from the nodes, or given.
    """
    rules = {finding["rule"] for finding in plan["findings"]}
    engine = f"{plan['engine']['name']} {plan['engine']['version']}"
    no_facts = "no facts of this model"
    return {
        "flags": f"no table of {engine}" if rules & {"arguments.table", "arguments.version", NEWER} else "",
        "rules": f"not those of the model, {no_facts}" if "facts.unjudged" in rules else "",
        "memory": "" if plan["memory"] else no_facts,
        "speed": _speed(plan, no_facts),
        "platform": "" if kernel_known else "no kernel read or given",
    }


def _speed(plan: t.Mapping[str, t.Any], no_facts: str) -> str:
    rows = plan["evidence"]
    if any(row["equal"] and row["verdict"] == "stable" for row in rows):
        return ""
    missing = "no equal row of this model" if rows else "no row of this model"
    if plan["estimate"]:
        kernels = plan["estimate"]["kernels"]
        return f"{missing}, the image has kernels of its own ({kernels})" if kernels else f"{missing}, estimated only"
    return missing if plan["memory"] else f"{missing}, {no_facts}"


def line(why: t.Mapping[str, str]) -> str:
    """Return the parts as one line: what was judged, and what was not and why."""
    done = [name for name in WHAT if not why[name]]
    left = [f"{name}, {why[name]}" for name in WHAT if why[name]]
    return "; ".join(
        [*([", ".join(done)] if done else ["nothing"]), *([f"not judged: {'; '.join(left)}"] if left else [])]
    )
