# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A matrix's results in one plain form, from a journal or from measured rows: the input of the page, the log and `compare`.

Both sums are kept: `peak` is the sum of the requests' own tokens/s, `wall` all tokens by wall time. If they name different
winners, both are named.
"""

from __future__ import annotations

import math
import re
import statistics
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix.cases import Matrix, combinations
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix.journal import outcomes
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix.rows import mean, merged_levels
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import MIXED, SHAPES, evidence_entries

Plain = dict[str, t.Any]
SUMS = ("peak", "wall")
SHAPE_NAMES = (*SHAPES, MIXED)
_OF_VERDICT = {"stable": "good", "garbage": "garbage", "crash": "crash"}
# Status words in published logs that tell the kind of crash.
_OF_STATUS = {
    "startup": "startup_crash",
    "worker_restart": "worker_restarted",
    "Not enough memory": "out_of_memory_loading",
}


def of_journal(entries: t.Sequence[Plain]) -> Plain:
    """Return the results of a journal's entries. CollectionError if it has no plan."""
    head = next((entry for entry in reversed(entries) if entry["event"] == "plan"), None)
    if head is None:
        raise CollectionError("this is not a journal of a matrix: it has no plan.")
    done = outcomes(entries)
    cases = [_measured(case, done.get(case["id"])) for case in head["cases"]]
    finished = [entry["finished"] for entry in done.values()]
    first = next((entry for entry in done.values() if entry.get("platform")), {})
    return _whole(
        {
            "matrix": head["matrix"],
            "title": head["title"],
            "profile": head["profile"],
            "model": head["model"],
            "engine": head["engine"],
            "platform": first.get("platform", {}),
            "started": min((entry["started"] for entry in done.values()), default=""),
            "finished": max(finished, default=""),
            "repeats": head["repeats"],
            "source": head["source"],
        },
        cases,
    )


def _case(name: str, labels: t.Mapping[str, str], outcome: str) -> Plain:
    return {
        "id": name,
        "name": name,
        "labels": dict(labels),
        "also": [],
        "outcome": outcome,
        "message": "",
        "line": "",
        "where": "",
        "cause": "",
        "remedy": "",
        "evidence": "",
        "seconds": None,
        "workload": "",  # the workload of `levels`; a published table does not name it
        "levels": {},
        "others": {},  # the levels of the workloads after the first, by name
        "accept_len": None,
        "accept_rate": None,
        "depth": None,
        "memory": {"plan": {}, "measured": {}},
        "promise": {},
    }


def _measured(case: Plain, entry: Plain | None) -> Plain:
    """Combine a planned case with its outcome."""
    made = _case(case["name"], case["labels"], "blocked" if case["blocked"] else "open")
    made |= {"id": case["id"], "also": case["also"], "promise": case["promise"], "message": case["blocked"]}
    made["memory"]["plan"] = case["memory"]
    made["depth"] = (case.get("speculation") or {}).get("tokens") or None
    if entry is None:
        return made
    made |= {
        key: entry[key] for key in ("outcome", "message", "line", "where", "cause", "remedy", "evidence", "seconds")
    }
    made["memory"]["measured"] = entry.get("memory") or {}
    for n, levels in sorted(merged_levels(entry["runs"]).items()):
        made["levels"][n] = _level(levels)
    names = dict.fromkeys(work["name"] for run in entry["runs"] for work in run["workloads"])
    first, *others = names or [""]
    made["workload"] = first
    for name in others:
        made["others"][name] = {n: _level(levels) for n, levels in sorted(merged_levels(entry["runs"], name).items())}
    accepted = [run["acceptance"] for run in entry["runs"] if run.get("acceptance")]
    for key, name in (("accept_len", "length"), ("accept_rate", "rate")):
        values = [each[name] for each in accepted if each.get(name) is not None]
        made[key] = statistics.fmean(values) if values else None
    return made


def _level(levels: t.Sequence[Plain]) -> Plain:
    verdicts = [level["verdict"] for level in levels]
    made: Plain = {
        "verdict": next((v for v in ("garbage", "failed") if v in verdicts), "good"),
        "ok": sum(level["figures"]["ok"] for level in levels),
        "failed": sum(level["figures"]["failed"] + level["figures"]["garbage"] for level in levels),
        "ttft_s": mean(levels, "ttft_median_s"),
        "slowest": mean(levels, "slowest_tokens_per_s"),
        "noise": {},
        "runs": {},
    }
    for name in SUMS:
        figure = f"{name}_tokens_per_s"
        made[name] = mean(levels, figure)
        values = [v for lv in levels if lv["verdict"] != "garbage" and (v := lv["figures"].get(figure)) is not None]
        made["runs"][name] = max(1, len(values))
        if len(values) > 1 and made[name]:
            made["noise"][name] = statistics.stdev(values) / made[name]
    return made


def of_rows(matrix: Matrix, overlays: t.Sequence[str] = ()) -> Plain:
    """Return the results of a matrix measured by others, from its rows. CollectionError if it has none."""
    known = evidence_entries(overlays)
    missing = [name for name in matrix.rows if name not in known]
    if missing or not matrix.rows:
        what = f"there is no row {missing[0]!r}" if missing else "it names no rows"
        raise CollectionError(f"matrix {matrix.id!r}: {what}. Measure it: dgxspark.cluster.matrix.")
    rows = [known[name] for name in matrix.rows]
    named = combinations(matrix)
    cases = [_of_row(row, *_name_of(row, matrix, named)) for row in rows]
    first = rows[0]
    return _whole(
        {
            "matrix": matrix.id,
            "title": matrix.title,
            "profile": matrix.profile,
            "model": first["model"],
            "engine": first["engine"],
            "platform": first.get("platform", {}),
            "started": "",
            "finished": max((row.get("date", "") for row in rows), default=""),
            "repeats": 1,
            "source": list(matrix.source),
        },
        cases,
    )


def _name_of(
    row: Plain, matrix: Matrix, named: t.Sequence[tuple[str, dict[str, str], Plain]]
) -> tuple[str, dict[str, str]]:
    """Return name and labels of a row's case: of the matching cases, the one with the most settings."""
    stated = {**row["settings"], **{key: row[key] for key in ("nodes", "tp", "pp", "ep")}}

    def fits(choices: Plain) -> bool:
        skip = ("variant", "image", "version")
        return all(stated.get(key) == value for key, value in choices.items() if key not in skip)

    # A row with speculation also fits the combination without it; the named case, which states it, has more settings.
    plain = [each for each in named if fits({**matrix.base, **each[2]})]
    best = max(plain, key=lambda each: len(each[2]), default=None)
    return (best[0], best[1]) if best else (str(row.get("case") or row["id"]), {})


def _told(status: str) -> str:
    """Return what a published status tells beyond the outcome, without marks of footnotes that are not here."""
    words = re.sub("[\u2020\u2021\u2705\u274c\u26a0\ufe0f]", "", status).strip()
    return "" if re.fullmatch(r"FAIL|[a-z]+_(?:crash|restart)", words) else words


def _of_row(row: Plain, name: str, labels: dict[str, str]) -> Plain:
    status = next((cls for word, cls in _OF_STATUS.items() if word in row.get("status", "")), "crash")
    made = _case(name, labels, status if row["verdict"] == "crash" else _OF_VERDICT[row["verdict"]])
    measured, settings = row["measured"], row["settings"]
    made |= {
        "id": row["id"],
        "message": row.get("note", ""),
        "line": "" if row["verdict"] == "stable" else _told(row.get("status", "")),
    }
    made |= {key: measured.get(key) for key in ("accept_len", "accept_rate")}
    made["depth"] = settings.get("speculative_num_draft_tokens")
    made["memory"]["measured"] = {
        key: measured[key] for key in ("weights_gib", "kv_gib", "load_peak_gib") if key in measured
    }
    for key, value in measured.items():
        if not re.fullmatch(r"n[0-9]{1,6}", key):
            continue
        answers = measured.get("requests", {}).get(key, {})
        failed = answers.get("failed", 0)
        made["levels"][int(key[1:])] = {
            "verdict": "garbage" if row["verdict"] == "garbage" else "failed" if failed else "good",
            "peak": value,
            "wall": measured.get("wall", {}).get(key),
            "ok": answers.get("ok"),
            "failed": failed,
            "ttft_s": measured["ttft_ms"][key] / 1000 if key in measured.get("ttft_ms", {}) else None,
            "slowest": None,
            "noise": {},
            "runs": {},
        }
    return made


def _whole(about: Plain, cases: list[Plain]) -> Plain:
    counts: dict[str, int] = {}
    for case in cases:
        counts[case["outcome"]] = counts.get(case["outcome"], 0) + 1
    counts = dict(sorted(counts.items(), key=lambda item: (item[0] != "good", -item[1])))
    return about | {
        "cases": cases,
        "counts": counts,
        "levels": levels_of(cases),
        "winners": winners(cases),
        "noise": noise(cases),
    }


def levels_of(cases: t.Sequence[Plain]) -> list[int]:
    """Return every concurrency that any case was measured at."""
    return sorted({n for case in cases for n in case["levels"]})


def noise(cases: t.Sequence[Plain]) -> float | None:
    """Return how much repeats of one case differ: the median relative standard deviation; None without repeats."""
    values = [v for case in cases for level in case["levels"].values() for v in level["noise"].values()]
    return statistics.median(values) if values else None


def merit(case: t.Mapping[str, t.Any], shape: str, which: str) -> float | None:
    """Return a case's worth for a traffic shape by one of the sums; None if it was not soundly measured.

    single, agents, throughput: tokens/s at n = 1, 4, 8. mixed: the geometric mean of the three.
    """
    if case["outcome"] not in ("good", "requests_failed"):
        return None
    wanted = [int(key[1:]) for key in SHAPES.values()] if shape == MIXED else [int(SHAPES[shape][1:])]
    values = []
    for n in wanted:
        level = case["levels"].get(n)
        if level is None or level["verdict"] != "good" or not level.get(which):
            return None
        values.append(float(level[which]))
    return math.prod(values) ** (1 / len(values))


def ranked(cases: t.Sequence[Plain], shape: str, which: str) -> list[Plain]:
    """Return the cases, best first; then those that passed but were not measured for the shape; then the others."""
    passed = ("good", "requests_failed")
    return sorted(cases, key=lambda case: (-(merit(case, shape, which) or 0.0), case["outcome"] not in passed))


def winners(cases: t.Sequence[Plain]) -> dict[str, dict[str, Plain]]:
    """Return by shape and sum the winner's id, name and value, and its margin over the second."""
    found: dict[str, dict[str, Plain]] = {}
    for shape in SHAPE_NAMES:
        for which in SUMS:
            best = [case for case in ranked(cases, shape, which) if merit(case, shape, which)]
            if best:
                first = t.cast(float, merit(best[0], shape, which))
                second = merit(best[1], shape, which) if len(best) > 1 else None
                found.setdefault(shape, {})[which] = {
                    "id": best[0]["id"],
                    "name": best[0]["name"],
                    "value": round(first, 2),
                    "second": best[1]["name"] if second else None,
                    "margin": round(1 - second / first, 4) if second else None,
                }
    return found
