"""What a planner must know of an engine version beside its flags; each fact names the place in the wheel that says so."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from engine_parsers.oracle import Case, ask
from engine_parsers.sources import Source

# A small dense model: what an engine chooses for it on a GB10 is what it chooses before a model's family has a say.
PROBE = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 4096, "intermediate_size": 12288,
    "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
    "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "rope_theta": 1000000, "dtype": "bfloat16",
    "torch_dtype": "bfloat16", "tie_word_embeddings": False, "hidden_act": "silu",
}  # fmt: skip
FOUR = {
    "sglang": ["--tp-size", "4", "--nnodes", "4", "--node-rank", "0", "--dist-init-addr", "10.0.0.1:5000"],
    "vllm": ["--tensor-parallel-size", "4", "--nnodes", "4", "--node-rank", "0", "--master-addr", "10.0.0.1"],
}
DEFAULTS = (
    "attention_backend", "block_size", "chunked_prefill_size", "enable_prefix_caching", "gpu_memory_utilization",
    "kv_cache_dtype", "max_num_batched_tokens", "max_num_seqs", "max_prefill_tokens", "max_running_requests",
    "mem_fraction_static", "page_size", "sampling_backend",
)  # fmt: skip


def facts(made: Source, loaded: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of one version; `loaded` is what the loaded engine said of itself."""
    found = _sglang(made) if made.engine == "sglang" else _vllm(made)
    found |= loaded
    found["defaults_on_gb10"] = {"tp1": _defaults(made, []), "tp4": _defaults(made, FOUR[made.engine])}
    return dict(sorted(found.items()))


def _defaults(made: Source, extra: list[str]) -> dict[str, Any]:
    argv = ["--model-path", "probe", *extra] if made.engine == "sglang" else ["probe", *extra]
    answer = ask(made.engine, made.version, [Case(argv, models={"probe": {"config.json": PROBE}})])[0]
    if not answer.accepted:
        raise RuntimeError(f"{made.engine} {made.version} refuses the probe: {answer.reason}")
    values: dict[str, Any] = {}
    for part in (answer.resolved, *(v for v in answer.resolved.values() if isinstance(v, dict))):
        values |= {name: part[name] for name in DEFAULTS if part.get(name) is not None and name not in values}
    return dict(sorted((values | graphs(answer.resolved)).items()))


def graphs(resolved: Mapping[str, Any]) -> dict[str, Any]:
    """Return SGLang's graph settings in one vocabulary: they moved from fields to an object in 0.5.14."""
    config = resolved.get("cuda_graph_config")
    if config:
        return {
            "cuda_graph_max_bs_decode": config["decode"]["max_bs"],
            "cuda_graph_backend_decode": str(config["decode"]["backend"]).lower(),
            "cuda_graph_backend_prefill": str(config["prefill"]["backend"]).lower(),
        }
    if "cuda_graph_max_bs" not in resolved:
        return {}
    return {
        "cuda_graph_max_bs_decode": resolved["cuda_graph_max_bs"],
        "cuda_graph_backend_decode": "disabled" if resolved["disable_cuda_graph"] else "full",
        "cuda_graph_backend_prefill": "disabled" if resolved["disable_piecewise_cuda_graph"] else "tc_piecewise",
    }


def _cite(made: Source, pattern: str, *places: str) -> str | None:
    """Return `file:line` of the first match in the first of the places that has one."""
    for place in places:
        for path in sorted(made.folder.glob(place)):
            match = re.search(pattern, path.read_text(encoding="utf-8"))
            if match:
                line = match.string.count("\n", 0, match.start()) + 1
                return f"{path.relative_to(made.folder)}:{line}"
    return None


def _fact(value: Any, cited: str | None) -> dict[str, Any]:
    if cited is None:
        raise RuntimeError(f"nothing in the wheel says {value!r} any more: look at the engine's source again")
    return {"value": value, "source": cited}


def _sglang(made: Source) -> dict[str, Any]:
    server, hooks = "sglang/srt/server_args.py", "sglang/srt/arg_groups/*.py"
    own_stage = _cite(made, r"def resolve_once\(", server)
    on_host = _cite(made, r"props\.is_integrated:[\s\S]{0,400}?psutil\.virtual_memory\(\)\.available",
                    "sglang/srt/utils/common.py")  # fmt: skip
    on_device = _cite(made, r"def get_available_gpu_memory", "sglang/srt/utils/common.py")
    adjusted = r"speculative_num_draft_tokens is adjusted to speculative_num_steps \+ 1"
    frozen = _cite(made, r"to FROZEN_KV_MTP", server, hooks)
    return {
        "program": _fact(["python3", "-m", "sglang.launch_server"],
                         _cite(made, r"prepare_server_args\(sys\.argv", "sglang/launch_server.py")),
        "free_memory": _fact("host_available", on_host) if on_host else _fact("cuda_free", on_device),
        "resolution": _fact("own stage", own_stage) if own_stage
        else _fact("constructor", _cite(made, r"def __post_init__\(self\)", server)),
        "eagle_topk1_draft_tokens": _fact("steps + 1, whatever is asked", _cite(made, adjusted, server, hooks)),
        "frozen_kv_mtp": _fact("promoted from NEXTN for a Gemma 4 assistant; draft tokens are taken as given", frozen)
        if frozen else {"value": "unknown to this version"},
    }  # fmt: skip


def _vllm(made: Source) -> dict[str, Any]:
    unified = r"(\(12, 1\)\)|is_integrated_gpu)[\s\S]{0,1200}?psutil\.virtual_memory\(\)\.available"
    return {
        "program": _fact(["vllm", "serve"], _cite(made, r"class ServeSubcommand", "vllm/entrypoints/cli/serve.py")),
        "free_memory": _fact("host_available", _cite(made, unified, "vllm/utils/mem_utils.py")),
        "utilization_of": _fact("total_memory", _cite(made, r"init_snapshot\.total_memory \* cache_config",
                                                      "vllm/v1/worker/utils.py")),
        "headless_worker": _fact("a rank above 0 of a node group runs --headless",
                                 _cite(made, r"def run_headless", "vllm/entrypoints/cli/serve.py")),
    }  # fmt: skip
