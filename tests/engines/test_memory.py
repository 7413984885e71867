"""What a real engine holds of a model, compared with our plan from the same config.json: weights, blocks, tokens, requests at once."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import GIB
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import read_model_files, resolve_profile
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.model.model import gpu_bytes
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.profile.model_files import laid_on
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.plan import launch_plan
from ansible_collections.dgxspark.cluster.tests.engines import planned, served

pytestmark = pytest.mark.long
Plain = dict[str, t.Any]
LENGTH = 4096
MIB = 2**20
BLOCK = 128  # vLLM's default on a CPU (platforms/cpu.py), which the plan has to be told
WIDTHS: Plain = {
    "hidden_size": 512, "intermediate_size": 1024, "num_attention_heads": 8, "head_dim": 64, "vocab_size": 4096, "rms_norm_eps": 1e-6,
    "max_position_embeddings": 8192, "rope_theta": 1e6, "torch_dtype": "bfloat16", "bos_token_id": 0, "eos_token_id": 1,
}  # fmt: skip
MODELS: dict[str, Plain] = {
    "plain": {
        **WIDTHS, "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 4, "num_key_value_heads": 4,
        "hidden_act": "silu", "tie_word_embeddings": False,
    },
    "sliding": {
        **WIDTHS, "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "num_hidden_layers": 6, "num_key_value_heads": 4,
        "layer_types": [*["sliding_attention"] * 5, "full_attention"], "sliding_window": 512, "query_pre_attn_scalar": 64,
        "rope_local_base_freq": 1e4, "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True, "pad_token_id": 2,
    },
    "hybrid": {
        **WIDTHS, "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "num_hidden_layers": 8, "num_key_value_heads": 2,
        "full_attention_interval": 4, "linear_num_key_heads": 4, "linear_num_value_heads": 8, "linear_key_head_dim": 64,
        "linear_value_head_dim": 64, "linear_conv_kernel_dim": 4, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 256,
        "shared_expert_intermediate_size": 256, "decoder_sparse_step": 1, "mlp_only_layers": [], "norm_topk_prob": True,
        "partial_rotary_factor": 0.25, "hidden_act": "silu", "tie_word_embeddings": False,
    },
}  # fmt: skip


def started(engine: pathlib.Path, folder: pathlib.Path) -> tuple[Plain, int, float]:
    """Start the engine; return what it holds, and the tokens and requests that it logs."""
    done = subprocess.run(
        [str(engine / "python"), str(served.HERE / "engine_memory.py"), str(folder), str(LENGTH)], check=False, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, **served.UNIPROC},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    said = re.search(
        r"KV cache size: ([\d,]+) tokens, Maximum concurrency for [\d,]+ tokens per request: ([\d.]+)x", done.stdout
    )
    assert said, done.stdout[-3000:]
    return json.loads(done.stdout.splitlines()[-1]), int(said[1].replace(",", "")), float(said[2])


@pytest.mark.parametrize("name", MODELS)
def test_the_engine_holds_what_the_plan_says(name: str, engine: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(MODELS[name]), encoding="utf-8")
    held, tokens, requests = started(engine, tmp_path)
    own = knowledge.load("profile", [str(planned.OWN)])[planned.PROFILE]
    files = read_model_files(str(tmp_path))
    entry: Plain = {
        "id": name, "title": name, "model": "tests/own", "proven": "untested", "precision": {}, "engine": {"name": "vllm", "version": "0.32.0"},
        "parallel": own["parallel"], "source": own["source"],
        "settings": {
            "max_model_len": LENGTH, "max_num_seqs": 8, "max_num_batched_tokens": held["batched"], "block_size": BLOCK,
            "kv_cache_memory_bytes": GIB, "enforce_eager": True,
            # On a CPU, states of `auto` are FP32 (vLLM 0.32.0 platforms/cpu.py:317).
            **({"mamba_ssm_cache_dtype": held["states"]} if held["states"] != "auto" else {}),
        },
    }  # fmt: skip
    made = launch_plan(entry, {"free_gib": 100}, files=files)["memory"]
    model = resolve_profile(laid_on(entry, files, ())[0])
    assert model.facts
    weights = sum(gpu_bytes(model.facts, model.precision, model.parallelism, head=False).values())
    print(
        f"\n{name}: weights {held['weights'] / MIB:.2f} MiB, planned {weights / MIB:.2f}; "
        f"blocks {held['blocks']}, planned {made['blocks']}; tokens {tokens}, planned {made['kv_tokens_logged']}; "
        f"requests {requests}, planned {made['kv_tokens'] / LENGTH:.2f}"
    )
    assert weights == pytest.approx(held["weights"], rel=0.01)
    assert made["blocks"] == held["blocks"]
    assert made["kv_tokens_logged"] == tokens
    assert made["kv_tokens"] / LENGTH == pytest.approx(requests, abs=0.01)
