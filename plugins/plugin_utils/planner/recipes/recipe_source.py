# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Another tool's recipe in the form common to all of them."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass, field

Became = t.Literal["setting", "ours", "passed on", "refused", "not used"]
TEMPLATE = "the pod's template says how the container runs."


# What of an image is mounted over: its Python packages or an engine's sources; else a single file.
_PACKAGE = re.compile(
    r"/(?:site|dist)-packages/|/(?:vllm|sglang|sgl-workspace)/.{0,400}\.(?:py|so|cu|json)$|\.(?:py|so|pyc|patch|diff)$"
)
_FILE = re.compile(r"/[^/]{0,200}\.(?:jinja2?|json|ya?ml|toml|sh|txt|model|cfg|conf)$")


def mount_of(option: str, value: str) -> tuple[str, str] | None:
    """Return what a docker option mounts, outside and inside the container; None if it mounts nothing of the machine."""
    if option in ("-v", "--volume") and ":" in value:
        outside, inside = value.split(":")[:2]
        return outside, inside
    if option == "--mount":
        said = dict(part.partition("=")[::2] for part in value.split(","))
        outside, inside = said.get("source", said.get("src", "")), said.get("target", said.get("dst", ""))
        return (outside, inside) if outside and inside else None
    return None


def mounted(outside: str, inside: str) -> tuple[Became, str]:
    """Return what becomes of a path of the owner's machine that a recipe mounts into its container: a patch or a file is not carried."""
    if _PACKAGE.search(inside):
        return (
            "refused",
            f"a patch: {outside.rstrip('/').rpartition('/')[2]} replaces what the image has at {inside}, and fits one release of it. The plan leaves it "
            "out, and nothing here applies it: name an image that has it (k8s_dgx_image), or a newer release, which may need none.",
        )
    if _FILE.search(inside):
        return (
            "refused",
            f"a file of its owner's machine, which the pod does not get. What names {inside} fails without it: name an image that has it "
            "(k8s_dgx_image), or leave the setting out.",
        )
    return "ours", TEMPLATE


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

    def record(self, text: str, became: Became, why: str = "") -> None:
        """Record how one thing was used."""
        self.lines.append(Line(text, became, why))
