# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The facts that rules may read: makes the plan's document, whose parts document.py names and describes."""

from __future__ import annotations

import functools
import math
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import from_json
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.versions import matches, names_release

from ..model.memory import Pools
from ..model.model import KV_BYTES, KV_WIDE, Facts, Format, Parallelism, check_parallelism
from ..model.speculation import Draft
from ..model.vllm_cache import MLA_TOKEN_BYTES, SLOTS
from ..profile.profile import DEFAULT_PRECISION, Profile
from .document import Memory, Model, Parallel, Patches, PlanDocument, Quant

CLASSES = "model_classes"
# What a model's class supports, by its entry in `knowledge/model_classes`.
ABLE = ("pipeline", "start_layer", "balanced", "states_all")
# Whether a version has the class; if not, whether a Transformers class can replace it; if so, whether nothing there knows the
# configuration.
THERE = ("registered", "transformers", "config_unknown")
# What a version states about an architecture whether or not it has the class.
ANYWAY = ("mtp_refused",)
_FP4 = {"nvfp4", "mxfp4"}
_WHOLE = {"bf16", "fp32"}  # formats of a checkpoint that is not quantized
Document = dict[str, t.Any]


@functools.cache
def image_features() -> tuple[str, ...]:
    """Return the names of the features an image may have, from its schema."""
    return tuple(knowledge.schema("images")["properties"]["features"]["properties"])


def able(architecture: str, engine: str, version: str, overlays: t.Sequence[str] = ()) -> dict[str, bool | None]:
    """Return what a model's class supports in an engine version, and whether the version has it; None if not read there."""
    entry = knowledge.shared(CLASSES, overlays).get(f"{engine}-{architecture}", {})
    read = entry.get("read", {})

    def holds(fact: str) -> bool:
        return any(matches(version, one) for one in entry.get(fact, ()))

    said: dict[str, bool | None] = dict.fromkeys((*THERE, *ANYWAY, *ABLE))
    if holds("versions"):
        facts = (fact for fact in read.get("facts", ABLE) if fact != "transformers")
        return said | {"registered": True} | {fact: holds(fact) for fact in facts}
    if read and matches(version, read["versions"]):
        facts = (fact for fact in read["facts"] if fact in ("transformers", *ANYWAY))
        return said | {"registered": False} | {fact: holds(fact) for fact in facts}
    return said


def having(architecture: str, engine: str, overlays: t.Sequence[str] = ()) -> str:
    """Return the engine versions with a model's class, as text; empty if not read."""
    return " or ".join(knowledge.shared(CLASSES, overlays).get(f"{engine}-{architecture}", {}).get("versions", ()))


def all_layers(profile: Profile) -> bool:
    """Whether each pipeline stage of SGLang keeps a cache of all layers: its model class is known not to tell the stage's own."""
    engine, facts = profile.engine, profile.facts
    if engine.name != "sglang" or profile.parallelism.pp == 1 or facts is None:
        return False
    return able(facts.architecture, engine.name, engine.version)["start_layer"] is False


def merge_state_threads(heads: int, head_dim: int, tp: int) -> int:
    """Return the threads per block of FlashInfer's MergeState, which joins attention over the prompt and over its cached part.

    FlashInfer 0.6.7 attention/cascade.cuh: head_dim / vec_size threads per head, 16-bit values, 16 bytes or more
    at once. CUDA does not launch blocks of more than 1024 threads.
    """
    vector = max(8, head_dim // 32)
    return heads // tp * (head_dim // vector)


def kv_heads_misfit(facts: Facts | None, tp: int) -> int | None:
    """Return a number of KV heads that neither divides TP nor is divisible by it: no engine can split or replicate them evenly."""
    counts = [a.kv_heads for a in facts.attention] if facts else []
    return next((count for count in counts if count % tp and tp % count), None)


def _fits(facts: Facts | None, tp: int, ep: int) -> bool:
    try:
        if facts:
            check_parallelism(facts, Parallelism(tp, 1, ep))
    except CollectionError:
        return False
    return kv_heads_misfit(facts, tp) is None


def spread(profile: Profile) -> Document:
    """Return how a model is split: nodes, tp, pp, ep, and tp_pp, which is the number of ranks."""
    parallelism = profile.parallelism
    return {
        "nodes": profile.nodes,
        "tp": parallelism.tp,
        "pp": parallelism.pp,
        "ep": parallelism.ep,
        "tp_pp": parallelism.tp * parallelism.pp,
    }


def parallel_facts(profile: Profile) -> Parallel:
    """Return the split with tp_alone, the largest number of these ranks that pure tensor parallelism can use (None: not known).

    ep_alone: the matching expert parallelism (each runner accepts either 1 or TP).
    """
    parallelism, facts = profile.parallelism, profile.facts
    ranks = parallelism.tp * parallelism.pp
    if facts is None:
        # Heads of most models are divided by powers of two only, and whether fewer nodes would do is not known.
        power = ranks & (ranks - 1) == 0
        alone_there = {"tp_alone": ranks if power else None, "ep_alone": 1 if parallelism.ep == 1 else ranks}
        return t.cast(Parallel, {**spread(profile), **alone_there})
    alone = next((tp for tp in range(ranks, 0, -1) if _fits(facts, tp, 1)), 1)
    ep_alone = alone if parallelism.ep > 1 and _fits(facts, alone, alone) else 1
    return t.cast(Parallel, {**spread(profile), "tp_alone": alone, "ep_alone": ep_alone})


def model_facts(
    profile: Profile, settings: t.Mapping[str, t.Any] | None = None, overlays: t.Sequence[str] = ()
) -> Model:
    """Return the model's facts for rules; all but `known` and `drafter` are None for an unknown model.

    settings: the plan's; if absent, the profile's.
    """
    facts = profile.facts
    drafter = profile.drafter
    asked: Document = {
        "known": facts is not None,
        "drafter": drafter is not None or _drafter_named(profile.settings if settings is None else settings),
        "frozen_drafter": bool(drafter and drafter.frozen_kv),
    }
    if facts is None:
        return t.cast(Model, asked)
    moe, parallelism = facts.moe, profile.parallelism
    asked |= {
        "architecture": facts.architecture,
        "hybrid": facts.hybrid,
        "linear": facts.linear.kind if facts.linear else None,
        "experts": moe.experts if moe else 0,
        "latent": bool(moe and moe.latent),
        "head_dim_max": facts.head_dim_max,
        "latent_indexer": bool(facts.mla and facts.mla.indexer),
        "indexer_ratio": max((a.indexer.ratio for a in facts.attention if a.indexer), default=0),
        "position": facts.position,
        "first_layer": facts.first_layer,
        "head": facts.head is not None,
        "sliding": any(a.window for a in facts.attention),
        "native_context": facts.native_context,
        "tied_embeddings": facts.tied_embeddings,
        "canvas": facts.diffusion.canvas if facts.diffusion else None,
        "vision": facts.vision is not None or facts.vision_params > 0,
        "value_dims_differ": {a.head_dim for a in facts.attention if a.window}
        not in (set(), {a.head_dim for a in facts.attention if not a.window}),
        "merge_state_threads": max(
            (merge_state_threads(a.heads, a.head_dim, parallelism.tp) for a in facts.attention), default=0
        ),
        "kv_heads_misfit": kv_heads_misfit(facts, parallelism.tp),
        **able(facts.architecture, profile.engine.name, profile.engine.version, overlays),
        "class_versions": having(facts.architecture, profile.engine.name, overlays),
    }
    if moe:
        rows = (2 if moe.gated else 1) * moe.intermediate * parallelism.ep // parallelism.tp
        asked |= {
            "gated_experts": moe.gated,
            "experts_per_gpu": moe.experts // parallelism.ep,
            "expert_rows": rows,
            "expert_rows_rest": rows % 128,
        }
    return t.cast(Model, asked)


def _formats(stored: Format) -> set[str]:
    """Return all formats of a kind of tensor: one layer is enough to need a kernel."""
    return {stored} if isinstance(stored, str) else ({*stored} - {"rest"}) | {stored["rest"]}


def quant_facts(profile: Profile, settings: t.Mapping[str, t.Any] | None = None) -> Quant:
    """Return how the checkpoint is quantized, as far as it decides the kernels. settings: as in `model_facts`.

    For an unknown model, the precision that the profile itself states still counts.
    """
    named = str((profile.settings if settings is None else settings).get("quantization") or "")
    named = "" if named in ("auto", "unknown") else named
    facts, precision = profile.facts, profile.precision
    dense: list[str] = []
    if facts:
        mixed = facts.attention or facts.mla or facts.compressed
        dense = ["attention"] * bool(mixed) + ["dense"] * bool(facts.dense)
        dense += ["linear"] * bool(facts.linear)
        dense += ["shared_experts"] * bool(facts.moe and facts.moe.shared_intermediate)
        kinds = dense + ["experts"] * bool(facts.moe)
    else:
        kinds = [kind for kind, usual in DEFAULT_PRECISION.items() if precision[kind] != usual]
        dense = [kind for kind in kinds if kind in ("attention", "dense", "linear", "shared_experts")]
    stored = sorted(set().union(*(_formats(precision[kind]) for kind in kinds)))
    tool = "unknown" if not named and _FP4 & set(stored) else "none"
    if named.startswith("modelopt"):
        tool = "modelopt"
    elif named.replace("_", "-") == "compressed-tensors":
        tool = "compressed-tensors"
    elif profile.quant_method in ("modelopt", "compressed-tensors"):
        tool = profile.quant_method
    whole = facts is not None and not set(stored) - _WHOLE
    return {
        "tool": tool,
        "asked": named or None,
        "method": profile.quant_method or ("none" if whole else None),
        "stored": stored,
        "experts": precision["experts"] if "experts" in kinds else None,
        "dense_fp4": any(_FP4 & _formats(precision[kind]) for kind in dense),
    }


def patch_facts(scheduled: t.Collection[str] | None) -> Patches:
    """Return the launch's start-up patches; `scheduled` is None until they are computed.

    scheduled: ids of `knowledge/patches`, those that `patches.needed` returns for this plan.
    """
    return {"known": scheduled is not None, "scheduled": sorted(scheduled or ())}


def _room(pools: Pools, settings: t.Mapping[str, t.Any], off: float) -> Document:
    """Return what the knob leaves outside the pools, and whether any value of it works.

    Memory that a cap on the cache's tokens (max_total_tokens) leaves unused counts as outside the pools.
    """
    cap = settings.get("max_total_tokens")
    cap = cap if isinstance(cap, int) and not isinstance(cap, bool) and cap > 0 else math.inf
    spare, spare_most = (
        kv * (1 - cap / tokens) if tokens > cap else 0.0
        for kv, tokens in ((pools.kv, pools.kv_tokens), (pools.kv_most, pools.kv_tokens_most))
    )
    needed = pools.draft + pools.graphs + pools.activations + pools.context
    if pools.engine == "vllm":
        floor_most, ceiling_most = pools.floor, min(pools.free_most / (pools.total or pools.free_most), 1.0)
        most = pools.reserve
    else:
        floor_most, ceiling_most = pools.floor * pools.free / pools.free_most, 1 - needed / pools.free_most
        most = pools.free_most * (1 - pools.chosen)
    low, high = (pools.floor, pools.ceiling) if pools.floor < pools.ceiling else (floor_most, ceiling_most)
    middle = math.ceil((low + high) / 2 * 1000) / 1000
    # Whether a profile run counts the graphs depends on the release; a given cache size has no profile run.
    kv_high = pools.kv + (0.0 if settings.get("kv_cache_memory_bytes") else pools.graphs)
    kv_high = kv_high * (1 + off) if off else pools.kv
    larger = kv_high / pools.kv if pools.kv > 0 else 1.0
    return {
        "kv_high_gib": kv_high,
        "reserve_gib": pools.reserve + spare,
        "reserve_most_gib": most + spare_most,
        "reserve_needed_gib": needed,
        "reserve_least_gib": pools.draft + pools.graphs + pools.context,
        "floor_most": floor_most,
        "ceiling_most": ceiling_most,
        "fits": floor_most < ceiling_most,
        "suggested": middle if low < middle < high else None,
        "kv_tokens": int(min(pools.kv_tokens, cap)),
        "kv_tokens_most": int(min(pools.kv_tokens_most, cap)),
        "kv_tokens_high": int(min(pools.kv_tokens * larger, cap) * _narrower(settings.get("kv_cache_dtype"))),
    }


def _narrower(dtype: t.Any) -> float:
    """Return how many times less a token may take than counted: for an unknown cache format, as little as in the narrowest."""
    if dtype in SLOTS:
        return MLA_TOKEN_BYTES[dtype] / SLOTS[dtype]
    known = dtype is None or dtype in KV_BYTES or dtype in KV_WIDE or dtype in MLA_TOKEN_BYTES
    return 1.0 if known else 2 / min(KV_BYTES.values())


def _uneven(settings: t.Mapping[str, t.Any]) -> bool:
    """Return whether a prefill chunk is no whole number of pages; False if either is not known, or there are no chunks."""
    chunk, page = settings.get("chunked_prefill_size"), settings.get("page_size")
    return isinstance(chunk, int) and isinstance(page, int) and chunk > 0 and page > 0 and chunk % page > 0


def memory_facts(pools: Pools | None, settings: t.Mapping[str, t.Any] | None = None, off: float = 0.0) -> Memory:
    """Return the memory plan for rules: GiB, shares, counts. known is false for an unknown model.

    …_most: with the most free memory possible, if it was not measured. fits: some share leaves room for the cache and for
    the memory outside it; suggested: such a share. reserve_least: what is certain outside the pools, needed: including
    activations, which are an estimate. free_needed: for vLLM, its share plus what the sampler needs outside it.
    kv_high, kv_tokens_high: the most the cache may hold. off: `cache_off` of `document`; 0 for a release.
    """
    if pools is None:
        return {"known": False}
    made: Document = {
        "known": True,
        "free_gib": pools.free,
        "free_assumed": pools.free_assumed,
        "free_most_gib": pools.free_most,
        "free_even": round(100 * pools.free_even, 2),
        "weights_gib": pools.weights,
        "weights_measured": pools.weights_from.startswith("measured"),
        "mamba_gib": pools.mamba,
        "kv_gib": pools.kv,
        "kv_most_gib": pools.kv_most,
        "draft_gib": pools.draft,
        "sampler_gib": pools.sampler,
        "sampler_needed_gib": pools.sampler_needed,
        "free_needed_gib": pools.free_needed,
        "load_peak_gib": pools.load_peak,
        "load_peak_over": pools.load_peak > pools.free_most >= pools.weights,
        "floor": pools.floor,
        "ceiling": pools.ceiling,
        "chosen": pools.chosen,
        "max_running_requests": pools.max_running_requests,
        "mamba_slots": pools.mamba_slots,
        "slots_per_request": pools.slots_per_request,
        "slots_for_eight": 8 * pools.slots_per_request if pools.slots_per_request else None,
        "blocks": pools.blocks,
        "block_tokens": pools.block_tokens,
        **_room(pools, settings or {}, off),
    }
    return t.cast(Memory, made)


def _largest_graph(settings: t.Mapping[str, t.Any]) -> int | None:
    """Return the largest captured batch: from the list if given, else the limit."""
    sizes = settings.get("cuda_graph_bs")
    if isinstance(sizes, (list, tuple)) and sizes and all(isinstance(size, int) for size in sizes):
        return int(max(sizes))
    limit = settings.get("cuda_graph_max_bs")
    return int(limit) if isinstance(limit, int) else None


def _drafter_named(settings: t.Mapping[str, t.Any]) -> bool:
    """Whether the settings name a drafter: SGLang's path, or the model in vLLM's configuration."""
    config = settings.get("speculative_config")
    if isinstance(config, str):
        try:
            config = from_json(config)
        except ValueError:
            config = None
    return bool(settings.get("speculative_draft_model_path") or (isinstance(config, t.Mapping) and config.get("model")))


def filled(fix: t.Any, facts: t.Mapping[str, t.Any]) -> t.Any:
    """Return a rule's fix with its facts filled in: a value that is exactly `{path}` becomes that fact itself.

    A share is rounded down to three digits: it is a limit, and what is above it does not fit.
    Raises LookupError if the plan lacks such a fact: this fix is then unavailable.
    """
    if isinstance(fix, t.Mapping):
        return {key: filled(value, facts) for key, value in fix.items()}
    if isinstance(fix, str) and fix.startswith("{") and fix.endswith("}"):
        value: t.Any = facts
        for key in fix[1:-1].split("."):
            value = value.get(key) if isinstance(value, t.Mapping) else None
        if value is None:
            raise LookupError(fix[1:-1])
        return math.floor(value * 1000) / 1000 if isinstance(value, float) else value
    return fix


def document(
    profile: Profile,
    settings: t.Mapping[str, t.Any],
    draft: Draft | None,
    pools: Pools | None,
    features: t.Mapping[str, bool],
    scheduled: t.Collection[str] | None = None,
    overlays: t.Sequence[str] = (),
    cache_off: float = 0.0,
) -> PlanDocument:
    """Build the whole document for one plan. settings: including the plan's additions. scheduled: see `patch_facts`.

    cache_off: the share by which the cache of a non-release build may exceed the plan.
    """
    limit = _largest_graph(settings)
    running = settings.get("max_running_requests")
    fitting = pools.max_running_requests if pools else None
    if fitting and (running is None or (isinstance(running, int) and fitting < running)):
        running = fitting
    length = settings.get("context_length") or settings.get("max_model_len")
    length = length if isinstance(length, int) else None
    native = profile.facts.native_context if profile.facts else None
    speculation: Document = {"on": False, "algorithm": "", "drafter": _drafter_named(settings)}
    if draft:
        speculation |= {
            "on": True,
            "algorithm": draft.algorithm,
            "steps": draft.steps,
            "topk": draft.topk,
            "tokens": draft.tokens,
        }
    made: Document = {
        "model": model_facts(profile, settings, overlays),
        "quant": quant_facts(profile, settings),
        "parallel": parallel_facts(profile),
        "engine": {"name": profile.engine.name, "version": profile.engine.version},
        "image": {"name": profile.engine.image, "features": {key: features.get(key) for key in image_features()}},
        "patches": patch_facts(scheduled),
        "settings": settings,
        "environment": sorted(profile.environment),
        "speculation": speculation,
        "graphs": {
            "max_bs": limit,
            "running": running,
            "over": bool(
                not settings.get("disable_cuda_graph") and limit and isinstance(running, int) and running > limit
            ),
        },
        "context": {
            "length": length or native,
            "native": native,
            "over_native": bool(length and native and length > native),
        },
        "chunk": {"uneven": _uneven(settings)},
        "memory": memory_facts(pools, settings, 0.0 if names_release(profile.engine.version) else cache_off),
    }
    return t.cast(PlanDocument, made)
