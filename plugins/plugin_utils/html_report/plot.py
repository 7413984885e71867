# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plot of bandwidth over message size, against the bands that judge it."""

from __future__ import annotations

import math
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.html_report import svg
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.significant import significant
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.bands import bytes_text

Plain = t.Mapping[str, t.Any]

_LEFT, _RIGHT, _TOP, _BOTTOM = 30.0, 8.0, 10.0, 34.0
_SIZES = (13, 32)  # 8 KiB to 4 GiB, as powers of two
_MOST = 25.0  # GB/s; a port of 200 Gb/s
_LABEL = 11.0  # minimum height of a band with a label


@dataclass(frozen=True, slots=True)
class _Frame:
    width: float
    height: float
    low: int
    high: int
    most: float

    def x(self, size: float) -> float:
        share = (math.log2(size) - self.low) / (self.high - self.low)
        return _LEFT + share * (self.width - _LEFT - _RIGHT)

    def y(self, busbw: float) -> float:
        return self.height - _BOTTOM - busbw / self.most * (self.height - _TOP - _BOTTOM)


def groups(report: Plain) -> list[tuple[Plain | None, list[Plain]]]:
    """Return what shares a plot: operations judged by the same bands, with their curves."""
    by_bands: dict[str, tuple[Plain | None, list[Plain]]] = {}
    of_operation = {bands["operation"]: bands for bands in report["bands"]}
    for bands in report["bands"]:
        by_bands.setdefault(bands["id"], (bands, []))
    for curve in report["bandwidth"]:
        bands = of_operation.get(curve["operation"])
        by_bands.setdefault(bands["id"] if bands else "", (bands, []))[1].append(curve)
    return list(by_bands.values())


def plot(bands: Plain | None, curves: t.Sequence[Plain], width: float, height: float) -> str:
    """Return the SVG of one plot; without curves, it shows the bands and says that nothing was run."""
    points = [point for curve in curves for point in curve["points"]]
    frame = _Frame(
        width,
        height,
        min([_SIZES[0], *(math.floor(math.log2(point["bytes"])) for point in points)]),
        max([_SIZES[1], *(math.ceil(math.log2(point["bytes"])) for point in points)]),
        max([_MOST, *(5 * math.ceil(point["busbw"] * 1.05 / 5) for point in points)]),
    )
    root = svg.picture(width, height, "NCCL bus bandwidth in GB/s over message size")
    if bands:
        _bands(root, frame, bands)
    _axes(root, frame)
    for position, curve in enumerate(curves):
        _curve(root, frame, curve, position)
    if not points:
        middle = (frame.x(2**frame.low) + frame.x(2**frame.high)) / 2
        svg.text(root, middle, frame.y(frame.most * 0.28), "not run", "empty", text_anchor="middle")
    return svg.markup(root)


def _bands(root: svg.Element, frame: _Frame, bands: Plain) -> None:
    begin, left, right = frame.x(bands["min_bytes"]), frame.x(2**frame.low), frame.x(2**frame.high)
    for band in bands["bands"]:
        top = frame.y(min(frame.most, band["to"] if band["to"] is not None else frame.most))
        bottom = frame.y(band["from"])
        cls = f"band {band['verdict']}"
        # Faint where the bands do not apply yet, as a visual guide.
        svg.add(root, "rect", f"{cls} faint", x=left, y=top, width=begin - left, height=bottom - top)
        box = svg.add(root, "rect", cls, x=begin, y=top, width=right - begin, height=bottom - top)
        svg.hint(box, f"{band_range(band)}: {band['message']}")
        if bottom - top >= _LABEL:
            svg.text(root, left + 5, (top + bottom) / 2 + 3.5, band_name(band), f"name {band['verdict']}")
    svg.add(root, "line", "edge", x1=begin, x2=begin, y1=frame.y(frame.most), y2=frame.y(0))
    svg.text(root, begin - 4, frame.y(frame.most) + 10, "judged from here", "note", text_anchor="end")


def band_name(band: Plain) -> str:
    """Return a band's short label."""
    return band["cause"].removeprefix("nccl.").replace("-", " ") if band["cause"] else "as expected"


def band_range(band: Plain) -> str:
    """Format a band's range."""
    return f"{band['from']:g} GB/s and more" if band["to"] is None else f"{band['from']:g} to {band['to']:g} GB/s"


def _axes(root: svg.Element, frame: _Frame) -> None:
    left, right, floor = frame.x(2**frame.low), frame.x(2**frame.high), frame.y(0)
    for value in range(0, int(frame.most) + 1, 5):
        svg.level(root, left, right, frame.y(value), str(value))
    # Enough octaves between ticks that their labels do not touch.
    step = math.ceil(46 / ((right - left) / (frame.high - frame.low)))
    for power in range(frame.low, frame.high + 1, step):
        x = frame.x(2**power)
        svg.tick(root, x, floor, _short(2**power), "start" if x - left < 1 else "middle")
    svg.text(root, right, floor + 29, "message size in bytes", "note", text_anchor="end")
    svg.text(root, left, floor + 29, "up: bus bandwidth in GB/s", "note")


def _short(size: int) -> str:
    return bytes_text(size).replace("iB", "").replace(" ", "\u2009")


def _curve(root: svg.Element, frame: _Frame, curve: Plain, position: int) -> None:
    places = [(frame.x(point["bytes"]), frame.y(point["busbw"]), point) for point in curve["points"]]
    kind = f"series{position % 4}" + (" dashed" if curve["step"] == "pod" else "")
    line = " ".join(f"{svg.number(x)},{svg.number(y)}" for x, y, _point in places)
    svg.add(root, "polyline", f"curve {kind}", points=line)
    for x, y, point in places:
        dot = svg.add(root, "circle", f"dot {kind}", cx=x, cy=y, r=2.6)
        svg.hint(dot, f"{curve['operation']} {bytes_text(point['bytes'])}: {significant(point['busbw'], 4)} GB/s")
