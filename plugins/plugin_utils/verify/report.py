# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verify: its steps in order, the report that they make, and its table for a terminal.

To add a step, add a `StepSpec` to `STEPS`: a function that takes the evidence and returns results. The verdict, the
causes, the report and the table pick it up from there.
"""

from __future__ import annotations

import itertools
import typing as t
from collections import Counter
from dataclasses import asdict, dataclass

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.significant import significant
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify import (
    collectives,
    links,
    logs,
    power,
    record,
    tokens,
    traffic,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.modes import Mode
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.values import Evidence, Plain, Result, Step
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.verdict import Cause, Verdict, causes, verdict

SCHEMA = "dgxspark.cluster/fabric-report/1"
_ROWS = 48  # most rows in the table of paths, more than four nodes with two functions and four VFs need
_LISTED = 8


@dataclass(frozen=True, slots=True)
class StepSpec:
    """A step of verify.

    required: whether the verdict is incomplete without it, unless a mode is given, which then decides. done: whether any
    of it was run, so that it is judged even if the mode does not require it.
    """

    id: str
    title: str
    judge: t.Callable[[Evidence], list[Result]]
    required: bool = True
    done: t.Callable[[Evidence], bool] = lambda _evidence: True


def _given(name: str) -> t.Callable[[Evidence], bool]:
    return lambda evidence: collectives.given(evidence, name) is not None


def _rdma_was_run(evidence: Evidence) -> bool:
    return any(seen.rdma or seen.rdma_error for seen in evidence.hosts.values())


STEPS: tuple[StepSpec, ...] = (
    StepSpec("link", "carrier, speed, MTU and VFs of each function", links.link),
    StepSpec("mtu", "a full-MTU packet passes unfragmented, both ways", traffic.mtu),
    StepSpec("arp", "only the planned MAC answers", traffic.arp),
    StepSpec("gid", "each VF's own IPv4 is in its GID table as RoCE v2", links.gid),
    StepSpec("rdma", "RDMA write and ping-pong between every pair, over every VF", traffic.rdma, done=_rdma_was_run),
    StepSpec("nccl", "NCCL's transport and bandwidth between the nodes", collectives.nccl, False, _given("nccl")),
    StepSpec("pod", "the same in the serving pod", collectives.pod, False, _given("pod")),
    StepSpec(
        "tokens",
        "a canary request to each rank group returns text, not garbage",
        tokens.tokens,
        False,
        _given("tokens"),
    ),
    StepSpec("wire", "a real request moved RDMA traffic on every host", tokens.wire, False, _given("wire")),
)
# Only where the inventory asks for a limit; then it is required in every mode.
POWER = StepSpec("power", "the GPU's clock limit is set", power.power)
STEP_IDS = tuple(spec.id for spec in STEPS)


def run_steps(evidence: Evidence, specs: t.Sequence[StepSpec] = STEPS, mode: Mode | None = None) -> list[Step]:
    """Judge the evidence step by step. A step that the mode does not require and that has no input is reported as not run."""
    steps = []
    for spec in specs:
        required = spec.required if mode is None or spec is POWER else spec.id in mode.required
        if mode is not None and not required and not spec.done(evidence):
            left = Result(spec.id, "not run", (), f"mode {mode.id} does not require it.", required=False)
            steps.append(Step(spec.id, spec.title, False, (left,)))
        else:
            steps.append(Step(spec.id, spec.title, required, tuple(spec.judge(evidence))))
    return steps


def build_report(
    evidence: Evidence,
    meta: t.Mapping[str, t.Any],
    specs: t.Sequence[StepSpec] = STEPS,
    mode: Mode | None = None,
) -> Plain:
    """Return the report in plain form, and under `table` its lines.

    meta: `started` and `finished` (ISO 8601), `versions` (of the software that ran verify), and any other plain values.
    """
    steps = run_steps(evidence, [*specs, POWER] if power.was_read(evidence) else specs, mode)
    found = causes(steps)
    result = verdict(steps)
    report: Plain = {
        "schema": SCHEMA,
        "verdict": result,
        "mode": mode.id if mode else None,
        "headline": _headline(evidence, steps, found, result),
        "started": meta.get("started"),
        "finished": meta.get("finished"),
        "versions": dict(meta.get("versions") or {}) | record.versions(evidence),
        "topology": evidence.topology,
        "hosts": [record.host(evidence, name) for name in evidence.plan],
        "thresholds": {key: value for key, value in evidence.thresholds.items() if key != "origin"},
        "steps": [_step(step) for step in steps],
        "causes": [asdict(cause) for cause in found],
        "warnings": record.warnings(steps),
        "log_findings": logs.found(evidence),
        "bandwidth": record.bandwidth(evidence),
        "bands": record.bands(evidence),
    }
    return {"report": report, "table": table(evidence, steps, report)}


def _step(step: Step) -> Plain:
    return {
        "id": step.id,
        "title": step.title,
        "required": step.required,
        "status": step.status,
        "summary": _summary(step),
        "results": [
            {
                "subject": result.subject,
                "status": result.status,
                "required": result.required,
                "message": result.message,
                "cause": result.cause,
                "remedy": result.remedy,
                "suspected": result.suspected,
                "figures": dict(result.figures),
                "ends": [asdict(end) for end in result.ends],
            }
            for result in step.results
        ],
    }


def _summary(step: Step) -> str:
    if not step.results:
        return "nothing to show here"
    parts = [f"{step.count('pass')} passed"] + [
        f"{count} {words}"
        for words, count in (
            ("with a warning", step.count("warn")),
            ("failed", step.count("fail")),
            ("unknown", step.count("unknown")),
            ("not run", step.count("not run")),
        )
        if count
    ]
    text = ", ".join(parts)
    gbps = [
        r.figures["gbps"] for r in step.results if "gbps" in r.figures and r.figures.get("program") == "ib_write_bw"
    ]
    usec = [r.figures["usec"] for r in step.results if "usec" in r.figures and "program" in r.figures]
    busbw = [
        f"{r.figures['operation']} {significant(r.figures['busbw'], 4)} GB/s"
        for r in step.results
        if "busbw" in r.figures
    ]
    speed = [r.figures["tokens_per_s"] for r in step.results if "tokens_per_s" in r.figures]
    if gbps:
        text += f"; write {_range(gbps)} Gb/s"
    both = [r.figures["gbps_together"] for r in step.results if "gbps_together" in r.figures]
    if both:
        text += f", together {_range(both)} Gb/s"
    if usec:
        text += f"; ping-pong {_range(usec)} us one way"
    if busbw:
        text += f"; {', '.join(busbw)}"
    if speed:
        text += f"; {_range(speed)} tokens/s"
    return text


def _range(values: t.Sequence[float]) -> str:
    low, high = min(values), max(values)
    return significant(low, 4) if low == high else f"{significant(low, 4)} to {significant(high, 4)}"


def reasons(steps: t.Sequence[Step], required: bool = True) -> list[tuple[str, int]]:
    """Return why results were not run, each with its count, the most frequent first."""
    counted = Counter(
        result.message
        for step in steps
        for result in step.results
        if result.status in ("not run", "unknown") and (result.required and step.required) is required
    )
    return counted.most_common()


def _headline(evidence: Evidence, steps: t.Sequence[Step], found: t.Sequence[Cause], result: Verdict) -> str:
    pairs = {(path.a.host, path.b.host) for path in evidence.paths}
    names = ", ".join(step.id for step in steps if step.status == "pass")
    shown = any(step.count(status) for step in steps for status in ("pass", "warn", "fail"))
    if evidence.topology == "single" and result == "passed" and not shown:
        return f"NOTHING TO PROVE: topology {evidence.topology} has no fabric. Nothing was tested."
    lacking = [name for name, host in evidence.hosts.items() if host.node is None]
    silent = f" {_count(len(lacking), 'host')} of {len(evidence.hosts)} did not answer." if lacking else ""
    if result == "failed":
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        return f"FAILED: {found[0].where}: {found[0].message}{more}{silent}"
    if result == "incomplete":
        open_steps = [step.id for step in steps if step.required and step.status in ("not run", "unknown")]
        why = reasons(steps) or reasons(steps, required=False)
        return f"INCOMPLETE: {', '.join(open_steps)} not run as required: {why[0][0] if why else 'no reason given'}{silent}"
    left = sum(step.count("not run") for step in steps if step.status == "pass")
    unproven = [step.id for step in steps if step.status in ("not run", "unknown")]
    seen = {pair for pair in pairs if set(pair) <= {n for n, h in evidence.hosts.items() if h.node}}
    text = f"PASSED: {names} on {_count(len(evidence.hosts), 'host')}, {_count(len(seen), 'pair')} of {len(pairs)}"
    text += f"; {left} results are skipped here (see below)." if left else "."
    return text + (f" Not run: {', '.join(unproven)}." if unproven else "")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


# --- the table ------------------------------------------------------------------------------------------------------


def table(evidence: Evidence, steps: t.Sequence[Step], report: Plain) -> list[str]:
    """Return the report's lines for a terminal: plain ASCII, aligned."""
    lines = [report["headline"], ""]
    rows = [("STEP", "STATUS", "SUMMARY")]
    rows += [(step.id, step.status.upper() if step.status != "pass" else "pass", _summary(step)) for step in steps]
    lines += _aligned(rows)
    paths = _paths(evidence, steps)
    if paths:
        lines += ["", *_aligned([("PAIR", "FUNCTIONS", "MTU", "ARP", "WRITE Gb/s", "PING-PONG us"), *paths[:_ROWS]])]
        if len(paths) > _ROWS:
            lines.append(f"… {len(paths) - _ROWS} more rows: see the report file".replace("…", "..."))
    for number, cause in enumerate(report["causes"], 1):
        lines += ["", f"CAUSE {number}: {cause['where']}: {cause['message']} [{cause['id']}]"]
        lines += [f"  remedy: {cause['remedy']}"] if cause["remedy"] else []
        lines += [f"  seen in: {_listed(cause['seen'])}"]
        lines += [f"  follows: {_listed(cause['consequences'])}"] if cause["consequences"] else []
    lines += logs.shown(report["log_findings"])
    for required, title in ((True, "NOT RUN"), (False, "NOT RUN, NOT NEEDED HERE")):
        why = reasons(steps, required)
        if why:
            lines += ["", f"{title}:", *(f"  {count:4d}  {reason}" for reason, count in why[:_LISTED])]
            lines += [f"        and {len(why) - _LISTED} other reasons"] if len(why) > _LISTED else []
    return lines


def _listed(items: t.Sequence[str]) -> str:
    more = f" and {len(items) - _LISTED} more" if len(items) > _LISTED else ""
    return "; ".join(items[:_LISTED]) + more


def _aligned(rows: t.Sequence[t.Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


_MARKS = {"pass": "ok", "fail": "FAIL", "not run": "-"}


def _paths(evidence: Evidence, steps: t.Sequence[Step]) -> list[tuple[str, ...]]:
    """Return one row per pair and function, with the worst of its VFs; rows with failures come first."""
    by_ends: dict[tuple[str, frozenset[t.Any]], list[Result]] = {}
    for step in steps:
        for result in step.results:
            if len(result.ends) == 2:
                by_ends.setdefault((step.id, frozenset(result.ends)), []).append(result)
    rows: list[tuple[bool, tuple[str, ...]]] = []

    def lane(path: t.Any) -> tuple[str, str, str, str]:
        return path.a.host, path.b.host, path.a.function.slot, path.b.function.slot

    for (a, b, slot, other), paths in itertools.groupby(sorted(evidence.paths, key=lane), key=lane):
        ends = [frozenset((path.a.place, path.b.place)) for path in paths]
        found = {name: [r for e in ends for r in by_ends.get((name, e), ())] for name in ("mtu", "arp", "rdma")}
        if not any(r.status != "not run" or r.required for results in found.values() for r in results):
            continue
        write = [r for r in found["rdma"] if r.figures.get("program") == "ib_write_bw" or "write" in r.subject]
        trips = [r for r in found["rdma"] if r not in write]
        failed = any(r.status == "fail" for results in found.values() for r in results)
        slots = slot if slot == other else f"{slot} - {other}"
        marks = (_mark(found["mtu"]), _mark(found["arp"]), _figure(write, "gbps", min), _figure(trips, "usec", max))
        rows.append((failed, (f"{a} - {b}", slots, *marks)))
    return [row for _failed, row in sorted(rows, key=lambda row: not row[0])]


def _mark(results: t.Sequence[Result]) -> str:
    statuses = [result.status for result in results]
    return next((_MARKS[status] for status in ("fail", "pass") if status in statuses), "-")


def _figure(results: t.Sequence[Result], name: str, worst: t.Callable[[t.Iterable[float]], float]) -> str:
    values = [result.figures[name] for result in results if name in result.figures]
    if any(result.status == "fail" for result in results):
        return f"FAIL {significant(worst(values), 4)}" if values else "FAIL"
    return significant(worst(values), 4) if values else "-"
