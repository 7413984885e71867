# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Paths that are far slower than their peers: they pass where nothing is required for the hardware, and are wrong all the same."""

from __future__ import annotations

import dataclasses
import statistics
import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.values import Result

FACTOR = 8.0  # how many times slower than the median
FEWEST = 4  # tests of a kind that make a median
_REMEDY = "Compare its ends with the others: cable, switch port, MTU, PCIe width, packets sent again, and other load."


def marked(results: t.Sequence[Result]) -> list[Result]:
    """Return the results of RDMA tests, with a warning instead of a pass for those far from the median of their kind.

    A ping-pong counts by its typical trip, where the program gives one: a single trip during which a node stood still makes the
    average of a good path look bad.
    """
    return _slow(_slow(list(results), "write", ("gbps",), "Gb/s"), "pingpong", ("usec_typical", "usec"), "us")


def _slow(results: list[Result], kind: str, figures: t.Sequence[str], unit: str) -> list[Result]:
    here = {
        at: next(result.figures[figure] for figure in figures if figure in result.figures)
        for at, result in enumerate(results)
        if result.status == "pass"
        and result.subject.endswith(f" {kind}")
        and not result.figures.keys().isdisjoint(figures)
    }
    if len(here) < FEWEST:
        return results
    usual = statistics.median(here.values())
    for at, value in here.items():
        if value * FACTOR < usual if kind == "write" else value > usual * FACTOR:
            message = (
                f"{results[at].subject}: {value:g} {unit}, where the others have {usual:g} (median of {len(here)})."
            )
            results[at] = dataclasses.replace(
                results[at], status="warn", message=message, cause="rdma.outlier", remedy=_REMEDY
            )
    return results
