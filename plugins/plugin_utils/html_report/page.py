# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report as one self-contained HTML page: what passed, what failed and why, what was not run, and figures.

It is made from the JSON report alone, so that older reports can be viewed too.
"""

from __future__ import annotations

import datetime
import typing as t
from collections import Counter

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.html_report import frame
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.html_report.picture import gid_words, picture
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.html_report.plot import (
    band_name,
    band_range,
    groups,
    plot,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.report import SCHEMA

Plain = t.Mapping[str, t.Any]

MARKS = {
    "pass": "\u2713",
    "warn": "!",
    "fail": "\u2715",
    "unknown": "?",
    "not run": "\u2013",
    "not applicable": "\u2013",
}
WORDS = {"pass": "passed", "warn": "warning", "fail": "failed"}
_TOLD = 3  # reasons of a step shown without unfolding
_PHONE, _DESK = (342.0, 230.0), (560.0, 300.0)  # sizes of the plot, in CSS pixels


def page(report: t.Any) -> str:
    """Return the page of a report. Raises CollectionError if it is not a report of this version."""
    if not isinstance(report, t.Mapping) or report.get("schema") != SCHEMA:
        form = report.get("schema") if isinstance(report, t.Mapping) else type(report).__name__
        raise CollectionError(
            f"this is not a report of the form {SCHEMA}, but {form!r}. Generate it again with dgxspark.cluster.verify."
        )
    filters: dict[str, t.Callable[..., t.Any]] = {
        "mark": MARKS.__getitem__,
        "word": lambda status: WORDS.get(status, status),
        "gist": gist,
        "state": state,
    }
    with frame.reading("the report is damaged: {}. Its form is in docs/schema/fabric-report.json."):
        return frame.render("page.html.j2", _content(report), filters)


def state(step: Plain) -> str:
    """Return a step's status, with a word of its own for a step that was run in part."""
    partly = step["status"] == "not run" and any(result["status"] in ("pass", "warn") for result in step["results"])
    return "partly run" if partly else str(step["status"])


def gist(step: Plain) -> str:
    """Return a step's summary, or the reason if it was not run at all."""
    reasons = dict.fromkeys(r["message"].rstrip(".") for r in step["results"] if r["status"] == "not run")
    if len(reasons) == 1 and all(result["status"] == "not run" for result in step["results"]):
        return str(next(iter(reasons)))
    return str(step["summary"])


def _content(report: Plain) -> dict[str, t.Any]:
    verdict, _colon, sentence = report["headline"].partition(": ")
    return {
        "report": report,
        "heading": verdict.capitalize(),
        "date": report["started"],
        "sentence": sentence,
        "facts": _facts(report),
        "plots": [
            {
                "phone": frame.markup(plot(bands, curves, *_PHONE)),
                "desk": frame.markup(plot(bands, curves, *_DESK)),
                "operations": ", ".join(
                    dict.fromkeys(b["operation"] for b in report["bands"] if bands and b["id"] == bands["id"])
                )
                or ", ".join(dict.fromkeys(curve["operation"] for curve in curves)),
                "curves": curves,
                "bands": [
                    {**band, "name": band_name(band), "range": band_range(band)}
                    for band in (bands or {}).get("bands", ())
                ],
                "source": (bands or {}).get("source", ()),
            }
            for bands, curves in groups(report)
        ],
        "fabric": frame.markup(picture(report)) if any(host["functions"] for host in report["hosts"]) else None,
        "matrices": matrices(report),
        "open": open_reasons(report),
        "gid_words": gid_words,
        "hosts_differ": _hosts_differ(report["hosts"]),
    }


def _facts(report: Plain) -> list[tuple[str, str]]:
    hosts = report["hosts"]
    seen = sum(host["status"] == "seen" for host in hosts)
    facts = [("Mode", report["mode"] or "\u2013"), ("Topology", report["topology"])]
    facts += [("Hosts", f"{seen} of {len(hosts)} seen"), ("Hardware", str(report["thresholds"]["id"]))]
    if report["started"]:
        facts.append(("Started", report["started"][11:16] + " UTC"))
    if report["started"] and report["finished"]:
        took = _time(report["finished"]) - _time(report["started"])
        facts.append(("Took", _took(int(took.total_seconds()))))
    return facts


def _time(words: str) -> datetime.datetime:
    return datetime.datetime.strptime(words, "%Y-%m-%dT%H:%M:%SZ")


def _took(seconds: int) -> str:
    return f"{seconds} s" if seconds < 120 else f"{seconds // 60} min {seconds % 60} s"


def open_reasons(report: Plain) -> list[dict[str, t.Any]]:
    """Return what was not run or proves nothing: each reason once, with its steps and its count; required results come first.

    `rest` is false for the first few reasons of a step; the page hides the others at first.
    """
    counted: Counter[tuple[bool, str, str, str]] = Counter()
    for step in report["steps"]:
        if not step["results"]:
            counted[False, step["id"], "not applicable", "nothing to show here."] += 1
        for result in step["results"]:
            if result["status"] in ("not run", "unknown"):
                needed = step["required"] and result["required"]
                counted[needed, step["id"], result["status"], result["message"]] += 1
    order = {step["id"]: number for number, step in enumerate(report["steps"])}
    found = sorted(counted.items(), key=lambda item: (not item[0][0], order[item[0][1]], -item[1]))
    told: Counter[str] = Counter()
    reasons: dict[tuple[bool, str, str], dict[str, t.Any]] = {}
    for (needed, step, status, message), count in found:
        key = needed, status, message
        if key not in reasons:
            told[step] += 1
            reasons[key] = {"needed": needed, "steps": [], "status": status, "message": message, "count": 0}
            reasons[key]["rest"] = told[step] > _TOLD
        reasons[key]["steps"].append(step)
        reasons[key]["count"] += count
    return list(reasons.values())


def matrices(report: Plain) -> list[dict[str, t.Any]]:
    """Return RDMA write speeds between hosts: one matrix for each function, with the minimum over a pair's VFs.

    A cell is None if nothing was run, else its Gb/s, whether it failed, and its share of the fastest.
    """
    names = [host["name"] for host in report["hosts"] if host["functions"]]
    cells: dict[str, dict[tuple[str, str], tuple[float | None, bool]]] = {}
    rdma = next((step for step in report["steps"] if step["id"] == "rdma"), None)
    for result in rdma["results"] if rdma else ():
        if (
            len(result["ends"]) != 2
            or result["status"] not in ("pass", "fail")
            or not result["subject"].endswith("write")
        ):
            continue
        a, b = result["ends"]
        old, failed = cells.setdefault(a["slot"][2:], {}).get((a["host"], b["host"]), (None, False))
        gbps = result["figures"].get("gbps")
        least = gbps if old is None else old if gbps is None else min(old, gbps)
        cells[a["slot"][2:]][a["host"], b["host"]] = least, failed or result["status"] == "fail"
    found = []
    for function, values in sorted(cells.items()):
        fastest = max((gbps for gbps, _failed in values.values() if gbps), default=0.0)
        rows = [
            (name, [_cell(values.get((name, other)), fastest) if name != other else "" for other in names])
            for name in names
        ]
        found.append({"function": function, "names": names, "rows": rows})
    return found


def _cell(value: tuple[float | None, bool] | None, fastest: float) -> dict[str, t.Any] | None:
    if value is None:
        return None
    gbps, failed = value
    text = "\u2715" if gbps is None else f"{gbps:.0f}" if gbps >= 10 else f"{gbps:.2g}"
    return {"text": text, "failed": failed, "share": round(100 * (gbps or 0) / fastest) if fastest else 0}


def _hosts_differ(hosts: t.Sequence[Plain]) -> list[str]:
    """Return what differs between the hosts that were seen."""
    seen = [host for host in hosts if host["status"] == "seen"]
    keys = ("kernel", "drivers", "firmware")
    return [key for key in keys if len({str(host[key]) for host in seen}) > 1]
