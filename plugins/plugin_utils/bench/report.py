# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A benchmark's report: its plain form (schema: docs/schema/bench-report.json) and its lines for a terminal. Pure."""

from __future__ import annotations

import datetime
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import to_plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.figures import Record
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.measure import Result
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.metrics import Acceptance

FORMAT = 1
Plain = dict[str, t.Any]
COLUMNS = ("n", "verdict", "peak", "wall", "each", "slowest", "TTFT", "p99", "ITL", "p99", "ok", "failed", "accept")
POWER = ("W", "tok/J")  # if the nodes' power was read
BESIDE = ("n", "tokens/s", "each", "TTFT", "values")
DEEP = (*BESIDE, "context", "prompt tokens/s")  # if the other tool had contexts


def level(result: Result, speculation: Acceptance | None = None) -> Plain:
    """Return a level's plain form, without energy (bench/energy.py). speculation: the acceptance during it."""
    figures = to_plain(result.level)
    causes = figures.pop("causes")
    n = figures.pop("n")
    return {
        "n": n,
        "verdict": result.verdict,
        "message": result.message,
        "began": _moment(result.window[0]),
        "ended": _moment(result.window[1]),
        "figures": figures | {"not_asked": result.not_asked},
        "causes": causes,
        "client_share": result.client_share,
        "acceptance": None if speculation is None else to_plain(speculation),
        "energy": None,
        "signs": to_plain(result.signs),
        "requests": [
            _request(record, to_plain(each)) for record, each in zip(result.records, result.requests, strict=True)
        ],
    }


def _moment(at: float) -> str:
    # An engine's image may have Python 3.10, which lacks datetime.UTC.
    utc = datetime.datetime.fromtimestamp(at, datetime.timezone.utc)  # noqa: UP017
    return f"{utc:%Y-%m-%dT%H:%M:%S}.{utc.microsecond // 1000:03}Z"


def _request(record: Record, figures: Plain) -> Plain:
    known = ("index", "question", "status", "finish_reason", "cause", "guard", "message")
    return {name: getattr(record, name) for name in known} | {"figures": figures}


def verdict(report: t.Mapping[str, t.Any]) -> str:
    """Return the worst verdict of all levels: garbage, else failed, else good."""
    found = {each["verdict"] for workload in report["workloads"] for each in workload["levels"]}
    return next((name for name in ("garbage", "failed") if name in found), "good")


def problems(report: t.Mapping[str, t.Any]) -> list[str]:
    """Return what is wrong with each level that is not good, and why a requested crosscheck shows nothing."""
    found = [
        f"{workload['name']}: {each['message']}"
        for workload in report["workloads"]
        for each in workload["levels"]
        if each["verdict"] != "good"
    ]
    beside = (report["crosscheck"] or {}).get("problem")
    return [*found, beside] if beside else found


def result(report: Plain) -> Plain:
    """Return an action's result for a report: failed if a level is not good."""
    problem = " ".join(problems(report))
    made: Plain = {"bench": report, "table": table(report), "problem": problem}
    return {**made, "failed": True, "msg": problem} if problem else made


def notes(workload: t.Mapping[str, t.Any]) -> list[str]:
    """Return the caveats of its figures: tokens that no server counted, and times that are split equally."""
    levels = workload["levels"]
    counted = [str(each["n"]) for each in levels if not each["figures"]["tokens_are_counted"]]
    spread = [str(each["n"]) for each in levels if any(r["figures"]["itl_is_spread"] for r in each["requests"])]
    found = []
    if counted:
        found.append(
            f"{', '.join(counted)} at once: the server does not report its tokens, so chunks were counted. A chunk may hold several "
            "tokens: the speeds are then too low, and cannot be compared with those of an engine or another tool. A report of more "
            "tokens than max_tokens, or than bytes of text, counts as none."
        )
    if spread:
        found.append(
            f"{', '.join(spread)} at once: chunks held several tokens and the server did not say how many each. ITL shares each gap in "
            "equal parts: its p99 is not that of single tokens."
        )
    return found


def table(report: t.Mapping[str, t.Any]) -> list[str]:
    """Return the lines for a terminal."""
    engine = " ".join(filter(None, (report["engine"]["name"], report["engine"]["version"]))) or "engine unknown"
    place = ", asked from a pod of the cluster" if report["from"] == "pod" else ""
    lines = [f"{report['model']} at {report['url']} ({engine}){place}", *report["answer"]]
    for workload in report["workloads"]:
        rows = [row(each, has_energy(report)) for each in workload["levels"]]
        widths = [max(map(len, column)) for column in zip(columns(report), *rows, strict=True)]
        lines += ["", f"{workload['name']}: tokens/s as the sum of requests (peak) and by the clock (wall); ms"]
        lines += [
            "  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True))
            for row in (columns(report), *rows)
        ]
    lines += ["", *([] if report["answer"] else problems(report))]  # the answer includes them
    lines += [
        f"{workload['name']}, {each['n']} at once: {sign['message']} {sign['remedy']}"
        for workload in report["workloads"]
        for each in workload["levels"]
        for sign in each["signs"]
        if sign["severity"] == "warning"
    ]
    lines += [f"{workload['name']}, {note}" for workload in report["workloads"] for note in notes(workload)]
    if report["acceptance"]:
        lines.append(f"Speculation: {accepted(report['acceptance'])} ({report['acceptance']['source']}).")
    lines += power(report)
    if report["crosscheck"] and report["crosscheck"]["levels"]:
        lines += ["", *_beside(report["crosscheck"])]
    lines.append(f"The client was busy for {report['client_share']:.1%} of the time at most.")
    return lines


def has_energy(report: t.Mapping[str, t.Any]) -> bool:
    """Whether a level has its energy. Reports of earlier releases have no such key."""
    return any(level.get("energy") for workload in report["workloads"] for level in workload["levels"])


def columns(report: t.Mapping[str, t.Any]) -> tuple[str, ...]:
    """Return the heads of a workload's table."""
    return (*COLUMNS, *POWER) if has_energy(report) else COLUMNS


def power(report: t.Mapping[str, t.Any]) -> list[str]:
    """Return what was counted as energy, and why levels have none."""
    found = report.get("power")
    if not found:
        return []
    lines = []
    if has_energy(report):
        lines.append(
            f"W and tok/J: power of the GPUs of {', '.join(found['hosts'])}, as nvidia-smi reports it. A Spark draws more in all."
        )
    return [*lines, f"Tokens per joule: not known. {found['problem']}."] if found["problem"] else lines


def _beside(checked: t.Mapping[str, t.Any]) -> list[str]:
    """Return the other tool's lines: tg is over the time between first and last token, for its own prompts."""
    lines = [f"{checked['tool']} {checked['version']} on its own prompts: {' '.join(checked['command'][1:])}"]
    for each in checked["levels"]:
        n, speed, own, first, values, *deep = beside(each)
        more = f", {deep[0]} tokens of context, {deep[1]} prompt tokens/s" if deep else ""
        lines.append(
            f"{n:>4} at once: {speed} tokens/s, {own} each, first token after {first} ms, {values} values{more}"
        )
    return lines


def beside(level: t.Mapping[str, t.Any]) -> tuple[str, ...]:
    """Return the cells of the other tool's level, in the order of BESIDE, or of DEEP."""
    speeds = (level[key] for key in ("tokens_per_s", "per_request_tokens_per_s", "ttft_ms"))
    deep = (str(level["depth"]), number(level["prompt_tokens_per_s"])) if "depth" in level else ()
    return (str(level["n"]), *map(number, speeds), str(level["runs"]), *deep)


def row(level: t.Mapping[str, t.Any], with_energy: bool = False) -> tuple[str, ...]:
    """Return the cells of a level, in the order of COLUMNS, and of POWER with its energy."""
    figures, speculation, energy = level["figures"], level["acceptance"], level.get("energy") or {}
    speeds = ("peak_tokens_per_s", "wall_tokens_per_s", "per_request_tokens_per_s", "slowest_tokens_per_s")
    times = ("ttft_median_s", "ttft_p99_s", "itl_median_s", "itl_p99_s")
    return (
        str(level["n"]),
        str(level["verdict"]),
        *(number(figures[name]) for name in speeds),
        *(number(figures[name], 1000) for name in times),
        str(figures["ok"]),
        str(figures["failed"] + figures["garbage"]),
        number(speculation["length"]) if speculation else "-",
        *((number(energy.get("watts")), number(energy.get("tokens_per_joule"))) if with_energy else ()),
    )


def number(value: float | None, factor: float = 1) -> str:
    """Format a figure to about three digits; a dash if unknown."""
    if value is None:
        return "-"
    value *= factor
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def accepted(found: t.Mapping[str, t.Any]) -> str:
    """Return an acceptance in words."""
    rate = "" if found["rate"] is None else f", {found['rate']:.0%} of drafted tokens accepted"
    return f"{number(found['length'])} tokens a step{rate}"
