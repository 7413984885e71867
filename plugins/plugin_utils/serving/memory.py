# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The memory of one rank, before a weight is loaded. GiB throughout (the engines' logs write GB and mean GiB).

SGLang's `mem_fraction_static` and vLLM's `gpu_memory_utilization` are different things and have a function each:
the first is a share of what was *free* before the load, and what it leaves is a reserve; the second is a share of the
*total*, and everything of the engine must fit into it.
"""

from __future__ import annotations

import math
import typing as t
from dataclasses import dataclass, field, replace

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import FabricError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.model import (
    GIB,
    Cut,
    Facts,
    gpu_bytes,
    kv_bytes,
    scale_bytes,
    state_bytes,
)

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
class Assumed:
    """Numbers of `knowledge/constants` that the plan takes as given (GiB; copies is a count)."""

    graphs: float
    context: float
    activation_copies: float


@dataclass(frozen=True)
class Demand:
    """What one rank needs, whatever the knob says. Bytes per token and per slot; the rest in GiB."""

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


@dataclass(frozen=True)
class Pools:
    """The memory plan of one rank: pools in GiB, the knob with floor, ceiling and choice."""

    engine: str
    knob: str
    free: float
    free_assumed: bool
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
    kv_tokens: int
    max_running_requests: int | None
    mamba_slots: int | None
    slots_per_request: int | None
    total: float | None = None
    weights_by_kind: dict[str, float] = field(default_factory=dict)

    @property
    def used(self) -> float:
        """GiB that the rank will hold once it serves."""
        return (
            self.weights + self.mamba + max(self.kv, 0.0) + self.draft + self.graphs + self.activations + self.context
        )


def slots_per_request(settings: t.Mapping[str, t.Any], speculative: bool) -> int:
    """State slots that SGLang keeps for one running request of a hybrid model.

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


def _activations(facts: Facts, tokens: int, copies: float) -> float:
    """GiB of one prefill chunk: hidden states, and the routed experts' inputs and outputs."""
    size = tokens * facts.hidden_size * 2 * copies
    if facts.moe:
        width = facts.moe.latent or facts.hidden_size
        inner = facts.moe.intermediate * (3 if facts.moe.gated else 2)
        size += tokens * facts.moe.top_k * (width + inner) * 2
    return size / GIB


def demand(
    facts: Facts,
    precision: t.Mapping[str, str],
    cut: Cut,
    settings: t.Mapping[str, t.Any],
    assumed: Assumed,
    *,
    engine: str,
    head: bool,
    drafter_gib: float = 0.0,
    measured_weights: tuple[float, str] | None = None,
) -> Demand:
    """Compute what a rank needs. measured_weights: GiB and source, where somebody measured this very spread."""
    by_kind = {kind: size / GIB for kind, size in gpu_bytes(facts, precision, cut, head).items()}
    own_head = by_kind.pop("head", 0.0)
    weights, origin = sum(by_kind.values()), "derived from the model's facts"
    if measured_weights:
        weights, origin = measured_weights
    chunk = int(settings.get("chunked_prefill_size") or settings.get("max_num_batched_tokens") or 8192)
    if chunk <= 0:  # SGLang: -1 is no chunking, then a prompt is one chunk
        chunk = int(settings.get("context_length") or facts.native_context)
    activations = _activations(facts, chunk, assumed.activation_copies)
    if engine == "vllm" and facts.vision and not settings.get("language_model_only"):
        # v1/worker/gpu_model_runner.py, profile_run: the largest picture goes through the tower, its output is kept.
        activations += facts.vision.peak_bytes / GIB
    eager = settings.get("disable_cuda_graph") or settings.get("enforce_eager")
    return Demand(
        weights=weights,
        weights_by_kind=by_kind,
        weights_from=origin,
        kv_bytes_token=kv_bytes(
            facts,
            str(settings.get("kv_cache_dtype", "auto")),
            cut,
            head=head,
            window_share=float(settings.get("swa_full_tokens_ratio", WINDOW_SHARE)) if engine == "sglang" else 1.0,
        ),
        slot_bytes=state_bytes(facts.linear, cut) if facts.linear else 0.0,
        draft=own_head + drafter_gib,
        graphs=0.0 if eager else assumed.graphs,
        activations=activations,
        context=assumed.context,
        load_peak=weights + own_head + drafter_gib + scale_bytes(facts, precision, cut) / GIB,
    )


def sglang_pools(
    need: Demand,
    free: float,
    settings: t.Mapping[str, t.Any],
    *,
    free_assumed: bool = False,
    speculative: bool = False,
    draft_tokens: int = 0,
    context_length: int = 0,
) -> Pools:
    """Plan a rank of SGLang: rest = free after weights − free before × (1 − fraction), then states, then cache.

    SGLang 0.5.10 to 0.5.13 model_runner_kv_cache_mixin.py (_profile_available_bytes, handle_max_mamba_cache): the
    target's weights are loaded and its pools made before the drafter is, so a drafter comes out of the reserve. States
    for draft verification are taken off first, one for each running request and draft token.
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
    ceiling = 1 - reserve / free
    chosen, by = settings.get(SGLANG_KNOB), "given"
    if chosen is None:
        # Enough for every request at full length, but never into the reserve; memory not needed stays the host's.
        wanted = fixed + need.kv_bytes_token * context_length * (running or 8) / GIB
        best = min(ceiling, (need.weights + max(wanted, 1.0)) / free)
        chosen, by = math.floor(max(best, min(floor + 0.01, ceiling)) * 100) / 100, "planned"
    rest = float(chosen) * free - need.weights - verify
    if slot and not slots and ratio:
        slots = max(int(rest * STATE_RATIO / (1 + STATE_RATIO) / slot), 0)
        running = min(requests or 10**9, slots // ratio)
    mamba = slot * int(slots or 0)
    kv = rest - mamba
    return Pools(
        engine="sglang",
        knob=SGLANG_KNOB,
        free=free,
        free_assumed=free_assumed,
        weights=need.weights,
        weights_from=need.weights_from,
        weights_by_kind=need.weights_by_kind,
        mamba=mamba + verify,
        kv=kv,
        draft=need.draft,
        graphs=need.graphs,
        activations=need.activations,
        context=need.context,
        reserve=free * (1 - float(chosen)),
        load_peak=need.load_peak,
        floor=floor,
        ceiling=ceiling,
        chosen=float(chosen),
        chosen_by=by,
        kv_tokens=max(int(kv * GIB / need.kv_bytes_token), 0) if need.kv_bytes_token else 0,
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
    free_assumed: bool = False,
    context_length: int = 0,
) -> Pools:
    """Plan a rank of vLLM: cache = total × utilisation − weights − what a profile run peaks at.

    vLLM 0.17.0 v1/worker/gpu_worker.py:407 (cache), v1/worker/utils.py:218-238 (free memory at start must reach total ×
    utilisation, so the ceiling is free / total). The drafter's weights are loaded before the profile run. States of
    hybrid models are pages of the same cache.
    """
    beside = need.draft + need.activations + need.context
    if settings.get("estimate_cudagraphs"):
        beside += need.graphs
    floor = (need.weights + beside) / total
    ceiling = min(free / total, 1.0)
    requests = int(settings.get("max_num_seqs") or 256)
    chosen, by = settings.get(VLLM_KNOB), "given"
    state = need.slot_bytes * requests / GIB
    if chosen is None:
        wanted = state + need.kv_bytes_token * context_length * requests / GIB
        best = min(ceiling, floor + max(wanted, 1.0) / total)
        chosen, by = math.floor(max(best, min(floor + 0.01, ceiling)) * 100) / 100, "planned"
    cache = float(chosen) * total - need.weights - beside
    return Pools(
        engine="vllm",
        knob=VLLM_KNOB,
        free=free,
        free_assumed=free_assumed,
        total=total,
        weights=need.weights,
        weights_from=need.weights_from,
        weights_by_kind=need.weights_by_kind,
        mamba=0.0,
        kv=cache,
        draft=need.draft,
        graphs=need.graphs,
        activations=need.activations,
        context=need.context,
        reserve=total * (1 - float(chosen)),
        load_peak=need.load_peak,
        floor=floor,
        ceiling=ceiling,
        chosen=float(chosen),
        chosen_by=by,
        kv_tokens=max(int((cache - state) * GIB / need.kv_bytes_token), 0) if need.kv_bytes_token else 0,
        max_running_requests=requests,
        mamba_slots=requests if need.slot_bytes else None,
        slots_per_request=1 if need.slot_bytes else None,
    )


def beside(pools: t.Sequence[Pools], free: float) -> float:
    """GiB that are left on a node with several instances; negative where they do not fit together.

    FabricError where an instance was planned with other engines' memory counted as its own.
    """
    if any(p.free > free + 1e-6 for p in pools):
        raise FabricError("instances: one is planned with more free memory than its node has. Plan them one by one.")
    return free - sum(p.used for p in pools)


def after(pools: Pools, free: float) -> float:
    """Free memory for the next instance on a node, once this one serves."""
    return free - replace(pools, free=free).used
