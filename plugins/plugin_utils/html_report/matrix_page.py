# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A matrix's results as one self-contained HTML page: a table for each traffic shape, and charts."""

from __future__ import annotations

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.html_report import charts, frame
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix import compare, report
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix.results import SHAPE_NAMES, merit, ranked

Plain = t.Mapping[str, t.Any]
_PHONE, _DESK = (342.0, 240.0), (510.0, 290.0)
_SHOWN = 4  # highlighted cases, one per colour
_POOLS = ("weights", "state of hybrid layers", "cache", "drafter", "graphs", "activations")


def of_log(name: str, knowledge_dirs: t.Sequence[str] = ()) -> str:
    """Return the page of a log: a journal (its folder or file), or a shipped matrix by its id."""
    return page(compare.load(name, knowledge_dirs))


def page(made: t.Any) -> str:
    """Return the page of a matrix's results (`results.of_journal`, `results.of_rows`). Raises CollectionError for anything else."""
    with frame.reading("this is not a matrix's result, or it is damaged: {!r}."):
        cases = made["cases"]
        best = standing_out(cases)
        failed = [case for case in cases if case["outcome"] not in ("good", "open", "requests_failed")]

        def first_token(case: Plain) -> float | None:
            level = case["levels"].get(made["levels"][0]) if made["levels"] else None
            return level.get("ttft_s") if level else None

        content = {
            "results": made,
            "heading": made["title"],
            "sentence": f"{report.counted(made)}.",
            "date": made["finished"],
            "facts": _facts(made),
            "winners": report.winner_lines(made),
            "orders": _orders(made),
            "workload": next((case["workload"] for case in cases if case["workload"]), ""),
            "others": report.workloads_after(cases),
            "failed": [case for case in failed if _has_evidence(case)],
            "without_line": {
                outcome: [case["name"] for case in failed if case["outcome"] == outcome and not _has_evidence(case)]
                for outcome in dict.fromkeys(case["outcome"] for case in failed if not _has_evidence(case))
            },
            "words": report.WORDS,
            "cell": report.cell,
            "first_token": first_token,
            "has_ttft": any(first_token(case) is not None for case in cases),
            "has_failed": any(level["verdict"] == "failed" for case in cases for level in case["levels"].values()),
            "has_accept": any(case["accept_len"] is not None for case in cases),
            "figure": report.figure,
            "best": [next(case for case in cases if case["id"] == name) for name in best],
            "charts": _charts(cases, best),
            "pools": [
                (place, pool) for place, pool in enumerate(_POOLS) if any(charts.pool(case, place) for case in cases)
            ],
            "stroke": any(charts.measured(case) for case in cases),
        }
        return frame.render("matrix.html.j2", content, {})


def _has_evidence(case: Plain) -> bool:
    return bool(case["line"] or case["message"] or case["cause"])


def standing_out(cases: t.Sequence[Plain]) -> list[str]:
    """Return the ids of the highlighted cases: the winners, then the best of each shape in turn."""
    orders = [
        [case for case in ranked(t.cast(t.Any, cases), shape, "peak") if merit(case, shape, "peak")]
        for shape in SHAPE_NAMES
    ]
    found = [order[place]["id"] for place in range(len(cases)) for order in orders if place < len(order)]
    return list(dict.fromkeys(found))[:_SHOWN]


def _facts(made: Plain) -> list[tuple[str, str]]:
    engine, platform = made["engine"], made["platform"]
    facts = [("Model", made["model"]), ("Engine", f"{engine.get('name', '')} {engine.get('version', '')}".strip())]
    facts += [
        (name, str(platform[key]))
        for name, key in (("Driver", "driver"), ("Kernel", "kernel"), ("NCCL", "nccl"))
        if platform.get(key)
    ]
    facts += [("Image", engine["image"])] if engine.get("image") else []
    facts.append(("Cases", str(len(made["cases"]))))
    if made["noise"] is not None:
        facts.append(("Noise of repeats", f"{100 * made['noise']:.1f} %"))
    return facts


def _orders(made: Plain) -> list[Plain]:
    """Return the table's sort orders: by each measured shape, and as listed."""
    shapes = [shape for shape in reversed(SHAPE_NAMES) if shape in made["winners"]]
    orders: list[Plain] = [
        {"id": shape, "title": f"{shape}: {report.SHAPE_WORDS[shape]}", "cases": ranked(made["cases"], shape, "peak")}
        for shape in shapes
    ]
    return [*orders, {"id": "listed", "title": "as listed", "cases": made["cases"]}]


def _charts(cases: t.Sequence[Plain], best: t.Sequence[str]) -> list[Plain]:
    drawn: list[tuple[str, str, t.Callable[[tuple[float, float]], str | None]]] = [
        ("speed", "Speed over concurrency", lambda size: charts.speed(cases, best, size)),
        ("pareto", "One user against all", lambda size: charts.pareto(cases, best, size)),
        ("acceptance", "Acceptance over draft depth", lambda size: charts.acceptance(cases, best, size)),
        ("memory", "Memory against its plan", lambda size: charts.memory(cases, size[0])),
    ]
    found: list[Plain] = []
    for name, title, draw in drawn:
        phone, desk = draw(_PHONE), draw(_DESK)
        if phone and desk:
            found.append({"id": name, "title": title, "phone": frame.markup(phone), "desk": frame.markup(desk)})
    return found
