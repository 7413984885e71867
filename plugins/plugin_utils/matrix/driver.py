# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The loop: switch, verify, bench and record each case, whatever its outcome, until all are done or time is up.

It knows nothing of Ansible: `Steps` acts on the cluster. Each case ends with one line in the journal; a case killed before that
line is measured again.
"""

from __future__ import annotations

import pathlib
import shutil
import statistics
import time
import typing as t
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import signatures
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix import classify
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix.cases import Case, Matrix, digest
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix.journal import Journal

Plain = dict[str, t.Any]
CASES = "cases"


@dataclass(frozen=True, slots=True)
class Step:
    """The outcome of a step. lost: nodes that are gone; timed_out: it ran out of time; data: its results."""

    ok: bool
    message: str = ""
    timed_out: bool = False
    lost: tuple[str, ...] = ()
    data: t.Mapping[str, t.Any] = field(default_factory=dict)


class Steps(t.Protocol):
    """The actions on the cluster. Each step leaves its evidence in the case's folder."""

    def save(self) -> Step:
        """Save what serves now for `restore`; keeps what an earlier run of the matrix saved."""

    def switch(self, case: Case, folder: pathlib.Path) -> Step:
        """Serve the case; one that does not come up is left as it is, so that its logs can be read.

        data: `not_gone`, whether it was not started because the ranks before it were not gone in time.
        """

    def verify(self, case: Case, folder: pathlib.Path) -> Step:
        """Verify the fabric quickly; data: `socket`, whether the ranks' logs show a network other than the fabric."""

    def bench(self, case: Case, folder: pathlib.Path, run: int) -> Step:
        """Measure; data: `report`, the bench's report, if there is one."""

    def collect(self, case: Case, folder: pathlib.Path) -> Step:
        """Collect the ranks' logs; data: `logs` by name, `restarts` by pod, `platform`, `digest`, `memory`, `acceptance`."""

    def restore(self) -> Step:
        """Serve again what served before the matrix."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """hours: None is unlimited; stopping: whether a stop was requested."""

    hours: float | None = None
    stopping: t.Callable[[], bool] = lambda: False
    clock: t.Callable[[], float] = time.time
    say: t.Callable[[str], None] = lambda _text: None


def head(matrix: Matrix, cases: t.Sequence[Case]) -> Plain:
    """Return the journal's first line: the matrix and its cases in order."""
    listed = [
        {
            "id": case.id,
            "name": case.name,
            "labels": dict(case.labels),
            "also": list(case.also),
            "blocked": case.blocked,
            "promise": {"kind": case.promise.kind, "figures": dict(case.promise.figures), "row": case.promise.row},
            "overrides": dict(case.overrides),
            "memory": _memory(case.plan),
            "speculation": dict(case.plan.get("speculation", {})),
        }
        for case in cases
    ]
    measured = {"workloads": matrix.workloads, "levels": matrix.levels, "repeats": matrix.repeats}
    return {
        "matrix": matrix.id,
        "title": matrix.title,
        "profile": matrix.profile,
        "model": next((case.plan["model"] for case in cases if case.plan), ""),
        "engine": _engine([case.plan["engine"] for case in cases if case.plan]),
        "repeats": matrix.repeats,
        "source": list(matrix.source),
        # Excludes order and blocking, which change with the rows measured meanwhile.
        "digest": digest([measured, sorted(case.id for case in cases)]),
        "cases": listed,
    }


def _engine(engines: t.Sequence[t.Mapping[str, t.Any]]) -> Plain:
    """Return what all cases' engines have in common; an image or version that is an axis is left out."""
    first = engines[0] if engines else {}
    return {key: value for key, value in first.items() if all(each.get(key) == value for each in engines)}


def _memory(plan: t.Mapping[str, t.Any]) -> Plain:
    wanted = (
        "weights_gib",
        "kv_gib",
        "mamba_gib",
        "draft_gib",
        "graphs_gib",
        "activations_gib",
        "used_gib",
        "free_gib",
        "total_gib",
    )
    memory = plan.get("memory") or {}
    return {key: memory[key] for key in wanted if memory.get(key) is not None}


def left(journal: Journal, cases: t.Sequence[Case]) -> list[Case]:
    """Return the cases still to be measured, in the journal's order."""
    plan, done = journal.head or {"cases": []}, journal.done
    known = {case.id: case for case in cases}
    return [known[c["id"]] for c in plan["cases"] if c["id"] not in done and not c["blocked"] and c["id"] in known]


def expected_s(journal: Journal, matrix: Matrix) -> float:
    """Return how long a case takes: the median of the good ones, else the matrix's estimate.

    A case that crashes at once says nothing about the next, which may take its full time.
    """
    seconds = [entry["seconds"] for entry in journal.done.values() if entry["outcome"] == "good"]
    return statistics.median(seconds) if seconds else matrix.minutes * 60


def run(
    matrix: Matrix,
    cases: t.Sequence[Case],
    journal: Journal,
    steps: Steps,
    bounds: Bounds = Bounds(),
    overlays: t.Sequence[str] = (),
    recorded: t.Callable[[], None] = lambda: None,
) -> Plain:
    """Measure the remaining cases, then restore what served before. recorded: called after each case in the journal.

    Returns `measured` and `left` (counts), `ended` (done, time, stopped, lost) and `message`. CollectionError if what serves now
    cannot be saved; nothing was touched then.
    """
    table = signatures.load_table(overlays)
    classes = {name: entry.get("class", "") for name, entry in signatures.load_signatures(overlays).items()}
    begun = bounds.clock()
    waiting = left(journal, cases)
    result: Plain = {"measured": 0, "ended": "done", "message": ""}
    kept = steps.save() if waiting else Step(ok=True)
    if not kept.ok:
        raise CollectionError(f"what is served now cannot be saved, so nothing is touched: {kept.message}")
    try:
        for case in waiting:
            ended = _over(bounds, begun, expected_s(journal, matrix), result["measured"])
            if ended:
                result["ended"] = ended
                break
            bounds.say(_progress(case, journal, matrix, len(waiting) - result["measured"]))
            entry, lost = _case(case, matrix, journal.folder, steps, table, classes, bounds)
            if lost:
                names = ", ".join(lost)
                result |= {
                    "ended": "lost",
                    "message": f"{names}: lost during the measurement of {case.name}. {entry['message']}",
                }
                break
            journal.append(entry)
            result["measured"] += 1
            recorded()
            bounds.say(
                f"{case.name}: {classify.CLASSES[entry['outcome']]}{': ' + entry['line'] if entry['line'] else ''}"
            )
    finally:
        back = steps.restore()  # also for a run that was killed after its last case
    if not back.ok:
        result["message"] = f"{result['message']} What was served before could not be restored: {back.message}".strip()
        result["restored"] = False
    return result | {"left": len(left(journal, cases))}


def _over(bounds: Bounds, begun: float, expected: float, measured: int) -> str:
    if bounds.stopping():
        return "stopped"
    if bounds.hours is None:
        return ""
    left_s = begun + bounds.hours * 3600 - bounds.clock()
    # Always begin the first case, else a short limit would never make progress.
    return "time" if measured and left_s < expected else ""


def _progress(case: Case, journal: Journal, matrix: Matrix, count: int) -> str:
    hours = count * expected_s(journal, matrix) / 3600
    total = len(journal.done) + count
    about = f"about {hours:.1f} h" if hours >= 1 else f"about {hours * 60:.0f} min"
    return f"case {len(journal.done) + 1} of {total} ({about} left): {case.name}"


def _stamp(clock: t.Callable[[], float]) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(clock()))


def folder_of(case: Case) -> str:
    """Return the folder of a case's evidence, below the matrix's folder."""
    plain = "".join(char if char.isalnum() or char in "-_." else "-" for char in case.name)
    return f"{CASES}/{plain[:80]}-{case.id}"


def _case(
    case: Case,
    matrix: Matrix,
    root: pathlib.Path,
    steps: Steps,
    table: signatures.Table,
    classes: t.Mapping[str, str],
    bounds: Bounds,
) -> tuple[Plain, tuple[str, ...]]:
    """Measure one case; return its journal entry, and the nodes that were lost (then nothing is recorded)."""
    started, begun = _stamp(bounds.clock), bounds.clock()
    folder = root / folder_of(case)
    shutil.rmtree(folder, ignore_errors=True)  # left by a killed run
    folder.mkdir(parents=True, mode=0o700)
    reports: list[Plain] = []
    failed, stage = _through(case, matrix, folder, steps, reports)
    lost = failed.lost if failed else ()
    seen = Step(ok=False) if lost else steps.collect(case, folder)
    lost = lost or seen.lost
    worst = next((r for verdict in ("garbage", "failed") for r in reports if verdict in _verdicts(r)), None)
    outcome = classify.classify(
        classify.Ended(
            stage=stage,
            message=failed.message if failed else "",
            timed_out=failed.timed_out if failed else False,
            restarts=seen.data.get("restarts", {}),
            report=worst or (reports[-1] if reports else None),
            logs=seen.data.get("logs", {}),
            not_gone=bool(failed and failed.data.get("not_gone")),
            socket=bool(failed and failed.data.get("socket")),
            sockets_planned=case.sockets_planned,
        ),
        table,
        classes,
    )
    entry = {
        "event": "case",
        "case": case.id,
        "name": case.name,
        "started": started,
        "finished": _stamp(bounds.clock),
        "seconds": round(bounds.clock() - begun, 1),
        "outcome": outcome.cls,
        "stage": stage,
        "message": outcome.message,
        "line": outcome.line,
        "where": outcome.where,
        "signature": outcome.signature,
        "cause": outcome.cause,
        "remedy": outcome.remedy,
        "runs": [_slim(report, seen.data.get("acceptance")) for report in reports],
        "evidence": folder_of(case),
        **{key: seen.data.get(key, {}) for key in ("platform", "memory", "restarts")},
        "digest": seen.data.get("digest"),
    }
    return entry, lost


def _through(
    case: Case, matrix: Matrix, folder: pathlib.Path, steps: Steps, reports: list[Plain]
) -> tuple[Step | None, classify.Stage | None]:
    """Run the steps; return the one that failed, and its name. A bench that ends with a report has not failed."""
    if not (done := steps.switch(case, folder)).ok:
        return done, "switch"
    if not (done := steps.verify(case, folder)).ok:
        return done, "verify"
    for number in range(1, matrix.repeats + 1):
        done = steps.bench(case, folder, number)
        if report := done.data.get("report"):
            reports.append(dict(report))
        elif not done.ok:
            return done, "bench"
        if done.lost:
            return done, "bench"
        if not done.ok and _hopeless(reports[-1]):
            break  # more repeats would only cost time
    return None, None


def _verdicts(report: t.Mapping[str, t.Any]) -> set[str]:
    return {level["verdict"] for workload in report["workloads"] for level in workload["levels"]}


def _hopeless(report: t.Mapping[str, t.Any]) -> bool:
    """Whether nothing was good, or no request was answered at some level: the server hangs or is gone."""
    levels = [level for workload in report["workloads"] for level in workload["levels"]]
    return "good" not in _verdicts(report) or any(
        lv["verdict"] == "failed" and not lv["figures"]["ok"] for lv in levels
    )


def _slim(report: t.Mapping[str, t.Any], logged: t.Mapping[str, t.Any] | None) -> Plain:
    """Return a report without its single requests, which are in the evidence. logged: the acceptance to use if it has none."""
    keys = ("n", "verdict", "message", "figures", "causes")
    return {
        "workloads": [
            {
                "name": work["name"],
                "levels": [
                    {k: level[k] for k in keys} | {"signs": [s["id"] for s in level["signs"]]}
                    for level in work["levels"]
                ],
            }
            for work in report["workloads"]
        ],
        "acceptance": report.get("acceptance") or (dict(logged) if logged else None),
        "client_share": report.get("client_share"),
    }
