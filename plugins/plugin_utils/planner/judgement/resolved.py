# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings an engine will run with: those requested, those the plan adds, and what the engine derives for the rest.

`knowledge/choices/` holds what an engine version chooses for a model, a split and the other settings; its flag table holds
the rest. What only the running engine decides is unknown. Memory, rules and evidence read only these settings.
"""

from __future__ import annotations

import functools
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.versions import matches

from ..vocabulary import flag_table
from ..vocabulary.settings import Tables
from .conditions import Condition, Document, Path, View, compiled

KIND = "choices"
By = t.Literal["asked", "added", "default", "unknown"]


@dataclass(frozen=True, eq=False)
class Choice:
    """One compiled entry of `knowledge/choices`. at_load: decided when the model is loaded."""

    id: str
    setting: str
    engines: t.Mapping[str, str]
    condition: Condition | None
    take: Condition | None
    value: t.Any
    unknown: bool
    among: tuple[t.Any, ...]
    overrides: bool
    at_load: bool


@dataclass(frozen=True)
class Resolved:
    """Settings by canonical name. by: the origin of each; unknown ones have no value. at_load: decided when the model loads.

    because: settings that are stated but may be overridden, with the unknowns that this depends on.
    """

    settings: dict[str, t.Any]
    by: dict[str, By]
    at_load: frozenset[str]
    among: dict[str, tuple[t.Any, ...]]
    because: dict[Path, set[Path]]

    @functools.cached_property
    def unknown(self) -> dict[Path, tuple[t.Any, ...]]:
        """The unknown settings as paths of the plan's document, with their possible values; empty if those are open."""
        return {("settings", key): self.among.get(key, ()) for key, who in self.by.items() if who == "unknown"}

    def with_added(self, added: t.Mapping[str, t.Any]) -> Resolved:
        """Return a copy with the settings that the plan adds."""
        return Resolved(
            {**self.settings, **added},
            {**self.by, **dict.fromkeys(added, "added")},
            self.at_load - added.keys(),
            self.among,
            self.because,
        )


def load_choices(overlays: t.Sequence[str] = ()) -> tuple[Choice, ...]:
    """Load all choices in order. KnowledgeError names the file and entry of a bad condition or range."""
    found = []
    for entry in sorted(knowledge.load(KIND, overlays).values(), key=lambda entry: (entry["order"], entry["id"])):
        where = f"{entry['origin']}: choice {entry['id']!r}"
        for version_range in entry["engines"].values():
            matches("0.0.1", version_range)
        found.append(
            Choice(
                id=entry["id"],
                setting=entry["setting"],
                engines=entry["engines"],
                condition=compiled(entry["when"], where) if "when" in entry else None,
                take=compiled(entry["take"], where) if "take" in entry else None,
                value=entry.get("value"),
                unknown="unknown" in entry,
                among=tuple(entry.get("among", ())),
                overrides=entry.get("asked") == "overridden",
                at_load=entry.get("at") == "load",
            )
        )
    return tuple(found)


@functools.lru_cache(maxsize=64)
def concerned(choices: tuple[Choice, ...], engine: str, version: str) -> tuple[Choice, ...]:
    """Return the choices of an engine version."""
    return tuple(c for c in choices if engine in c.engines and matches(version, c.engines[engine]))


@functools.lru_cache(maxsize=64)
def read(choices: tuple[Choice, ...], engine: str, version: str) -> frozenset[str]:
    """Return the settings that an engine version's choices depend on."""
    asked = [
        path
        for choice in concerned(choices, engine, version)
        for condition in (choice.condition, choice.take)
        if condition
        for path in condition.reads
    ]
    return frozenset(path[1] for path in asked if path[0] == "settings" and len(path) > 1)


def _defaults(parser: flag_table.Parser | None, tp: int) -> t.Mapping[str, t.Any]:
    """Return the version's defaults on a GB10; SGLang's CUDA graphs depend on whether there are four GPUs."""
    known = parser.table["facts"].get("defaults_on_gb10", {}) if parser else {}
    found: t.Mapping[str, t.Any] = known.get("tp4" if tp >= 4 else "tp1", {})
    return found


def flag_default(key: str, parser: flag_table.Parser | None) -> tuple[t.Any, bool]:
    """Return a native flag's default, and whether it is known: a switch is off, a flag without a default is unset."""
    spec = parser.spec(key.replace("_", "-")) if parser else None
    if spec is None:
        return None, False
    return (False if spec["type"] == "switch" else spec.get("default")), True


def resolve(
    asked: t.Mapping[str, t.Any],
    document: Document,
    choices: tuple[Choice, ...],
    tables: Tables,
    engine: str,
    version: str,
    tp: int,
) -> Resolved:
    """Resolve the settings. document: model, quant, parallel, speculation; its `settings` and `defaults` are filled in here.

    A choice applies if the setting is still open, or if the engine overrides what was requested. If a choice's condition
    depends on an unknown setting, its result is unknown too.
    """
    parser = tables.nearest(engine, version)
    # For a requested `auto`, the engine chooses as if nothing were requested.
    mine = concerned(choices, engine, version)
    chosen = {choice.setting for choice in mine}
    settings = {key: value for key, value in asked.items() if not (value == "auto" and key in chosen)}
    by: dict[str, By] = dict.fromkeys(settings, "asked")
    at_load: set[str] = set()
    among: dict[str, tuple[t.Any, ...]] = {}
    because: dict[Path, set[Path]] = {}
    unknown: dict[Path, tuple[t.Any, ...]] = (
        {} if document["model"]["known"] else dict.fromkeys((("model",), ("quant",)), ())
    )
    known_model = ("model", "known")
    place = {**document, "settings": settings, "defaults": _defaults(parser, tp)}
    for choice in mine:
        key = choice.setting
        if key in by and not (choice.overrides and by[key] != "unknown"):
            continue
        open_facts: t.Mapping[Path, tuple[t.Any, ...]] = (
            {} if choice.condition is None or known_model in choice.condition.reads else unknown
        )
        view = View(place, open_facts)
        holds = view.holds(choice.condition) if choice.condition else True
        if holds is False:
            continue
        value = choice.take.value(place) if choice.take else choice.value
        if holds is None and key in by and settings.get(key) == value:
            continue
        if holds is None or choice.unknown:
            if key in by and not choice.overrides:
                continue
            either = choice.among
            if choice.condition and key in by and not choice.unknown:  # overridden or not: one of the two values
                either = (value, settings[key])
                because["settings", key] = view.hangs_on(choice.condition)
            settings.pop(key, None)
            by[key] = "unknown"
            unknown["settings", key] = among[key] = either
        elif key not in by or settings[key] != value:
            settings[key], by[key] = value, "default"
        if choice.at_load:
            at_load.add(key)
    return Resolved(settings, by, frozenset(at_load), among, because)
