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


def hint(parent: Element, words: str) -> None:
    """Add a tooltip to an element."""
    add(parent, "title").text = words


def number(value: float) -> str:
    """Format a coordinate compactly."""
    return f"{value:.1f}".removesuffix(".0")


def markup(root: Element) -> str:
    """Return the drawing as HTML."""
    return ET.tostring(root, encoding="unicode", short_empty_elements=True)
