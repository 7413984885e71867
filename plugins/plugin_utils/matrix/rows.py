# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a journal to knowledge: measured rows for the owner's folder, and anonymised ones to share.

n1, n4, n8 are the sum of the requests' own tokens/s, as in the shipped rows; `wall` has the tokens by wall time.
"""

from __future__ import annotations

import pathlib
import re
import statistics
import typing as t

import yaml

from ansible_collections.dgxspark.cluster.plugins.module_utils import node_files
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix.cases import Case
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix.classify import CLASSES, SITE
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import evidence_export
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.support.redact import Redactor, private_names

Plain = dict[str, t.Any]
_VERDICTS = {"good": "stable", "requests_failed": "stable", "garbage": "garbage"}


def merged_levels(runs: t.Sequence[t.Mapping[str, t.Any]], workload: str | None = None) -> dict[int, list[Plain]]:
    """Return by n the levels of each run of a case, for one workload, by default the first."""
    found: dict[int, list[Plain]] = {}
    for run in runs:
        for work in run["workloads"]:
            if work["name"] == (workload or run["workloads"][0]["name"]):
                for level in work["levels"]:
                    found.setdefault(level["n"], []).append(level)
    return found


def mean(levels: t.Sequence[t.Mapping[str, t.Any]], figure: str) -> float | None:
    """Return the mean of a figure over the runs in which the level was not garbage; None if none has it."""
    values = [v for lv in levels if lv["verdict"] != "garbage" and (v := lv["figures"].get(figure)) is not None]
    return statistics.fmean(values) if values else None


def measured_of(entry: t.Mapping[str, t.Any]) -> Plain:
    """Return the figures of a journal's case in the form of a row."""
    found: Plain = {}
    for n, levels in sorted(merged_levels(entry["runs"]).items()):
        good = [level for level in levels if level["figures"]["ok"]]
        for key, figure in ((None, "peak_tokens_per_s"), ("wall", "wall_tokens_per_s"), ("ttft_ms", "ttft_median_s")):
            # Garbage rows carry their bogus figures, as the shipped ones do.
            values = [level["figures"][figure] for level in good if level["figures"].get(figure) is not None]
            if values:
                value = round(statistics.fmean(values) * (1000 if key == "ttft_ms" else 1), 2)
                (found if key is None else found.setdefault(key, {}))[f"n{n}"] = value
        found.setdefault("requests", {})[f"n{n}"] = {
            "ok": sum(level["figures"]["ok"] for level in levels),
            "failed": sum(level["figures"]["failed"] + level["figures"]["garbage"] for level in levels),
        }
    accepted = [run["acceptance"] for run in entry["runs"] if run.get("acceptance")]
    for key, name in (("accept_len", "length"), ("accept_rate", "rate")):
        values = [each[name] for each in accepted if each.get(name) is not None]
        if values:
            found[key] = round(statistics.fmean(values), 3)
    found |= {key: value for key, value in (entry.get("memory") or {}).items() if key in ("weights_gib", "kv_gib")}
    return found


def row_of(case: Case, entry: t.Mapping[str, t.Any], matrix: str, image: str = "") -> Plain | None:
    """Return a case's row, or None if its outcome says nothing about the configuration. image: what ran instead of the plan's."""
    if entry["outcome"] in SITE:
        return None
    verdict = _VERDICTS.get(entry["outcome"], "crash")
    measured = measured_of(entry)
    answers = _answers(entry["runs"])
    unanswered = [where for where, (ok, _failed) in answers.items() if not ok]
    if verdict == "stable" and (unanswered or not any(re.fullmatch(r"n\d+", key) for key in measured)):
        verdict = "crash"  # at some level no request was answered
    partly = [
        f"{where}: {failed} of {ok + failed} requests failed"
        for where, (ok, failed) in answers.items()
        if failed and ok
    ]
    note = "" if entry["outcome"] == "good" else f"{CLASSES[entry['outcome']]}: {entry['line'] or entry['message']}"
    if verdict != "garbage":
        partly += [f"{where}: not one request was answered" for where in unanswered]
        note = "; ".join(filter(None, (note, *partly)))
    row = evidence_export(
        case.plan,
        f"{matrix}-{case.id}",
        verdict,  # type: ignore[arg-type,unused-ignore]
        measured,
        [f"own measurement, matrix {matrix}, case {entry['name']}, {entry['finished']}"],
        note,
    )
    if image:
        row["engine"]["image"] = image
    if entry.get("digest"):
        row["engine"]["digest"] = entry["digest"]
    platform = {key: str(value) for key, value in (entry.get("platform") or {}).items() if value}
    if platform:
        row["platform"] = platform
    if verdict == "stable" and partly:
        row["caveat"] = True
    row |= {"date": entry["finished"][:10], "case": entry["name"], "resolved": _resolved(case.plan)}
    knowledge.validate("evidence", row, f"row {row['id']!r}")
    return row


def _answers(runs: t.Sequence[t.Mapping[str, t.Any]]) -> dict[str, tuple[int, int]]:
    """Return how many requests were answered and not answered, by level of every workload."""
    several = len({work["name"] for run in runs for work in run["workloads"]}) > 1
    found: dict[str, tuple[int, int]] = {}
    for run in runs:
        for work in run["workloads"]:
            for level in work["levels"]:
                where = f"{work['name']}, n={level['n']}" if several else f"n={level['n']}"
                ok, failed = found.get(where, (0, 0))
                figures = level["figures"]
                found[where] = ok + figures["ok"], failed + figures["failed"] + figures["garbage"]
    return found


def _resolved(plan: t.Mapping[str, t.Any]) -> Plain:
    return {key: found["value"] for key, found in plan["resolved"].items() if found["by"] != "unknown"}


def rows_of(cases: t.Iterable[Case], done: t.Mapping[str, Plain], matrix: str, image: str = "") -> list[Plain]:
    """Return the rows of all measured cases."""
    found = (row_of(case, done[case.id], matrix, image) for case in cases if case.id in done and case.plan)
    return [row for row in found if row is not None]


def profile_of(
    matrix: str, base: t.Mapping[str, t.Any], cases: t.Iterable[Case], winners: t.Mapping[str, t.Any]
) -> Plain | None:
    """Return a profile with the winners as variants, to serve and `recommend` by shape; None if there are none.

    base: the measured profile.
    """
    by_id = {case.id: case for case in cases}
    won = {shape: by_id[best["peak"]["id"]] for shape, best in winners.items() if "peak" in best}
    if not won:
        return None
    variants: dict[str, Plain] = {}
    for case in won.values():
        under = base.get("variants", {}).get(case.overrides.get("variant"), {})
        laid = {
            key: case.overrides[key]
            for key in ("engine", "parallel", "settings", "environment")
            if key in case.overrides
        }
        made = knowledge.merged({key: value for key, value in under.items() if key not in ("title", "proven")}, laid)
        variants[_variant(case)] = {"title": case.name, "proven": "measured", **made}
    made = {
        "id": f"{base['id']}-{matrix}",
        "title": f"{base['title']}: the winners of matrix {matrix}",
        "extends": base["id"],
        "proven": "measured",
        "shapes": {shape: _variant(case) for shape, case in won.items()},
        "variants": variants,
        "source": [{"of": "variants", "from": f"Own measurement, matrix {matrix}", "verified": "measured"}],
    }
    knowledge.validate("profile", made, f"profile {made['id']!r}")
    return made


def _variant(case: Case) -> str:
    return re.sub(r"[^a-z0-9]+", "-", case.name.lower()).strip("-") or case.id


def write(path: pathlib.Path, kind: str, entry: Plain) -> None:
    """Write a file of an overlay atomically. CollectionError if it cannot be written."""
    lines = "---\n# Written by dgxspark.cluster.matrix, again after each case. Edits are lost.\n"
    text = knowledge.for_editors(lines + yaml.safe_dump(entry, sort_keys=False, allow_unicode=True, width=120), kind)
    node_files.write(str(path.absolute()), text.encode(), 0o644)


def shared(rows: t.Sequence[t.Mapping[str, t.Any]], names: t.Iterable[str]) -> list[Plain]:
    """Return the rows without private names: hosts, their addresses and whatever else is known of them, and any other address.

    CollectionError if one would remain.
    """
    redactor = Redactor([each for name in names for each in private_names(name, "host", name)], everybody=True)
    redactor.learn([yaml.safe_dump(list(map(dict, rows)), width=100000)])
    clean = [t.cast(Plain, redactor.plain(row)) for row in rows]
    still = redactor.held(yaml.safe_dump(clean, width=100000))
    if still:
        raise CollectionError(
            f"the rows to share would still contain {still[1]!r}: nothing was written. Remove it from the setting that has it."
        )
    return clean
