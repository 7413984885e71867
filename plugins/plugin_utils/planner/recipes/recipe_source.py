# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Another tool's recipe in the form common to all of them."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

Became = t.Literal["setting", "ours", "passed on", "refused", "not used"]
TEMPLATE = "the pod's template says how the container runs."


@dataclass(frozen=True)
class Line:
    """How one thing in a recipe was used."""

    text: str
    became: Became
    why: str = ""


@dataclass
class Source:
    """A recipe in the common form. words: of the engine's command; options: settings outside it."""

    words: list[str] = field(default_factory=list)
    options: dict[str, t.Any] = field(default_factory=dict)
    engine: str = ""
    image: str = ""
    model: str = ""
    revision: str = ""
    title: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    exported: dict[str, str] = field(default_factory=dict)  # by a script, for what it starts outside a container
    least: int = 1
    most: int | None = None
    mods: list[str] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    mounts: dict[str, str] = field(default_factory=dict)  # folders in the container -> outside
    downloads: dict[str, str] = field(default_factory=dict)  # folders -> hub name of the model downloaded there
    given: dict[str, str] = field(default_factory=dict)  # the owner's values for its variables

    def told(self, text: str, became: Became, why: str = "") -> None:
        """Record how one thing was used."""
        self.lines.append(Line(text, became, why))
