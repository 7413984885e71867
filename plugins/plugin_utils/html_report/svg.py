# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Elements of inline SVG. The library escapes their text; colours come from the page's classes, light or dark."""

from __future__ import annotations

import typing as t
import xml.etree.ElementTree as ET

Element = ET.Element


def picture(width: float, height: float, title: str) -> Element:
    """Return an empty drawing with an accessible name."""
    root = ET.Element("svg", viewBox=f"0 0 {number(width)} {number(height)}", role="img")
    root.set("aria-label", title)
    return root


def add(parent: Element, tag: str, cls: str = "", **attributes: t.Any) -> Element:
    """Add an element; underscores in attribute names become dashes."""
    made = ET.SubElement(parent, tag)
    if cls:
        made.set("class", cls)
    for name, value in attributes.items():
        made.set(name.replace("_", "-"), number(value) if isinstance(value, (int, float)) else str(value))
    return made


def text(parent: Element, x: float, y: float, words: str, cls: str = "", **attributes: t.Any) -> Element:
    """Add a line of text."""
    made = add(parent, "text", cls, x=x, y=y, **attributes)
    made.text = words
    return made


def level(parent: Element, left: float, right: float, y: float, words: str) -> None:
    """Add a value of the y axis: a line across, and its label."""
    add(parent, "line", "grid", x1=left, x2=right, y1=y, y2=y)
    text(parent, left - 5, y + 3.5, words, "tick", text_anchor="end")


def tick(parent: Element, x: float, floor: float, words: str, anchor: str = "middle") -> None:
    """Add a value of the x axis: a mark below the floor, and its label."""
    add(parent, "line", "mark", x1=x, x2=x, y1=floor, y2=floor + 3)
    text(parent, x, floor + 14, words, "tick", text_anchor=anchor)


def hint(parent: Element, words: str) -> None:
    """Add a tooltip to an element."""
    add(parent, "title").text = words


def number(value: float) -> str:
    """Format a coordinate compactly."""
    return f"{value:.1f}".removesuffix(".0")


def markup(root: Element) -> str:
    """Return the drawing as HTML."""
    return ET.tostring(root, encoding="unicode", short_empty_elements=True)
