# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report of a benchmark: its plain form, which docs/schema/bench-report.json fixes, and its lines for a terminal. Pure."""

from __future__ import annotations

import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import to_plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.figures import Record
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.measure import Result

FORMAT = 1
Plain = dict[str, t.Any]


def level(result: Result) -> Plain:
    """Return a level's plain form."""
    figures = to_plain(result.level)
    causes = figures.pop("causes")
    n = figures.pop("n")
    return {
        "n": n,
        "verdict": result.verdict,
        "message": result.message,
        "figures": figures | {"not_asked": result.not_asked},
        "causes": causes,
        "client_share": result.client_share,
        "signs": to_plain(result.signs),
        "requests": [
            _request(record, to_plain(each)) for record, each in zip(result.records, result.requests, strict=True)
        ],
    }


def _request(record: Record, figures: Plain) -> Plain:
    known = ("index", "question", "status", "finish_reason", "cause", "guard", "message")
    return {name: getattr(record, name) for name in known} | {"figures": figures}


def verdict(report: t.Mapping[str, t.Any]) -> str:
    """Return the worst verdict of all levels: garbage, else failed, else good."""
    found = {each["verdict"] for workload in report["workloads"] for each in workload["levels"]}
    return next((name for name in ("garbage", "failed") if name in found), "good")


def problems(report: t.Mapping[str, t.Any]) -> list[str]:
    """Return what is wrong with each level that is not good."""
    return [
        f"{workload['name']}: {each['message']}"
        for workload in report["workloads"]
        for each in workload["levels"]
        if each["verdict"] != "good"
    ]
