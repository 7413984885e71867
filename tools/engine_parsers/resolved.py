"""What an engine resolved from its arguments, in one vocabulary for all versions, for comparison with a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.engine_parser.reader import graphs
from engine_parsers.oracle import Answer

# vLLM's names → those of knowledge/settings.
ATTENTION = {"FLASHINFER": "flashinfer", "TRITON_ATTN": "triton", "FLASH_ATTN": "fa3"}


def resolved(engine: str, answer: Answer) -> dict[str, Any]:
    """Return draft_tokens, draft_steps, attention_backend, graph_max_bs, mamba_strategy, page_size and the like.

    What an engine decides only when it loads the model (kernels behind `auto`) is unknown here, and None.
    """
    return _sglang(answer.resolved) if engine == "sglang" else _vllm(answer.resolved)


def _sglang(said: Mapping[str, Any]) -> dict[str, Any]:
    drawn = graphs(said)
    speculative = said.get("speculative_algorithm")
    return {
        "speculative_algorithm": speculative,
        "draft_steps": said.get("speculative_num_steps") if speculative else None,
        "draft_tokens": said.get("speculative_num_draft_tokens") if speculative else None,
        "attention_backend": said.get("attention_backend"),
        "graph_max_bs": drawn.get("cuda_graph_max_bs_decode"),
        "decode_graphs": drawn.get("cuda_graph_backend_decode"),
        "prefill_graphs": drawn.get("cuda_graph_backend_prefill"),
        "mamba_strategy": said.get("mamba_radix_cache_strategy") or said.get("mamba_scheduler_strategy"),
        "page_size": said.get("page_size"),
        "max_running_requests": said.get("max_running_requests"),
        "mem_fraction_static": said.get("mem_fraction_static"),
        "moe_runner_backend": said.get("moe_runner_backend"),
        "quantization": said.get("quantization"),
        "radix_cache": None if said.get("disable_radix_cache") is None else not said["disable_radix_cache"],
        "overlap": None if said.get("disable_overlap_schedule") is None else not said["disable_overlap_schedule"],
    }


def _vllm(said: Mapping[str, Any]) -> dict[str, Any]:
    speculative = said.get("speculative_config") or {}
    steps = speculative.get("num_speculative_tokens")
    cache, scheduler = said.get("cache_config") or {}, said.get("scheduler_config") or {}
    backend = (said.get("attention_config") or {}).get("backend")
    return {
        "speculative_algorithm": speculative.get("method"),
        "draft_steps": steps,
        "draft_tokens": None if steps is None else steps + 1,
        "attention_backend": ATTENTION.get(backend, backend),
        "page_size": cache.get("block_size"),
        "max_running_requests": scheduler.get("max_num_seqs"),
        "gpu_memory_utilization": cache.get("gpu_memory_utilization"),
        "quantization": (said.get("model_config") or {}).get("quantization"),
        "radix_cache": cache.get("enable_prefix_caching"),
        "prefill_chunk": scheduler.get("max_num_batched_tokens"),
    }


def differences(engine: str, answer: Answer, planned: Mapping[str, Any]) -> list[str]:
    """List where the engine resolved something other than planned, by key of the plan."""
    found = resolved(engine, answer)
    return [
        f"{key}: planned {value!r}, the engine makes it {found.get(key)!r}"
        for key, value in planned.items()
        if found.get(key) != value
    ]
