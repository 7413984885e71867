# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Profiles: from a name or an inline dictionary to one resolved variant, with the owner's overrides."""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
import re
import typing as t
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, from_plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge, near_names
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.versions import matches

from ..model.model import Attention, Facts, Format, Parallelism, check_parallelism
from ..vocabulary.hub_names import model_key
from ..vocabulary.settings import Tables, canonical, laid_over, load_tables

KIND = "profile"
Entry = dict[str, t.Any]
DEFAULT_PRECISION = dict.fromkeys(
    (
        "experts",
        "shared_experts",
        "attention",
        "linear",
        "dense",
        "embeddings",
        "router",
        "latent",
        "head",
        "vision",
        "lookup",
        "hyper",
    ),
    "bf16",
)
_LAID_OVER = ("engine", "parallel", "settings", "environment")
# Keys specific to one engine and its image.
_ENGINES_OWN = ("settings", "environment", "variants", "shapes", "mods", "note")
_OVERRIDES = frozenset({"variant", *_LAID_OVER})


@dataclass(frozen=True)
class Drafter:
    """A draft model beside the model. params: weights; gamma: the block size of DSPARK or DFLASH; revision: a commit of its repository.

    attention: its layers with their own cache, as in facts; empty if it uses the model's cache.
    """

    model: str
    params: float = 0
    precision: str = "bf16"
    frozen_kv: bool = False
    gamma: int | None = None
    revision: str | None = None
    attention: tuple[Attention, ...] = ()


@dataclass(frozen=True)
class Engine:
    """The engine to run. versions: the range that a profile claims."""

    name: str
    version: str
    versions: str = ""
    image: str | None = None


@dataclass(frozen=True)
class Profile:
    """One variant of a profile, ready to plan. facts: None if the model's structure is unknown."""

    id: str
    variant: str
    title: str
    model: str
    proven: str
    engine: Engine
    nodes: int
    parallelism: Parallelism
    settings: t.Mapping[str, t.Any]
    facts: Facts | None = None
    precision: t.Mapping[str, Format] = field(default_factory=dict)
    drafter: Drafter | None = None
    environment: t.Mapping[str, str] = field(default_factory=dict)
    checkpoint_gb: float | None = None
    quant_method: str | None = None
    revision: str | None = None
    port: int | None = None
    mods: tuple[str, ...] = ()
    note: str = ""
    variants: tuple[str, ...] = ()
    shapes: t.Mapping[str, str] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()


def _engine(layer: t.Mapping[str, t.Any]) -> t.Mapping[str, t.Any]:
    engine = layer.get("engine")
    return engine if isinstance(engine, t.Mapping) else {}


def _changes_engine(under: t.Mapping[str, t.Any], over: t.Mapping[str, t.Any]) -> bool:
    """Whether a layer names a different engine than those below it."""
    names = _engine(under).get("name"), _engine(over).get("name")
    return None not in names and names[0] != names[1]


def _left_behind(under: t.Mapping[str, t.Any], over: t.Mapping[str, t.Any]) -> str:
    """Describe what was set for one engine and does not apply to another."""
    engine = _engine(under)
    said = [f"its {key} {engine[key]}" for key in ("version", "versions", "image") if engine.get(key)]
    own = {key: under[key] for key in _ENGINES_OWN if under.get(key)}
    said += [key if isinstance(of, str) else f"{key} ({', '.join(sorted(of))})" for key, of in own.items()]
    return f"engine.name is {_engine(over)['name']}, not {engine['name']} as in the layer below: dropped {', '.join(said) or 'nothing'}."


def _shipped(entry: Entry) -> bool:
    return pathlib.Path(entry.get("origin", "")).parent == knowledge.FOLDERS[KIND][0]


def _on(base: Entry, own: Entry) -> Entry:
    """Merge a profile over its base; if the two name one setting differently, the profile's own wins."""
    if _changes_engine(base, own):
        # A shipped profile that names another engine says all that this one needs: no owner has lost anything.
        left = [] if _shipped(own) else [_left_behind(base, own)]
        dropped = [*base.get("dropped", ()), *left]
        base = {key: value for key, value in base.items() if key not in ("engine", *_ENGINES_OWN)} | {
            "dropped": dropped
        }
    entry = knowledge.merged(base, own)
    engine = entry.get("engine")
    if not isinstance(engine, t.Mapping) or not isinstance(engine.get("version"), str):
        return entry  # the fault is reported when the whole profile is checked
    dialect = load_tables().dialect(str(engine.get("name")), engine["version"])
    if isinstance(base.get("settings"), t.Mapping) and isinstance(own.get("settings"), t.Mapping):
        entry["settings"] = laid_over(base["settings"], own["settings"], dialect)
    for name, variant in (own.get("variants") or {}).items():
        under = (base.get("variants") or {}).get(name)
        if isinstance(under, t.Mapping) and isinstance(variant, t.Mapping):
            entry["variants"][name]["settings"] = laid_over(
                under.get("settings", {}), variant.get("settings", {}), dialect
            )
    return entry


def extended(entry: Entry, known: t.Mapping[str, Entry], above: tuple[str, ...] = ()) -> Entry:
    """Merge a profile over what it extends, and drop the link and null variants. Raises KnowledgeError for an unknown base or a cycle."""
    if "extends" not in entry:
        return _kept(entry)
    base, seen = entry["extends"], (*above, str(entry["id"]))
    if base in seen:
        raise knowledge.KnowledgeError(f"profile {seen[0]!r}: extends: {' → '.join([*seen, base])} is a cycle.")
    if base not in known:
        raise knowledge.KnowledgeError(
            f"profile {seen[0]!r}: extends: there is no profile {base!r}. Known: {', '.join(sorted(known))}."
        )
    own = {key: value for key, value in entry.items() if key != "extends"}
    return _kept(_on(extended(known[base], known, seen), own))


def _kept(entry: Entry) -> Entry:
    variants = entry.get("variants")
    if not isinstance(variants, t.Mapping) or None not in variants.values():
        return entry
    return {**entry, "variants": {name: variant for name, variant in variants.items() if variant is not None}}


def entries(overlays: t.Sequence[str] = ()) -> t.Mapping[str, Entry]:
    """Return all profiles by id, as they are written: what one `extends` is not in it yet. Treat the entries as read-only."""
    return knowledge.shared(KIND, tuple(overlays))


@functools.lru_cache(maxsize=256)
def _found(profile: str, overlays: tuple[str, ...], _stamp: tuple[tuple[str, int], ...]) -> Entry:
    known = knowledge.shared(KIND, overlays)
    if profile in known:
        return extended(known[profile], known)
    named = [
        entry
        for entry in (extended(e, known) for e in known.values())
        if model_key(entry["model"]) == model_key(profile)
    ]
    if not named:
        raise knowledge.KnowledgeError(_unknown(profile, known))
    if len(named) > 1:
        ids = ", ".join(sorted(entry["id"] for entry in named))
        raise knowledge.KnowledgeError(f"profile: {profile!r} has several profiles: {ids}. Name one of these.")
    return named[0]


_UNNAMED = "No model is named: -e k8s_dgx_model_profile=NAME, or -e k8s_dgx_recipe=FILE."


def _unknown(profile: str, known: t.Mapping[str, Entry]) -> str:
    """Say what was probably meant: an id, or the profile of a model."""
    ids = {
        **{str(entry["model"]): name for name, entry in known.items() if "model" in entry},
        **{name: name for name in known},
    }
    near = list(dict.fromkeys(ids[each] for each in near_names.nearest(profile, ids)))
    told = f"Did you mean {near_names.either(near)}? " if near else ""
    missing = f"There is no profile {profile!r}. {told}" if profile else f"{_UNNAMED} "
    return (
        f"{missing}`ansible-playbook dgxspark.cluster.models -e sparks=N` lists all {len(known)}; "
        "dgxspark.cluster.profile makes one of a model's own files."
    )


def find(profile: str | Entry, overlays: t.Sequence[str] = ()) -> Entry:
    """Return a validated, fully extended profile: by its id or its model's name, or the given dictionary itself."""
    if isinstance(profile, str):
        return _found(profile, tuple(overlays), knowledge.stamp(overlays))
    if not isinstance(profile, t.Mapping):
        raise CollectionError(f"profile: a name or a dictionary is needed, not {type(profile).__name__}.")
    knowledge.validate(KIND, {k: v for k, v in profile.items() if k != "origin"}, "inline profile")
    return extended(dict(profile), knowledge.shared(KIND, overlays))


@functools.lru_cache(maxsize=256)
def _read_facts(text: str, where: str) -> Facts:
    return from_plain(Facts, json.loads(text), where)


def _facts(entry: Entry, name: str) -> Facts | None:
    """Return a model's facts; each profile's are validated once, since plans request them repeatedly."""
    return _read_facts(json.dumps(entry["facts"]), f"profile {name!r}: facts") if "facts" in entry else None


def _layers(entry: Entry, variant: str, overrides: t.Mapping[str, t.Any], tables: Tables) -> Entry:
    """Merge engine, parallel, settings and environment of profile, variant and overrides; later ones win.

    Settings become canonical layer by layer, in the vocabulary of the final engine version; `faults` holds what is wrong with each
    layer. A layer that names another engine drops the settings for the one below; `dropped` reports it.
    """
    name = entry["id"]
    variants = entry.get("variants", {})
    layers = {
        f"profile {name!r}": entry,
        f"profile {name!r}: variant {variant!r}": variants.get(variant, {}),
        "overrides": overrides,
    }
    for where, layer in layers.items():
        for key in _LAID_OVER:
            if key in layer and not isinstance(layer[key], t.Mapping):
                said = f"profile {name!r}" if where == "overrides" else where
                raise CollectionError(f"{said}: {key}: a dictionary is needed, not {layer[key]!r}.")
    chosen: Entry = {"engine": {}, "parallel": {}, "settings": {}, "environment": {}, "dropped": []}
    under: Entry = {}
    applicable_layers = dict(layers)  # layers whose settings are for the final engine
    for where, layer in layers.items():
        if _changes_engine(chosen, layer):
            chosen["dropped"].append(_left_behind({**under, "engine": chosen["engine"]}, layer))
            applicable_layers = dict(list(layers.items())[list(layers).index(where) :])
            chosen["engine"], under = {}, {}
        under = knowledge.merged(under, {key: layer.get(key, {}) for key in ("settings", "environment")})
        for key in ("engine", "parallel"):
            chosen[key] = knowledge.merged(chosen[key], layer.get(key, {}))
    dropped = [*entry.get("dropped", ()), *chosen["dropped"]]
    if dropped and "version" not in chosen["engine"]:
        raise CollectionError(
            f"profile {name!r}: engine.version is missing: {' '.join(dropped)} Give the version of "
            f"{chosen['engine']['name']} that you run, and its image."
        )
    engine = from_plain(Engine, dict(chosen["engine"]), f"profile {name!r}: engine")
    engine = dataclasses.replace(engine, version=tables.version_of(engine.name, engine.version, engine.image))
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*", engine.version):
        raise CollectionError(
            f"profile {name!r}: engine.version: {engine.version!r} is not a version. Write a release such as 0.5.12 or, if the image has "
            "none, its own name for the version, such as latest."
        )
    dialect = tables.dialect(engine.name, engine.version)
    faults: list[CollectionError] = []
    for where, layer in applicable_layers.items():
        try:
            settings, environment = canonical(layer.get("settings", {}), layer.get("environment", {}), dialect, where)
        except CollectionError as exc:
            faults.append(exc)
            continue
        chosen["settings"] = knowledge.merged(chosen["settings"], settings)
        chosen["environment"] = knowledge.merged(chosen["environment"], environment)
    return chosen | {"engine": engine, "dropped": dropped, "faults": faults}


def resolve(entry: Entry, overrides: t.Mapping[str, t.Any] | None = None, tables: Tables | None = None) -> Profile:
    """Choose the variant, apply the owner's overrides, and check everything that does not need the engine.

    Raises CollectionError naming profile and key: an unknown variant or override, a split that does not divide, a version
    outside the range that the profile claims.
    """
    overrides = overrides or {}
    name = entry["id"]
    unknown = sorted(set(overrides) - _OVERRIDES)
    if unknown:
        raise CollectionError(
            f"profile {name!r}: override {unknown[0]!r} is not one of {', '.join(sorted(_OVERRIDES))}."
        )
    variants = entry.get("variants", {})
    usual = entry.get("shapes", {}).get("mixed") or (next(iter(variants)) if variants else "default")
    variant = overrides.get("variant") or usual
    if not isinstance(variant, str) or (variants and variant not in variants):
        raise CollectionError(
            f"profile {name!r}: variant {variant!r} is not one of {', '.join(variants) or 'default'}."
        )
    chosen = _layers(entry, variant, overrides, tables or load_tables())
    parallel = {"nodes": 1, "tp": 1, "pp": 1, "ep": 1} | chosen["parallel"]
    faults: list[CollectionError] = list(chosen["faults"])
    faults += [
        CollectionError(f"profile {name!r}: parallel.{key}: {value!r} is not a whole number of at least 1.")
        for key, value in parallel.items()
        if isinstance(value, bool) or not isinstance(value, int) or value < 1
    ]
    spread = not faults[len(chosen["faults"]) :]
    engine = chosen["engine"]
    if engine.versions and not matches(engine.version, engine.versions):
        faults.append(
            CollectionError(
                f"profile {name!r}: engine.version: {engine.version} is not in the range {engine.versions} that the profile claims. "
                "Use a version in the range, or widen it to try the version unproven: engine.versions in the overrides "
                '(k8s_dgx_overrides: {engine: {versions: ""}} takes every version), or in a profile of your own.'
            )
        )
    facts = None
    try:
        facts = _facts(entry, name)
    except CollectionError as exc:
        faults.append(exc)
    parallelism = Parallelism(parallel["tp"], parallel["pp"], parallel["ep"])
    if facts and spread:
        try:
            check_parallelism(facts, parallelism)
        except CollectionError as exc:
            faults.append(CollectionError(f"profile {name!r}: parallel.{exc}"))
    if len(faults) == 1:
        raise faults[0]
    if faults:
        raise CollectionError(" ".join(map(str, faults)), findings=[f for each in faults for f in each.findings])
    changed = len(chosen["dropped"]) > len(entry.get("dropped", ()))  # by the variant or the overrides
    drafter = entry.get("drafter")
    settings = {key: value for key, value in chosen["settings"].items() if value is not None}
    return Profile(
        id=name,
        variant=variant,
        title=entry["title"],
        model=entry["model"],
        proven=variants.get(variant, {}).get("proven", entry["proven"]),
        engine=engine,
        nodes=parallel["nodes"],
        parallelism=parallelism,
        settings=settings,
        facts=facts,
        precision=DEFAULT_PRECISION | entry.get("precision", {}),
        drafter=from_plain(Drafter, drafter, f"profile {name!r}: drafter") if drafter else None,
        environment={key: str(value) for key, value in chosen["environment"].items() if value is not None},
        checkpoint_gb=entry.get("checkpoint_gb"),
        quant_method=entry.get("quant_method"),
        revision=entry.get("revision"),
        port=entry.get("port"),
        mods=() if changed else tuple(entry.get("mods", ())),
        note="" if changed else entry.get("note", ""),
        variants=tuple(variants),
        shapes=entry.get("shapes", {}),
        dropped=tuple(chosen["dropped"]),
    )
