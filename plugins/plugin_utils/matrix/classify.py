# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Classifies a case's outcome, with the log line that shows it. Pure: takes logs and reports, returns an outcome.

Known log lines (`knowledge/signatures`) decide first, causes before their consequences; without any, the events do: a rank that
ended, restarted, or stopped answering.
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils.signatures import excerpt
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import signatures

Stage = t.Literal["switch", "verify", "bench"]
Plain = dict[str, t.Any]

# Classes in words. `SITE`: the nodes or the cluster are at fault, so the outcome says nothing about the configuration.
CLASSES: dict[str, str] = {
    "good": "good",
    "garbage": "garbage",
    "requests_failed": "requests failed",
    "crash": "crash",
    "startup_crash": "start-up crash",
    "out_of_memory_loading": "out of memory while loading",
    "out_of_memory": "out of memory under load",
    "illegal_instruction": "illegal instruction",
    "watchdog": "watchdog",
    "hang": "hang",
    "worker_restarted": "worker restarted",
    "transport": "transport not IB",
    "not_started": "not started by the cluster",
    "not_verified": "not verified",
}
SITE = frozenset({"transport", "not_started", "not_verified"})
_SILENT = "tokens.hang"
_HANG_SHARE = (
    0.5  # of a level's requests: if one of eight hangs, a request failed; if most of them hang, the server does
)
# SIGTERM and SIGINT are no fault: something asked the process to end, as the kubelet does when another rank has failed.
_FAULT = re.compile(
    r"(?:\w*(?:Error|Exception)\b: |^(?:Fatal|FATAL|Segmentation fault|Aborted|Killed)\b|SIG(?!TERM|INT)[A-Z]{3,5}\b)"
)
# A fault that the engine handled and survived: the line says so, or is logged below error level.
_HANDLED = re.compile(
    r"(?i:\bfall(?:s|ing|en)?[ -]?back\b|\bfell back\b|\b(?:ignored|ignoring|skipping)\b)"
    r"|\b(?:WARN|WARNING|INFO|DEBUG)\b.*(?:Error|Exception)\b: "
)
# Timestamps at the beginning of lines: of engines and runtimes (2026-05-26 13:36:19 or 05-26 13:36:19), and glog (E0526 13:36:19.4).
_TIMES = (
    re.compile(r"\b(?:\d{4}-)?(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?"),
    re.compile(r"\b[IWEF](\d{1,2})(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?"),
)
_TIME_WITHIN = 100  # characters, including prefixes from launchers


@dataclass(frozen=True, slots=True)
class Ended:
    """How a case ended. stage None: it passed; message: of the stage that failed; timed_out: it ran out of time.

    not_gone: the ranks before it were not gone in time, so that it was not started, and restarts and logs are theirs. restarts: by
    pod, of its container; report: the bench's, possibly partial; logs: by name. socket: verify saw another network than
    the fabric; sockets_planned: TCP is what the plan asks for, so that it is no fault.
    """

    stage: Stage | None
    message: str = ""
    timed_out: bool = False
    not_gone: bool = False
    restarts: t.Mapping[str, int] = field(default_factory=dict)
    report: t.Mapping[str, t.Any] | None = None
    logs: t.Mapping[str, str] = field(default_factory=dict)
    socket: bool = False
    sockets_planned: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """A case's class, with the line that shows it and the log it is in. cause, remedy: of a known line."""

    cls: str
    message: str = ""
    line: str = ""
    where: str = ""
    signature: str = ""
    cause: str = ""
    remedy: str = ""


def classify(ended: Ended, table: signatures.Table, classes: t.Mapping[str, str]) -> Outcome:
    """Return the outcome. classes: by signature id."""
    if ended.not_gone:
        return Outcome("not_started", ended.message)
    verdicts = _verdicts(ended.report)
    if "garbage" in verdicts:
        return _garbage(ended)
    if ended.stage is None and "failed" not in verdicts and not any(ended.restarts.values()):
        return Outcome("good")
    if ended.stage == "verify":
        return _shown(
            Outcome("transport" if ended.socket else "not_verified", ended.message),
            ended,
            table,
            classes,
            () if ended.sockets_planned else ("transport",),
        )
    known = _known(ended, table, classes)
    loading = ended.stage == "switch"
    if known and known[1] and known[1] != "transport":
        finding, cls = known
        cls = "out_of_memory_loading" if cls == "out_of_memory" and loading else cls
        return _of(finding, cls, ended.message, ended.logs)
    if known and known[1] == "transport" and loading:
        return _of(known[0], "transport", ended.message, ended.logs)
    return _by_what_happened(ended, known[0] if known else None, table)


def _by_what_happened(ended: Ended, finding: Plain | None, table: signatures.Table) -> Outcome:
    fault = _last_fault(ended.logs, table)
    if ended.stage == "switch":
        # A container that ended or restarted is a crash; one that keeps running without becoming ready hangs.
        crashed = any(ended.restarts.values()) or fault is not None or (finding and not ended.timed_out)
        cls = "startup_crash" if crashed else "hang" if ended.timed_out and ended.logs else "not_started"
    elif any(ended.restarts.values()):
        cls = "worker_restarted"
    else:
        cls = "hang" if ended.timed_out or _silent(ended.report) else "requests_failed"
    message = ended.message or _first_message(ended.report)
    # A line that only reports an earlier failure is no cause if a stack trace names one.
    if finding and not (fault and table.entries[finding["id"]].follows_from):
        return _of(finding, cls, message, ended.logs)
    answered = ("bench", message) if cls == "requests_failed" and message else None
    where, line = fault or answered or _last_line(ended) or ("", "")
    return Outcome(cls, message, line, where)


def _known(ended: Ended, table: signatures.Table, classes: t.Mapping[str, str]) -> tuple[Plain, str] | None:
    """Return the finding that explains most, and its class: findings with a class come before others, causes before effects."""
    readings = signatures.read_all(ended.logs.items(), table)
    wanted = frozenset(signatures.SAME if ended.sockets_planned else ())
    found = [finding for finding in signatures.findings(readings, table) if finding["id"] not in wanted]
    faults = [finding for finding in found if not finding["benign"] and finding["severity"] != "info"]
    for finding in faults:
        if cls := classes.get(finding["id"], ""):
            return finding, cls
    errors = [finding for finding in faults if finding["severity"] == "error"]
    return (errors[0], "") if errors else None


def _shown(
    outcome: Outcome, ended: Ended, table: signatures.Table, classes: t.Mapping[str, str], wanted: t.Container[str]
) -> Outcome:
    """Return the outcome with the first known line of a wanted class."""
    readings = signatures.read_all(ended.logs.items(), table)
    for finding in signatures.findings(readings, table):
        if classes.get(finding["id"]) in wanted:
            return _of(finding, outcome.cls, outcome.message, ended.logs)
    return outcome


def _of(finding: Plain, cls: str, message: str, logs: t.Mapping[str, str]) -> Outcome:
    place = _earliest(finding["seen"], logs)
    where = f"{place['log']}:{place['first']}"
    return Outcome(cls, message, place["excerpt"], where, finding["id"], finding["cause"], finding["remedy"])


def _garbage(ended: Ended) -> Outcome:
    message = _first_message(ended.report, "garbage")
    return Outcome("garbage", message, message, "bench")


def _levels(report: t.Mapping[str, t.Any] | None) -> list[Plain]:
    return [level for workload in (report or {}).get("workloads", ()) for level in workload["levels"]]


def _verdicts(report: t.Mapping[str, t.Any] | None) -> set[str]:
    return {level["verdict"] for level in _levels(report)}


def _first_message(report: t.Mapping[str, t.Any] | None, verdict: str | None = None) -> str:
    return next((lv["message"] for lv in _levels(report) if lv["message"] and verdict in (None, lv["verdict"])), "")


def _silent(report: t.Mapping[str, t.Any] | None) -> bool:
    """Whether at some level at least half of the requests had no answer in time."""
    return any(
        level["verdict"] == "failed"
        and (hung := level["causes"].get(_SILENT, 0))
        and hung >= _HANG_SHARE * sum(level["figures"][key] for key in ("ok", "failed", "garbage"))
        for level in _levels(report)
    )


def _last_fault(logs: t.Mapping[str, str], table: signatures.Table) -> tuple[str, str] | None:
    """Return a log's last line that looks like an error, the end of a stack trace, which is usually the cause.

    Among several logs, the earliest in time wins: the other ranks only report that they lost this one. Skips consequences of
    other lines, and faults that the engine handled.
    """
    found = []
    for name, text in logs.items():
        lines = text.splitlines()
        for number in range(len(lines), 0, -1):
            line = lines[number - 1]
            if _FAULT.search(line) and not _HANDLED.search(line) and not _follows(line, table):
                found.append({"log": name, "first": number, "excerpt": excerpt(line)})
                break
    if not found:
        return None
    place = _earliest(found, logs)
    return f"{place['log']}:{place['first']}", place["excerpt"]


def _earliest(places: t.Sequence[Plain], logs: t.Mapping[str, str]) -> Plain:
    """Return the place (log, first: its line) that is earliest in time, or the first in order if no line carries a time."""
    timed = [(at, order) for order, place in enumerate(places) if (at := _time(logs, place))]
    return places[min(timed)[1] if timed else 0]


def _time(logs: t.Mapping[str, str], place: Plain) -> tuple[float, ...] | None:
    """Return month, day, hour, minute and second of a line; in a stack trace, those of the last timestamped line above."""
    for line in reversed(logs.get(place["log"], "").splitlines()[: place["first"]]):
        for form in _TIMES:
            if found := form.search(line[:_TIME_WITHIN]):
                month, day, hour, minute, second, part = found.groups()
                return (int(month), int(day), int(hour), int(minute), float(f"{second}.{part or 0}"))
    return None


def _follows(line: str, table: signatures.Table) -> bool:
    (reading,) = signatures.read_all([("", line)], table)
    return any(table.entries[hit.id].follows_from or table.entries[hit.id].benign for hit in reading.hits)


def _last_line(ended: Ended) -> tuple[str, str] | None:
    """Return the last log line of a restarted pod, else of the first pod."""
    names = sorted(ended.logs, key=lambda name: not any(pod in name for pod, count in ended.restarts.items() if count))
    for name in names:
        lines = ended.logs[name].splitlines()
        if lines:
            return f"{name}:{len(lines)}", excerpt(lines[-1])
    return None
