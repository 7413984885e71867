# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a number of Sparks can run as one self-contained HTML page. It has no date, so the same knowledge gives the same page."""

from __future__ import annotations

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.html_report import frame
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import CATALOGUE_LEVELS, Catalogue, Choice
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import catalogue_text as text


def page(made: Catalogue) -> str:
    """Return the page of `serving.catalogue.catalogue`."""
    with frame.reading("this is not a list of what Sparks can run: {!r}."):
        proven = sum(each.verdict == "proven" for each in made.fits)
        sparks = f"{made.sparks} Spark" + ("s" if made.sparks != 1 else "")
        content = {
            "made": made,
            "heading": f"What {sparks} can run",
            "sentence": text.heading(made),
            "date": None,
            "verdict": "passed" if made.fits else "incomplete",
            "facts": [
                ("Sparks", str(made.sparks)),
                ("Fit", f"{len(made.fits)} of {len(made.fits) + len(made.others)}"),
                ("Proven by a run", str(proven)),
                ("Sorted by", made.sort),
            ],
            "levels": CATALOGUE_LEVELS,
            "legend": text.LEGEND,
            "first": text.suggested(made),
        }
        words: dict[str, t.Callable[..., t.Any]] = {
            "speed": text.speed,
            "interval": interval,
            "context": text.context,
            "left": text.left,
            "verdict": text.verdict,
            "command": text.command,
        }
        return frame.render("catalogue.html.j2", content, words)


def interval(choice: Choice, level: str) -> str:
    """Return the interval of an estimate, or where a figure was measured."""
    if choice.origin == "estimated":
        return f"{text.figure(choice.low[level])} to {text.figure(choice.high[level])}"
    return choice.source
