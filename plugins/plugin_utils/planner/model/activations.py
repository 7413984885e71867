# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a step takes beside weights and cache: SGLang's prefill chunk, and the peak of vLLM's profile run. Pure.

All sizes are GiB of one rank. vLLM's are of what is alive at once in its layers' own code, measured on GPUs to 10 %
(tests/unit/fixtures/engines; cases in benchmarks/results/engines).
"""

from __future__ import annotations

import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import GIB

from .model import Facts, Linear, Parallelism
from .vllm_cache import MLA_BLOCK, asked_block

VLLM_REQUESTS = 256  # vLLM 0.26.0 engine/arg_utils.py, get_batch_defaults, where NVML tells no memory, as on a Spark
# The residual, a layer's input and output, and the one before it.
HIDDEN_COPIES = 4
CUBLAS_WORKSPACE = 2**25 / GIB  # PyTorch's, from compute capability 9.0 on (aten/src/ATen/cuda/CublasHandlePool.cpp)
CONTEXT_ROWS = 2**16  # of latent attention


def running(settings: t.Mapping[str, t.Any]) -> int:
    """Return how many requests vLLM runs at once."""
    return int(settings.get("max_running_requests") or VLLM_REQUESTS)


def context(facts: Facts, settings: t.Mapping[str, t.Any]) -> int:
    """Return the context in tokens: the model's own where none is set, or the engine chooses it."""
    length = settings.get("context_length")
    return length if isinstance(length, int) and length > 0 else facts.native_context


def prefill_chunk(facts: Facts, tokens: int, copies: float) -> float:
    """Return what SGLang's prefill chunk takes: copies of its hidden states, and the routed experts' inputs and outputs."""
    routed = 0.0
    if facts.moe:
        inner = facts.moe.intermediate * (3 if facts.moe.gated else 2)
        routed = tokens * facts.moe.top_k * ((facts.moe.latent or facts.hidden_size) + inner) * 2 / GIB
    return tokens * facts.hidden_size * 2 * copies / GIB + routed


def profile_run(
    facts: Facts, tokens: int, parallelism: Parallelism, settings: t.Mapping[str, t.Any], sampled: float
) -> float:
    """Return the peak of vLLM's profile run: in its widest layer, or while it samples.

    tokens: of a batch. sampled: bytes per request and vocabulary entry while it samples.

    The experts' buffers are kept from layer to layer.
    """
    layer = tokens * (HIDDEN_COPIES * facts.hidden_size + _widest(facts) / parallelism.tp) * 2 / GIB
    layer = max(layer, _latent(facts, tokens, parallelism, settings))
    return (
        _experts(facts, tokens, parallelism) + CUBLAS_WORKSPACE + max(layer, _samples(facts, tokens, settings, sampled))
    )


def _experts(facts: Facts, tokens: int, parallelism: Parallelism) -> float:
    """The two workspaces of routed experts (vLLM 0.26.0 model_executor/layers/fused_moe/experts/triton_moe.py, workspace_shapes)."""
    if facts.moe is None:
        return 0.0
    width = facts.moe.latent or facts.hidden_size
    inner = facts.moe.intermediate / (1 if parallelism.ep > 1 else parallelism.tp)
    first = max(inner, width)
    second = max(inner * (2 if facts.moe.gated else 1), width)
    return tokens * facts.moe.top_k * (first + second) * 2 / GIB


def _widest(facts: Facts) -> float:
    """Values per token that are alive at once in the widest layer, beside the hidden states; a rank of tp has its share.

    vLLM 0.26.0 model_executor/models/qwen2.py and qwen3.py (an attention's queries and keys are copied where they are normalised),
    layers/mamba/gdn/qwen_gdn_linear_attn.py and mamba_mixer2.py: in profiling, the recurrence itself is left out.
    """
    widths = [0.0]
    if facts.dense:
        widths.append(facts.dense.intermediate * (3 if facts.dense.gated else 2))
    for each in facts.attention:
        queries, keys = each.heads * each.head_dim, each.kv_heads * each.head_dim
        outputs = each.heads * each.values * (2 if each.gated else 1)
        widths.append(2 * (queries + keys) + each.kv_heads * each.values + outputs)
    if facts.linear:
        widths.append(_recurrent(facts.linear))
    return max(widths)


def _recurrent(linear: Linear) -> float:
    """Values per token in a layer with a state: its projection, what is copied out of that, its output, and the normalised output."""
    projected = linear.conv_width + linear.inner
    if linear.kind == "mamba2":
        return projected + linear.conv_width + 2 * linear.inner
    if linear.interleaved:
        return 2 * projected + linear.conv_width + 2 * linear.inner
    return projected + 3 * linear.inner


def _latent(facts: Facts, tokens: int, parallelism: Parallelism, settings: t.Mapping[str, t.Any]) -> float:
    """A layer of latent attention: a context of up to 64 Ki tokens with its keys and values for all heads, beside the batch's own.

    vLLM 0.17.1 to 0.33.0 model_executor/layers/attention/mla_attention.py, forward_impl and determine_chunked_prefill_workspace_size.
    """
    if facts.mla is None:
        return 0.0
    blocks = running(settings) * (asked_block(settings) or MLA_BLOCK)  # tokens, where each request has one
    rows = max(min(max(8 * context(facts, settings), 4 * blocks), CONTEXT_ROWS), blocks)
    mla, heads = facts.mla, facts.mla.heads / parallelism.tp
    laid_out = rows * heads * (mla.nope_dim + mla.v_dim)
    batch = tokens * (heads * (mla.nope_dim + mla.rope_dim + mla.v_dim) + HIDDEN_COPIES * facts.hidden_size)
    return (laid_out + batch) * 2 / GIB


def _samples(facts: Facts, tokens: int, settings: t.Mapping[str, t.Any], sampled: float) -> float:
    """As many requests as may run at once are sampled, each over the whole vocabulary on every rank.

    vLLM 0.26.0 v1/worker/gpu_model_runner.py, profile_run and _dummy_sampler_run.
    """
    if facts.diffusion:  # `Sampler`
        return 0.0
    return min(running(settings), tokens) * facts.vocab_size * sampled / GIB
