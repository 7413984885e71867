"""What a plan says that an engine will run with, in the vocabulary of tools/engine_parsers/resolved.py."""

from __future__ import annotations

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.versions import matches

UNKNOWN = "what only the running engine decides"
# What a parser still reports for a setting that is decided when the model is loaded; None for all others.
BEFORE_LOADING = {"moe_runner_backend": "auto"}


def planned(plan: t.Mapping[str, t.Any], late: t.Collection[str]) -> dict[str, t.Any]:
    """Return every key of the vocabulary. late: the settings of the plan that are decided at loading.

    UNKNOWN stands for what the plan does not know. A late setting has the value that the parser reports before loading.
    """

    def says(setting: str) -> t.Any:
        if setting in late:
            return plan["settings"].get(setting, BEFORE_LOADING.get(setting))
        said = plan["resolved"].get(setting, {"value": None, "by": "default"})
        return UNKNOWN if said["by"] == "unknown" else said["value"]

    engine = plan["engine"]
    return _sglang(engine["version"], says) if engine["name"] == "sglang" else _vllm(says)


def _sglang(version: str, says: t.Callable[[str], t.Any]) -> dict[str, t.Any]:
    graphs = "breakable" if matches(version, ">=0.5.15") else "tc_piecewise"
    drafts = bool(says("speculative_algorithm"))
    return {
        "speculative_algorithm": says("speculative_algorithm"),
        "draft_steps": says("speculative_num_steps") if drafts else None,
        "draft_tokens": says("speculative_num_draft_tokens") if drafts else None,
        "attention_backend": says("attention_backend"),
        "graph_max_bs": says("cuda_graph_max_bs"),
        "decode_graphs": _either(says("disable_cuda_graph"), "disabled", "full"),
        "prefill_graphs": _either(says("disable_piecewise_cuda_graph"), "disabled", graphs),
        "mamba_strategy": says("mamba_scheduler_strategy"),
        "page_size": says("page_size"),
        "max_running_requests": says("max_running_requests"),
        "mem_fraction_static": says("mem_fraction_static"),
        "moe_runner_backend": says("moe_runner_backend"),
        "quantization": says("quantization"),
        "radix_cache": _either(says("disable_radix_cache"), False, True),
        "overlap": _either(says("disable_overlap_schedule"), False, True),
    }


def _vllm(says: t.Callable[[str], t.Any]) -> dict[str, t.Any]:
    return {
        "speculative_algorithm": says("speculative_algorithm"),
        "draft_steps": says("speculative_num_steps"),
        "draft_tokens": says("speculative_num_draft_tokens"),
        "attention_backend": says("attention_backend"),
        "page_size": says("block_size"),
        "max_running_requests": says("max_running_requests"),
        "gpu_memory_utilization": says("gpu_memory_utilization"),
        "quantization": says("quantization"),
        "radix_cache": _either(says("disable_radix_cache"), False, True),
        "prefill_chunk": says("chunked_prefill_size"),
    }


def _either(switch: t.Any, on: t.Any, off: t.Any) -> t.Any:
    return UNKNOWN if switch is UNKNOWN else on if switch else off
