"""What a plan says, beside what the engine said of itself: settings by its page of settings, memory by its log."""

from __future__ import annotations

import json
import re
import typing as t

Plain = dict[str, t.Any]
# Settings that no page of the engine shows: environment variables, and the plan's own.
UNSEEN = frozenset({"nccl_transport", "disable_deep_gemm", "enable_spec_v2", "allow_longer_context"})
NAMES = {
    "fp4_gemm_backend": "fp4_gemm_runner_backend",
    "fp8_gemm_backend": "fp8_gemm_runner_backend",
    "model": "model_path",
}
# vLLM 0.26.0: where its configuration has what a setting became.
OF_VLLM = {
    "async_scheduling": "scheduler_config.async_scheduling",
    "block_size": "cache_config.block_size",
    "chunked_prefill_size": "scheduler_config.max_num_batched_tokens",
    "context_length": "model_config.max_model_len",
    "disable_cuda_graph": "compilation_config.cudagraph_mode",
    "disable_radix_cache": "cache_config.enable_prefix_caching",
    "enable_chunked_prefill": "scheduler_config.enable_chunked_prefill",
    "gpu_memory_utilization": "cache_config.gpu_memory_utilization",
    "kv_cache_dtype": "cache_config.cache_dtype",
    "kv_cache_memory_bytes": "cache_config.kv_cache_memory_bytes",
    "load_format": "load_config.load_format",
    "mamba_cache_mode": "cache_config.mamba_cache_mode",
    "max_running_requests": "scheduler_config.max_num_seqs",
    "quantization": "model_config.quantization",
    "skip_tokenizer_init": "model_config.skip_tokenizer_init",
    "speculative_algorithm": "speculative_config.method",
    "speculative_num_steps": "speculative_config.num_speculative_tokens",
}
REVERSED = frozenset({"disable_cuda_graph", "disable_radix_cache"})
# Defaults that vLLM makes from the size of the GPU's memory, which NVML does not tell on a Spark: there it takes the smaller ones.
BY_MEMORY = frozenset({"chunked_prefill_size", "max_running_requests"})
NUMBER = r"([\d,.]+)"
# SGLang 0.5.12 model_executor/model_runner.py, model_runner_kv_cache_mixin.py, mem_cache/memory_pool.py, managers/scheduler.py. What it
# calls GB is 1024^3 bytes.
LINES = {
    "free": rf"Load weight begin\. avail mem={NUMBER} GB",
    "weights": rf"Load weight end\..* mem usage={NUMBER} GB",
    "tokens": rf"KV Cache is allocated\..*?#tokens: {NUMBER}",
    "kv": rf"KV Cache is allocated\..*K size: {NUMBER} GB, V size: {NUMBER} GB",
    "kv_mla": rf"KV Cache is allocated\..* KV size: {NUMBER} GB",
    "mamba": r"Mamba Cache is allocated\.(.*)",
    "max_tokens": rf"max_total_num_tokens={NUMBER}",
    "running": rf"max_running_requests={NUMBER}",
    "left": rf"available_gpu_mem={NUMBER} GB",
    "graphs": rf"Capture cuda graph end\..*mem usage={NUMBER} GB",
    "pools_end": rf"Memory pool end\. avail mem={NUMBER} GB",
}
# vLLM 0.26.0 v1/worker/gpu_model_runner.py and gpu_worker.py, v1/core/kv_cache_utils.py.
VLLM_LINES = {
    "weights": rf"Model loading took {NUMBER} GiB",
    "kv": rf"Available KV cache memory: {NUMBER} GiB",
    "tokens": rf"GPU KV cache size: {NUMBER} tokens",
    "activations": rf"{NUMBER} GiB for peak activation",
    "outside": rf"{NUMBER} GiB for non-torch memory",
}


def settings(resolved: t.Mapping[str, Plain], info: Plain) -> dict[str, tuple[str, t.Any, t.Any]]:
    """Return each setting's verdict, `agrees`, `differs` or `unknown`, with the plan's value and the engine's.

    resolved: a plan's; info: the engine's /server_info. Settings that the page does not show are left out.
    """
    shown = _shown_by_vllm(resolved, info["vllm_config"]) if "vllm_config" in info else info
    found = {}
    for name, told in resolved.items():
        theirs_name = NAMES.get(name, name)
        if name in UNSEEN or theirs_name not in shown:
            continue
        theirs, ours = shown[theirs_name], told["value"]
        if isinstance(theirs, str) and isinstance(ours, str):
            ours = ours.lower() if ours.lower() == theirs else ours
        if isinstance(ours, dict) and isinstance(theirs, str):
            theirs = json.loads(theirs)
        if told["by"] == "unknown":
            verdict = "unknown"
        else:
            verdict = "agrees" if ours == theirs or (ours in (None, False) and theirs in (None, False)) else "differs"
        found[name] = (verdict, ours, theirs)
    return found


def _shown_by_vllm(resolved: t.Mapping[str, Plain], own: Plain) -> Plain:
    """Return what vLLM's configuration has of a plan's settings, by the plan's names."""
    shown = {}
    for name, place in OF_VLLM.items():
        told, theirs = resolved.get(name), own_value(own, place)
        # `auto` leaves it to the engine.
        if told is None or told["value"] == "auto" != theirs or (name in BY_MEMORY and told["by"] == "default"):
            continue
        shown[name] = not theirs if name in REVERSED else theirs
    return shown


def own_value(own: Plain, place: str) -> t.Any:
    """Return a value of vLLM's configuration; None where its section is empty."""
    section, _dot, key = place.partition(".")
    return (own.get(section) or {}).get(key)


def cut(info: Plain, names: t.Collection[str]) -> Plain:
    """Return what of a page is compared. names: the plan's settings, by the engine's names."""
    if "vllm_config" not in info:
        return {key: info[key] for key in sorted(names & info.keys())}
    kept: Plain = {}
    for place in OF_VLLM.values():
        section, _dot, key = place.partition(".")
        if info["vllm_config"].get(section):
            kept.setdefault(section, {})[key] = own_value(info["vllm_config"], place)
    return {"vllm_config": kept}


def read(log: str) -> dict[str, list[float]]:
    """Return the figures of a rank's log by name, each as often as it is there: the target's first, then the drafter's."""
    found = {}
    for name, pattern in (LINES if "Load weight" in log else VLLM_LINES).items():
        if name == "mamba":
            sizes = [re.findall(r"([\d.]+) ?GB", line) for line in re.findall(pattern, log)]
            if sizes:
                found[name] = [sum(map(float, each)) for each in sizes]
        elif matches := re.findall(pattern, log):
            found[name] = [
                sum(float(part.replace(",", "").rstrip(".")) for part in (each if isinstance(each, tuple) else (each,)))
                for each in matches
            ]
    return found
