"""Make the folders of the models to start: config.json alone, so that an engine gives them weights without meaning.

Usage: models.py CONFIGS OUT. CONFIGS has public models' own files by name, `OWNER--NAME_config.json` and, with ModelOpt,
`OWNER--NAME_hf_quant_config.json`: those that ai-dynamo/aiconfigurator carries (src/…/model_configs). Some are cut to fewer layers.
"""

from __future__ import annotations

import json
import pathlib
import sys
import typing as t

Plain = dict[str, t.Any]
NANO = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"
# Folder: (file's name, what is changed; None takes a key out).
PUBLIC: dict[str, tuple[str, Plain]] = {
    "qwen3-0.6b": ("Qwen--Qwen3-0.6B", {}),
    "qwen3-1.7b": ("Qwen--Qwen3-1.7B", {}),
    "qwen3-8b": ("Qwen--Qwen3-8B", {}),
    "qwen3-32b": ("Qwen--Qwen3-32B", {}),
    "qwen3-32b-fp8": ("Qwen--Qwen3-32B-FP8", {}),
    "qwen3-32b-static": ("Qwen--Qwen3-32B-FP8-Static-PerTensor", {}),
    "qwen3-30b-a3b": ("Qwen--Qwen3-30B-A3B", {}),
    "qwen3-30b-a3b-fp8": ("Qwen--Qwen3-30B-A3B-FP8", {}),
    "llama-8b": ("meta-llama--Meta-Llama-3.1-8B", {}),
    "mimo-7b": ("XiaomiMiMo--MiMo-7B-Base", {}),
    "mixtral-cut": ("mistralai--Mixtral-8x7B-v0.1", {"num_hidden_layers": 16}),
    "gpt-oss-20b": ("openai--gpt-oss-20b", {}),
    "nano": ("nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", {}),
    "nano-cut": (
        "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", {"num_hidden_layers": 13, "hybrid_override_pattern": NANO[:13]}
    ),
    "super-fp8-cut": (
        "nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-FP8",
        {"num_hidden_layers": 18, "hybrid_override_pattern": "MEMEMEM*EMEMEMEM*E"},
    ),
    "deepseek-v3-cut": ("deepseek-ai--DeepSeek-V3", {"num_hidden_layers": 6, "num_nextn_predict_layers": 1}),
    "kimi-k2-cut": ("moonshotai--Kimi-K2-Instruct", {"num_hidden_layers": 4}),
    "minimax-cut": ("MiniMaxAI--MiniMax-M2.5", {"num_hidden_layers": 12}),
    "qwen3.5-35b-cut": ("Qwen--Qwen3.5-35B-A3B", {"text_config": {"num_hidden_layers": 16}}),
    "qwen3-vl-8b": ("Qwen--Qwen3-VL-8B-Instruct", {}),
    "gemma-4-cut": ("google--gemma-4-26B-A4B", {"text_config": {"num_hidden_layers": 12}}),
}  # fmt: skip
WIDTHS: Plain = {
    "hidden_size": 512, "intermediate_size": 1024, "num_attention_heads": 8, "head_dim": 64, "vocab_size": 4096, "rms_norm_eps": 1e-6,
    "max_position_embeddings": 8192, "rope_theta": 1e6, "torch_dtype": "bfloat16", "bos_token_id": 0, "eos_token_id": 1,
    "hidden_act": "silu", "tie_word_embeddings": False,
}  # fmt: skip
EXPERTS: Plain = {
    "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 256, "decoder_sparse_step": 1, "mlp_only_layers": [],
    "norm_topk_prob": True,
}  # fmt: skip
FP8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
# Small ones of a class's own make-up, for settings.
SMALL: dict[str, Plain] = {
    "small-llama": {**WIDTHS, "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 4, "num_key_value_heads": 4},
    "small-draft": {**WIDTHS, "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 1, "num_key_value_heads": 4},
    "small-qwen3": {**WIDTHS, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "num_hidden_layers": 4, "num_key_value_heads": 4},
    "small-moe": {
        **WIDTHS, **EXPERTS, "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_hidden_layers": 4,
        "num_key_value_heads": 4,
    },
    "small-moe-fp8": {
        **WIDTHS, **EXPERTS, "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_hidden_layers": 4,
        "num_key_value_heads": 4, "quantization_config": FP8,
    },
    "small-next": {
        **WIDTHS, **EXPERTS, "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "num_hidden_layers": 8,
        "num_key_value_heads": 2, "full_attention_interval": 4, "linear_num_key_heads": 4, "linear_num_value_heads": 8,
        "linear_key_head_dim": 64, "linear_value_head_dim": 64, "linear_conv_kernel_dim": 4, "shared_expert_intermediate_size": 256,
        "partial_rotary_factor": 0.25,
    },
    # Qwen3-Next-80B-A3B's own widths, of 12 of its 48 layers.
    "next-80b-cut": {
        "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "num_hidden_layers": 12, "hidden_size": 2048,
        "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256, "intermediate_size": 5120, "vocab_size": 151936,
        "max_position_embeddings": 262144, "full_attention_interval": 4, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
        "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "num_experts": 512,
        "num_experts_per_tok": 10, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "decoder_sparse_step": 1,
        "mlp_only_layers": [], "norm_topk_prob": True, "partial_rotary_factor": 0.25, "rope_theta": 1e7, "rms_norm_eps": 1e-6,
        "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "bfloat16", "bos_token_id": 0, "eos_token_id": 1,
    },
}  # fmt: skip


def cut(config: Plain, changes: Plain) -> Plain:
    """Return a config.json with changes, and without code of the model's own."""
    made = {key: value for key, value in config.items() if key != "auto_map"}
    for key, value in changes.items():
        made[key] = cut(made[key], value) if isinstance(value, dict) else value
    for key in ("layer_types", "mlp_layer_types"):
        if isinstance(made.get(key), list):
            made[key] = made[key][: made["num_hidden_layers"]]
    return made


def write(folder: pathlib.Path, config: Plain, quant: Plain | None = None) -> None:
    """Write a model's files."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    if quant:
        (folder / "hf_quant_config.json").write_text(json.dumps(quant, indent=1), encoding="utf-8")


def main(configs: pathlib.Path, out: pathlib.Path) -> None:
    """Make all folders."""
    for name, (file, changes) in PUBLIC.items():
        config = json.loads((configs / f"{file}_config.json").read_text(encoding="utf-8"))
        quant = configs / f"{file}_hf_quant_config.json"
        write(out / name, cut(config, changes), json.loads(quant.read_text("utf-8")) if quant.is_file() else None)
    for name, config in SMALL.items():
        write(out / name, config)


if __name__ == "__main__":
    main(*map(pathlib.Path, sys.argv[1:]))
