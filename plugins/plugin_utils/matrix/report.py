# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A matrix's results as text: a Markdown log in the form that owners publish, and lines for a terminal."""

from __future__ import annotations

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix.classify import CLASSES
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix.results import SHAPE_NAMES, SUMS

Plain = t.Mapping[str, t.Any]
WORDS = {**CLASSES, "blocked": "blocked by the plan", "open": "not measured yet"}
SUM_WORDS = {"peak": "sum of the requests' own tokens/s", "wall": "all tokens by wall time"}
SHAPE_WORDS = {
    "single": "one request",
    "agents": "four at once",
    "throughput": "eight at once",
    "mixed": "a mix of all",
}


def figure(value: float | None, digits: int = 1) -> str:
    """Format a figure; a dash if it was not measured."""
    return "\u2013" if value is None else f"{value:.{digits}f}"


def cell(level: Plain | None) -> str:
    """Format a level: both sums if known, and the verdict if it is not good."""
    if level is None:
        return "\u2013"
    both = "/".join(figure(level[which]) for which in SUMS if level[which] is not None)
    if level["verdict"] == "good":
        return both
    return f"{level['verdict']}{f' ({both})' if both else ''}"


def winner_lines(results: Plain) -> list[str]:
    """Return a sentence for each shape: who wins, and by which sum if the sums disagree."""
    lines = []
    for shape in SHAPE_NAMES:
        won = results["winners"].get(shape, {})
        names = {value["name"] for value in won.values()}
        for which, value in won.items():
            by = f" by {which} ({SUM_WORDS[which]})" if len(names) > 1 else f" ({which})" if len(won) == 1 else ""
            margin = (
                f", {100 * value['margin']:.1f} % ahead of {value['second']}" if value["margin"] is not None else ""
            )
            lines.append(f"{shape} ({SHAPE_WORDS[shape]}): {value['name']}, {value['value']:.1f} tokens/s{by}{margin}.")
            if len(names) == 1:
                break
    return lines


def markdown(results: Plain) -> str:
    """Return the log: platform, the table of all cases, winners, and each failure with its line."""
    engine, platform = results["engine"], results["platform"]
    facts = {
        "Model": results["model"],
        "Engine": f"{engine.get('name', '')} {engine.get('version', '')}".strip(),
        "Image": engine.get("image"),
        "Driver": platform.get("driver"),
        "Kernel": platform.get("kernel"),
        "NCCL": platform.get("nccl"),
        "Measured": " to ".join(filter(None, (results["started"], results["finished"]))),
        "Repeats": results["repeats"],
        "Noise": f"{100 * results['noise']:.1f} % between repeats" if results["noise"] is not None else None,
    }
    lines = [f"# {_escape(results['title'])}", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {_escape(str(value))} |" for name, value in facts.items() if value]
    lines += [
        "",
        "## Winners",
        "",
        *(f"- {_escape(line)}" for line in winner_lines(results) or ["None: nothing passed."]),
    ]
    levels = results["levels"]
    heads = ["#", "case", "status", *(f"n={n} tok/s" for n in levels), "accept", "TTFT n=1 s"]
    lines += ["", "## Cases", "", f"Figures: peak/wall, the {SUM_WORDS['peak']} and {SUM_WORDS['wall']}.", ""]
    lines += ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for number, case in enumerate(results["cases"], 1):
        first = case["levels"].get(min(levels, default=1)) or {}
        cells = [str(number), case["name"], WORDS[case["outcome"]], *(cell(case["levels"].get(n)) for n in levels)]
        cells += [figure(case["accept_len"], 2), figure(first.get("ttft_s"), 2)]
        lines.append("| " + " | ".join(map(_escape, cells)) + " |")
    for work in workloads_after(results["cases"]):
        heads = ["case", *(f"n={n} tok/s" for n in work["levels"])]
        lines += [
            "",
            f"### Workload {_escape(work['name'])}",
            "",
            "| " + " | ".join(heads) + " |",
            "|" + "---|" * len(heads),
        ]
        lines += ["| " + " | ".join(map(_escape, (case["name"], *cells))) + " |" for case, cells in work["rows"]]
    failed = [case for case in results["cases"] if case["outcome"] not in ("good", "open")]
    lines += ["", "## What did not pass", ""] if failed else []
    for case in failed:
        why = case["line"] or case["message"]
        place = f" ({case['where']})" if case["where"] else ""
        lines.append(f"- **{_escape(case['name'])}**: {WORDS[case['outcome']]}{place}: {_escape(why)}")
        lines += [f"  - {_escape(case['cause'])}"] if case["cause"] else []
        lines += [f"  - evidence: `{case['evidence']}`"] if case["evidence"] else []
    equal = [case for case in results["cases"] if case["also"]]
    lines += ["", "## Equal cases, measured once", ""] if equal else []
    lines += [f"- {_escape(case['name'])} = {_escape(', '.join(case['also']))}" for case in equal]
    lines += ["", "Sources: " + _escape("; ".join(results["source"])), ""]
    return "\n".join(lines)


def workloads_after(cases: t.Sequence[Plain]) -> list[Plain]:
    """Return each workload after the first: `name`, `levels`, and `rows` of the cases measured with it, each with its levels as text."""
    found: list[Plain] = []
    for name in dict.fromkeys(name for case in cases for name in case["others"]):
        of = [(case, case["others"][name]) for case in cases if name in case["others"]]
        levels = sorted({n for _case, by_n in of for n in by_n})
        rows = [(case, [cell(by_n.get(n)) for n in levels]) for case, by_n in of]
        found.append({"name": name, "levels": levels, "rows": rows})
    return found


def _escape(text: str) -> str:
    """Escape Markdown's special characters."""
    return (
        " ".join(text.split())
        .replace("\\", "\\\\")
        .replace("|", "\\|")
        .replace("<", "&lt;")
        .replace("`", "'")
        .replace("*", "\\*")
    )


def counted(results: Plain) -> str:
    """Return the number of cases per outcome, in words."""
    return ", ".join(
        f"{count} {WORDS[outcome]}{'es' if count != 1 and WORDS[outcome].endswith('crash') else ''}"
        for outcome, count in results["counts"].items()
    )


def table(results: Plain, ended: Plain, paths: t.Mapping[str, str]) -> list[str]:
    """Return lines for a terminal."""
    width = max((len(case["name"]) for case in results["cases"]), default=4)
    levels = results["levels"]
    lines = [f"{'case':<{width}}  " + "  ".join(f"{'n=' + str(n):>13}" for n in levels) + "  result"]
    for case in results["cases"]:
        cells = "  ".join(f"{cell(case['levels'].get(n)):>13}" for n in levels)
        lines.append(f"{case['name']:<{width}}  {cells}  {WORDS[case['outcome']]}")
    lines += ["", f"{len(results['cases'])} cases: {counted(results)}.", *winner_lines(results), ""]
    if ended["left"]:
        why = {"time": "the time limit is reached", "stopped": "it was stopped", "lost": "a node was lost"}.get(
            ended["ended"], ""
        )
        lines.append(f"{ended['left']} cases are left ({why}): run it again to continue.")
    lines += [f"{name.capitalize()}: {path}" for name, path in paths.items()]
    return lines


def plan_table(matrix: str, cases: t.Sequence[t.Any]) -> list[str]:
    """Return a matrix's plan for a terminal: its cases in order, with the expected result, and the blocked ones."""
    width = max(len(case.name) for case in cases)
    lines = [
        f"matrix {matrix}: {sum(not case.blocked for case in cases)} of {len(cases)} cases would be measured, in this order:"
    ]
    for case in cases:
        guess = case.plan.get("estimate", {}) if case.promise.kind == "estimate" else {}
        figures = ", ".join(f"{key} {value:g}{_interval(guess, key)}" for key, value in case.promise.figures.items())
        known = f"{case.promise.kind}{f' {case.promise.row}' if case.promise.row else ''}{f': {figures}' if figures else ''}"
        equal = f"; equal: {', '.join(case.also)}" if case.also else ""
        lines.append(f"{case.name:<{width}}  {f'blocked: {case.blocked}' if case.blocked else known}{equal}")
    return lines


def _interval(guess: Plain, key: str) -> str:
    return f" ({guess['low'][key]:g} to {guess['high'][key]:g})" if key in guess.get("low", {}) else ""
