# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The picture of the fabric: hosts with their functions and VFs, and the segments (switch or cables) that join them.

Hosts are stacked vertically, each segment is a rail beside them, and each function is tied to its rail, so any topology fits
a phone, and a missing cable is visible. A VF is a small box with its valid GID index.
"""

from __future__ import annotations

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.html_report import svg

Plain = t.Mapping[str, t.Any]

_WIDTH = 342.0
_BOX = 244.0  # width of a host
_CHIP, _CHIP_HEIGHT = 33.0, 16.0
_PER_LINE = 6
_HEAD, _FUNCTION = 24.0, 17.0
_NAME = 20  # characters of a host's name, leaving room for its status


def picture(report: Plain) -> str:
    """Return the SVG of the fabric, from the report's hosts and failed results. A function may be on no segment."""
    hosts = report["hosts"]
    segments = list(dict.fromkeys(f["segment"] for host in hosts for f in host["functions"] if f["segment"]))
    bad = failing(report)
    top = 14.0 if len(segments) <= 1 else 2.0
    height = top + sum(_height(host) + 10 for host in hosts)
    root = svg.picture(_WIDTH, height, f"The fabric: {len(hosts)} hosts, topology {report['topology']}")
    rails = _rails(segments)
    ties: dict[str, list[float]] = {segment: [] for segment in segments}
    drawn = svg.add(root, "g")
    y = top
    for host in hosts:
        _host(drawn, host, y, rails, ties, bad)
        y += _height(host) + 10
    for segment, x in rails.items():
        heights = ties[segment]
        if not heights:
            continue
        begin = min(heights) if len(heights) > 1 else heights[0]
        rail = svg.add(root, "line", "rail", x1=x, x2=x, y1=begin, y2=max(heights))
        svg.hint(rail, segment)
        if len(segments) == 1:
            svg.text(root, x + 4, top - 4, segment, "note", text_anchor="end")
        else:
            # Along the rail, below its first tie.
            along = f"translate({svg.number(x - 5)} {svg.number(begin + 5)}) rotate(90)"
            svg.text(root, 0, 0, segment, "along", transform=along)
    return svg.markup(root)


def failing(report: Plain) -> frozenset[tuple[str, str | None, int | None]]:
    """Return the places with a failure that is theirs alone."""
    return frozenset(
        (end["host"], end["slot"], end["vf"])
        for step in report["steps"]
        for result in step["results"]
        if result["status"] == "fail" and len(result["ends"]) == 1
        for end in result["ends"]
    )


def _rails(segments: t.Sequence[str]) -> dict[str, float]:
    room = _WIDTH - _BOX - 20
    space = min(26.0, room / max(1, len(segments)))
    return {segment: _BOX + 26 + number * space for number, segment in enumerate(segments)}


def _lines(function: Plain) -> int:
    return -(-len(function["vfs"]) // _PER_LINE)


def _height(host: Plain) -> float:
    if not host["functions"]:
        return _HEAD + 8
    return _HEAD + sum(_FUNCTION + _lines(f) * (_CHIP_HEIGHT + 4) + 6 for f in host["functions"])


def _host(
    root: svg.Element,
    host: Plain,
    y: float,
    rails: t.Mapping[str, float],
    ties: dict[str, list[float]],
    bad: t.Collection[tuple[str, str | None, int | None]],
) -> None:
    name, seen = host["name"], host["status"] == "seen"
    svg.add(root, "rect", "host" if seen else "host unseen", x=1, y=y, width=_BOX, height=_height(host), rx=6)
    short = name if len(name) <= _NAME else f"{name[: _NAME - 1]}\u2026"
    svg.hint(svg.text(root, 10, y + 16, short, "host-name"), name)
    if not seen:
        svg.text(root, _BOX - 8, y + 16, host["status"], "note", text_anchor="end")
    at = y + _HEAD
    for function in host["functions"]:
        broken = (name, function["slot"], None) in bad
        middle = at + 8
        x = rails.get(function["segment"])
        if x is not None:
            tie = svg.add(root, "line", "tie fail" if broken else "tie", x1=_BOX + 1, x2=x, y1=middle, y2=middle)
            svg.hint(tie, f"{name} {function['slot']} on {function['segment']}")
        plug = "plug fail" if broken else "plug" if seen and x is not None else "plug unseen"
        svg.add(root, "circle", plug, cx=_BOX + 1, cy=middle, r=3.2)
        if x is not None:
            svg.add(root, "circle", "joint", cx=x, cy=middle, r=2.6)
            ties[function["segment"]].append(middle)
        svg.text(root, 10, at + 12, function["slot"], "slot fail" if broken else "slot")
        svg.text(root, 46, at + 12, function["netdev"], "netdev")
        for position, vf in enumerate(function["vfs"]):
            left = 10 + position % _PER_LINE * (_CHIP + 4)
            row = at + _FUNCTION + position // _PER_LINE * (_CHIP_HEIGHT + 4)
            _chip(root, left, row, name, function, vf, (name, function["slot"], vf["index"]) in bad)
        at += _FUNCTION + _lines(function) * (_CHIP_HEIGHT + 4) + 6


def _chip(root: svg.Element, x: float, y: float, host: str, function: Plain, vf: Plain, broken: bool) -> None:
    state = "fail" if broken else "pod" if vf["place"] == "pod" else "none" if vf["gid_index"] is None else "ok"
    box = svg.add(root, "g", f"chip {state}")
    svg.hint(box, f"{host} {function['slot']}v{vf['index']}, {vf['purpose']}: {vf['address']}, {gid_words(vf)}")
    svg.add(box, "rect", x=x, y=y, width=_CHIP, height=_CHIP_HEIGHT, rx=4)
    svg.text(box, x + 4, y + 12, f"v{vf['index']}", "vf")
    index = "\u2013" if vf["gid_index"] is None else str(vf["gid_index"])
    svg.text(box, x + _CHIP - 4, y + 12, index, "gid", text_anchor="end")


def gid_words(vf: Plain) -> str:
    """Describe a VF's GID."""
    place = f" in {vf['place']}" if vf["place"] not in (None, "host") else ""
    return f"no valid GID known{place}" if vf["gid_index"] is None else f"GID index {vf['gid_index']}{place}"
