"""What the oracle is asked: the settings that owners published, put to an engine version by the collection itself."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

import families
from engine_parsers.oracle import Answer, Case
from engine_parsers.resolved import differences

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import build_argv, load_tables

Settings = t.Mapping[str, t.Any]


@dataclass(frozen=True)
class Published:
    """A launch that was really run: settings, the model it loads, and what the engine must make of it."""

    name: str
    settings: Settings
    architecture: str
    checkpoint: str
    resolved: Settings = field(default_factory=dict)
    drafter: str | None = None

    def case(self, engine: str, version: str, extra: Settings | None = None) -> Case:
        """Put the settings to an engine version; CollectionError if it has no way to take them."""
        settings = {**self.settings, **(extra or {})}
        built = build_argv(engine, version, settings, load_tables())
        models = {settings["model"]: families.files(self.architecture, self.checkpoint)}
        if self.drafter:
            models[settings["speculative_draft_model_path"]] = families.files(self.drafter)
        return Case(built.argv, env=built.env, models=models)

    def faults(self, engine: str, answer: Answer) -> list[str]:
        """List what speaks against the launch: a refusal, or values other than planned."""
        if not answer.accepted:
            return [f"refused at {answer.stage}: {answer.reason}"]
        return differences(engine, answer, self.resolved)


RANK = {
    "tp_size": 4,
    "pp_size": 1,
    "nnodes": 4,
    "node_rank": 1,
    "dist_init_addr": "10.100.1.1:50000",
    "host": "0.0.0.0",
    "port": 30000,
}
NVFP4 = {"quantization": "modelopt_fp4", "kv_cache_dtype": "fp8_e4m3", "trust_remote_code": True, "disable_deep_gemm": True,
         "nccl_transport": "roce"}  # fmt: skip
GRAPHS = {"disable_cuda_graph": False, "disable_piecewise_cuda_graph": True, "cuda_graph_max_bs": 8}
MTP = {
    "speculative_algorithm": "NEXTN",
    "speculative_num_steps": 3,
    "speculative_num_draft_tokens": 4,
    "speculative_eagle_topk": 1,
}

Q397 = {**RANK, **NVFP4, **GRAPHS, "model": "nvidia/Qwen3.5-397B-A17B-NVFP4", "context_length": 196608, "mem_fraction_static": 0.75,
        "reasoning_parser": "qwen3", "tool_call_parser": "qwen3_coder", "fp4_gemm_backend": "flashinfer_cutlass"}  # fmt: skip
GLM = {**RANK, **NVFP4, **GRAPHS, "model": "nvidia/GLM-4.7-NVFP4", "context_length": 202752, "mem_fraction_static": 0.6, "ep_size": 1,
       "reasoning_parser": "glm45", "tool_call_parser": "glm47", "fp4_gemm_backend": "flashinfer_cutlass"}  # fmt: skip
ULTRA = {**RANK, **NVFP4, **GRAPHS, "model": "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-NVFP4", "ep_size": 4, "context_length": 262144,
         "mem_fraction_static": 0.9, "attention_backend": "flashinfer", "moe_runner_backend": "flashinfer_cutlass",
         "max_mamba_cache_size": 48, "reasoning_parser": "nemotron_3", "tool_call_parser": "qwen3_coder"}  # fmt: skip
SUPER = {**RANK, **NVFP4, "model": "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4", "context_length": 524288, "mem_fraction_static": 0.8,
         "json_model_override_args": {"max_position_embeddings": 524288}, "allow_longer_context": True,
         "attention_backend": "flashinfer", "moe_runner_backend": "flashinfer_cutlass", "fp4_gemm_backend": "flashinfer_cutlass",
         "disable_piecewise_cuda_graph": True, "reasoning_parser": "nemotron_3", "tool_call_parser": "qwen3_coder"}  # fmt: skip
GEMMA = {**RANK, "model": "google/gemma-4-31B-it", "ep_size": 1, "context_length": 262144, "mem_fraction_static": 0.6,
         "kv_cache_dtype": "fp8_e4m3", "attention_backend": "triton", "disable_cuda_graph": False, "disable_piecewise_cuda_graph": False,
         "cuda_graph_max_bs": 8, "enable_spec_v2": True, "speculative_algorithm": "NEXTN", "speculative_eagle_topk": 1,
         "speculative_draft_model_path": "google/gemma-4-31B-it-assistant", "speculative_num_steps": 4,
         "speculative_num_draft_tokens": 5}  # fmt: skip
HYBRID_MTP = {"mamba_scheduler_strategy": "extra_buffer", "enable_spec_v2": True, **MTP}
DENSE_VLLM = {"model": "Sehyo/Qwen3.5-122B-A10B-NVFP4", "max_model_len": 32768, "gpu_memory_utilization": 0.8, "port": 8000,
              "host": "0.0.0.0", "enable_prefix_caching": True, "enable_auto_tool_choice": True, "tool_call_parser": "qwen3_coder",
              "reasoning_parser": "qwen3", "max_num_batched_tokens": 4096, "trust_remote_code": True, "tp_size": 1,
              "max_num_seqs": 8, "speculative_config": {"method": "mtp", "num_speculative_tokens": 3}}  # fmt: skip

_MOE, _GLM, _NEMOTRON = "Qwen3_5MoeForConditionalGeneration", "Glm4MoeForCausalLM", "NemotronHForCausalLM"
QWEN_397B_MTP = Published(
    "Qwen3.5-397B EP 1 cutlass MTP 3/4",
    {**Q397, **HYBRID_MTP, "ep_size": 1, "moe_runner_backend": "cutlass", "attention_backend": "triton"},
    _MOE, "nvfp4", {"draft_tokens": 4, "attention_backend": "triton", "graph_max_bs": 8, "mamba_strategy": "extra_buffer"},
)  # fmt: skip
QWEN_397B_EP4 = Published(
    "Qwen3.5-397B EP 4 triton, piecewise on",
    {**Q397, "ep_size": 4, "moe_runner_backend": "triton", "attention_backend": "flashinfer", "disable_piecewise_cuda_graph": False},
    _MOE, "nvfp4", {"draft_tokens": None, "attention_backend": "flashinfer", "graph_max_bs": 8},
)  # fmt: skip
GLM_MTP = Published(
    "GLM-4.7 MTP triton", {**GLM, **MTP, "moe_runner_backend": "triton", "attention_backend": "flashinfer"},
    _GLM, "nvfp4", {"draft_tokens": 4, "attention_backend": "flashinfer", "graph_max_bs": 8, "prefill_graphs": "disabled"},
)  # fmt: skip
GLM_PLAIN = Published(
    "GLM-4.7 without MTP, cutlass", {**GLM, "moe_runner_backend": "cutlass", "attention_backend": "flashinfer"},
    _GLM, "nvfp4", {"draft_tokens": None, "graph_max_bs": 8, "prefill_graphs": "disabled"},
)  # fmt: skip
NEMOTRON_ULTRA = Published(
    "Nemotron Ultra EP 4", ULTRA, _NEMOTRON, "mixed",
    {"attention_backend": "flashinfer", "graph_max_bs": 8, "prefill_graphs": "disabled", "page_size": 1},
)  # fmt: skip
NEMOTRON_SUPER_MTP = Published(
    "Nemotron Super MTP 3/4", {**SUPER, **MTP, "ep_size": 1, "speculative_algorithm": "EAGLE"}, _NEMOTRON, "mixed",
    {"draft_tokens": 4, "attention_backend": "flashinfer", "prefill_graphs": "disabled"},
)  # fmt: skip
GEMMA_DRAFTER = Published(
    "Gemma 4 31B with its drafter, steps 4", GEMMA, "Gemma4ForConditionalGeneration", "bf16",
    {"draft_tokens": 5, "attention_backend": "triton", "graph_max_bs": 8}, drafter="Gemma4AssistantForCausalLM",
)  # fmt: skip
ONE_SPARK_VLLM = Published(
    "Qwen3.5-122B on one Spark", DENSE_VLLM, _MOE, "compressed-tensors", {"draft_tokens": 4, "max_running_requests": 8}
)
