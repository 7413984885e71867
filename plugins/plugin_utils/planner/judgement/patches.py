# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Selects the start-up patches that a launch needs. `module_utils/programs/rank/patches.py` applies them in the container."""

from __future__ import annotations

import functools
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.versions import matches

from .conditions import ERRORS, Condition, Unknown, compiled, failure
from .facts import image_features

KIND = "patches"
# The patch keys that go into a plan: all the applier needs, and the reason for the patch.
TOLD = ("id", "title", "why", "package", "file", "moved", "edits")


@dataclass(frozen=True, eq=False)
class Patch:
    """One entry with its compiled condition. plain: its part of the plan; unless: the image feature that makes it unnecessary.

    effect: what changes on a run that succeeds without it, see the schema.
    """

    id: str
    origin: str
    plain: knowledge.Entry
    engines: t.Mapping[str, str]
    condition: Condition | None
    unless: str | None
    effect: t.Literal["needed", "speed", "numerics"]

    @property
    def where(self) -> str:
        """The patch's name in error messages."""
        return f"{self.origin}: patch {self.id!r}"


def load_patches(overlays: t.Sequence[str] = ()) -> tuple[Patch, ...]:
    """Load all patches, including the owner's. KnowledgeError names the file and patch of a bad condition or feature."""
    features = image_features()
    found = []
    for entry in knowledge.load(KIND, overlays).values():
        where = f"{entry['origin']}: patch {entry['id']!r}"
        for version_range in entry["engines"].values():
            try:
                matches("0.0.1", version_range)
            except CollectionError as exc:
                raise knowledge.KnowledgeError(f"{where}: engines: {exc}") from exc
        unless = entry.get("unless")
        if unless and unless not in features:
            raise knowledge.KnowledgeError(
                f"{where}: unless: there is no image feature {unless!r}. Features: {', '.join(features)}."
            )
        condition = compiled(entry["when"], where) if "when" in entry else None
        told = {key: entry[key] for key in TOLD if key in entry}
        effect = entry.get("effect", "numerics")
        found.append(Patch(entry["id"], entry["origin"], told, entry["engines"], condition, unless, effect))
    return tuple(sorted(found, key=lambda patch: patch.id))


@functools.lru_cache(maxsize=64)
def concerned(patches: tuple[Patch, ...], engine: str, version: str) -> tuple[Patch, ...]:
    """Return the patches for an engine version."""
    return tuple(p for p in patches if engine in p.engines and matches(version, p.engines[engine]))


def needed(
    patches: tuple[Patch, ...],
    engine: str,
    version: str,
    facts: t.Mapping[str, t.Any],
    unknown: Unknown | None = None,
) -> tuple[knowledge.Entry, ...]:
    """Return the patches that a launch needs, sorted by name, in the form a plan holds.

    facts: the plan's, as rules read them (see `facts.document`). An image feature counts as absent if nobody states it:
    a patch whose edits are already there leaves the file unchanged.
    """
    features = facts["image"]["features"]
    found = []
    for patch in concerned(patches, engine, version):
        if patch.unless and features.get(patch.unless):
            continue
        try:
            # If the condition depends on unknown facts, apply the patch: it changes nothing if there is nothing to do.
            if patch.condition is None or patch.condition.holds(facts, unknown) is not False:
                found.append(patch.plain)
        except ERRORS as exc:
            raise failure(patch.where, exc) from exc
    return tuple(found)
