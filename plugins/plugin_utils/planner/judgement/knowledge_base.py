# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All knowledge that a plan reads, loaded and compiled once."""

from __future__ import annotations

import functools
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge, looks
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.known_bad import load_known_bad
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.versions import matches

from ..model import constants, estimate, memory
from ..model.model import Nvfp4Layout
from ..vocabulary import images
from ..vocabulary.hub_names import model_key
from ..vocabulary.settings import Tables, load_tables
from . import evidence, patches, resolved, rules


@dataclass(frozen=True, eq=False)
class Base:
    """All knowledge that a plan reads, loaded and compiled once. rows by model and engine."""

    rules: tuple[rules.Rule, ...]
    rows: t.Mapping[tuple[str, str], tuple[evidence.Row, ...]]
    images: images.Images
    known_bad: tuple[knowledge.Entry, ...]
    looked: knowledge.Entry
    measurements: tuple[knowledge.Entry, ...]
    constants: t.Mapping[str, knowledge.Entry]
    patches: tuple[patches.Patch, ...]
    choices: tuple[resolved.Choice, ...]
    standard: evidence.Standard
    tables: Tables
    figures: estimate.Figures

    def constant(self, name: str, engine: str = "", version: str = "", unified: bool = True) -> float:
        """Return a constant of the plan; if it has a version range, the value for this engine's version.

        unified: whether the GPU shares the system's memory, as on a Spark.
        """
        entry = self.constants[name]
        if not unified and engine in entry.get("discrete", {}):
            return float(entry["discrete"][engine])
        ranges = entry.get("engines")
        if ranges is not None and not (engine in ranges and matches(version, ranges[engine])):
            return float(entry["otherwise"])
        return float(entry["value"])


@functools.lru_cache(maxsize=8)
def _base(overlays: tuple[str, ...], stamp: tuple[tuple[str, int], ...]) -> Base:
    rows: dict[tuple[str, str], list[evidence.Row]] = {}
    for row in evidence.load_rows(overlays):
        rows.setdefault((model_key(row.run.model), row.run.engine), []).append(row)
    return Base(
        rules=rules.load_rules(overlays),
        rows={key: tuple(value) for key, value in rows.items()},
        images=images.load_images(overlays),
        known_bad=load_known_bad(overlays),
        looked=looks.parts(overlays),
        measurements=tuple(knowledge.load("measurements", overlays).values()),
        constants=constants.constants(overlays),
        patches=patches.load_patches(overlays),
        choices=resolved.load_choices(overlays),
        standard=evidence.load_standard(overlays),
        tables=load_tables(overlays),
        figures=estimate.load_figures(overlays),
    )


def base(overlays: t.Sequence[str] = ()) -> Base:
    """Return the knowledge; files are read only if they or the overlays have changed."""
    folders = tuple(overlays)
    return _base(folders, knowledge.stamp(folders))


@functools.lru_cache(maxsize=64)
def assumed(known: Base, engine: str, version: str, unified: bool = True) -> memory.Assumed:
    """Return the memory plan's constants for one engine version, on unified memory or on a GPU with memory of its own."""
    number = functools.partial(known.constant, engine=engine, version=version, unified=unified)
    counted = number("memory.canvas_counted") * number("memory.canvas_tiles")
    return memory.Assumed(
        graphs=number("memory.graphs"),
        context=number("memory.context"),
        activation_copies=number("memory.activation_copies"),
        load=number("memory.load"),
        drafts_counted=bool(number("memory.drafts_counted")),
        sampled=number("memory.sampled"),
        sampled_drafts=number("memory.sampled_drafts"),
        canvases=memory.Canvases(number("memory.canvas_copies"), number("memory.canvas_logits"), counted),
        layout=Nvfp4Layout(
            *(int(number(f"memory.{name}")) for name in ("scale_copies", "expert_rows", "mxfp4_rows", "mxfp4_width"))
        ),
    )
