# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The serving plan as a person reads it: verdict, memory as a bar, findings with remedy, evidence, each rank."""

from __future__ import annotations

import shlex
import typing as t

WIDTH = 60
_PARTS = (
    ("weights_gib", "W", "weights"),
    ("mamba_gib", "S", "states"),
    ("kv_gib", "K", "cache"),
    ("draft_gib", "D", "drafter"),
    ("graphs_gib", "G", "graphs"),
    ("activations_gib", "A", "activations"),
    ("context_gib", "C", "context"),
)


def memory_lines(memory: t.Mapping[str, t.Any]) -> list[str]:
    """Draw one rank's memory against what is free on its node."""
    if not memory:
        return ["memory    unknown: the profile has no facts of this model"]
    whole = max(memory["free_gib"], memory["used_gib"])
    gauge = "".join(sign * round(max(memory[key], 0) / whole * WIDTH) for key, sign, _name in _PARTS)
    gauge = gauge[:WIDTH].ljust(round(min(memory["free_gib"] / whole, 1) * WIDTH), ".")
    legend = ", ".join(f"{sign} {name} {memory[key]:g}" for key, sign, name in _PARTS if memory[key])
    assumed = " (assumed: nobody measured it)" if memory["free_assumed"] else ""
    return [
        f"memory    [{gauge}] of {memory['free_gib']:g} GiB free per node{assumed}",
        f"          {legend} GiB; weights {memory['weights_from']}",
        f"          {memory['knob']} {memory['chosen']:g} ({memory['chosen_by']}; floor {memory['floor']:.3f}, "
        f"ceiling {memory['ceiling']:.3f}); {memory['kv_tokens']} tokens of cache, "
        f"{memory['max_running_requests'] or 'any number of'} requests at once",
    ]


def _measured(row: t.Mapping[str, t.Any]) -> str:
    figures = [f"n={key[1:]} {row[key]:g}" for key in ("n1", "n4", "n8") if row.get(key) is not None]
    return f" ({', '.join(figures)} tokens/s)" if figures else ""


def serving_table(plan: t.Mapping[str, t.Any]) -> list[str]:
    """Return the lines of a plan, as `launch_plan` returns it."""
    engine, parallel = plan["engine"], plan["parallel"]
    lines = [
        f"{plan['title']} [{plan['profile']}, {plan['variant']}]",
        f"verdict   {plan['verdict'].upper()}{' - rules and measured rows disagree' if plan['conflict'] else ''}",
        f"engine    {engine['name']} {engine['version']}, image {engine['image']}",
        f"spread    {parallel['nodes']} nodes, tp {parallel['tp']}, pp {parallel['pp']}, ep {parallel['ep']}",
        *memory_lines(plan["memory"]),
    ]
    for finding in plan["findings"]:
        lines.append(f"{finding['severity']:<9} {finding['rule']}: {finding['message']}")
        lines.append(f"          → {finding['remedy']}")
    for row in plan["evidence"]:
        if row["equal"]:
            lines.append(
                f"evidence  row {row['id']} is equal and was {row['verdict']}{_measured(row)}: {row['source'][0]}"
            )
        else:
            other = ", ".join(f"{key} {pair['row']} there, {pair['plan']} here" for key, pair in row["differs"].items())
            lines.append(f"near      row {row['id']} was {row['verdict']}{_measured(row)}; {other}")
    if plan["added"]:
        lines.append("added     " + ", ".join(f"{key}={value}" for key, value in plan["added"].items()))
    for patch in plan["patches"]:
        lines.append(f"patch     {patch['id']}: {patch['title']} ({patch['file']})")
    for rank in plan["ranks"]:
        lines.append(f"rank {rank['rank']:<4} {rank['host']}")
        words = rank["argv"] or [f"{key}={value}" for key, value in rank["settings"].items()]
        lines.append("          " + shlex.join(words))
        if rank["env"]:
            lines.append("          " + " ".join(f"{key}={value}" for key, value in rank["env"].items()))
    return lines
