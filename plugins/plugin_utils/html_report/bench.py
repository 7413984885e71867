# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A benchmark's report as one self-contained HTML page, made from the JSON report alone."""

from __future__ import annotations

import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench import report as form
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.html_report import charts, frame

Plain = t.Mapping[str, t.Any]
_PHONE, _DESK = (342.0, 220.0), (510.0, 270.0)
_CHARTS = (
    ("peak_tokens_per_s", "Speed of all requests together", "tok/s in all"),
    ("per_request_tokens_per_s", "Speed of one request among them", "tok/s of one request"),
)
_SENTENCES = {
    "good": "Every answer passed the quality guards at every number of requests at once.",
    "failed": "Requests failed, or it cannot be judged whether their answers are right.",
    "garbage": "Answers are garbage: the speed of these levels does not count.",
}


def page(report: t.Any) -> str:
    """Return the page of a report. Raises CollectionError if it is not a report of this form."""
    if not isinstance(report, t.Mapping) or report.get("format") != form.FORMAT:
        raise CollectionError(
            f"this is not a report of a benchmark of form {form.FORMAT}. Generate it again with dgxspark.cluster.bench."
        )
    with frame.reading("the report is damaged: {}. Its form is in docs/schema/bench-report.json."):
        return frame.render("bench.html.j2", _content(report), {})


def _content(report: Plain) -> dict[str, t.Any]:
    verdict, crosscheck = form.verdict(report), report["crosscheck"]
    beside = crosscheck["levels"] if crosscheck else []
    return {
        "report": report,
        "verdict": verdict,
        "heading": verdict.capitalize(),
        "sentence": _SENTENCES[verdict],
        "date": report["started"],
        "facts": _facts(report),
        "problems": form.problems(report),
        "power": form.power(report),
        "workloads": [
            {
                "name": workload["name"],
                "notes": form.notes(workload),
                "charts": _charts(workload["levels"]),
                "table": frame.filled(
                    form.columns(report), [form.row(level, form.has_energy(report)) for level in workload["levels"]]
                ),
                "signs": [
                    (level["n"], sign)
                    for level in workload["levels"]
                    for sign in level["signs"]
                    if sign["severity"] == "warning"
                ],
            }
            for workload in report["workloads"]
        ],
        "crosscheck": crosscheck,
        "beside": frame.filled(
            form.DEEP if any("depth" in each for each in beside) else form.BESIDE,
            [form.beside(each) for each in beside],
        ),
    }


def _charts(levels: t.Sequence[Plain]) -> list[Plain]:
    found: list[Plain] = []
    for figure, title, axis in _CHARTS:
        phone, desk = (charts.over_requests(levels, figure, title, axis, size) for size in (_PHONE, _DESK))
        if phone and desk:
            found.append({"title": title, "phone": frame.markup(phone), "desk": frame.markup(desk)})
    return found


def _facts(report: Plain) -> list[tuple[str, str]]:
    engine = " ".join(filter(None, (report["engine"]["name"], report["engine"]["version"])))
    facts = [("Model", report["model"]), ("Engine", engine or "unknown"), ("Mode", report["mode"])]
    facts.append(("Asked from", {"pod": "a pod of the cluster"}.get(report["from"], f"the {report['from']}")))
    if report["acceptance"]:
        facts.append(("Speculation", form.accepted(report["acceptance"])))
    return [*facts, ("Started", report["started"][11:16] + " UTC"), ("Client busy", f"{report['client_share']:.1%}")]
