# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster's served models as one self-contained HTML page: a memory bar per Spark, the instances, and what else would fit or why not.

It has no date, so the same state gives the same page.
"""

from __future__ import annotations

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.html_report import frame, svg
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.models import FITS, Picture, Spark
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.models_text import (
    FREE,
    coming,
    command,
    describe,
    gib,
    needs,
    parts,
)

_WIDTH, _BAR, _EDGE = 720.0, 18.0, 3.0
_SERIES = 4  # colours of page.css
_STATES = {"fits": "ok", "tight": "warn", "not known": "none", "does not fit": "fail"}


def page(picture: Picture) -> str:
    """Return the page of `kube.models.picture`."""
    with frame.reading("this is not a picture of what is served: {!r}."):
        fits = [fit for fit in picture.fits if fit.state in FITS]
        tight = sum(fit.state == "tight" for fit in fits)
        also = f", {tight} of them with little memory left" if tight else ""
        without = f"As if {picture.without} were stopped." if picture.without else ""
        names = dict.fromkeys(each.name for each in picture.instances)
        series = {name: number % _SERIES for number, name in enumerate(names)}
        content = {
            "picture": picture,
            "heading": f"{len(picture.instances)} served, {len(fits)} would fit",
            "sentence": " ".join(filter(None, (without, _short(picture)))),
            "series": series,
            "date": None,
            "verdict": "incomplete" if picture.unseen or _short(picture) else "passed",
            "facts": [
                ("Sparks", str(len(picture.sparks))),
                ("Instances", str(len(picture.instances))),
                ("Profiles that would fit", f"{len(fits)} of {len(picture.fits)}{also}"),
            ],
            "memory": [
                {
                    "host": spark.host,
                    "bar": frame.markup(memory_bar(spark, series)),
                    "notes": _notes(spark),
                    "short": spark.short_gib,
                }
                for spark in picture.sparks
            ],
            "first": fits[0] if fits else None,
        }
        words: dict[str, t.Callable[..., t.Any]] = {
            "describe": describe,
            "needs": needs,
            "command": command,
            "state": _STATES.__getitem__,
        }
        return frame.render("models.html.j2", content, words)


def _short(picture: Picture) -> str:
    """Say on how many Sparks more memory is asked for than is free; nothing if on none."""
    short = [spark.short_gib for spark in picture.sparks if spark.short_gib]
    if not short:
        return ""
    where = f"On {len(short)} of {len(picture.sparks)} Sparks"
    return f"{where}, up to {gib(max(short))} more memory is asked for than is free."


def memory_bar(spark: Spark, series: t.Mapping[str, int]) -> str:
    """Return the SVG of a Spark's memory: instances, other use, what is still to come, free memory, and the memory guard's floor.

    What is asked beyond what is free stands beyond the memory's end. It has no text, so that any width does.
    """
    root = svg.picture(_WIDTH, _BAR + 2 * _EDGE, f"Memory of {spark.host}")
    root.set("preserveAspectRatio", "none")
    known = parts(spark)
    asked = (spark.total_gib or 1.0) + (spark.short_gib if known else 0.0)
    scale = _WIDTH / asked
    end = (spark.total_gib or 1.0) * scale
    svg.add(root, "rect", "host" if known else "host unseen", x=0, y=_EDGE, width=end, height=_BAR)
    x = 0.0
    for name, value in known:
        if name == FREE:
            continue
        if value > 0:
            box = svg.add(root, "rect", _kind(name, series), x=x, y=_EDGE, width=value * scale, height=_BAR)
            svg.hint(box, f"{name} {gib(value)}")
        x += value * scale
    for name in spark.coming if known else ():
        value = spark.shares[name] or 0.0
        kind = f"{_kind(name, series)} coming"
        box = svg.add(root, "rect", kind, x=x, y=_EDGE, width=min(value * scale, _WIDTH - x), height=_BAR)
        svg.hint(box, f"{name} is still to come: {gib(value)}")
        x += value * scale
    if known and spark.short_gib:
        box = svg.add(root, "rect", "beyond", x=end, y=_EDGE, width=_WIDTH - end, height=_BAR)
        svg.hint(box, f"{gib(spark.short_gib)} more than is free")
    if known and spark.floor_gib:
        at = end - spark.floor_gib * scale
        line = svg.add(root, "line", "mark", x1=at, x2=at, y1=0, y2=_BAR + 2 * _EDGE)
        svg.hint(line, "the memory guard's floor")
    return svg.markup(root)


def _kind(name: str, series: t.Mapping[str, int]) -> str:
    return f"share series{series[name]}" if name in series else "share other"


def _notes(spark: Spark) -> list[str]:
    shares = [f"{name} {gib(share)}" for name, share in spark.shares.items()]
    free = f"free {gib(spark.free_gib)} of {gib(spark.total_gib)}"
    vfs = f"VF index free: {', '.join(map(str, spark.free_vfs)) or 'none'}"
    gpu = f"GPU shares {spark.gpu_taken} of {'?' if spark.gpu is None else spark.gpu}"
    more = [coming(spark)] if spark.coming else []
    return ["; ".join([", ".join([*shares, free]), vfs, gpu]), *more]
