# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Findings that no knowledge rule makes: equal rows that failed, a known image of another engine, an unknown model."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import Finding
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.versions import same_release

from ..profile.profile import Profile
from ..vocabulary.arguments import check_environment
from ..vocabulary.hub_names import is_repository
from ..vocabulary.settings import Tables
from . import evidence
from .rules import Offer

_SPLIT = frozenset(("nodes", "tp", "pp", "ep"))
_NO_SETTING = frozenset(
    ("model", "engine", "version", "image", "revision", "patches", "free_gib")
)  # what no setting changes
_MEASURE = "Change a setting that matters here, such as the experts' runner or CUDA graphs, and measure it."
# Settings whose value may be a file that the engine reads. A drafter has a finding of its own.
_READ = re.compile(r"(?:path|paths|file|template|map|plugin|modules|tokenizer|adapters)\Z")
_OTHERWISE = ("speculative_draft_model_path", "model_path", "root_path", "fastapi_root_path")
_FILE = re.compile(r"(?:[\w.-]{1,80}=)?(?:/|\.\.?/|~/|file:)")


def _changes(found: evidence.Comparison) -> str:
    """Describe how to get from a plan to a row's configuration."""
    return ", ".join(f"{key} {theirs}" for key, (theirs, _ours) in found.differs.items())


def measured(rows_seen: evidence.MatchingRows) -> list[Finding]:
    """Return a finding for each equal row that failed, with the nearest stable row as the remedy."""
    away = _MEASURE
    if rows_seen.way_out:
        away = f"Row {rows_seen.way_out.row.id} is the nearest stable one: {_changes(rows_seen.way_out)}."
    return [
        Finding(
            f"evidence.{found.row.id}",
            "error",
            "",
            f"Row {found.row.id} measured this very configuration: {found.row.verdict}"
            + (f" ({found.row.status})." if found.row.status else "."),
            away,
            tuple(found.row.run.settings),
            found.row.source,
        )
        for found in rows_seen.equal
        if found.row.verdict != "stable"
    ]


def offers(rows_seen: evidence.MatchingRows) -> dict[str, Offer]:
    """Return what the remedies of `measured` change, by the finding's id: settings and split of the nearest stable row."""
    way = rows_seen.way_out
    if way is None:
        return {}
    change: dict[str, dict[str, t.Any]] = {}
    for key, (theirs, _ours) in way.differs.items():
        if theirs not in (evidence.NOT_STATED, repr(evidence.UNKNOWN)):
            change.setdefault("parallel" if key in _SPLIT else "settings", {})[key] = theirs
    elsewhere = _NO_SETTING & way.differs.keys() or any(key.startswith("environment.") for key in way.differs)
    fix = None if elsewhere else change
    return {
        f"evidence.{found.row.id}": Offer((fix,), f"Row {way.row.id} is the nearest stable one. ", _MEASURE)
        for found in rows_seen.equal
        if found.row.verdict != "stable"
    }


def flawed(rows_seen: evidence.MatchingRows) -> list[Finding]:
    """Return a finding for each equal row that was stable but lost requests: it proves nothing."""
    return [
        Finding(
            f"evidence.{found.row.id}",
            "warning",
            "",
            f"Row {found.row.id} measured this very configuration, and {'; '.join(found.row.blemishes)}. It proves nothing.",
            "Measure it yourself (dgxspark.cluster.bench), or take a configuration whose row has no failed request.",
            tuple(found.row.run.settings),
            found.row.source,
        )
        for found in rows_seen.equal
        if found.row.verdict == "stable" and found.row.lost
    ]


def of_image(profile: Profile, image: knowledge.Entry) -> list[Finding]:
    """Compare a known image's engine with the planned one."""
    engine = image.get("engine")
    if not engine:
        return []
    same = engine["name"] == profile.engine.name and same_release(engine["version"], profile.engine.version)
    if same:
        return []
    has = f"{engine['name']} {engine['version']}"
    return [
        Finding(
            "image.engine",
            "error",
            "",
            f"The image {profile.engine.image} is {has}, but the plan is made for {profile.engine.name} "
            f"{profile.engine.version}: its flags and rules are for another version than the one that runs.",
            f"Plan for the image (engine: {{name: {engine['name']}, version: {engine['version']}}}), or name an image "
            f"of {profile.engine.version} (engine.image).",
            ("engine.version", "engine.image"),
            tuple(image["source"]),
        )
    ]


def of_unjudged(profile: Profile, unjudged: t.Sequence[str]) -> list[Finding]:
    """Report the rules that depend on an unknown model."""
    if not unjudged:
        return []
    return [
        Finding(
            "facts.unjudged",
            "warning",
            "",
            f"The facts of {profile.model} are not known, so {len(unjudged)} rules could not be judged: "
            f"{', '.join(unjudged)}.",
            "Give the profile its facts, or let them be found (k8s_dgx_model_config: auto, or the model's config.json), as the guide on "
            "profiles shows.",
            ("facts",),
            ("docs/docsite/rst/guide_profiles.rst",),
        )
    ]


def of_engine(chosen: Profile) -> list[Finding]:
    """Report what changing the engine dropped."""
    remedy = (
        "Give the new engine's own settings; dgxspark.cluster.profile makes a profile for it (dgxspark_profile_engine)."
    )
    return [Finding("engine.changed", "info", "", text, remedy, ("engine.name",)) for text in chosen.dropped]


def of_drafter(chosen: Profile, settings: t.Mapping[str, t.Any]) -> list[Finding]:
    """Report a drafter that is a folder: only repositories of the hub are fetched and mounted."""
    path = settings.get("speculative_draft_model_path")
    if not isinstance(path, str) or not path or is_repository(path):
        return []
    return [
        Finding(
            "weights.drafter-folder",
            "warning",
            "",
            f"The drafter {path} is a folder, and nothing fetches or mounts it: the engine finds it only if the image has it, and "
            "fails at start if not.",
            "Name the drafter's repository (owner/name): its weights are then fetched with the model's.",
            ("speculative_draft_model_path",),
            ("docs/docsite/rst/guide_weights.rst",),
        )
    ]


def of_files(settings: t.Mapping[str, t.Any]) -> list[Finding]:
    """Report settings that name files: a pod has those of its image alone."""
    named = [
        (name, text)
        for name, value in settings.items()
        if name not in _OTHERWISE and _READ.search(name)
        for text in (value if isinstance(value, list) else [value])
        if isinstance(text, str) and _FILE.match(text)
    ]
    return [
        Finding(
            "arguments.local-file",
            "warning",
            "",
            f"{name}: {text} is a file, and nothing fetches or mounts it: the engine finds it only if the image has it, and fails at "
            "start if not.",
            "Put it into the image, or leave it out.",
            (name,),
            ("docs/docsite/rst/guide_weights.rst",),
        )
        for name, text in named
    ]


def of_idle(chosen: Profile, hosts: t.Sequence[str]) -> list[Finding]:
    """Report the hosts that a plan does not use."""
    idle = hosts[chosen.nodes :]
    if not idle:
        return []
    return [
        Finding(
            "hosts.idle",
            "info",
            "",
            f"{', '.join(idle)}: not used; the profile is for {chosen.nodes} node{'s' if chosen.nodes > 1 else ''}.",
            "Nothing is wrong. To use all, override parallel, or serve a second model there.",
            ("parallel.nodes",),
        )
    ]


def of_mods(chosen: Profile, entry: knowledge.Entry) -> list[Finding]:
    """Report what an image must have that no flag adds; a recipe reports this in its own lines."""
    if not (chosen.mods or chosen.note) or "recipe" in entry:
        return []
    mods = f"The image must have: {', '.join(chosen.mods)}. " if chosen.mods else ""
    return [
        Finding(
            "image.mods", "info", "", f"{mods}{chosen.note}".strip(), "See the profile's sources.", ("engine.image",)
        )
    ]


def of_recipe(entry: knowledge.Entry) -> list[Finding]:
    """Report the parts of a recipe that are refused."""
    lines = [line for line in entry.get("recipe", {}).get("lines", ()) if line["became"] == "refused"]
    return [
        Finding(
            "recipe.refused",
            "warning",
            "",
            f"{line['text']}: {line['why']}",
            "",
            ("recipe",),
            (f"The recipe {entry['recipe']['file']}",),
        )
        for line in lines
    ]


def of_variables(chosen: Profile, tables: Tables) -> list[Finding]:
    """Report the profile's variables that this engine version does not know."""
    engine = chosen.engine
    return [
        dataclasses.replace(found, subject="", names=(found.subject,), message=f"{found.subject}: {found.message}")
        for found in check_environment(engine.name, engine.version, chosen.environment, tables)
    ]
