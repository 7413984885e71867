"""What is started on GPUs, in the order of worth: two ranks, their deaths, settings, memory."""

from __future__ import annotations

import signal
import typing as t
from dataclasses import dataclass, replace

from ansible_collections.dgxspark.cluster.tests.engines.groups import Case, Group, Plain
from ansible_collections.dgxspark.cluster.tests.engines.taught import taught

# SGLang names its processes so; one that is still named as it was started is not what works on the GPU.
SCHEDULER = r"^sglang::scheduler"
# What these machines need: no FlashAttention 3 is carried there, and no sampling kernels. Not the plan's business.
HERE: Plain = {"attention_backend": "triton", "sampling_backend": "pytorch"}
WHOLE = 6  # shares of a GPU: as many small engines fit on one
TINY: Plain = {**HERE, "mem_fraction_static": 0.3, "max_running_requests": 8, "max_total_tokens": 60000}
QUICK: Plain = {**TINY, "disable_cuda_graph": True, "disable_piecewise_cuda_graph": True}


@dataclass(frozen=True)
class Strike:
    """Which process of which rank gets a signal, and when: a phase of its work, or a line of its log."""

    when: str
    rank: int = 1
    title: str = SCHEDULER
    signal: int = signal.SIGKILL
    patience: float = 90
    again: bool = True


@dataclass(frozen=True)
class Trial:
    """A case and what is done to it. shares: of a GPU, see drive.py; least: seconds without which it is not begun."""

    case: Case
    shares: int = 1
    strike: Strike | None = None
    steps: tuple[t.Callable[[Group], t.Any], ...] = ()
    least: float = 60


def two(name: str, settings: Plain, strike: Strike | None = None, **more: t.Any) -> Trial:
    """Two ranks of the tiny model."""
    parallel = more.pop("parallel", {"nodes": 2, "tp": 2})
    return Trial(Case(name, "tiny", settings, parallel=parallel, **more), strike=strike)


def small(name: str, model: str, **settings: t.Any) -> Trial:
    """One rank of a small model: for its settings. Left out is what is None."""
    given = {key: value for key, value in {**QUICK, **settings}.items() if value is not None}
    return Trial(Case(f"set-{name}", model, given, seconds=240))


def graphs(name: str, model: str, **settings: t.Any) -> Trial:
    """The same with CUDA graphs."""
    return small(name, model, **{"disable_cuda_graph": None, "disable_piecewise_cuda_graph": None, **settings})


def full(name: str, model: str, share: float, nodes: int = 1, seconds: float = 280, **more: t.Any) -> Trial:
    """A model of full size, or cut, that has its GPUs to itself."""
    parallel = {"nodes": nodes, **more.pop("parallel", {"tp": nodes})}
    given = {
        **HERE,
        "mem_fraction_static": share,
        "disable_cuda_graph": True,
        "disable_piecewise_cuda_graph": True,
        **more,
    }
    given = {key: value for key, value in given.items() if value is not None}
    return Trial(Case(f"mem-{name}", model, given, parallel=parallel, seconds=seconds), shares=WHOLE, least=75)


ALONE: Plain = {"disable_cuda_graph": None, "disable_piecewise_cuda_graph": None}
BOTH = [
    two("two-first", {**TINY, "cuda_graph_max_bs": 8, "disable_piecewise_cuda_graph": True, "enable_metrics": True}),
    two("two-pp", QUICK, parallel={"nodes": 2, "tp": 1, "pp": 2}),
    two("two-ib", QUICK, transport="roce"),
    two("two-ib-unchecked", QUICK, transport="roce", preflight=False, seconds=150),
    two("two-trace", QUICK, environment={"NCCL_DEBUG": "TRACE", "NCCL_DEBUG_SUBSYS": "ALL"}),
    two("two-version", QUICK, environment={"NCCL_DEBUG": "VERSION"}),
    two("two-warn", QUICK, environment={"NCCL_DEBUG": "WARN"}),
]
DEATHS = [
    two("death-decode", QUICK, Strike("decode")),
    two("death-prefill", QUICK, Strike("prefill")),
    two("death-head", QUICK, Strike("decode", rank=0)),
    two("death-load", QUICK, Strike(r"Load weight begin")),
    two("death-init", QUICK, Strike(r"Init torch distributed begin")),
    two(
        "death-capture",
        {**TINY, "cuda_graph_max_bs": 64, "disable_piecewise_cuda_graph": True},
        Strike("Capture cuda graph begin"),
    ),
    two("death-detokenizer", QUICK, Strike("decode", rank=0, title="^sglang::detokenizer")),
    two("death-server", QUICK, Strike("decode", rank=1, title=r"^python3 -m sglang")),
    two("hang-decode", {**QUICK, "watchdog_timeout": 60}, Strike("decode", signal=signal.SIGSTOP, patience=240)),
    two(
        "hang-head",
        {**QUICK, "watchdog_timeout": 60},
        Strike("decode", rank=0, signal=signal.SIGSTOP, patience=240, again=False),
    ),
]
DRAFT: Plain = {"speculative_algorithm": "STANDALONE", "speculative_draft_model_path": "tests/small-draft"}
NEXTN: Plain = {
    "speculative_algorithm": "NEXTN",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
}


def drafted(trial: Trial, drafter: str = "small-draft") -> Trial:
    """The same with a drafter's files in the cache."""
    return replace(trial, case=replace(trial.case, drafter=drafter))


SETTINGS = [
    small("plain", "small-llama"),
    small("kv-e5m2", "small-llama", kv_cache_dtype="fp8_e5m2"),
    small("kv-e4m3", "small-llama", kv_cache_dtype="fp8_e4m3"),
    small("page-16", "small-llama", page_size=16),
    small("chunk-2048", "small-llama", chunked_prefill_size=2048),
    small("chunk-off", "small-llama", chunked_prefill_size=-1),
    small("chunk-page", "small-llama", chunked_prefill_size=1000, page_size=64),
    small("radix-off", "small-llama", disable_radix_cache=True),
    small("overlap-off", "small-llama", disable_overlap_schedule=True),
    small("requests-open", "small-llama", max_running_requests=None),
    small("context-long", "small-llama", context_length=16384),
    small("context-allowed", "small-llama", context_length=16384, allow_longer_context=True),
    small("share-tiny", "small-llama", mem_fraction_static=0.001, max_total_tokens=None),
    small("torch-native", "small-llama", attention_backend="torch_native"),
    small("quant-fp8", "small-llama", quantization="fp8"),
    small("quant-nvfp4", "small-llama", quantization="modelopt_fp4"),
    small("compile", "small-llama", enable_torch_compile=True),
    small("deterministic", "small-llama", enable_deterministic_inference=True),
    small("lora", "small-llama", enable_lora=True, max_lora_rank=16, lora_target_modules=["q_proj"]),
    graphs("graphs", "small-llama"),
    graphs("graphs-4", "small-llama", cuda_graph_max_bs=4),
    graphs("graphs-list", "small-llama", cuda_graph_bs=[1, 2, 4]),
    graphs("graphs-no-pieces", "small-llama", disable_piecewise_cuda_graph=True),
    graphs(
        "graphs-lora",
        "small-llama",
        enable_lora=True,
        max_lora_rank=16,
        lora_target_modules=["q_proj"],
        cuda_graph_max_bs=2,
    ),
    drafted(
        small(
            "alone-3",
            "small-llama",
            **DRAFT,
            speculative_num_steps=3,
            speculative_eagle_topk=1,
            speculative_num_draft_tokens=4,
        )
    ),
    drafted(
        small(
            "alone-adjusted",
            "small-llama",
            **DRAFT,
            speculative_num_steps=3,
            speculative_eagle_topk=1,
            speculative_num_draft_tokens=7,
        )
    ),
    drafted(
        small(
            "alone-topk",
            "small-llama",
            **DRAFT,
            speculative_num_steps=3,
            speculative_eagle_topk=4,
            speculative_num_draft_tokens=8,
        )
    ),
    drafted(small("alone-open", "small-llama", **DRAFT, max_running_requests=None)),
    drafted(small("alone-no-tokens", "small-llama", **DRAFT, speculative_num_steps=3)),
    small(
        "alone-no-drafter",
        "small-llama",
        speculative_algorithm="STANDALONE",
        speculative_num_steps=3,
        speculative_eagle_topk=1,
        speculative_num_draft_tokens=4,
    ),
    small("ngram", "small-llama", speculative_algorithm="NGRAM", speculative_num_draft_tokens=8),
    small("nextn-without-head", "small-llama", **NEXTN),
    small("spec-unknown", "small-llama", speculative_algorithm="NONSENSE"),
    small("qwen3", "small-qwen3"),
    small("moe", "small-moe"),
    small("moe-triton", "small-moe", moe_runner_backend="triton"),
    small("moe-flashinfer", "small-moe", moe_runner_backend="flashinfer_cutlass"),
    small("moe-fp8", "small-moe-fp8"),
    small("moe-deep-gemm", "small-moe-fp8", moe_runner_backend="deep_gemm"),
    small("next", "small-next"),
    small("next-extra", "small-next", mamba_scheduler_strategy="extra_buffer"),
    small("next-radix-off", "small-next", disable_radix_cache=True),
    small("next-slots", "small-next", max_mamba_cache_size=30),
    small("next-slots-few", "small-next", max_mamba_cache_size=2),
    small("next-overlap", "small-next", mamba_scheduler_strategy="no_buffer", disable_overlap_schedule=False),
    small("next-nextn", "small-next", **NEXTN),
    small("next-nextn-extra", "small-next", **NEXTN, mamba_scheduler_strategy="extra_buffer"),
    small("next-nextn-radix-off", "small-next", **NEXTN, disable_radix_cache=True),
    small("next-page", "small-next", page_size=64),
    graphs("next-graphs", "small-next", cuda_graph_max_bs=4),
    small("quant-awq", "small-llama", quantization="awq"),
    small("quant-gptq", "small-llama", quantization="gptq_marlin"),
    small("quant-ct", "small-llama", quantization="compressed-tensors"),
    small("quant-w8a8", "small-llama", quantization="w8a8_fp8"),
    small("quant-mxfp4", "small-llama", quantization="mxfp4"),
    small("quant-fp8-twice", "small-moe-fp8", quantization="modelopt_fp8"),
    small("kv-fp4", "small-llama", kv_cache_dtype="fp4_e2m1"),
    small("pool-few", "small-llama", max_total_tokens=16),
    small("requests-none", "small-llama", max_running_requests=0),
    small("context-beyond-pool", "small-llama", max_total_tokens=4096),
    small("mixed-chunk", "small-llama", enable_mixed_chunk=True),
    drafted(
        small(
            "alone-mixed",
            "small-llama",
            **DRAFT,
            speculative_num_steps=3,
            speculative_eagle_topk=1,
            speculative_num_draft_tokens=4,
            enable_mixed_chunk=True,
        )
    ),
    small("flashinfer", "small-llama", attention_backend="flashinfer"),
    small("flex", "small-llama", attention_backend="flex_attention"),
    small("trtllm", "small-llama", attention_backend="trtllm_mha"),
    small("moe-marlin", "small-moe", moe_runner_backend="marlin"),
    small("reasoning-unknown", "small-llama", reasoning_parser="no-such"),
    small("tools-unknown", "small-llama", tool_call_parser="no-such"),
    small("graphs-list-odd", "small-llama", **ALONE, cuda_graph_bs=[4, 2, 64]),
    small("dp-attention", "small-llama", enable_dp_attention=True),
    small("hierarchical", "small-llama", enable_hierarchical_cache=True),
    small("nano-triton", "nano-cut", max_total_tokens=20000, mem_fraction_static=0.4),
]
MEMORY = [
    full("qwen3-8b", "qwen3-8b", 0.8),
    full("qwen3-8b-e5m2", "qwen3-8b", 0.6, kv_cache_dtype="fp8_e5m2"),
    full("llama-8b", "llama-8b", 0.7),
    full("qwen3-30b", "qwen3-30b-a3b", 0.85),
    full("qwen3-30b-fp8", "qwen3-30b-a3b-fp8", 0.7),
    full("qwen3-32b-fp8", "qwen3-32b-fp8", 0.7),
    full("qwen3-32b", "qwen3-32b", 0.9),
    full("next", "next-80b-cut", 0.8),
    full("next-extra", "next-80b-cut", 0.8, mamba_scheduler_strategy="extra_buffer"),
    full("next-nextn", "next-80b-cut", 0.8, **NEXTN, mamba_scheduler_strategy="extra_buffer", max_running_requests=16),
    full("next-radix-off", "next-80b-cut", 0.8, disable_radix_cache=True, max_running_requests=32),
    full("mimo-nextn", "mimo-7b", 0.7, **NEXTN),
    full("mimo", "mimo-7b", 0.7),
    full("gpt-oss", "gpt-oss-20b", 0.8),
    full("deepseek", "deepseek-v3-cut", 0.9),
    full("deepseek-nextn", "deepseek-v3-cut", 0.85, **NEXTN),
    full("kimi", "kimi-k2-cut", 0.9),
    full("minimax", "minimax-cut", 0.8),
    full("mixtral", "mixtral-cut", 0.8),
    full("qwen3-8b-graphs", "qwen3-8b", 0.8, **ALONE, cuda_graph_max_bs=64),
    full("qwen3-8b-fp8-asked", "qwen3-8b", 0.7, quantization="fp8"),
    full("qwen3-32b-static", "qwen3-32b-static", 0.7),
    full("nano", "nano", 0.85, attention_backend="flashinfer"),
    full("nano-slots", "nano", 0.85, attention_backend="flashinfer", max_mamba_cache_size=48),
    full("nano-floor", "nano", 0.5, attention_backend="flashinfer"),
    full("super-fp8", "super-fp8-cut", 0.8, attention_backend="flashinfer"),
    full("qwen3-8b-1.7b", "qwen3-8b", 0.7, speculative_algorithm="STANDALONE", speculative_draft_model_path="tests/qwen3-0.6b",
         speculative_num_steps=3, speculative_eagle_topk=1, speculative_num_draft_tokens=4),
    full("qwen3.5", "qwen3.5-35b-cut", 0.8),
    full("gemma-4", "gemma-4-cut", 0.8),
    full("qwen3-vl", "qwen3-vl-8b", 0.8),
]  # fmt: skip
MEMORY_BOTH = [
    full("tp2-qwen3-8b", "qwen3-8b", 0.8, 2),
    full("tp2-qwen3-30b-ep", "qwen3-30b-a3b", 0.8, 2, parallel={"tp": 2, "ep": 2}),
    full("pp2-qwen3-8b", "qwen3-8b", 0.8, 2, parallel={"tp": 1, "pp": 2}),
    full("tp2-next", "next-80b-cut", 0.8, 2),
    full("pp2-next", "next-80b-cut", 0.8, 2, parallel={"tp": 1, "pp": 2}),
    full("tp2-deepseek", "deepseek-v3-cut", 0.85, 2),
    full("tp2-minimax", "minimax-cut", 0.8, 2),
]
MEMORY = [drafted(trial, "qwen3-0.6b") if trial.case.id == "mem-qwen3-8b-1.7b" else trial for trial in MEMORY]


def spoken(name: str, settings: Plain, steps: int = 0, **more: t.Any) -> Trial:
    """The trained model with a trained prediction head (mtp_model.py), which drafts so many tokens; 0: without speculation."""
    drafts = {"speculative_algorithm": "NEXTN", "speculative_num_steps": steps} if steps else {}
    return Trial(Case(name, "tiny-mtp", {**settings, **drafts}, **more), steps=(taught,))


COUNTED: Plain = {"enable_metrics": True}
PAIR: Plain = {"nodes": 2, "tp": 2}
SPECULATION = [
    spoken("spec-mtp-0", QUICK | COUNTED),
    spoken("spec-mtp-1", QUICK | COUNTED, 1),
    spoken("spec-mtp-3", QUICK | COUNTED, 3),
    spoken("spec-mtp-5", QUICK | COUNTED, 5),
    spoken("spec-mtp-0-graphs", {**TINY, "cuda_graph_max_bs": 8} | COUNTED),
    spoken("spec-mtp-3-graphs", {**TINY, "cuda_graph_max_bs": 8} | COUNTED, 3),
    spoken("two-spec-mtp-3", QUICK | COUNTED, 3, parallel=PAIR),
]
CASES = [*BOTH, *DEATHS, *SETTINGS, *MEMORY, *MEMORY_BOTH, *SPECULATION]
