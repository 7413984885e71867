"""What is started of vLLM on GPUs, in the order of worth: two ranks, their deaths, settings, speculation, memory.

The cases of `cases.py` for the other engine; their names begin with `vllm-`.
"""

from __future__ import annotations

import signal
import typing as t
from dataclasses import replace

from ansible_collections.dgxspark.cluster.tests.engines.cases import PAIR, WHOLE, Strike, Trial, drafted
from ansible_collections.dgxspark.cluster.tests.engines.cases import spoken as headed
from ansible_collections.dgxspark.cluster.tests.engines.groups import Case, Plain

ENGINE = ("vllm", "0.26.0")  # the newest that asks for the GPU machine's torch 2.11.0
WORKER = r"^VLLM::Worker"
CORE = r"^VLLM::EngineCore"
GIB = 2**30
EAGER: Plain = {"disable_cuda_graph": True}
# A cache of a stated size: what an engine measures on a GPU is wrong while another one starts beside it.
TINY: Plain = {"gpu_memory_utilization": 0.1, "kv_cache_memory_bytes": GIB, "max_running_requests": 8}
QUICK: Plain = {**TINY, **EAGER}
NOTICED: Plain = {"hang_after_s": 45}  # a lease is short: the role's own is 180


def given(*layers: Plain) -> Plain:
    """Return the last word on each setting; None leaves it out."""
    merged = {key: value for layer in layers for key, value in layer.items()}
    return {key: value for key, value in merged.items() if value is not None}


def two(name: str, settings: Plain, strike: Strike | None = None, **more: t.Any) -> Trial:
    """Two ranks of the tiny model."""
    parallel = more.pop("parallel", {"nodes": 2, "tp": 2})
    case = Case(f"vllm-{name}", "tiny", given(settings), parallel=parallel, engine=ENGINE, **more)
    return Trial(case, strike=strike)


def small(name: str, model: str = "small-llama", **settings: t.Any) -> Trial:
    """One rank of a small model: for its settings."""
    return Trial(Case(f"vllm-set-{name}", model, given(QUICK, settings), engine=ENGINE, seconds=240))


def graphs(name: str, model: str = "small-llama", **settings: t.Any) -> Trial:
    """The same, compiled and with CUDA graphs."""
    return small(name, model, **{"disable_cuda_graph": None, **settings})


def spoken(name: str, **settings: t.Any) -> Trial:
    """One rank of the trained tiny model: for what depends on its words."""
    return Trial(Case(f"vllm-spec-{name}", "tiny", given(QUICK, settings), engine=ENGINE, seconds=240))


def alone(trial: Trial) -> Trial:
    """The same with its GPU to itself."""
    return replace(trial, shares=WHOLE)


def full(name: str, model: str, share: float, nodes: int = 1, **more: t.Any) -> Trial:
    """A model of full size, or cut: beside two small engines, whose caches are of a stated size, but no other one of its kind."""
    parallel = {"nodes": nodes, **more.pop("parallel", {"tp": nodes})}
    settings = given({"gpu_memory_utilization": share, "context_length": 8192, **EAGER}, more)
    case = Case(f"vllm-mem-{name}", model, settings, parallel=parallel, engine=ENGINE, seconds=280)
    return Trial(case, shares=WHOLE - 2, least=75)


BOTH = [
    two("two-first", {**TINY, "cuda_graph_max_bs": 8}),
    two("two-pp", QUICK, parallel={"nodes": 2, "tp": 1, "pp": 2}),
    two("two-share", {"gpu_memory_utilization": 0.2, "max_running_requests": 8, **EAGER}),
    two("two-ib", QUICK, transport="roce", seconds=150),
    two("two-ib-unchecked", QUICK, transport="roce", preflight=False, seconds=150),
    two("two-trace", QUICK, environment={"NCCL_DEBUG": "TRACE", "NCCL_DEBUG_SUBSYS": "ALL"}),
    two("two-version", QUICK, environment={"NCCL_DEBUG": "VERSION"}),
    two("two-warn", QUICK, environment={"NCCL_DEBUG": "WARN"}),
]
DEATHS = [
    two("death-decode", QUICK, Strike("decode", title=WORKER)),
    two("death-head", QUICK, Strike("decode", rank=0, title=WORKER)),
    two("death-core", QUICK, Strike("decode", rank=0, title=CORE)),
    two("death-prefill", QUICK, Strike("prefill", title=WORKER)),
    # What rank 1 itself says: some lines are the first rank's alone.
    two("death-init", QUICK, Strike(r"backend=nccl", title=WORKER), seconds=180),
    two("death-load", QUICK, Strike(r"Init COMPLETE|Starting to load|Loading model", title=WORKER), seconds=180),
    two("death-capture", {**TINY, "cuda_graph_max_bs": 64}, Strike(r"Model loading took", title=WORKER), seconds=240),
    two("hang-decode", QUICK, Strike("decode", title=WORKER, signal=signal.SIGSTOP, patience=180), kubernetes=NOTICED),
    two(
        "hang-head",
        QUICK,
        Strike("decode", rank=0, title=CORE, signal=signal.SIGSTOP, patience=180),
        kubernetes=NOTICED,
    ),
]
NGRAM: Plain = {"method": "ngram", "prompt_lookup_max": 4, "prompt_lookup_min": 2}
DRAFT: Plain = {"method": "draft_model", "model": "tests/small-draft"}
SPECULATION = [
    spoken("none"),
    spoken("ngram-3", speculative_config={**NGRAM, "num_speculative_tokens": 3}),
    spoken("ngram-5", speculative_config={**NGRAM, "num_speculative_tokens": 5}),
    # The model as its own drafter: all that it drafts is right.
    spoken("self-3", speculative_config={"method": "draft_model", "model": "tests/tiny", "num_speculative_tokens": 3}),
    spoken("self-open", speculative_config={"method": "draft_model", "model": "tests/tiny"}),
    two("two-ngram", {**QUICK, "speculative_config": {**NGRAM, "num_speculative_tokens": 3}}),
    two("two-self", {**QUICK, "speculative_config": {"method": "draft_model", "model": "tests/tiny", "num_speculative_tokens": 3}}),
    *(headed(f"vllm-spec-mtp-{steps}", QUICK, steps, engine=ENGINE) for steps in (0, 1, 3, 5)),
    *(headed(f"vllm-spec-mtp-{steps}-graphs", {**TINY, "cuda_graph_max_bs": 8}, steps, engine=ENGINE) for steps in (0, 3)),
    headed("vllm-two-spec-mtp-3", QUICK, 3, engine=ENGINE, parallel=PAIR),
]  # fmt: skip
SETTINGS = [
    small("plain"),
    small("kv-e5m2", kv_cache_dtype="fp8_e5m2"),
    small("kv-e4m3", kv_cache_dtype="fp8_e4m3"),
    small("kv-fp8", kv_cache_dtype="fp8"),
    small("page-16", block_size=16),
    small("page-64", block_size=64),
    small("page-48", block_size=48),
    small("chunk-512", chunked_prefill_size=512),
    small("chunk-off", enable_chunked_prefill=False),
    small("chunk-off-short", enable_chunked_prefill=False, chunked_prefill_size=2048),
    small("radix-off", disable_radix_cache=True),
    small("overlap-off", async_scheduling=False),
    small("requests-open", max_running_requests=None),
    small("batch-below-requests", max_running_requests=256, chunked_prefill_size=128),
    small("context-long", context_length=16384),
    small("context-allowed", context_length=16384, allow_longer_context=True),
    small("context-auto", context_length="auto"),
    small("cache-too-small", kv_cache_memory_bytes=2**20),
    small("share-tiny", gpu_memory_utilization=0.001, kv_cache_memory_bytes=None),
    alone(small("share-high", gpu_memory_utilization=0.99, kv_cache_memory_bytes=None)),
    small("quant-fp8", quantization="fp8"),
    small("quant-nvfp4", quantization="modelopt_fp4"),
    small("triton", attention_backend="TRITON_ATTN"),
    small("flash", attention_backend="FLASH_ATTN"),
    small("flashinfer", attention_backend="FLASHINFER"),
    small("lora", enable_lora=True, max_lora_rank=16),
    small("level-0", disable_cuda_graph=None, optimization_level="0"),
    small("mode-none", disable_cuda_graph=None, compilation_config={"cudagraph_mode": "NONE"}),
    graphs("graphs"),
    graphs("graphs-4", cuda_graph_max_bs=4),
    graphs("graphs-pieces", compilation_config={"cudagraph_mode": "PIECEWISE"}),
    graphs("graphs-full", compilation_config={"cudagraph_mode": "FULL_DECODE_ONLY"}),
    graphs("graphs-uncompiled", compilation_config={"mode": 0}),
    drafted(small("draft-3", speculative_config={**DRAFT, "num_speculative_tokens": 3}), "small-draft"),
    small("draft-no-drafter", speculative_config={"method": "draft_model", "num_speculative_tokens": 3}),
    small("ngram", speculative_config={**NGRAM, "num_speculative_tokens": 3}),
    small("ngram-open", speculative_config=NGRAM),
    small("mtp-without-head", speculative_config={"method": "mtp", "num_speculative_tokens": 1}),
    small("qwen3", "small-qwen3"),
    small("moe", "small-moe"),
    small("moe-triton", "small-moe", moe_runner_backend="triton"),
    small("moe-fp8", "small-moe-fp8"),
    small("next", "small-next"),
    small("next-radix", "small-next", disable_radix_cache=False),
    small("next-all", "small-next", disable_radix_cache=False, mamba_cache_mode="all"),
    small("next-align", "small-next", disable_radix_cache=False, mamba_cache_mode="align"),
    small("next-float32", "small-next", mamba_ssm_cache_dtype="float32"),
    small("next-page", "small-next", block_size=64),
    small("next-mtp", "small-next", speculative_config={"method": "mtp", "num_speculative_tokens": 1}),
    graphs("next-graphs", "small-next", cuda_graph_max_bs=4),
]
MTP: Plain = {"speculative_config": {"method": "mtp", "num_speculative_tokens": 1}}
# vLLM's own batch and requests on a Spark, whose memory NVML does not tell; and few requests in this GPU's batch: a run's peak grows with each.
SPARK: Plain = {"chunked_prefill_size": 2048, "max_running_requests": 256}
FEW: Plain = {"chunked_prefill_size": 8192, "max_running_requests": 16}
PEAKS = [
    full(f"{name}-{kind}", model, 0.8, **batch, **more)
    for name, model, more in (
        ("next-mtp", "next-80b-cut", MTP),
        ("gpt-oss", "gpt-oss-20b", {}),
        ("nano", "nano", {}),
        ("next", "next-80b-cut", {}),
        ("qwen3-30b", "qwen3-30b-a3b", {}),
        ("qwen3-8b", "qwen3-8b", {}),
    )
    for kind, batch in (("spark", SPARK), ("few", FEW))
]
MEMORY = [
    full("qwen3-8b", "qwen3-8b", 0.8),
    full("qwen3-8b-e4m3", "qwen3-8b", 0.6, kv_cache_dtype="fp8_e4m3"),
    full("qwen3-8b-graphs", "qwen3-8b", 0.8, disable_cuda_graph=None, cuda_graph_max_bs=64),
    full("qwen3-30b", "qwen3-30b-a3b", 0.85),
    full("qwen3-30b-fp8", "qwen3-30b-a3b-fp8", 0.7),
    full("nano", "nano", 0.85),
    full("nano-requests", "nano", 0.85, max_running_requests=16),
    full("nano-radix", "nano", 0.85, disable_radix_cache=False),
    full("next", "next-80b-cut", 0.8),
    full("next-mtp", "next-80b-cut", 0.8, **MTP),
    full("deepseek", "deepseek-v3-cut", 0.85),
    full("deepseek-short", "deepseek-v3-cut", 0.85, context_length=1024, max_running_requests=8, chunked_prefill_size=1024),
    full("mimo-mtp", "mimo-7b", 0.7, **MTP),
    full("llama-8b", "llama-8b", 0.7),
    full("qwen3-32b-fp8", "qwen3-32b-fp8", 0.7),
    full("gpt-oss", "gpt-oss-20b", 0.8),
    full("minimax", "minimax-cut", 0.8),
    full("mixtral", "mixtral-cut", 0.8),
    full("kimi", "kimi-k2-cut", 0.85),
    full("super-fp8", "super-fp8-cut", 0.8),
    full("nano-floor", "nano", 0.45),
    full("qwen3-8b-requests", "qwen3-8b", 0.8, max_running_requests=1024),
    full("qwen3-8b-batch", "qwen3-8b", 0.8, chunked_prefill_size=16384, context_length=40960),
    drafted(
        full("qwen3-8b-draft", "qwen3-8b", 0.7,
             speculative_config={"method": "draft_model", "model": "tests/qwen3-0.6b", "num_speculative_tokens": 3}),
        "qwen3-0.6b",
    ),
    full("qwen3.5", "qwen3.5-35b-cut", 0.8, language_model_only=True),
    full("gemma-4", "gemma-4-cut", 0.8, language_model_only=True),
    full("qwen3-vl", "qwen3-vl-8b", 0.8, language_model_only=True),
]  # fmt: skip
MEMORY_BOTH = [
    full("tp2-qwen3-8b", "qwen3-8b", 0.8, 2),
    full("pp2-qwen3-8b", "qwen3-8b", 0.8, 2, parallel={"tp": 1, "pp": 2}),
    full("tp2-qwen3-30b-ep", "qwen3-30b-a3b", 0.8, 2, parallel={"tp": 2, "ep": 2}),
    full("tp2-nano", "nano", 0.8, 2),
    full("tp2-next", "next-80b-cut", 0.8, 2),
    full("tp2-deepseek", "deepseek-v3-cut", 0.85, 2),
]
CASES = [*BOTH, *DEATHS, *SPECULATION, *SETTINGS, *MEMORY, *MEMORY_BOTH, *PEAKS]
