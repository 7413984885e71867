# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The memory of one rank, planned before any weight is loaded. GiB throughout (the engines' logs write GB and mean GiB).

SGLang's `mem_fraction_static` and vLLM's `gpu_memory_utilization` mean different things and have a function each:
the first is a share of the memory *free* before the load, and the remainder is a reserve; the second is a share of the
*total*, and the whole engine must fit into it.
"""

from __future__ import annotations

import math
import typing as t
from dataclasses import dataclass, field, replace

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import GIB

from .activations import context, prefill_chunk, profile_run, running
from .model import Facts, Format, Nvfp4Layout, Parallelism, gpu_bytes, kv_bytes, scale_bytes, state_bytes
from .vllm_cache import BLOCK, Kind, Layout

SGLANG_KNOB = "mem_fraction_static"
VLLM_KNOB = "gpu_memory_utilization"
# SGLang 0.5.12 server_args.py: share of sliding-window tokens (swa_full_tokens_ratio), state against cache
# (mamba_full_memory_ratio); model_runner_kv_cache_mixin.py: slots per running request, _calculate_mamba_ratio.
WINDOW_SHARE = 0.8
STATE_RATIO = 0.9
SLOTS = 3
SLOTS_EXTRA_BUFFER = 2
SLOTS_EXTRA_BUFFER_SERIAL = 1


@dataclass(frozen=True)
class Free:
    """Free memory of the rank with the least, in GiB: the certain figure, and the possible one where a node was not measured.

    even: that of the rank with the least, as a share of that of the rank with the most; 1 where they were not all measured.
    """

    sure: float
    most: float
    even: float = 1.0


@dataclass(frozen=True)
class Canvases:
    """How an engine samples its running requests' canvases, in FP32 copies of one canvas's distribution over the vocabulary.

    copies: total for one request being sampled. logits: per running request while its logits are computed; one of them is kept.
    counted: per request when the engine computes how many it samples at once: as many as half of the free memory holds;
    0: it samples all at once.
    """

    copies: float = 0.0
    logits: float = 0.0
    counted: float = 0.0


@dataclass(frozen=True)
class Sampler:
    """vLLM's canvas memory outside its share, which its profile run does not see. copy: GiB of one copy of one request."""

    copy: float
    requests: int
    by: Canvases

    def _at_once(self, group: int) -> float:
        return self.copy * max(self.by.logits * self.requests, self.requests + (self.by.copies - 1) * group)

    @property
    def needed(self) -> float:
        """GiB without which the engine fails at the first full batch."""
        return self._at_once(1 if self.by.counted else self.requests)

    def taken(self, free: float) -> float:
        """GiB that it takes if this many are free outside the share."""
        if not self.by.counted:
            return self.needed
        group = int(0.5 * (free - self.copy * self.requests) / (self.by.counted * self.copy))
        return self._at_once(min(max(group, 1), self.requests))


@dataclass(frozen=True)
class Assumed:
    """Constants from `knowledge/constants` for one engine version.

    GiB; activation_copies is a count. load: what a start takes from MemAvailable besides the tensors. sampled, sampled_drafts: bytes per
    request and entry of the vocabulary when vLLM samples, without and with speculation.
    """

    graphs: float
    context: float
    activation_copies: float
    load: float = 0.0
    drafts_counted: bool = True
    sampled: float = 0.0
    sampled_drafts: float = 0.0
    canvases: Canvases = field(default_factory=Canvases)
    layout: Nvfp4Layout = field(default_factory=Nvfp4Layout)


@dataclass(frozen=True)
class Demand:
    """What one rank needs, whatever the knob's value. Bytes per token and per slot; the rest in GiB.

    draft_bytes_token: of the head's own cache, if the engine takes it from its reserve and not from the pool.
    """

    weights: float
    weights_by_kind: dict[str, float]
    weights_from: str
    kv_bytes_token: float
    slot_bytes: float
    draft: float
    graphs: float
    activations: float
    context: float
    load_peak: float
    sampler: Sampler | None = None
    draft_bytes_token: float = 0.0


@dataclass(frozen=True)
class Pools:
    """The memory plan of one rank: pools in GiB, the knob with floor, ceiling and chosen value.

    sampler, sampler_needed: what vLLM takes and needs for canvases outside its share.
    free_most: the most free memory possible if it was not measured; equal to free if it was. free_even: `Free.even`. blocks, block_tokens and
    kv_tokens_logged: of vLLM's cache, of one of its blocks, and the token count in its log; kv_tokens counts requests at
    full length.
    """

    engine: str
    knob: str
    free: float
    free_most: float
    weights: float
    weights_from: str
    mamba: float
    kv: float
    draft: float
    graphs: float
    activations: float
    context: float
    reserve: float
    load_peak: float
    floor: float
    ceiling: float
    chosen: float
    chosen_by: str
    kv_bytes_token: float
    kv_tokens: int
    max_running_requests: int | None
    mamba_slots: int | None
    slots_per_request: int | None
    total: float | None = None
    weights_by_kind: dict[str, float] = field(default_factory=dict)
    blocks: int | None = None
    block_tokens: int | None = None
    kv_tokens_logged: int | None = None
    sampler: float = 0.0
    sampler_needed: float = 0.0
    free_even: float = 1.0

    @property
    def free_assumed(self) -> bool:
        """Whether free memory was assumed, not measured."""
        return self.free_most > self.free

    @property
    def kv_most(self) -> float:
        """GiB of cache with the most free memory possible; vLLM's does not depend on it."""
        return self.kv + (self.chosen * (self.free_most - self.free) if self.engine == "sglang" else 0.0)

    @property
    def kv_tokens_most(self) -> int:
        """Tokens of cache with the most free memory possible."""
        more = (self.kv_most - self.kv) * GIB / self.kv_bytes_token if self.kv_bytes_token else 0.0
        return self.kv_tokens + int(more)

    @property
    def free_needed(self) -> float:
        """GiB that must be free at the chosen knob: SGLang's for a non-empty cache, vLLM's share plus what its sampler needs."""
        if self.engine == "vllm":
            return self.chosen * (self.total or self.free) + self.sampler_needed
        return self.floor * self.free / self.chosen if self.chosen else self.free

    @property
    def used(self) -> float:
        """GiB that the rank holds once it serves."""
        beside = self.draft + self.graphs + self.activations + self.context + self.sampler
        return self.weights + self.mamba + max(self.kv, 0.0) + beside


def slots_per_request(settings: t.Mapping[str, t.Any], speculative: bool) -> int:
    """Return the state slots that SGLang keeps per running request of a hybrid model.

    3; with the extra buffer 2 more (1 without overlap schedule); 1 without the radix cache. Speculation on hybrids needs
    the extra buffer, so it counts as on there unless the settings say otherwise.
    """
    if settings.get("disable_radix_cache"):
        return 1
    strategy = settings.get("mamba_scheduler_strategy") or ("extra_buffer" if speculative else "no_buffer")
    if strategy == "auto":
        strategy = "extra_buffer" if speculative else "no_buffer"
    if strategy == "no_buffer":
        return SLOTS
    if settings.get("disable_overlap_schedule") or strategy == "extra_buffer_lazy":
        return SLOTS + SLOTS_EXTRA_BUFFER_SERIAL
    return SLOTS + SLOTS_EXTRA_BUFFER


def _sampler(facts: Facts, requests: t.Any, by: Canvases) -> Sampler | None:
    """Return the canvas sampler. Every rank has the whole vocabulary. requests: concurrent ones; one if not set."""
    if facts.diffusion is None:
        return None
    running = requests if isinstance(requests, int) and requests > 0 else 1
    return Sampler(facts.diffusion.canvas * facts.vocab_size * 4 / GIB, running, by)


def demand(
    facts: Facts,
    precision: t.Mapping[str, Format],
    parallelism: Parallelism,
    settings: t.Mapping[str, t.Any],
    assumed: Assumed,
    *,
    engine: str,
    head: bool,
    drafter_gib: float = 0.0,
    measured_weights: tuple[float, str] | None = None,
    all_layers: bool = False,
) -> Demand:
    """Compute what a rank needs. measured_weights: GiB and source, if this exact split was measured.

    all_layers: a pipeline stage keeps the cache and states of all layers, since its class does not tell the stage's first
    and last (SGLang 0.5.12 model_executor/model_runner.py:695, pool_configurator.py:94; 0.5.23
    model_runner_components/layer_setup.py:235).
    On unified memory both engines read MemAvailable, so what a start takes besides its tensors counts: SGLang logs it as
    weights (0.5.12 model_runner.py:1547, utils/common.py:549), vLLM as "non-torch" (0.17.1 utils/mem_utils.py:105-131).
    """
    by_kind = {
        kind: size / GIB for kind, size in gpu_bytes(facts, precision, parallelism, head, assumed.layout).items()
    }
    own_head = by_kind.pop("head", 0.0)
    if settings.get("lookup_on_disk"):
        by_kind.pop("lookup", None)
    text_only = engine == "vllm" and settings.get("language_model_only")
    if text_only:  # vLLM 0.17.0 to 0.33.0 model_executor/models/interfaces.py, _mark_tower_model: the tower is not made
        by_kind.pop("vision", None)
    if engine == "sglang":
        by_kind["load"] = assumed.load
    weights, origin = sum(by_kind.values()), "derived from the model's facts"
    if measured_weights:
        weights, origin = measured_weights
    chunk = int(settings.get("chunked_prefill_size") or 8192)
    if chunk <= 0:  # SGLang: -1 disables chunking, so a prompt is one chunk
        chunk = context(facts, settings)
    if engine == "vllm":
        sampled = assumed.sampled_drafts if settings.get("speculative_algorithm") else assumed.sampled
        activations = profile_run(facts, chunk, parallelism, settings, sampled)
    else:
        activations = prefill_chunk(facts, chunk, assumed.activation_copies)
    if engine == "vllm" and facts.vision and not text_only:
        # v1/worker/gpu_model_runner.py, profile_run, and multimodal/encoder_budget.py: as many of the largest pictures as fit into a
        # batch go through the tower, and their output is kept.
        activations += facts.vision.pictures(chunk) * facts.vision.peak_bytes / GIB
    pooled = replace(parallelism, pp=1) if all_layers else parallelism
    sampler = _sampler(facts, settings.get("max_running_requests"), assumed.canvases)
    if engine == "sglang" and sampler:  # everything allocated after the pools is in its reserve
        activations, sampler = activations + sampler.needed, None
    # SGLang's placeholders for swizzled scales; permanent if the scales are kept twice (then they are in by_kind).
    twice = engine == "sglang" and assumed.layout.scale_copies == 1
    eager = settings.get("disable_cuda_graph")

    def cached(with_head: bool) -> float:
        """Bytes of cache per token."""
        share = float(settings.get("swa_full_tokens_ratio", WINDOW_SHARE)) if engine == "sglang" else 1.0
        dtype = str(settings.get("kv_cache_dtype", "auto"))
        return kv_bytes(facts, dtype, pooled, head=with_head, window_share=share)

    counted = cached(head and assumed.drafts_counted)
    return Demand(
        weights=weights,
        weights_by_kind=by_kind,
        weights_from=origin,
        kv_bytes_token=counted,
        draft_bytes_token=cached(head) - counted,
        slot_bytes=state_bytes(facts.linear, pooled) if facts.linear else 0.0,
        draft=own_head + drafter_gib,
        graphs=0.0 if eager else assumed.graphs,
        activations=activations,
        context=assumed.load if engine == "vllm" else assumed.context,
        load_peak=weights
        + own_head
        + drafter_gib
        + (scale_bytes(facts, precision, parallelism) / GIB if twice else 0.0),
        sampler=sampler,
    )


def _choose(given: t.Any, best: float, floor: float, ceiling: float) -> tuple[float, str]:
    """Return the knob and who chose it: the owner's value, or the plan's best one, rounded down to hundredths.

    If nothing fits, the ceiling may be below 0; the share returned is still above 0.
    """
    if given is not None:
        return float(given), "given"
    return max(math.floor(max(best, min(floor + 0.01, ceiling)) * 100) / 100, 0.01), "planned"


def _pools(need: Demand, kv: float, state: float, **own: t.Any) -> Pools:
    """Combine a rank's demand with the result of the knob. kv: GiB of cache, including `state`, which holds no tokens."""
    return Pools(
        weights=need.weights,
        weights_from=need.weights_from,
        weights_by_kind=need.weights_by_kind,
        kv=kv,
        draft=need.draft,
        graphs=need.graphs,
        activations=need.activations,
        context=need.context,
        load_peak=need.load_peak,
        sampler_needed=need.sampler.needed if need.sampler else 0.0,
        kv_bytes_token=need.kv_bytes_token,
        kv_tokens=max(int((kv - state) * GIB / need.kv_bytes_token), 0) if need.kv_bytes_token else 0,
        **own,
    )


def sglang_pools(
    need: Demand,
    free: float,
    settings: t.Mapping[str, t.Any],
    *,
    free_most: float | None = None,
    speculative: bool = False,
    draft_tokens: int = 0,
    context_length: int = 0,
) -> Pools:
    """Plan a rank of SGLang: rest = free after weights − free before × (1 − fraction), then states, then cache.

    SGLang 0.5.10 to 0.5.13 model_runner_kv_cache_mixin.py (_profile_available_bytes, handle_max_mamba_cache): the
    target's weights and pools are created before the drafter, so a drafter comes out of the reserve. States
    for draft verification are subtracted first, one per running request and draft token.
    """
    limit = settings.get("max_running_requests")
    requests = int(limit) if limit else (48 if speculative else None)
    slots = settings.get("max_mamba_cache_size")
    ratio = slots_per_request(settings, speculative) if need.slot_bytes else None
    slot = need.slot_bytes / GIB
    running = requests
    if slot and slots and ratio:
        running = min(requests or 10**9, int(slots) // ratio)
    verify = slot * (running or 0) * draft_tokens if speculative else 0.0
    fixed = (slot * int(slots) if slots else 0.0) + verify
    reserve = need.draft + need.graphs + need.activations + need.context
    floor = (need.weights + fixed) / free
    # The head's own cache has as many tokens as the target's, and grows with the share.
    beside = need.draft_bytes_token / need.kv_bytes_token if need.kv_bytes_token else 0.0
    ceiling = (free - reserve + beside * (need.weights + fixed)) / (free * (1 + beside))
    # Enough for every request at full length, but never at the expense of the reserve; the host keeps the rest.
    wanted = fixed + need.kv_bytes_token * context_length * (running or 8) / GIB
    best = min(ceiling, (need.weights + max(wanted, 1.0)) / free)
    chosen, by = _choose(settings.get(SGLANG_KNOB), best, floor, ceiling)
    rest = chosen * free - need.weights - verify
    if slot and not slots and ratio:
        slots = max(int(rest * STATE_RATIO / (1 + STATE_RATIO) / slot), 0)
        running = min(requests or 10**9, slots // ratio)
    mamba = slot * int(slots or 0)
    return _pools(
        replace(need, draft=need.draft + beside * max(rest - mamba, 0.0)),
        rest - mamba,
        0.0,
        engine="sglang",
        knob=SGLANG_KNOB,
        free=free,
        free_most=max(free, free_most or free),
        mamba=mamba + verify,
        reserve=free * (1 - chosen),
        floor=floor,
        ceiling=ceiling,
        chosen=chosen,
        chosen_by=by,
        max_running_requests=running,
        mamba_slots=int(slots) if slots is not None and slot else None,
        slots_per_request=ratio,
    )


def vllm_pools(
    need: Demand,
    free: float,
    total: float,
    settings: t.Mapping[str, t.Any],
    *,
    free_most: float | None = None,
    context_length: int = 0,
    cache: Layout | None = None,
    logs_concurrency: bool = True,
) -> Pools:
    """Plan a rank of vLLM: cache = total × utilisation − weights − the profile run's peak.

    vLLM 0.17.0 v1/worker/gpu_worker.py:364 (a cache of given bytes), :407 (cache), v1/worker/utils.py:218-238 (free
    memory at start must reach total × utilisation, so the ceiling is free / total). The drafter's weights are loaded
    before the profile run. cache: its layout, else one kind of layers; states of hybrid models are pages of it.
    logs_concurrency: the version logs tokens of requests at full length, since 0.20.
    """
    beside = need.draft + need.activations + need.context
    if settings.get("estimate_cudagraphs"):
        beside += need.graphs
    floor = (need.weights + beside) / total
    ceiling = min(free / total, 1.0)
    requests = running(settings)
    cache = cache or Layout((Kind(1, need.kv_bytes_token * BLOCK, BLOCK),), need.kv_bytes_token * BLOCK, 0)
    length = max(context_length, 1)
    wanted = cache.request(length) * requests * cache.block_bytes / GIB
    needed = need.sampler.needed if need.sampler else 0.0
    best = min(ceiling - needed / total, floor + max(wanted, 1.0) / total)
    chosen, by = _choose(settings.get(VLLM_KNOB), best, floor, ceiling)
    given = settings.get("kv_cache_memory_bytes")
    kv = given / GIB if isinstance(given, int) and given > 0 else chosen * total - need.weights - beside
    tokens = cache.tokens(kv * GIB, length)
    made = _pools(
        replace(need, kv_bytes_token=cache.request(length) * cache.block_bytes / length),
        kv,
        0.0,
        engine="vllm",
        knob=VLLM_KNOB,
        free=free,
        free_most=max(free, free_most or free),
        total=total,
        mamba=0.0,
        reserve=total * (1 - chosen),
        floor=floor,
        ceiling=ceiling,
        chosen=chosen,
        chosen_by=by,
        max_running_requests=requests,
        mamba_slots=requests if need.slot_bytes else None,
        slots_per_request=1 if need.slot_bytes else None,
        sampler=need.sampler.taken(free - chosen * total) if need.sampler else 0.0,
    )
    logged = tokens if logs_concurrency else cache.logged_before_0_20(kv * GIB)
    blocks = cache.blocks(kv * GIB)
    return replace(made, kv_tokens=tokens, blocks=blocks, block_tokens=cache.block, kv_tokens_logged=logged)
