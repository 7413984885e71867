# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Renders a serving plan as text: verdict, memory as a bar, findings with remedy, evidence, each rank."""

from __future__ import annotations

import shlex
import typing as t

from . import judged

WIDTH = 60
_PARTS = (
    ("weights_gib", "W", "weights"),
    ("mamba_gib", "S", "states"),
    ("kv_gib", "K", "cache"),
    ("draft_gib", "D", "drafter"),
    ("graphs_gib", "G", "graphs"),
    ("activations_gib", "A", "activations"),
    ("context_gib", "C", "context"),
    ("sampler_gib", "P", "sampler"),
)


def memory_lines(memory: t.Mapping[str, t.Any]) -> list[str]:
    """Draw one rank's memory against its node's free memory."""
    if not memory:
        return ["memory    unknown: the profile has no facts of this model"]
    whole = max(memory["free_gib"], memory["used_gib"])
    gauge = "".join(sign * round(max(memory[key], 0) / whole * WIDTH) for key, sign, _name in _PARTS)
    gauge = gauge[:WIDTH].ljust(round(min(memory["free_gib"] / whole, 1) * WIDTH), ".")
    legend = ", ".join(f"{sign} {name} {max(memory[key], 0):g}" for key, sign, name in _PARTS if memory[key])
    assumed = " (assumed: not measured)" if memory["free_assumed"] else ""
    cache, most = f"{memory['kv_tokens']} tokens of cache", memory["kv_tokens_most"]
    if memory["free_assumed"] and memory["kv_tokens"] == 0:
        cache = f"no cache below {memory['free_needed_gib']:g} GiB free, {most} tokens with {memory['free_most_gib']:g}"
    elif most > memory["kv_tokens"]:
        cache += f" ({most} with {memory['free_most_gib']:g} GiB free)"
    return [
        f"memory    [{gauge}] of {memory['free_gib']:g} GiB free per node{assumed}",
        f"          {legend} GiB; weights {memory['weights_from']}",
        f"          {memory['knob']} {memory['chosen']:g} ({memory['chosen_by']}; floor {memory['floor']:.3f}, "
        f"ceiling {memory['ceiling']:.3f}); {cache}, "
        f"{_requests(memory['max_running_requests'])} at once",
    ]


def _estimate(estimate: t.Mapping[str, t.Any]) -> list[str]:
    """Show the estimated speed, marked as not measured."""
    if not estimate:
        return []
    figures = [
        f"n={key[1:]} {estimate[key]:g} ({estimate['low'][key]:g} to {estimate['high'][key]:g})"
        for key in ("n1", "n4", "n8")
    ]
    texts = [f"{kind} {of['n1']:g} ({of['accepted']:g} tokens a step)" for kind, of in estimate["texts"].items()]
    kernels = estimate.get("kernels")
    none = (
        [f"estimate  none: the image has kernels of its own ({kernels}). What stock kernels would do:"]
        if kernels
        else []
    )
    return [
        *none,
        f"{'          ' if none else 'estimate  '}{', '.join(figures)} tokens/s; not measured",
        *([f"          by text, one request: {', '.join(texts)}"] if texts else []),
        f"          {estimate['basis']}",
    ]


def _requests(limit: int | None) -> str:
    return "as many requests as the cache holds" if limit is None else f"{limit} requests"


def _measured(row: t.Mapping[str, t.Any]) -> str:
    figures = [f"n={key[1:]} {row[key]:g}" for key in ("n1", "n4", "n8") if row.get(key) is not None]
    return f" ({', '.join(figures)} tokens/s)" if figures else ""


def _headline(plan: t.Mapping[str, t.Any]) -> str:
    """Return the verdict and its qualifications."""
    text = str(plan["verdict"]).upper()
    if plan["conflict"] and plan["verdict"] == "blocked":
        text += " - a rule and a measured row disagree: the choice is yours (accept)"
    errors = [finding["rule"] for finding in plan["findings"] if finding["severity"] == "error"]
    if errors and not plan["conflict"]:
        text += f" by {', '.join(errors)}"
    memory = plan["memory"]
    if plan["verdict"] == "proven" and memory and memory["kv_tokens"] == 0:
        text += f" where more than {memory['free_needed_gib']:g} GiB are free; these nodes were not measured"
    if any(finding["rule"] == "facts.unjudged" for finding in plan["findings"]):
        text += " - the model is not known, and not every rule could be judged"
    elif text == "UNPROVEN":
        text += " - no rule forbids it, and no measured run proves it"
    return text


def _said(value: t.Any) -> t.Any:
    return "not set" if value is None else value


def _evidence(row: t.Mapping[str, t.Any]) -> t.Iterator[str]:
    """Yield the lines of one measured row."""
    if row["equal"]:
        yield f"evidence  row {row['id']} is equal and was {row['verdict']}{_measured(row)}: {row['source'][0]}"
        if row["assumed"]:
            left = ", ".join(f"{key}={value}" for key, value in row["assumed"].items())
            yield f"          the row does not state these, so the version's default counts: {left}"
    else:
        other = ", ".join(
            f"{key} {_said(pair['row'])} there, {_said(pair['plan'])} here" for key, pair in row["differs"].items()
        )
        yield f"near      row {row['id']} was {row['verdict']}{_measured(row)}; {other}"
    for blemish in row["blemishes"]:
        yield f"          of this row: {blemish}"


def _runs(resolved: t.Mapping[str, t.Any], by: str) -> str:
    return ", ".join(
        key if by == "unknown" else f"{key}={said['value']}" for key, said in resolved.items() if said["by"] == by
    )


def _choice(found: t.Mapping[str, t.Any]) -> list[str]:
    """Explain why a traffic shape leads to its variant."""
    if not found:
        return []
    row = f"row {found['row']}, {found['verdict']}" if found["row"] else "no row"
    return [
        f"shape     {found['shape']}: {found['variant']} ({row}). {found['reason']}",
        *(f"          of this row: {blemish}" for blemish in found["blemishes"]),
    ]


def _recipe(recipe: t.Mapping[str, t.Any]) -> list[str]:
    """Show how each line of the plan's recipe was used; refused ones are also findings."""
    lines = recipe.get("lines", ())
    order = ("setting", "ours", "passed on", "not used", "refused")
    return [
        f"recipe    {line['became']}: {line['text']}" + (f" ({line['why']})" if line["why"] else "")
        for line in sorted(lines, key=lambda line: order.index(line["became"]))
    ]


def serving_table(plan: t.Mapping[str, t.Any], recommendation: t.Mapping[str, t.Any] | None = None) -> list[str]:
    """Return a plan's lines, from the result of `launch_plan`. recommendation: the result of `recommend` for its shape."""
    engine, parallel = plan["engine"], plan["parallel"]
    lines = [
        f"{plan['title']} [{plan['profile']}, {plan['variant']}]",
        f"verdict   {_headline(plan)}",
        f"judged    {judged.line(plan['not_judged'])}",
        f"engine    {engine['name']} {engine['version']}, image {engine['image'] or 'not named'}",
        f"spread    {parallel['nodes']} node{'s' * (parallel['nodes'] != 1)}, tp {parallel['tp']}, pp {parallel['pp']}, ep {parallel['ep']}",
        *_choice(recommendation or {}),
        *memory_lines(plan["memory"]),
        *_estimate(plan["estimate"]),
        *_recipe(plan.get("recipe") or {}),
    ]
    for finding in plan["findings"]:
        lines.append(f"{finding['severity']:<9} {finding['rule']}: {finding['message']}")
        lines += [f"          → {finding['remedy']}"] if finding["remedy"] else []
    for row in plan["evidence"]:
        lines += _evidence(row)
    for by, word in (("asked", "asked"), ("added", "added"), ("default", "default"), ("unknown", "unknown")):
        if said := _runs(plan["resolved"], by):
            lines.append(f"{word:<9} {said}")
    for patch in plan["patches"]:
        lines.append(f"patch     {patch['id']}: {patch['title']} ({patch['file']})")
    for rank in plan["ranks"]:
        lines.append(f"rank {rank['rank']:<4} {rank['host']}")
        words = rank["argv"] or [f"{key}={value}" for key, value in rank["settings"].items()]
        lines.append("          " + shlex.join(words))
        if rank["env"]:
            lines.append("          " + " ".join(f"{key}={value}" for key, value in rank["env"].items()))
    return lines
