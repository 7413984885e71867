# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NCCL's bandwidth by message size, from the times that roles/nccl/files/nccl_bench.py prints.

Algorithm bandwidth is size over time. Bus bandwidth scales it by what the operation must move, so that it compares with
the wire: × 2(n−1)/n for all_reduce, × (n−1)/n for all_gather (nccl-tests, doc/PERFORMANCE.md). GB are 10⁹ bytes.
"""

from __future__ import annotations

import statistics
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import from_json
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError

SMALL = 64 * 1024  # bytes; up to this size, time is latency
_FACTOR: dict[str, t.Callable[[int], float]] = {
    "all_reduce": lambda ranks: 2 * (ranks - 1) / ranks,
    "all_gather": lambda ranks: (ranks - 1) / ranks,
}
_ROW = "NCCL_BENCH {"
_END = "NCCL_BENCH_END {"


@dataclass(frozen=True, slots=True)
class Measured:
    """One operation at one size: time in µs (median and range of the rounds), bandwidths in GB/s."""

    operation: str
    bytes: int
    ranks: int
    time_us: float
    fastest_us: float
    slowest_us: float
    algbw: float
    busbw: float


@dataclass(frozen=True, slots=True)
class Summary:
    """One operation over all sizes. ratio: bus bandwidth at the smallest size of at least 1 MiB, over the peak."""

    operation: str
    latency_us: float | None
    peak_busbw: float
    peak_bytes: int
    large_busbw: float | None
    ratio: float | None


def measured(operation: str, size: int, ranks: int, rounds_us: t.Sequence[float]) -> Measured:
    """Compute the bandwidths of one size. CollectionError if the operation or the times make no sense."""
    if operation not in _FACTOR:
        raise CollectionError(f"operation: {operation!r} is not one of {', '.join(_FACTOR)}.")
    if ranks < 2 or size <= 0 or not rounds_us or min(rounds_us) <= 0:
        raise CollectionError(
            f"{operation} of {size} bytes on {ranks} ranks in {list(rounds_us)} µs: at least two ranks, and sizes and "
            "times above zero are needed."
        )
    middle = statistics.median(rounds_us)
    algbw = size / middle / 1000
    busbw = algbw * _FACTOR[operation](ranks)
    return Measured(operation, size, ranks, middle, min(rounds_us), max(rounds_us), algbw, busbw)


def parse(text: str) -> tuple[list[Measured], dict[str, t.Any] | None]:
    """Return a log's rows and its last line, or None for the latter if the run did not finish."""
    rows = []
    end = None
    for line in text.splitlines():
        for mark in (_ROW, _END):
            place = line.find(mark)
            if place < 0:
                continue
            try:
                data = from_json(line[place + len(mark) - 1 :])
                if mark == _END:
                    end = dict(data)
                else:
                    rows.append(measured(data["operation"], data["bytes"], data["ranks"], data["rounds_us"]))
            except (ValueError, KeyError, TypeError) as exc:
                raise CollectionError(f"A line of the NCCL benchmark cannot be read ({exc}): {line[:200]}") from exc
    return rows, end


def summaries(rows: t.Sequence[Measured], small: int = SMALL, large: int = 1024**3) -> list[Summary]:
    """Summarise each operation: latency at small sizes, peak, bus bandwidth from `large` bytes on, and ratio."""
    made = []
    for operation in dict.fromkeys(row.operation for row in rows):
        own = sorted((row for row in rows if row.operation == operation), key=lambda row: row.bytes)
        peak = max(own, key=lambda row: row.busbw)
        little = [row.time_us for row in own if row.bytes <= small]
        middle = next((row for row in own if row.bytes >= 1024**2), None)
        big = [row.busbw for row in own if row.bytes >= large]
        made.append(
            Summary(
                operation,
                statistics.median(little) if little else None,
                peak.busbw,
                peak.bytes,
                max(big) if big else None,
                middle.busbw / peak.busbw if middle and peak.busbw else None,
            )
        )
    return made


def table(rows: t.Sequence[Measured]) -> str:
    """Return the rows as text, one line each, below a header."""
    lines = [f"{'operation':<11} {'bytes':>11} {'time µs':>11} {'algbw GB/s':>11} {'busbw GB/s':>11} {'spread':>7}"]
    for row in rows:
        spread = (row.slowest_us - row.fastest_us) / row.time_us
        lines.append(
            f"{row.operation:<11} {row.bytes:>11} {row.time_us:>11.1f} {row.algbw:>11.3f} {row.busbw:>11.3f} {spread:>7.1%}"
        )
    return "\n".join(lines)
