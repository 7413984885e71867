# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Charts: of a matrix, speed over concurrency, of a user against all, acceptance over depth, memory; of a benchmark, a figure over concurrency."""

from __future__ import annotations

import math
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.html_report import svg

Plain = t.Mapping[str, t.Any]
_LEFT, _RIGHT, _TOP, _BOTTOM = 38.0, 12.0, 24.0, 36.0
_STACK = ("weights_gib", "mamba_gib", "kv_gib", "draft_gib", "graphs_gib", "activations_gib")
_ROW = 26.0


@dataclass(frozen=True, slots=True)
class Point:
    """A mark. series: number of a highlighted case, else None; hint: its tooltip."""

    x: float
    y: float
    hint: str
    series: int | None = None


def ticks(most: float, count: int = 5) -> list[float]:
    """Return round numbers from 0 to at least `most`."""
    if most <= 0:
        return [0.0, 1.0]
    raw = most / count
    unit = 10 ** math.floor(math.log10(raw))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= raw)
    return [step * number for number in range(math.ceil(most / step) + 1)]


class Frame:
    """A chart's axes. steps: the values of an x axis that is not a scale, equally spaced."""

    def __init__(
        self,
        size: tuple[float, float],
        title: str,
        axes: tuple[str, str],
        most: tuple[float, float],
        steps: t.Sequence[float] = (),
    ) -> None:
        """Draw the axes."""
        self.width, self.height = size
        self.steps = list(steps)
        self.xs, self.ys = ticks(most[0]), ticks(most[1])
        self.root = svg.picture(*size, title)
        left, right, floor = _LEFT, self.width - _RIGHT, self.height - _BOTTOM
        for value in self.ys:
            svg.level(self.root, left, right, self.y(value), f"{value:g}")
        for value in self.steps or self.xs:
            svg.tick(self.root, self.x(value), floor, f"{value:g}")
        svg.text(self.root, right, floor + 30, axes[0], "note", text_anchor="end")
        svg.text(self.root, left, _TOP - 11, axes[1], "note")

    def x(self, value: float) -> float:
        """Return a value's x coordinate."""
        inner = self.width - _LEFT - _RIGHT
        if self.steps:
            return _LEFT + inner * (self.steps.index(value) + 0.5) / len(self.steps)
        return _LEFT + inner * value / self.xs[-1]

    def y(self, value: float) -> float:
        """Return a value's y coordinate."""
        return self.height - _BOTTOM - value / self.ys[-1] * (self.height - _TOP - _BOTTOM)

    def line(self, points: t.Sequence[Point], cls: str) -> None:
        """Connect points with a line."""
        joined = " ".join(f"{svg.number(self.x(p.x))},{svg.number(self.y(p.y))}" for p in points)
        svg.add(self.root, "polyline", f"curve {cls}", points=joined)

    def dots(self, points: t.Iterable[Point], radius: float = 3.2) -> None:
        """Mark points; highlighted ones come last, so that nothing covers them."""
        for point in sorted(points, key=lambda p: p.series is not None):
            cls = "dot other" if point.series is None else f"dot series{point.series}"
            svg.hint(svg.add(self.root, "circle", cls, cx=self.x(point.x), cy=self.y(point.y), r=radius), point.hint)


def _good(case: Plain) -> list[tuple[int, Plain]]:
    return [(n, level) for n, level in sorted(case["levels"].items()) if level["verdict"] == "good" and level["peak"]]


def _series(case: Plain, best: t.Sequence[str]) -> int | None:
    return best.index(case["id"]) if case["id"] in best else None


def speed(cases: t.Sequence[Plain], best: t.Sequence[str], size: tuple[float, float]) -> str:
    """Return total tokens/s over the number of concurrent requests, one line for each case that passed."""
    shown = [case for case in cases if case["outcome"] in ("good", "requests_failed") and _good(case)]
    levels = sorted({n for case in shown for n, _level in _good(case)})
    most = max((level["peak"] for case in shown for _n, level in _good(case)), default=0.0)
    frame = Frame(
        size, "Tokens per second over requests at once", ("requests at once", "tok/s in all"), (1, most), levels or [1]
    )
    for case in sorted(shown, key=lambda case: case["id"] in best):
        number = _series(case, best)
        points = [
            Point(n, level["peak"], f"{case['name']}, n={n}: {level['peak']:.1f} tok/s", number)
            for n, level in _good(case)
        ]
        frame.line(points, "other" if number is None else f"series{number}")
        frame.dots(points, 2.2 if number is None else 3.2)
    return svg.markup(frame.root)


def over_requests(
    levels: t.Sequence[Plain], figure: str, title: str, axis: str, size: tuple[float, float]
) -> str | None:
    """Return a figure of a benchmark over the number of concurrent requests; None with fewer than two numbers to compare.

    Levels whose answers are not good are marked beside the line.
    """
    known = [(each, each["figures"][figure]) for each in levels if each["figures"][figure] is not None]
    if len(known) < 2:
        return None
    steps = sorted({each["n"] for each, _value in known})
    frame = Frame(size, title, ("requests at once", axis), (1, max(value for _each, value in known)), steps)
    points = [
        Point(
            each["n"],
            value,
            f"n={each['n']}: {value:.1f} tok/s, {each['verdict']}",
            0 if each["verdict"] == "good" else None,
        )
        for each, value in known
    ]
    frame.line(sorted((point for point in points if point.series == 0), key=lambda point: point.x), "series0")
    frame.dots(points)
    return svg.markup(frame.root)


def pareto(cases: t.Sequence[Plain], best: t.Sequence[str], size: tuple[float, float]) -> str:
    """Return total tokens/s against tokens/s of one user, with the frontier that no measurement exceeds."""
    points = [
        Point(
            level["peak"] / n,
            level["peak"],
            f"{case['name']}, n={n}: {level['peak'] / n:.1f} tok/s each, {level['peak']:.1f} in all",
            _series(case, best),
        )
        for case in cases
        if case["outcome"] in ("good", "requests_failed")
        for n, level in _good(case)
    ]
    most = max((p.x for p in points), default=0.0), max((p.y for p in points), default=0.0)
    frame = Frame(size, "Tokens per second of one user against all", ("tok/s of one user", "tok/s in all"), most)
    frame.line(frontier(points), "frontier")
    frame.dots(points)
    return svg.markup(frame.root)


def frontier(points: t.Iterable[Point]) -> list[Point]:
    """Return the points that no other beats in both directions, sorted by x."""
    found: list[Point] = []
    for point in sorted(points, key=lambda p: (-p.x, -p.y)):
        if not found or point.y > found[-1].y:
            found.append(point)
    return found[::-1]


def acceptance(cases: t.Sequence[Plain], best: t.Sequence[str], size: tuple[float, float]) -> str | None:
    """Return accepted tokens per step over the draft depth; None if it was not measured."""
    known = [case for case in cases if case["depth"] and case["accept_len"]]
    if not known:
        return None
    points = [
        Point(
            case["depth"],
            case["accept_len"],
            f"{case['name']}: {case['accept_len']:.2f} of {case['depth']}",
            _series(case, best),
        )
        for case in known
    ]
    depths = sorted({point.x for point in points})
    most = max(point.y for point in points)
    frame = Frame(
        size, "Tokens per verified step over draft tokens", ("draft tokens", "tokens a step"), (1, most), depths
    )
    means = [Point(x, sum(p.y for p in points if p.x == x) / sum(p.x == x for p in points), "") for x in depths]
    frame.line(means, "other")
    frame.dots(points)
    return svg.markup(frame.root)


def memory(cases: t.Sequence[Plain], width: float) -> str | None:
    """Return a rank's planned memory by case, with a mark where weights or cache were measured."""
    known = [case for case in cases if any(case["memory"].values())][:16]
    if not known:
        return None
    most = max(_planned(case) for case in known)
    most = max(most, *(sum(measured(case).values()) for case in known), 1.0)
    scale = ticks(most)
    root = svg.picture(width, _ROW * len(known) + _BOTTOM, "Planned and measured memory of a rank in GiB")
    floor = _ROW * len(known)

    def x(value: float) -> float:
        return 6 + (width - 18) * value / scale[-1]

    for value in scale:
        svg.add(root, "line", "grid", x1=x(value), x2=x(value), y1=0, y2=floor)
        svg.text(root, x(value), floor + 14, f"{value:g}", "tick", text_anchor="middle")
    svg.text(root, width - 12, floor + 30, "GiB of one rank", "note", text_anchor="end")
    for number, case in enumerate(known):
        top, begin = _ROW * number, 0.0
        svg.text(root, 8, top + 10, case["name"], "tick")
        for place, key in enumerate(_STACK):
            if size := pool(case, place):
                box = svg.add(
                    root,
                    "rect",
                    f"pool pool{place}",
                    x=x(begin),
                    y=top + 13,
                    width=x(begin + size) - x(begin),
                    height=8,
                )
                svg.hint(box, f"{case['name']}: {key.removesuffix('_gib')} {size:.1f} GiB planned")
                begin += size
        begin = 0.0
        for key, size in measured(case).items():
            begin += size
            mark = svg.add(root, "line", "seen", x1=x(begin), x2=x(begin), y1=top + 11, y2=top + 23)
            svg.hint(mark, f"{case['name']}: {key.removesuffix('_gib')} {size:.1f} GiB measured")
    return svg.markup(root)


def _planned(case: Plain) -> float:
    return sum(pool(case, place) for place in range(len(_STACK)))


def pool(case: Plain, place: int) -> float:
    """Return the GiB that a case's plan reserves for a pool, by its place in the stack."""
    return float(case["memory"]["plan"].get(_STACK[place]) or 0.0)


def measured(case: Plain) -> dict[str, float]:
    """Return the measured GiB of weights and cache."""
    seen = case["memory"]["measured"]
    return {key: seen[key] for key in ("weights_gib", "kv_gib") if seen.get(key)}
