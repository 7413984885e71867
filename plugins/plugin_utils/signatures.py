# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From known log lines to causes: `knowledge/signatures` says what a line means, and this module ranks the findings.

A finding that may have caused another comes first, with the other listed under it. If nothing known matches, the report
says so and invents no cause.
"""

from __future__ import annotations

import collections
import dataclasses
import fnmatch
import os
import pathlib
import re
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils import signatures as scanner
from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import Unreadable, read_in, unpacked
from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl.log import Reader
from ansible_collections.dgxspark.cluster.plugins.module_utils.signatures import Hit, Pattern, Reading, Signature
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import (
    SEVERITIES,
    CollectionError,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.last_error import LastError

SCHEMA = "dgxspark.cluster/explain-report/1"
KIND = "signatures"
FILES = 1000  # most files in one folder
LOGS = 4  # of which the lines of one finding are shown
LAST = (
    "NOT KNOWN, but this is where it ended: the last line that reports an error. Search the issues of the program that wrote it for its words, "
    "and read the lines before it; of several ranks, the earliest counts."
)
ENDED = "rank.ended"  # the supervisor saw the engine end
# Between findings that do not explain each other, the lower layer comes first.
LAYERS = ("firmware", "kernel", "k3s", "nccl", "engine", "torch", "sglang", "vllm", "python", "rank")

Plain = dict[str, t.Any]
# Lines to show for the verdict on NCCL's traffic; they are no signatures, since neither is a fault by itself.
OF_TRAFFIC = (
    Pattern("nccl.~channel", re.compile(r" via NET/Socket/"), (" via NET/Socket/",)),
    Pattern("nccl.~chosen", re.compile(r"NCCL INFO Using network Socket"), ("Using network Socket",)),
)
# What single lines say of the same, by signature.
SAME = (
    "engine.nccl-over-sockets",
    "nccl.~channel",
    "nccl.~chosen",
    "nccl.ib-no-device",
    "nccl.ib-empty-list",
    "engine.nccl-ib-disabled",
    "engine.nccl-net-socket",
)


@dataclass(frozen=True, slots=True)
class Beside:
    """What a harmless line means beside certain others."""

    signs: frozenset[str]
    cause: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Traffic:
    """What carries the traffic, by NCCL's own reader. `cause` and `remedy` are empty where that is no fault."""

    verdict: str
    summary: str
    severity: t.Literal["error", "warning"] = "warning"
    cause: str = ""
    remedy: str = ""
    source: t.Sequence[str] = ()
    devices_matter: bool = True  # False: that no RDMA device was found means nothing


@dataclass(frozen=True, slots=True)
class Table:
    """All signatures by id, and their patterns. beside: what harmless ones mean beside others, by id."""

    entries: t.Mapping[str, Signature]
    patterns: tuple[Pattern, ...]
    beside: t.Mapping[str, Beside]

    def reasons(self, name: str) -> frozenset[str]:
        """Return all signatures that may cause this one, directly or through others."""
        found: set[str] = set()
        new = [name]
        while new:
            deeper = set(self.entries[new.pop()].follows_from) - found
            found |= deeper
            new += deeper
        return frozenset(found)


def load_signatures(overlays: t.Sequence[str] = ()) -> t.Mapping[str, knowledge.Entry]:
    """Return the entries by id, with the owner's."""
    return knowledge.shared(KIND, tuple(overlays))


def load_table(overlays: t.Sequence[str] = ()) -> Table:
    """Load the table with the owner's overlays applied. KnowledgeError names a bad entry."""
    entries = load_signatures(overlays)
    faults = [name for name, entry in entries.items() if not entry["benign"]]
    made = {
        name: Signature(
            id=name,
            pattern=entry["pattern"],
            component=entry["component"],
            severity=entry["severity"],
            benign=entry["benign"],
            vague=entry.get("vague", False),
            cause=entry["cause"],
            remedy=entry["remedy"],
            source=tuple(entry["source"]),
            follows_from=tuple(sorted(_named(entry, "follows_from", entry.get("follows_from", ()), entries, faults))),
        )
        for name, entry in entries.items()
    }
    beside = {name: said for name, entry in entries.items() if (said := _beside(entry, entries, faults))}
    table = Table(made, tuple(scanner.compile_patterns(entries.values())), beside)
    for name, entry in entries.items():
        if name in table.reasons(name):
            raise knowledge.KnowledgeError(
                f"{entry['origin']}: {name}: follows_from: it follows from itself through others. Remove one of them."
            )
    return table


def _beside(entry: knowledge.Entry, entries: t.Container[str], faults: t.Sequence[str]) -> Beside | None:
    said = entry.get("beside")
    if said is None:
        return None
    return Beside(_named(entry, "beside", said["signs"], entries, faults), said["cause"], said["remedy"])


def _named(
    entry: knowledge.Entry, key: str, patterns: t.Sequence[str], entries: t.Container[str], faults: t.Sequence[str]
) -> frozenset[str]:
    found: set[str] = set()
    for pattern in patterns:
        if "*" in pattern:
            found |= {name for name in fnmatch.filter(faults, pattern) if name != entry["id"]}
        elif pattern in entries:
            found.add(pattern)
        else:
            raise knowledge.KnowledgeError(
                f"{entry['origin']}: {entry['id']}: {key}: there is no signature {pattern!r}."
            )
    return frozenset(found)


# --- reading --------------------------------------------------------------------------------------------------------


def read_path(path: str, table: Table, nccl: Reader | None = None) -> list[Reading]:
    """Read a log, or all logs of a folder. In a folder, a file that is not text is reported (`Reading.error`) and skipped.

    nccl: NCCL's reader, which then gets every line, too.
    CollectionError if the path does not exist, or if a single file is empty or not text.
    """
    if path.strip() == "-":
        raise CollectionError(
            "log: - : Ansible gives its tasks no standard input. Write to a file first, or let the shell do it: "
            "-e log=<(kubectl logs POD)"
        )
    place = pathlib.Path(path).expanduser()
    try:
        if place.is_dir():
            files = _files(place)
            if not files:
                raise CollectionError(f"log: {path}: the folder has no files.")
            return [_read_file(file, str(file.relative_to(place)), table, nccl) for file in files]
        reading = _read_file(place, place.name, table, nccl)
    except OSError as exc:
        hint = _hint(path)
        name = path if len(path) < 200 else f"{path[:200]}..."
        raise CollectionError(f"log: {name}: cannot be read: {exc.strerror or exc}.{hint}") from exc
    if reading.error:
        raise CollectionError(f"log: {path}: {reading.error}")
    return [reading]


def _hint(path: str) -> str:
    """Return what the owner of a path that is no file probably wanted."""
    if "\n" in path or len(path) > 255:
        return " To explain pasted text, give it in log_text: -e @pasted.yml"
    if re.search(r"[*?\[]", path):
        return " No pattern is expanded here: name the folder that holds the logs."
    if "," in path:
        several = ", ".join(f'"{each.strip()}"' for each in path.split(",")[:3])
        return f""" Several logs are a list: -e '{{"log": [{several}]}}'"""
    return ""


def read_text(text: str, table: Table, name: str = "pasted text", nccl: Reader | None = None) -> Reading:
    """Read a text. CollectionError if it is empty."""
    if not text.strip():
        raise CollectionError(f"{name}: it is empty.")
    return _scanned(name, scanner.numbered(text), table, nccl)


def read_all(texts: t.Iterable[tuple[str, str]], table: Table) -> list[Reading]:
    """Read texts, each with its name; a text may be empty."""
    return [scanner.scan(name, scanner.numbered(text), table.patterns) for name, text in texts]


def _scanned(name: str, lines: t.Iterable[tuple[int, str]], table: Table, nccl: Reader | None) -> Reading:
    last = LastError()
    seen = scanner.Scan((*table.patterns, *OF_TRAFFIC) if nccl else table.patterns, last.see)
    passing = seen.passing(lines)
    try:
        if nccl is not None:
            nccl.read(name, passing)
    except CollectionError:  # too many processes for one run: what was found up to here counts
        pass
    collections.deque(passing, maxlen=0)
    return dataclasses.replace(seen.reading(name), ended=last.found())


def _files(folder: pathlib.Path) -> list[pathlib.Path]:
    found: list[pathlib.Path] = []
    for root, folders, names in os.walk(folder):
        folders.sort()
        found += [pathlib.Path(root, name) for name in sorted(names) if not name.startswith(".")]
        if len(found) > FILES:
            raise CollectionError(f"log: {folder}: more than {FILES} files. Name a folder that holds only the logs.")
    return found


def _read_file(path: pathlib.Path, name: str, table: Table, nccl: Reader | None) -> Reading:
    with path.open("rb") as raw:
        try:  # without seek(): a shell may pass a pipe
            reading = _scanned(name, _text_only(unpacked(raw)), table, nccl)
        except _NoText:
            return Reading(name, error="no log: this is not text (UTF-8, or gzip of it).")
        except Unreadable as exc:
            return Reading(name, error=f"no log: {exc}")
    if not reading.lines:
        return Reading(name, error="it is empty.")
    return reading


class _NoText(Exception):
    pass


def _text_only(file: t.BinaryIO) -> t.Iterator[tuple[int, str]]:
    for number, line in scanner.pieces(file):
        if number <= 20 and "\x00" in line:
            raise _NoText
        yield number, line


# --- what it means --------------------------------------------------------------------------------------------------


def readings_of(values: t.Any, where: str) -> list[Reading]:
    """Build readings from their plain form, as a module returns it."""
    if not isinstance(values, (list, tuple)):
        raise CollectionError(f"{where}: a list is needed, not {type(values).__name__}.")
    return [read_in(Reading, value, f"{where}[{i}]") for i, value in enumerate(values)]


def findings(readings: t.Sequence[Reading], table: Table, traffic: Traffic | None = None) -> list[Plain]:
    """Return the findings: causes first, each with its likely consequences; harmless lines last.

    A finding has id, component, severity, benign, cause, remedy, source, `seen` (log, first, last, count, excerpt) and
    `follows` (ids). A finding with several possible causes is listed under each. Traffic that does not take RDMA comes first.
    """
    seen: dict[str, list[tuple[int, str, Hit]]] = {}
    for order, reading in enumerate(readings):
        for hit in reading.hits:
            seen.setdefault(hit.id, []).append((order, reading.name, hit))
    first = _of_traffic(traffic, seen)
    known = {name: places for name, places in seen.items() if name in table.entries}
    faults = {name for name in known if not table.entries[name].benign}
    beside = {name: said for name, said in table.beside.items() if name in known and said.signs & faults}
    if traffic is not None and not traffic.devices_matter:
        # That a device was not found means nothing then.
        faults -= {name for name in SAME if name in faults and table.entries[name].severity == "info"}
    told = set(first["follows"]) if first else set()
    reasons: dict[str, t.AbstractSet[str]] = {
        name: {cause for cause in table.reasons(name) & (faults - told) if not _came_later(cause, known, table)}
        for name in faults
    }
    for name, said in beside.items():
        fired = said.signs & faults
        reasons[name] = fired.union(*(reasons[sign] for sign in fired))
    faults |= beside.keys()
    roots = {name for name in faults if not reasons[name] and name not in told}
    follows = {name: sorted(f for f in faults if name in reasons[f]) for name in faults}

    def rank(name: str) -> tuple[t.Any, ...]:
        entry = table.entries[name]
        layer = LAYERS.index(entry.component) if entry.component in LAYERS else len(LAYERS)
        place = known[name][0]
        return (
            name not in faults,
            name not in roots,
            SEVERITIES.index(entry.severity),
            -len(follows.get(name, ())),
            layer,
            place[0],
            place[2].first,
            name,
        )

    made = [
        {
            "id": name,
            "component": table.entries[name].component,
            "severity": "warning" if name in beside else table.entries[name].severity,
            "benign": name not in faults,
            "root": name in roots,
            "cause": _filled((beside.get(name) or table.entries[name]).cause, known[name]),
            "remedy": _filled((beside.get(name) or table.entries[name]).remedy, known[name]),
            "source": list(table.entries[name].source),
            "seen": _places(known[name]),
            "follows": follows.get(name, []),
        }
        for name in sorted(known, key=rank)
    ]
    return [first, *made] if first else made


def _came_later(cause: str, known: t.Mapping[str, t.Sequence[tuple[int, str, Hit]]], table: Table) -> bool:
    """Whether what is only worth knowing, as that a rank was told to end, came when its engine had ended by itself, wherever it stands."""
    if table.entries[cause].severity != "info":
        return False
    ended = {order: hit.first for order, _name, hit in known.get(ENDED, ())}
    return all(order in ended and hit.first > ended[order] for order, _name, hit in known[cause])


def _of_traffic(traffic: Traffic | None, seen: t.Mapping[str, t.Sequence[tuple[int, str, Hit]]]) -> Plain | None:
    """Return the finding on what carries the ranks' traffic; what single lines say of it follows from it."""
    shown = next((name for name in SAME if name in seen), None)
    if traffic is None or not traffic.cause or shown is None:
        return None
    return {
        "id": "nccl.traffic",
        "component": "nccl",
        "severity": traffic.severity,
        "benign": False,
        "root": True,
        "cause": traffic.cause,
        "remedy": traffic.remedy,
        "source": list(traffic.source),
        "seen": _places(seen[shown]),
        "follows": sorted(name for name in SAME if name in seen and "~" not in name),
    }


def _places(places: t.Sequence[tuple[int, str, Hit]]) -> list[Plain]:
    return [
        {"log": log, "first": hit.first, "last": hit.last, "count": hit.count, "excerpt": hit.excerpt}
        for _order, log, hit in places
    ]


class _Unknown(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return f"({key} not known)"


def _filled(text: str, places: t.Sequence[tuple[int, str, Hit]]) -> str:
    """Fill in the pattern's captures. Braces that name no capture do not occur; a test checks that."""
    return text.format_map(_Unknown(places[0][2].values))


def explain(readings: t.Sequence[Reading], table: Table, traffic: Traffic | None = None) -> Plain:
    """Return the report on logs (schema: docs/schema/explain-report.json) and, under `table`, its lines."""
    found = findings(readings, table, traffic)
    report: Plain = {
        "schema": SCHEMA,
        "headline": _headline(readings, found, table),
        "traffic": {"verdict": traffic.verdict, "summary": traffic.summary} if traffic else None,
        "logs": [{"name": r.name, "lines": r.lines, "error": r.error} for r in readings],
        "findings": found,
        "ended": _ended(readings, found, table),
    }
    return {"report": report, "table": show(report)}


def _ended(readings: t.Sequence[Reading], found: t.Sequence[Plain], table: Table) -> list[Plain]:
    """Return each log's last unknown error, where no finding says why the run failed."""
    causes = [f["id"] for f in found if f["root"] and not f["benign"] and f["severity"] != "info"]
    if any(name not in table.entries or not table.entries[name].vague for name in causes):
        return []
    return [
        {"log": r.name, "line": r.ended.first, "excerpt": r.ended.excerpt, "frame": r.ended.values.get("frame", "")}
        for r in readings
        if r.ended
    ]


def count(number: int, what: str) -> str:
    """Return "1 line", "2 lines"."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def _headline(readings: t.Sequence[Reading], found: t.Sequence[Plain], table: Table) -> str:
    read = [reading for reading in readings if reading.error is None]
    where = f"{count(sum(r.lines for r in read), 'line')} of {count(len(read), 'log')}"
    if not read:
        return "NOTHING READ: none of these files is a log."
    causes = [f for f in found if f["root"] and not f["benign"]]
    harmless = sum(f["benign"] for f in found)
    also = f" {count(harmless, 'kind')} of alarming but harmless lines." if harmless else ""
    if not causes:
        return (
            f"NOTHING KNOWN FOUND in {where}: none of {len(table.entries)} signatures of a fault matches. "
            f"That does not mean that nothing is wrong.{also}"
        )
    first = causes[0]
    more = f" (and {len(causes) - 1} more)" if len(causes) > 1 else ""
    return f"FOUND in {where}: {first['cause']}{more}{also}"


def show(report: Plain) -> list[str]:
    """Return the report's lines for a terminal."""
    lines = [report["headline"]]
    if report["traffic"]:
        lines += ["", f"TRAFFIC ({report['traffic']['verdict']}): {report['traffic']['summary']}"]
    by_id = {finding["id"]: finding for finding in report["findings"]}
    causes = [f for f in report["findings"] if f["root"] and not f["benign"]]
    for number, finding in enumerate(causes, 1):
        lines += ["", f"CAUSE {number} ({finding['severity']}): {finding['cause']} [{finding['id']}]"]
        lines += [f"  {line}" for line in _seen(finding)]
        lines += [f"  remedy: {finding['remedy']}"] if finding["remedy"] else []
        lines += [f"  source: {'; '.join(finding['source'])}"]
        for follower in finding["follows"]:
            lines += [f"  likely follows from it: {by_id[follower]['cause']} [{follower}]"]
            lines += [f"    {line}" for line in _seen(by_id[follower])]
    harmless = [f for f in report["findings"] if f["benign"]]
    lines += ["", "HARMLESS, though it looks alarming:"] if harmless else []
    for finding in harmless:
        lines += [f"  {finding['cause']} [{finding['id']}]", *(f"    {line}" for line in _seen(finding))]
        lines += [f"    source: {'; '.join(finding['source'])}"]
    lines += ["", *_last(report["ended"])] if report["ended"] else []
    unread = [log for log in report["logs"] if log["error"]]
    lines += ["", "NOT READ:", *(f"  {log['name']}: {log['error']}" for log in unread)] if unread else []
    return lines


def _last(ended: t.Sequence[Plain]) -> list[str]:
    shown = [
        f"  {one['log']}:{one['line']}: {one['excerpt']}" + (f" (arose in {one['frame']})" if one["frame"] else "")
        for one in ended[:LOGS]
    ]
    more = len(ended) - len(shown)
    return [LAST, *shown, *([f"  and in {count(more, 'other log')}"] if more > 0 else [])]


def _seen(finding: Plain) -> list[str]:
    shown = finding["seen"][:LOGS]
    lines = []
    for place in shown:
        times = f", {count(place['count'], 'line')} to {place['last']}" if place["count"] > 1 else ""
        lines.append(f"{place['log']}:{place['first']}{times}: {place['excerpt']}")
    more = len(finding["seen"]) - len(shown)
    return lines + ([f"and in {count(more, 'other log')}"] if more > 0 else [])
