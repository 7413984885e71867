# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compares two logs, of two versions or drivers: what got slower or faster beyond the noise, and what no longer passes.

A difference counts beyond its `limit`: Student's t at 99 % times its standard deviation, pooled from both sides' repeats and the
known noise between runs. Two repeats alone are too few: with them, one figure in five moved although nothing had changed.
"""

from __future__ import annotations

import math
import pathlib
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix import cases, journal, results
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix.report import WORDS, figure
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import NOISE

Plain = dict[str, t.Any]
_SIGMA = 2.0
# The known noise weighs like this many repeats; a difference below this share never counts.
_PRIOR = 4
_LEAST = 0.02
# Student's t, two-sided 99 %, by degrees of freedom from 1: NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2.
_T99 = (
    63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169, 3.106, 3.055, 3.012, 2.977, 2.947,
    2.921, 2.898, 2.878, 2.861, 2.845, 2.831, 2.819, 2.807, 2.797, 2.787, 2.779, 2.771, 2.763, 2.756, 2.750,
)  # fmt: skip
# Grades of a level, worst first.
_RANKS = ("missing", "failed", "partly", "good")
_PASSED = ("good", "requests_failed")


def load(name: str, overlays: t.Sequence[str] = ()) -> Plain:
    """Return the results of a journal (its folder or file), or of a shipped matrix by its id. CollectionError for anything else."""
    place = pathlib.Path(name).expanduser()
    if place.exists():
        return results.of_journal(journal.read(place))
    if name in cases.known(overlays):
        return results.of_rows(cases.load(name, overlays), overlays)
    raise CollectionError(f"{name}: there is no such folder or journal, and no matrix of that id.")


def compare(before: Plain, after: Plain) -> Plain:
    """Return `about` (differences of engine and platform), `rows` by case, workload, n and sum, and `broken`, `mended`, `only`.

    Matches cases and workloads by name, because settings may resolve differently in another version. `broken` lists the cases that
    passed and no longer do or are missing, and the levels (with `workload` and `n`) that got worse.
    """
    one, other = ({case["name"]: case for case in each["cases"]} for each in (before, after))
    both = [name for name in one if name in other]
    rows = [row for name in both for row in _rows(one[name], other[name])]
    known = {"engine": "version", "image": "image"}
    about = {what: (before["engine"].get(key), after["engine"].get(key)) for what, key in known.items()}
    for key in sorted(before["platform"].keys() | after["platform"].keys()):
        about[key] = before["platform"].get(key), after["platform"].get(key)
    measured = [name for name in both if "open" not in (one[name]["outcome"], other[name]["outcome"])]
    return {
        "about": {key: list(values) for key, values in about.items() if values[0] != values[1]},
        "rows": rows,
        "broken": [
            *(_turned(one[n], other[n]) for n in measured if _passes(one[n]) and not _passes(other[n])),
            *(gone for name, case in one.items() for gone in _gone(case, other.get(name))),
            *(
                worse
                for n in measured
                if _passes(other[n]) or not _passes(one[n])
                for worse in _worse(one[n], other[n])
            ),
        ],
        "mended": [_turned(one[n], other[n]) for n in measured if not _passes(one[n]) and _passes(other[n])],
        "only": {"before": [n for n in one if n not in other], "after": [n for n in other if n not in one]},
    }


def _passes(case: Plain) -> bool:
    return case["outcome"] in _PASSED


def _turned(before: Plain, after: Plain) -> Plain:
    why = after["line"] or after["message"]
    return {"case": before["name"], "before": before["outcome"], "after": after["outcome"], "why": why}


def _gone(before: Plain, after: Plain | None) -> list[Plain]:
    """Return the case as broken if it passed and the other log lacks it."""
    if not _passes(before) or (after and after["outcome"] != "open"):
        return []
    why = "the other log does not have this case" if after is None else ""
    return [{"case": before["name"], "before": before["outcome"], "after": "open", "why": why}]


def _rank(level: Plain | None) -> str:
    if level is None:
        return "missing"
    if level["verdict"] == "garbage" or level["ok"] == 0:
        return "failed"
    return "partly" if level["failed"] or level["verdict"] != "good" else "good"


def _workloads(before: Plain, after: Plain) -> t.Iterator[tuple[str, Plain, Plain]]:
    """Yield each workload of the first log: its name, its levels, and the other log's levels (empty if not measured)."""
    name = before["workload"] or after["workload"]
    later = {after["workload"] or name: after["levels"], **after["others"]}
    for work, levels in {name: before["levels"], **before["others"]}.items():
        yield work, levels, later.get(work, {})


def _worse(before: Plain, after: Plain) -> list[Plain]:
    """Return the levels that got worse."""
    found = []
    for work, one, other in _workloads(before, after):
        for n in sorted(one):
            old, new = one[n], other.get(n)
            if _RANKS.index(_rank(new)) < _RANKS.index(_rank(old)):
                level = {"case": before["name"], "workload": work, "n": n, "before": _came(old), "after": _came(new)}
                found.append({**level, "why": after["line"] or after["message"]})
    return found


def _came(level: Plain | None) -> str:
    """Describe a level's result."""
    rank = _rank(level)
    if level is None:
        return "not measured"
    if level["verdict"] == "garbage" or rank == "good":
        return str(level["verdict"])
    asked = "" if level["ok"] is None else f" of {level['ok'] + level['failed']}"
    return f"{level['failed']}{asked} requests failed" if level["failed"] else "requests failed"


def _rows(before: Plain, after: Plain) -> list[Plain]:
    if not (_passes(before) and _passes(after)):
        return []
    return [
        {"case": before["name"], "workload": work, "n": n, "sum": which, **_moved(one[n], other[n], which)}
        for work, one, other in _workloads(before, after)
        for n in sorted(one.keys() & other.keys())
        if "garbage" not in (one[n]["verdict"], other[n]["verdict"])
        for which in results.SUMS
        if one[n][which] and other[n][which]
    ]


def _moved(old: Plain, new: Plain, which: str) -> Plain:
    """Return one figure before and after, and whether it really differs."""
    change, limit = new[which] / old[which] - 1, _limit(old, new, which)
    return {
        "before": old[which],
        "after": new[which],
        "change": round(change, 4),
        "noise": round(_noise(old, new, which), 4),
        "limit": round(limit, 4),
        "verdict": "same" if abs(change) <= limit else "slower" if change < 0 else "faster",
    }


def _noise(old: Plain, new: Plain, which: str) -> float:
    """Return the relative standard deviation of the difference: from both sides' repeats, else the known noise of two runs."""
    spreads = [each["noise"][which] for each in (old, new) if which in each["noise"]]
    if not spreads:
        return NOISE / _SIGMA
    # A side without repeats is assumed to be as noisy as the other.
    return math.hypot(spreads[0], spreads[-1])


def _limit(old: Plain, new: Plain, which: str) -> float:
    """Return the relative difference beyond which it counts."""
    runs = [each["runs"].get(which, 1) for each in (old, new)]
    squares = sum(each["noise"].get(which, 0.0) ** 2 * (n - 1) for each, n in zip((old, new), runs, strict=True))
    freedom = _PRIOR + sum(n - 1 for n in runs)
    deviation = math.sqrt((_PRIOR * NOISE**2 + squares) / freedom * sum(1 / n for n in runs))
    return max(_LEAST, _T99[min(freedom, len(_T99)) - 1] * deviation)


def table(compared: Plain) -> list[str]:
    """Return lines for a terminal: what differs, what broke, what got slower or faster, worst first."""
    lines = [f"{what}: {old or 'not known'} -> {new or 'not known'}" for what, (old, new) in compared["about"].items()]
    lines = lines or ["Engine, image and platform are the same, as far as they are known."]
    for title, key in (("NO LONGER PASSES", "broken"), ("PASSES NOW", "mended")):
        for each in compared[key]:
            why = f": {each['why']}" if key == "broken" and each["why"] else ""
            old, new = (WORDS.get(each[side], each[side]) for side in ("before", "after"))
            lines.append(f"{title}  {_place(each)}: {old} -> {new}{why}")
    moved = sorted((row for row in compared["rows"] if row["verdict"] != "same"), key=lambda row: row["change"])
    for row in moved:
        lines.append(
            f"{row['verdict'].upper():<6}  {_place(row)}, {row['sum']}: {figure(row['before'])} -> "
            f"{figure(row['after'])} tok/s, {100 * row['change']:+.1f} % (counts beyond {100 * row['limit']:.1f} %)"
        )
    same = len(compared["rows"]) - len(moved)
    lines.append(f"{same} of {len(compared['rows'])} figures are the same within their noise.")
    for side, names in compared["only"].items():
        lines += [f"Only {side}: {', '.join(names)}."] if names else []
    return lines


def _place(each: Plain) -> str:
    """Name the case, workload and level."""
    level = f"n={each['n']}" if "n" in each else ""
    return ", ".join(filter(None, (each["case"], each.get("workload"), level)))


def matrix_compare(before: str, after: str, knowledge_dirs: t.Sequence[str] = ()) -> Plain:
    """Compare two logs by name; return the comparison with its lines under `table`."""
    compared = compare(load(before, knowledge_dirs), load(after, knowledge_dirs))
    return compared | {"table": table(compared)}
