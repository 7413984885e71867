# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds a complete profile from a model's own files: facts, precision, parsers, engine, split, a first plan, and open decisions."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, from_plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.versions import release

from ..judgement import evidence, rules
from ..model import checkpoint
from ..model.config_facts import model_facts
from ..model.model import Facts, tensors
from ..profile import profile
from ..profile.model_files import CONFIG, QUANT
from ..vocabulary import images
from ..vocabulary.settings import load_tables
from .model_source import GENERATION, INDEX, Source

Plain = dict[str, t.Any]
Plan = t.Callable[[Plain], Plain]  # plans an entry for the owner's cluster
PARSERS = ("reasoning_parser", "tool_call_parser")
ENGINES = ("vllm", "sglang")
_SPREADS = (1, 2, 3, 4, 6, 8)
_SHORT = 32768  # tokens of cache below which more nodes are tried
_STEP = 1024  # a shortened context is a multiple of this
_FREE = 0.9  # share of free memory that the weights may take if nothing else is known about the model
_FREE_USUAL = 110  # GiB, if nobody states what is free
_SIZE_OFF = 0.03  # allowance for norms, biases and uncounted towers
_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
_PROVEN = ("measured", "reported")  # best first


@dataclass(frozen=True)
class ProfileRequest:
    """The owner's wishes for the new profile; None where the program chooses."""

    id: str | None = None
    model: str | None = None
    engine: str | None = None
    nodes: int | None = None


@dataclass(frozen=True)
class ClusterSize:
    """The owner's cluster as far as a split depends on it; None where nothing is known."""

    hosts: int | None = None
    free_gib: float | None = None


@dataclass
class Made:
    """The profile, its first plan, and the open decisions, each with the profile key it concerns."""

    profile: Plain
    plan: Plain = field(default_factory=dict)
    decide: list[tuple[str, str]] = field(default_factory=list)

    def open(self, key: str, text: str) -> None:
        """Record a decision for a person, once."""
        if (key, text) not in self.decide:
            self.decide.append((key, text))


def _table(engine: str, version: str, overlays: t.Sequence[str]) -> t.Mapping[str, t.Any] | None:
    return next(
        (
            entry
            for entry in load_tables(overlays).engines.values()
            if entry["engine"] == engine and entry["version"] == version
        ),
        None,
    )


def parsers(
    model: str, model_type: str | None, engine: str, version: str, overlays: t.Sequence[str] = ()
) -> tuple[dict[str, str], list[str], str | None]:
    """Return the parsers of a model's family under the version's names, the settings left open, and the entry's id."""
    fitting = [
        entry
        for entry in knowledge.shared("parsers", overlays).values()
        if ("models" not in entry or re.search(entry["models"], model, re.IGNORECASE))
        and ("model_types" not in entry or model_type in entry["model_types"])
    ]
    entry = max(enumerate(fitting), key=lambda each: ("models" in each[1], each[0]), default=(0, None))[1]
    names = entry["engines"].get(engine) if entry else None
    if entry is None or names is None:
        return {}, list(PARSERS), None
    flags = (_table(engine, version, overlays) or {}).get("flags", {})
    found, missing = {}, []
    for setting in PARSERS:
        spec = flags.get(setting.replace("_", "-"), {})
        known = spec.get("choices") or spec.get("known")
        fit = next((name for name in names[setting] if known is None or name in known), None)
        if fit:
            found[setting] = fit
        elif names[setting]:
            missing.append(setting)
    return found, missing, str(entry["id"])


def _kin(made: Plain, engine: str | None, overlays: t.Sequence[str]) -> Plain | None:
    """Return the best-proven other profile of the same architecture, preferably with the same formats; never an untested one."""
    precision = made["precision"]
    known = profile.entries(overlays)
    same = [
        entry
        for entry in (profile.extended(dict(each), known) for each in known.values())
        if entry.get("facts", {}).get("architecture") == made["facts"]["architecture"]
        and entry["id"] != made["id"]  # an earlier version of this profile
        and entry["proven"] in _PROVEN
        and engine in (None, entry["engine"]["name"])
    ]

    def near(entry: Plain) -> tuple[bool, int, int]:
        kinds = ("experts", "dense")
        other = any(entry.get("precision", {}).get(kind, "bf16") != precision.get(kind, "bf16") for kind in kinds)
        return other, _PROVEN.index(entry["proven"]), ENGINES.index(entry["engine"]["name"])

    return min(same, key=near, default=None)


def _newest(engine: str, overlays: t.Sequence[str]) -> tuple[Plain, str]:
    """Return the engine's newest release with a flag table, and a known image of it if there is one."""
    versions = [e["version"] for e in load_tables(overlays).engines.values() if e["engine"] == engine]
    version = max(versions, key=release)
    image = next(
        (
            entry["image"]
            for entry in images.entries(overlays).values()
            if entry.get("engine") == {"name": engine, "version": version}  # a fork states none
        ),
        None,
    )
    chosen: Plain = {"name": engine, "version": version}
    return chosen | ({"image": image} if image else {}), f"the newest release of {engine} that has a table of flags"


def _decisive(kin: Plain, precision: Plain, overlays: t.Sequence[str]) -> Plain:
    """Return the settings that decide whether the related profile runs (knowledge/comparison), if both store weights alike."""
    if any(kin.get("precision", {}).get(k, "bf16") != precision.get(k, "bf16") for k in ("experts", "dense")):
        return {}
    names = evidence.decisive(overlays)
    usual = kin.get("shapes", {}).get("mixed") or next(iter(kin.get("variants", {})), "")
    settings = {**kin["settings"], **kin.get("variants", {}).get(usual, {}).get("settings", {})}
    return {name: settings[name] for name in names if settings.get(name) is not None}


def _formats(precision: Plain) -> str:
    shown = [precision.get(kind, "bf16") for kind in ("experts", "dense") if kind in precision] or ["bf16"]
    return "/".join(dict.fromkeys((each["rest"] if isinstance(each, dict) else each).upper() for each in shown))


def _named_formats(model: str, overlays: t.Sequence[str]) -> str:
    """Return the formats that a model's name states."""
    known = {
        str(word).upper() for entry in checkpoint.entries(overlays) for word in (entry["id"], *entry.get("methods", ()))
    }
    return "/".join(sorted(set(re.split(r"[^A-Z0-9]+", model.upper())) & known))


def _sampling(source: Source) -> Plain:
    given = source.files.get(GENERATION, {})
    return {
        key: given[key]
        for key in _SAMPLING
        if isinstance(given.get(key), (int, float)) and not isinstance(given[key], bool)
    }


def _described(source: Source, made: Made, overlays: t.Sequence[str]) -> Plain:
    """Read facts, precision and size into the profile; return the result of `model_facts`."""
    where = f"{source.where}/{CONFIG}"
    names: list[str] = []
    size: int | None = None
    if source.headers:
        names, size = checkpoint.of_headers(source.headers, source.where)
    elif INDEX in source.files:
        names, size = checkpoint.indexed(source.files[INDEX], f"{source.where}/{INDEX}")
    formats = checkpoint.formats(names, overlays)
    found = model_facts(source.files[CONFIG], source.files.get(QUANT), overlays, where, formats)
    if found["facts"] is None:
        weighs = f" Its checkpoint has {size / 1e9:.0f} GB; the number of Sparks follows from that." if size else ""
        made.open(
            "facts",
            f"{' '.join(found['unread'])} The list of facts is in the guide; without it neither memory nor speed is planned.{weighs}",
        )
    else:
        for text in found["unread"]:
            made.open("facts" if "not counted" in text else "precision", text)
    for key in dict.fromkeys(name.partition(".")[0] for name in found["inferred"]):
        listed = ", ".join(name for name in found["inferred"] if name.partition(".")[0] == key)
        made.open(key, f"inferred, not read: {listed}. Compare with the model's card.")
    if found["drafter"]:
        made.open(
            "model",
            "this is a draft model: it belongs in the drafter of its target's profile, not in a profile of its own.",
        )
    if found["facts"]:
        made.profile["facts"] = found["facts"]
    made.profile["precision"] = found["precision"]
    if found["quantization"]["method"]:
        made.profile["quant_method"] = found["quantization"]["method"].lower()
    named = _named_formats(made.profile["model"], overlays)
    if found["facts"] and named and not names and not found["precision"]:
        made.open(
            "precision",
            f"the name says {named}, and no file that was read says how tensors are stored: BF16 is assumed.",
        )
    if size:
        made.profile["checkpoint_gb"] = float(f"{size / 1e9:.4g}")
        if found["facts"]:
            stored = profile.DEFAULT_PRECISION | found["precision"]
            derived = sum(each.bytes for each in tensors(from_plain(Facts, found["facts"], where), stored))
            if abs(derived - size) > _SIZE_OFF * size:
                made.open(
                    "precision",
                    f"facts and precision come to {derived / 1e9:.1f} GB, the checkpoint has {size / 1e9:.1f} GB: one of them is wrong.",
                )
    return found


def _sources(source: Source, found: Plain, engine: str, entry: str | None, kin: Plain | None) -> list[Plain]:
    at = f" at {source.revision}" if source.revision else ""
    facts = "inferred" if "facts" in found["inferred"] else "vendor"
    read = ", ".join(name for name in (QUANT, INDEX) if name in source.files) or CONFIG
    listed = []
    if found["facts"]:
        listed.append({"of": "facts", "from": f"{CONFIG} of {source.where}{at}", "verified": facts})
        listed.append({"of": "precision", "from": f"{read} of {source.where}{at}", "verified": "vendor"})
    listed.append({"of": "engine", "from": engine, "verified": "inferred"})
    own = [f"parsers: knowledge/parsers, {entry}"] if entry else []
    own += [f"kernels: profile {kin['id']}"] if kin else []
    listed.append({"of": "settings", "from": "; ".join([*own, "the rest by the plan"]), "verified": "inferred"})
    return listed


def _errors(made: Plain) -> list[str]:
    return [each["rule"] for each in made["findings"] if each["severity"] == "error"]


def _fits(entry: Plain, plan: Plan, free_gib: float | None) -> str:
    """Return why a split does not fit; empty if it fits with the model's own context or the shortest useful one."""
    native, weighs = entry.get("facts", {}).get("native_context"), entry.get("checkpoint_gb")
    nodes = entry["parallel"]["nodes"]
    if not native:  # nothing but the size of its files is known
        free = _FREE * (free_gib or _FREE_USUAL)
        too_large = weighs and weighs * 1e9 / 2**30 / nodes > free
        return f"its files take {weighs / nodes:.0f} GB on each." if too_large else ""
    least, why = min(native, _SHORT), ""
    for settings in ({}, {"context_length": least}):
        made = plan({**entry, "settings": {**entry["settings"], **settings}})
        tokens = made["memory"]["kv_tokens"]
        why = next(
            (
                f"{each['rule']}: {each['message']}"
                for each in made["findings"]
                if each["severity"] == "error" and each["rule"].startswith(("memory.", "topology."))
            ),
            f"the cache holds {tokens} tokens; the minimum is {least}." if tokens < least else "",
        )
        if not why:
            break
    return why


def _spread(made: Made, wanted: ProfileRequest, plan: Plan, size: ClusterSize) -> None:
    """Choose the fewest nodes that hold the model and a cache, and plan it there."""
    most = size.hosts or max(_SPREADS)
    tried = [wanted.nodes] if wanted.nodes else [n for n in _SPREADS if n <= most]
    refused: CollectionError | None = None
    why = ""
    for nodes in tried:
        entry = {**made.profile, "parallel": {"nodes": nodes, "tp": nodes, "pp": 1, "ep": 1}}
        try:
            why = _fits(entry, plan, size.free_gib)
            found = plan(entry)
        except CollectionError as exc:
            refused = exc
            continue
        made.profile, made.plan = entry, found
        if not why:
            break
    if refused is not None and not made.plan:
        raise refused
    if why:
        nodes = made.profile["parallel"]["nodes"]
        made.open("parallel", f"it does not fit on {'one Spark' if nodes == 1 else f'{nodes} Sparks'}: {why}")


def _ways_out(made: Made, plan: Plan, overlays: t.Sequence[str]) -> list[str]:
    """Apply the fixes that rules give for the plan's errors; return the rules whose fixes were applied."""
    known, followed = rules.entries(overlays), []
    for rule in _errors(made.plan):
        fixes = known.get(rule, {}).get("fix", [])
        for fix in fixes if isinstance(fixes, list) else [fixes]:
            own = fix.get("settings", {})
            # Skip fixes that take values from the plan or change more than settings.
            if not own or any("{" in str(value) for value in own.values()) or set(fix) - {"settings", "parallel"}:
                continue
            settings = {**made.profile["settings"], **own}
            entry = {**made.profile, "settings": {key: value for key, value in settings.items() if value is not None}}
            try:
                found = plan(entry)
            except CollectionError:
                continue
            if set(_errors(found)) < set(_errors(made.plan)):
                made.profile, made.plan = entry, found
                followed.append(rule)
                break
    return followed


def _context(made: Made, plan: Plan) -> None:
    """Set the context length: the model's own, or what the cache holds."""
    native, memory = made.profile.get("facts", {}).get("native_context"), made.plan["memory"]
    if not native:
        return
    length = native
    if memory and 0 < memory["kv_tokens"] < native:
        length = max(memory["kv_tokens"] // _STEP * _STEP, _STEP)
        made.open(
            "settings",
            f"context_length: the cache holds {memory['kv_tokens']} tokens of the model's {native}; more nodes hold more.",
        )
    made.profile["settings"] = {"context_length": length, **made.profile["settings"]}
    made.plan = plan(made.profile)


def _name(source: Source, wanted: ProfileRequest, made: Made) -> str:
    model = wanted.model or source.model
    if model is None:
        model = "local/" + re.sub(r"[^\w.-]", "-", source.where.rstrip("/").rpartition("/")[2] or "model")
        made.open(
            "model",
            "the model's name on the hub, org/name: the Sparks fetch weights by that name (dgxspark_profile_model=…).",
        )
    return model


def _id(model: str, wanted: ProfileRequest) -> str:
    if wanted.id:
        return wanted.id
    slug = re.sub(r"[^a-z0-9_.-]", "-", model.rpartition("/")[2].lower()).lstrip("_.-") or "model"
    shipped = profile.entries()
    return f"own-{slug}" if slug in shipped else slug


def new_profile(
    source: Source,
    wanted: ProfileRequest,
    plan: Plan,
    size: ClusterSize,
    overlays: t.Sequence[str] = (),
) -> Made:
    """Build a complete profile from a model's files, and plan it for the owner's cluster, which `plan` knows.

    Raises CollectionError, naming file and key, for invalid files or if no split is possible.
    """
    made = Made({})
    model = made.profile["model"] = _name(source, wanted, made)
    found = _described(source, made, overlays)
    facts, precision = made.profile.get("facts"), made.profile["precision"]
    made.profile["id"] = _id(model, wanted)
    kin = _kin(made.profile, wanted.engine, overlays) if facts else None
    if kin:
        engine = dict(kin["engine"])
        why = f"as profile {kin['id']} of the same architecture ({kin['proven']})"
    else:
        engine, why = _newest(wanted.engine or ENGINES[0], overlays)
    if "image" not in engine:
        made.open(
            "engine", f"image: none with {engine['name']} {engine['version']} is known here. Name the one that you run."
        )
    model_type = source.files[CONFIG].get("model_type")
    taken, missing, entry = parsers(model, model_type, engine["name"], engine["version"], overlays)
    for setting in missing:
        known = (
            "knowledge/parsers has no entry for it"
            if entry is None
            else f"{engine['version']} does not have the family's parser"
        )
        made.open("settings", f"{setting}: {known}. Name one of {engine['name']}'s, or leave it out.")
    settings = _decisive(kin, precision, overlays) if kin else {}
    if engine["name"] == "vllm" and "tool_call_parser" in taken:
        settings["enable_auto_tool_choice"] = True
    sampling = _sampling(source)
    body = {
        "id": "",
        "title": "",
        "model": model,
        **({"revision": source.revision} if source.revision else {}),
        "proven": "untested",
        **made.profile,
        "engine": engine,
        "parallel": {},
        "settings": settings | taken,
        **({"sampling": sampling} if sampling else {}),
        "source": _sources(source, found, why, entry, kin if settings else None),
    }
    made.profile = body | {"title": model}  # the plan needs one
    _spread(made, wanted, plan, size)
    _context(made, plan)
    if followed := _ways_out(made, plan, overlays):
        made.profile["source"].append(
            {"of": "settings", "from": f"the way out of {', '.join(followed)}", "verified": "inferred"}
        )
    nodes = made.profile["parallel"]["nodes"]
    place = "one Spark" if nodes == 1 else f"{nodes} Sparks"
    stored = [_formats(precision)] if facts else []
    made.profile["title"] = ", ".join([model.rpartition("/")[2], *stored, place])
    made.plan["title"] = made.profile["title"]
    if facts and facts.get("head") and "speculative_algorithm" not in made.profile["settings"]:
        made.open(
            "settings",
            "speculative_algorithm: the checkpoint has a prediction head (MTP) of its own; it is off until you enable it.",
        )
    for each in made.plan["findings"]:
        if each["severity"] == "error":
            made.open("settings", f"{each['rule']}: {each['message']} {each['remedy']}")
    return made
