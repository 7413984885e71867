# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster's served models as one self-contained HTML page: a memory bar per Spark, the instances, and what else would fit or why not.

It has no date, so the same state gives the same page.
"""

from __future__ import annotations

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.html_report import frame, svg
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.models import Picture, Spark
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.models_text import (
    FREE,
    command,
    gib,
    needs,
    parts,
    told,
)

_WIDTH, _NAME, _ROW, _BAR = 720.0, 120.0, 46.0, 18.0
_SERIES = 4  # colours of page.css
_STATES = {"fits": "ok", "not known": "none", "does not fit": "fail"}


def page(picture: Picture) -> str:
    """Return the page of `kube.models.picture`."""
    with frame.reading("this is not a picture of what is served: {!r}."):
        fits = [fit for fit in picture.fits if fit.state == "fits"]
        content = {
            "picture": picture,
            "heading": f"{len(picture.instances)} served, {len(fits)} would fit",
            "sentence": f"As if {picture.without} were stopped." if picture.without else "",
            "date": None,
            "verdict": "incomplete" if picture.unseen else "passed",
            "facts": [
                ("Sparks", str(len(picture.sparks))),
                ("Instances", str(len(picture.instances))),
                ("Profiles that would fit", f"{len(fits)} of {len(picture.fits)}"),
            ],
            "memory": frame.markup(bars(picture)),
            "first": fits[0] if fits else None,
        }
        words: dict[str, t.Callable[..., t.Any]] = {
            "told": told,
            "needs": needs,
            "command": command,
            "state": _STATES.__getitem__,
        }
        return frame.render("models.html.j2", content, words)


def bars(picture: Picture) -> str:
    """Return the SVG of all Sparks' memory: instances, other use, free memory, and the memory guard's floor."""
    series = {
        name: number % _SERIES for number, name in enumerate(dict.fromkeys(each.name for each in picture.instances))
    }
    root = svg.picture(_WIDTH, _ROW * len(picture.sparks) + 8, f"Memory of {len(picture.sparks)} Sparks")
    for number, spark in enumerate(picture.sparks):
        y, x, scale = number * _ROW + 6, _NAME, (_WIDTH - _NAME - 4) / (spark.total_gib or 1.0)
        svg.text(root, 0, y + 13, spark.host, "host-name")
        svg.add(
            root, "rect", "host" if parts(spark) else "host unseen", x=x, y=y, width=_WIDTH - _NAME - 4, height=_BAR
        )
        for name, value in parts(spark):
            if name != FREE and value > 0:
                kind = f"share series{series[name]}" if name in series else "share other"
                svg.hint(
                    svg.add(root, "rect", kind, x=x, y=y, width=value * scale, height=_BAR), f"{name} {gib(value)}"
                )
            x += value * scale
        if parts(spark) and spark.floor_gib:
            end = _NAME + (_WIDTH - _NAME - 4) - spark.floor_gib * scale
            svg.hint(
                svg.add(root, "line", "mark", x1=end, x2=end, y1=y - 3, y2=y + _BAR + 3), "the memory guard's floor"
            )
        shares = [f"{name} {gib(share)}" for name, share in spark.shares.items()]
        svg.text(root, _NAME, y + _BAR + 14, ", ".join([*shares, _rest(spark)]), "note")
    return svg.markup(root)


def _rest(spark: Spark) -> str:
    free = f"free {gib(spark.free_gib)} of {gib(spark.total_gib)}"
    vfs = f"VF index free: {', '.join(map(str, spark.free_vfs)) or 'none'}"
    return f"{free}; {vfs}; GPU shares {spark.gpu_taken} of {'?' if spark.gpu is None else spark.gpu}"
