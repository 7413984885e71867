# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From profile and cluster to resolved settings, draft, memory, findings, evidence and verdict. Builds no argv."""

from __future__ import annotations

import dataclasses
import functools
import json
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import GIB, CollectionError, Finding
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge, looks
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.known_bad import platform_findings
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.versions import matches

from ..model import estimate, memory, speculation, vllm_cache
from ..model.model import BYTES, Cut, Facts, Nvfp4Layout
from ..profile.profile import Drafter, Engine, Profile
from ..vocabulary import flag_table, images
from ..vocabulary.hub_names import model_key
from ..vocabulary.settings import Tables, load_tables
from . import evidence, facts, findings, patches, resolved, rules

Verdict = t.Literal["blocked", "unproven", "proven"]
# The parts of a plan's document that depend only on the model.
_OF_FACTS = (("model",), ("quant",), ("memory",), ("context", "native"), ("context", "over_native"))


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
        known_bad=tuple(knowledge.load("versions", overlays).values()),
        looked=looks.parts(overlays),
        measurements=tuple(knowledge.load("measurements", overlays).values()),
        constants=knowledge.load("constants", overlays),
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
        canvases=memory.Canvases(number("memory.canvas_copies"), number("memory.canvas_logits"), counted),
        layout=Nvfp4Layout(
            *(int(number(f"memory.{name}")) for name in ("scale_copies", "expert_rows", "mxfp4_rows", "mxfp4_width"))
        ),
    )


@dataclass(frozen=True)
class Judgement:
    """The decision. settings: requested and added; added: what the plan added itself; conflict: rules and rows disagree.

    offers: what the findings' remedies change, by their ids.
    """

    verdict: Verdict
    settings: dict[str, t.Any]
    added: dict[str, t.Any]
    runs: resolved.Resolved
    draft: speculation.Draft | None
    pools: memory.Pools | None
    findings: tuple[Finding, ...]
    rows_seen: evidence.MatchingRows
    conflict: bool
    environment: dict[str, str]
    patches: tuple[knowledge.Entry, ...] = ()
    offers: t.Mapping[str, rules.Offer] = dataclasses.field(default_factory=dict)


def _vllm_method(settings: t.Mapping[str, t.Any], tables: Tables, version: str) -> str:
    """Return vLLM's own name for the algorithm: `NEXTN` is `mtp` there."""
    entry = tables.settings["speculative_algorithm"]
    return str(flag_table.translate(settings.get("speculative_algorithm", "draft_model"), entry["vllm"][0], None))


def drafted(profile: Profile, tables: Tables) -> tuple[speculation.Draft | None, list[Finding]]:
    """Resolve speculation; what the engine would reject becomes a finding, and the plan continues with steps + 1."""
    settings = profile.settings
    algorithm = settings.get("speculative_algorithm")
    if not algorithm:
        return None, []
    source = ("DESIGN, draft tokens; SGLang 0.5.10 server_args.py:3079 and its successors",)
    try:
        if profile.engine.name == "vllm":
            method = _vllm_method(settings, tables, profile.engine.version)
            return speculation.vllm_draft(method, settings.get("speculative_num_steps")), []
        draft = speculation.sglang_draft(
            algorithm,
            settings.get("speculative_num_steps"),
            settings.get("speculative_num_draft_tokens"),
            settings.get("speculative_eagle_topk"),
            version=profile.engine.version,
            frozen_drafter=bool(profile.drafter and profile.drafter.frozen_kv),
            gamma=profile.drafter.gamma if profile.drafter else None,
            block=settings.get(f"speculative_{str(algorithm).lower()}_block_size"),
        )
    except CollectionError as exc:
        if not exc.findings:
            raise
        steps = settings.get("speculative_num_steps") or 1
        draft = speculation.Draft(str(algorithm).upper(), steps, 1, steps + 1, False, exc.findings[:1])
    return draft, [dataclasses.replace(item, names=(item.subject,), source=source) for item in draft.findings]


def _measured_weights(profile: Profile, known: t.Sequence[knowledge.Entry]) -> tuple[float, str, bool] | None:
    for entry in known:
        same = (model_key(entry["model"]), entry["engine"], entry["tp"], entry["pp"]) == (
            model_key(profile.model),
            profile.engine.name,
            profile.cut.tp,
            profile.cut.pp,
        )
        if same and entry.get("ep", profile.cut.ep) == profile.cut.ep:
            return entry["weights_gib"], f"measured: {entry['source'][0]}", bool(entry.get("with_head"))
    return None


def _kept_by_loader(profile: Profile, known: Base) -> float:
    """Return the GiB that the load method keeps permanently, if measured."""
    name = f"memory.load.{profile.settings.get('load_format')}"
    return known.constant(name, profile.engine.name, profile.engine.version) if name in known.constants else 0.0


def _checkpoints(facts_: Facts, engine: Engine, known: Base) -> int:
    """Return the states that vLLM keeps from a prefill besides the last two, if its kernel exports them."""
    if facts_.linear is None or facts_.linear.kind != "mamba2":
        return 0
    return int(known.constant("memory.vllm_checkpoints", engine.name, engine.version))


def _layout(profile: Profile, draft: speculation.Draft | None, head: bool, known: Base) -> vllm_cache.Layout:
    """Lay out vLLM's cache as its version does."""
    engine, settings, facts_ = profile.engine, profile.settings, t.cast(Facts, profile.facts)
    found = vllm_cache.kinds(
        facts_,
        profile.cut,
        settings,
        head=head,
        drafts=draft.steps if draft else 0,
        drafter=profile.drafter.attention if profile.drafter and draft else (),
        checkpoints=_checkpoints(facts_, engine, known),
        aligned=bool(known.constant("memory.vllm_block_aligned", engine.name, engine.version)),
    )
    ratio = known.constant("memory.vllm_group_ratio", engine.name, engine.version)
    ahead = (
        known.constant("memory.vllm_batches", engine.name, engine.version) if profile.cut.pp == 1 else profile.cut.pp
    )
    batched = settings.get("chunked_prefill_size")
    return vllm_cache.layout(
        found, vllm_cache.Version(ratio, int(ahead)), batched if isinstance(batched, int) and batched > 0 else 8192
    )


def pools_of(
    profile: Profile, draft: speculation.Draft | None, free: memory.Free | None, known: Base
) -> memory.Pools | None:
    """Plan one rank's memory; None for an unknown model. free: of the rank with the least, None: not measured."""
    if profile.facts is None:
        return None
    measured = _measured_weights(profile, known.measurements)
    drafter = profile.drafter
    head = bool(draft and not drafter and profile.facts.head)
    given = assumed(known, profile.engine.name, profile.engine.version)
    need = memory.demand(
        profile.facts,
        profile.precision,
        profile.cut,
        profile.settings,
        dataclasses.replace(given, load=given.load + _kept_by_loader(profile, known)),
        engine=profile.engine.name,
        head=head,
        drafter_gib=drafter.params * BYTES[drafter.precision] / profile.cut.tp / GIB if drafter and draft else 0.0,
        measured_weights=measured[:2] if measured else None,
        all_layers=facts.all_layers(profile),
    )
    if measured and measured[2] and head:
        # The measured figure includes the head.
        need = dataclasses.replace(need, draft=0.0, load_peak=need.load_peak - need.draft)
    asked = profile.settings.get("context_length")
    length = asked if isinstance(asked, int) and asked > 0 else profile.facts.native_context  # vLLM: auto and -1
    free = free or memory.Free(known.constant("memory.free_default"), known.constant("memory.free_most"))
    if profile.engine.name == "vllm":
        return memory.vllm_pools(
            need,
            free.sure,
            known.constant("memory.total"),
            profile.settings,
            free_most=free.most,
            context_length=length,
            cache=_layout(profile, draft, head, known),
            logs_concurrency=matches(profile.engine.version, ">=0.20.2"),
        )
    return memory.sglang_pools(
        need,
        free.sure,
        profile.settings,
        free_most=free.most,
        speculative=draft is not None,
        draft_tokens=draft.tokens if draft else 0,
        context_length=length,
    )


def additions(
    profile: Profile, runs: t.Mapping[str, t.Any], draft: speculation.Draft | None, pools: memory.Pools | None
) -> dict[str, t.Any]:
    """Return the settings that the plan adds: the memory knob, the request limit, draft tokens, a raised context limit.

    runs: the resolved settings before the plan added any.
    """
    settings = profile.settings
    added: dict[str, t.Any] = {}
    if pools and pools.chosen_by == "planned":
        added[pools.knob] = pools.chosen
    if profile.engine.name != "sglang":
        return added
    assumed_gamma = draft and any(found.id == speculation.ASSUMED_GAMMA for found in draft.findings)
    if draft and not assumed_gamma and settings.get("speculative_num_draft_tokens") != draft.tokens:
        added["speculative_num_draft_tokens"] = draft.tokens
    if draft and draft.algorithm in speculation.FORCED | {speculation.FROZEN}:
        # SGLang uses its own steps only if none of the three is given, and compares an unset top-k with 1.
        for name, value in (("speculative_num_steps", draft.steps), ("speculative_eagle_topk", draft.topk)):
            if name not in settings:
                added[name] = value
    graph, running = runs.get("cuda_graph_max_bs"), runs.get("max_running_requests")
    if "max_running_requests" not in settings and graph and not runs.get("disable_cuda_graph"):
        slots = pools.mamba_slots if pools else None
        per_request = pools.slots_per_request if pools else None
        states = slots // per_request if slots and per_request else graph
        if states > 0 and (running is None or running > graph):
            added["max_running_requests"] = min(states, graph)
    model, length = profile.facts, settings.get("context_length")
    longer = model and isinstance(length, int) and model.position == "none" and length > model.native_context
    if longer and "json_model_override_args" not in settings:
        added["json_model_override_args"] = json.dumps({"max_position_embeddings": length})
    return added


def _with_added(
    profile: Profile,
    draft: speculation.Draft | None,
    before: resolved.Resolved,
    added: t.Mapping[str, t.Any],
    known: Base,
) -> resolved.Resolved:
    """Return the resolved settings with the plan's additions; resolve again if a choice of this version depends on them."""
    engine = profile.engine
    if resolved.read(known.choices, engine.name, engine.version) & added.keys():
        before = running(dataclasses.replace(profile, settings={**profile.settings, **added}), draft, known)
    return before.with_added(added)


def _document(profile: Profile, draft: speculation.Draft | None, known: Base) -> dict[str, t.Any]:
    """Return the plan's document that choices read, before its settings are resolved."""
    return {
        "model": facts.model_facts(profile),
        "quant": facts.quant_facts(profile),
        "parallel": facts.spread(profile),
        "engine": {"name": profile.engine.name, "version": profile.engine.version},
        "image": {"features": images.find_image(known.images, profile.engine.image).get("features", {})},
        "speculation": {"on": draft is not None, **({} if draft is None else dataclasses.asdict(draft))},
    }


def running(profile: Profile, draft: speculation.Draft | None, known: Base) -> resolved.Resolved:
    """Resolve a profile's settings, before the plan adds any."""
    engine = profile.engine
    return resolved.resolve(
        profile.settings,
        _document(profile, draft, known),
        known.choices,
        known.tables,
        engine.name,
        engine.version,
        profile.cut.tp,
    )


@dataclass(frozen=True)
class _Made:
    """The parts of a model that an engine's choices depend on."""

    facts: Facts | None
    precision: tuple[tuple[str, t.Any], ...]
    drafter: Drafter | None


def _made(profile: Profile) -> _Made:
    kinds = sorted(profile.precision.items())
    stored = tuple((kind, form if isinstance(form, str) else tuple(sorted(form.items()))) for kind, form in kinds)
    return _Made(profile.facts, stored, profile.drafter)


@functools.lru_cache(maxsize=4096)
def _row_run(row: evidence.Row, made: _Made, known: Base) -> evidence.Run:
    """Resolve what a row ran, with the facts of the plan's model. Cached, since there are many rows and they never change."""
    run = row.run
    measured = Profile(
        id=row.id,
        variant="",
        title="",
        model=run.model,
        proven="",
        engine=Engine(run.engine, run.version, "", run.image),
        nodes=run.nodes,
        cut=Cut(run.tp, run.pp, run.ep),
        settings=run.settings,
        environment=run.environment,
        facts=made.facts,
        precision={kind: form if isinstance(form, str) else dict(form) for kind, form in made.precision},
        drafter=made.drafter,
        revision=run.revision,
    )
    draft, _findings = drafted(measured, known.tables)
    runs = running(measured, draft, known)
    found = _run(measured, runs, {}, known)
    if row.free_gib is None:
        return found
    ran = dataclasses.replace(measured, settings=runs.settings)
    pools = pools_of(ran, draft, memory.Free(row.free_gib, row.free_gib), known) if row.verdict == "crash" else None
    return dataclasses.replace(found, free_gib=row.free_gib, starved=pools is not None and pools.kv <= 0)


def _run(profile: Profile, runs: resolved.Resolved, document: t.Mapping[str, t.Any], known: Base) -> evidence.Run:
    scheduled = document["patches"]["scheduled"] if document else ()
    configuration = evidence.Configuration(
        model=profile.model,
        engine=profile.engine.name,
        version=profile.engine.version,
        image=profile.engine.image,
        nodes=profile.nodes,
        tp=profile.cut.tp,
        pp=profile.cut.pp,
        ep=profile.cut.ep,
        settings=profile.settings,
        revision=profile.revision,
        environment=profile.environment,
        patches=tuple(one for one in scheduled if one not in known.standard.same_numerics),
    )
    parser = known.tables.nearest(profile.engine.name, profile.engine.version)
    return evidence.Run(configuration, runs, document, lambda key: resolved.flag_default(key, parser)[0])


def _newer(platform: t.Mapping[str, str], known: Base) -> list[Finding]:
    """Return the finding on parts of the platform that are newer than the knowledge."""
    said = looks.newer_parts(platform, known.looked)
    text = " ".join(said.values())
    return (
        [Finding("platform.newer", "info", "", text, looks.REMEDY, tuple(said), ("knowledge/looks",))] if said else []
    )


def judge(
    profile: Profile,
    known: Base,
    *,
    free: memory.Free | None = None,
    platform: t.Mapping[str, str] | None = None,
    kernels: t.Mapping[str, t.Sequence[str]] | None = None,
    accept: t.Collection[str] = (),
    use_evidence: bool = True,
) -> Judgement:
    """Judge a profile. accept: ids of error rules that the owner overrules (they become warnings and stay visible).

    kernels: hosts by kernel, as the nodes reported; the owner's platform takes precedence.
    """
    engine = profile.engine
    draft, found = drafted(profile, known.tables)
    before = running(profile, draft, known)
    asked = dataclasses.replace(profile, settings=before.settings)
    pools = pools_of(asked, draft, free, known)
    added = additions(profile, before.settings, draft, pools)
    runs = _with_added(profile, draft, before, added, known)
    if added.get("max_running_requests") and pools:
        by = pools.chosen_by
        limited = {key: value for key, value in runs.settings.items() if key != pools.knob or by == "given"}
        pools = pools_of(dataclasses.replace(profile, settings=limited), draft, free, known)
        if pools and pools.knob in added:
            runs = runs.with_added({pools.knob: pools.chosen})
            added[pools.knob] = pools.chosen
    settings = {**profile.settings, **added}
    image = images.find_image(known.images, engine.image)
    judged = dataclasses.replace(profile, settings=runs.settings)
    off = known.constant("memory.cache_error", engine.name, engine.version)
    document = facts.document(judged, runs.settings, draft, pools, image.get("features", {}), cache_off=off)
    unknown = dict(runs.unknown)
    if profile.facts is None:
        unknown |= dict.fromkeys(_OF_FACTS, ())
    if ("settings", "quantization") in unknown:
        unknown[rules.TOOL] = ("modelopt", "compressed-tensors", "none")
    start_up = patches.needed(known.patches, engine.name, engine.version, document, unknown)
    document["patches"] = facts.patch_facts([patch["id"] for patch in start_up])
    concerned = rules.concerned(known.rules, engine.name, engine.version)
    ruling = rules.evaluate(concerned, document, unknown, runs.because)
    found += [*ruling.findings, *findings.of_unjudged(profile, ruling.unjudged), *findings.of_image(profile, image)]
    platform = platform or {}
    more, environment = platform_findings(platform, known.known_bad)
    found += more
    for kernel, hosts in () if platform.get("kernel") else (kernels or {}).items():
        shown = {"kernel": kernel, "cmdline": platform.get("cmdline", "")}
        bad_kernel, _none = platform_findings(shown, known.known_bad, whole="cmdline" in platform)
        found += [dataclasses.replace(f, message=f"{', '.join(hosts)}: {f.message}") for f in bad_kernel]
    found += _newer({"kernel": ", ".join(kernels or ()), **platform}, known)
    rows = known.rows.get((model_key(profile.model), engine.name), ()) if use_evidence else ()
    made = _made(profile)
    run = dataclasses.replace(
        _run(profile, runs, document, known), free_gib=free.sure if free and free.sure == free.most else None
    )
    rows_seen = evidence.rows_seen(run, rows, known.standard, lambda row: _row_run(row, made, known))
    bad = findings.measured(rows_seen)
    found += findings.flawed(rows_seen)
    errors = any(f.severity == "error" and f.id not in accept for f in (*found, *bad))
    stable = "stable" in rows_seen.verdicts
    found = [
        dataclasses.replace(f, severity="warning", message=f"Accepted by the owner: {f.message}")
        if f.severity == "error" and f.id in accept
        else f
        for f in (*bad, *found)
    ]
    verdict: Verdict = "unproven"
    if errors:
        verdict = "blocked"
    elif rows_seen.proven and not bad and (pools is None or pools.kv_tokens_most > 0):
        verdict = "proven"
    conflict = stable and (errors or bool(bad))
    offers = {**ruling.offers, **findings.offers(rows_seen)} if bad else ruling.offers
    return Judgement(
        verdict, settings, added, runs, draft, pools, tuple(found), rows_seen, conflict, environment, start_up, offers
    )
