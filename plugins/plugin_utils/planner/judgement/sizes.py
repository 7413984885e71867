# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The first two steps of a judgement: what the engine runs with (resolve), and what its memory holds then (size)."""

from __future__ import annotations

import dataclasses
import json
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import GIB, CollectionError, Finding
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.versions import matches

from ..model import memory, speculation, vllm_cache
from ..model.model import BYTES, Facts
from ..profile.profile import Engine, Profile, entries
from ..vocabulary import flag_table, images
from ..vocabulary.hub_names import model_key
from ..vocabulary.settings import Tables
from . import facts, resolved
from .knowledge_base import Base, assumed


@dataclass(frozen=True)
class Settled:
    """What an engine runs with before the plan adds anything. profile: as asked; findings: what it rejects of speculation."""

    profile: Profile
    draft: speculation.Draft | None
    runs: resolved.Resolved
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class Sized:
    """One rank's memory with what the plan adds. pools: None for an unknown model."""

    runs: resolved.Resolved
    added: dict[str, t.Any]
    pools: memory.Pools | None


def resolve(profile: Profile, known: Base) -> Settled:
    """Resolve speculation and every setting that is left open."""
    draft, found = drafted(profile, known.tables)
    return Settled(profile, draft, running(profile, draft, known), tuple(found))


def size(settled: Settled, free: memory.Free | None, known: Base) -> Sized:
    """Plan one rank's memory, and add what it decides: the memory knob, the limit of requests, draft tokens."""
    profile, draft, before = settled.profile, settled.draft, settled.runs
    pools = pools_of(dataclasses.replace(profile, settings=before.settings), draft, free, known)
    added = additions(profile, before.settings, draft, pools)
    runs = _with_added(profile, draft, before, added, known)
    if not added.get("max_running_requests") or pools is None:
        return Sized(runs, added, pools)
    # The limit changes what each request may hold: sized once more with it, and with the knob left open unless it is given.
    limited = {key: value for key, value in runs.settings.items() if key != pools.knob or pools.chosen_by == "given"}
    again = pools_of(dataclasses.replace(profile, settings=limited), draft, free, known)
    if again is None or again.knob not in added:
        return Sized(runs, added, again)
    knob = {again.knob: again.chosen}
    return Sized(runs.with_added(knob), added | knob, again)


def _vllm_method(profile: Profile, tables: Tables) -> str:
    """Return vLLM's own name for the algorithm: `NEXTN` is `mtp` there. Empty: it drafts nothing."""
    algorithm, drafter = (profile.settings.get(f"speculative_{key}") for key in ("algorithm", "draft_model_path"))
    if algorithm:
        return str(flag_table.translate(algorithm, tables.settings["speculative_algorithm"]["vllm"][0], None))
    if not isinstance(drafter, str) or not drafter:
        return ""
    stated = [each.get("drafter") or {} for each in entries().values()]
    assistants = {model_key(str(each["model"])) for each in stated if each.get("frozen_kv")}
    if profile.drafter and profile.drafter.frozen_kv:
        assistants.add(model_key(profile.drafter.model))
    return speculation.vllm_method(drafter, own_head=model_key(drafter) in {model_key(profile.model), *assistants})


def drafted(profile: Profile, tables: Tables) -> tuple[speculation.Draft | None, list[Finding]]:
    """Resolve speculation; what the engine would reject becomes a finding, and the plan continues with steps + 1."""
    settings = profile.settings
    vllm = profile.engine.name == "vllm"
    algorithm = _vllm_method(profile, tables) if vllm else settings.get("speculative_algorithm")
    if not algorithm:
        return None, []
    source = ("SGLang 0.5.10 server_args.py:3079 and its successors",)
    try:
        if vllm:
            return speculation.vllm_draft(algorithm, settings.get("speculative_num_steps")), []
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
            profile.parallelism.tp,
            profile.parallelism.pp,
        )
        if same and entry.get("ep", profile.parallelism.ep) == profile.parallelism.ep:
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
        profile.parallelism,
        settings,
        head=head,
        drafts=draft.steps if draft else 0,
        drafter=profile.drafter.attention if profile.drafter and draft else (),
        checkpoints=_checkpoints(facts_, engine, known),
        aligned=bool(known.constant("memory.vllm_block_aligned", engine.name, engine.version)),
    )
    ratio = known.constant("memory.vllm_group_ratio", engine.name, engine.version)
    ahead = (
        known.constant("memory.vllm_batches", engine.name, engine.version)
        if profile.parallelism.pp == 1
        else profile.parallelism.pp
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
        profile.parallelism,
        profile.settings,
        dataclasses.replace(given, load=given.load + _kept_by_loader(profile, known)),
        engine=profile.engine.name,
        head=head,
        drafter_gib=drafter.params * BYTES[drafter.precision] / profile.parallelism.tp / GIB
        if drafter and draft
        else 0.0,
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
        pools = memory.vllm_pools(
            need,
            free.sure,
            known.constant("memory.total"),
            profile.settings,
            free_most=free.most,
            context_length=length,
            cache=_layout(profile, draft, head, known),
            logs_concurrency=matches(profile.engine.version, ">=0.20.2"),
        )
    else:
        pools = memory.sglang_pools(
            need,
            free.sure,
            profile.settings,
            free_most=free.most,
            speculative=draft is not None,
            draft_tokens=draft.tokens if draft else 0,
            context_length=length,
        )
    return dataclasses.replace(pools, free_even=free.even)


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
        profile.parallelism.tp,
    )
