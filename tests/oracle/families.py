"""Hand-made model files: what an engine reads of a model before it loads one, by architecture and quantization.

The sizes are those of the public configurations as far as they are known here; no weight, tokenizer or template is needed.
"""

from __future__ import annotations

import copy
import json
import pathlib
from collections.abc import Mapping
from typing import Any

MODELS = pathlib.Path(__file__).resolve().parent / "models"
NVFP4 = {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16, "exclude_modules": ["lm_head"]}
MIXED = {
    "quant_algo": "MIXED_PRECISION",
    "kv_cache_quant_algo": "FP8",
    "exclude_modules": ["lm_head"],
    "quantized_layers": {
        "model.layers.1.mixer.experts.0.up_proj": {"quant_algo": "NVFP4", "group_size": 16},
        "model.layers.0.mixer.in_proj": {"quant_algo": "FP8"},
    },
}
COMPRESSED = {
    "quant_method": "compressed-tensors",
    "format": "nvfp4-pack-quantized",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": True},
            "input_activations": {
                "num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": True,
                "dynamic": "local",
            },
        }
    },
}  # fmt: skip

# Engines look up the marks of thinking and of tool calls in the tokenizer, so it has these and nothing else.
MARKS = ("<unk>", "<s>", "</s>", "<think>", "</think>", "<tool_call>", "</tool_call>", "<function=", "</function>")
# What single families' parsers look for beside.
OWN_MARKS = {
    "GptOssForCausalLM": ("<|start|>", "<|channel|>", "<|message|>", "<|end|>"),
    "LagunaForCausalLM": ("<assistant>", "</assistant>"),
}


def tokenizer(*marks: str) -> dict[str, Any]:
    """Return a tokenizer that knows some marks and nothing else."""
    return {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None,
        "added_tokens": [
            {"id": number, "content": mark, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
             "special": number < 3}
            for number, mark in enumerate(marks)
        ],
        "model": {"type": "WordLevel", "vocab": {mark: number for number, mark in enumerate(marks)}, "unk_token": "<unk>"},
    }  # fmt: skip


TOKENIZER_CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "unk_token": "<unk>",
    "bos_token": "<s>",
    "eos_token": "</s>",
}


def architectures() -> dict[str, pathlib.Path]:
    """Return the files by architecture class."""
    found = {}
    for path in sorted(MODELS.glob("*.json")):
        found[json.loads(path.read_text(encoding="utf-8"))["config.json"]["architectures"][0]] = path
    return found


def _path(architecture: str) -> pathlib.Path:
    known = architectures()
    if architecture not in known:
        raise LookupError(
            f"tests/oracle/models has no config.json of {architecture}, which a profile names. Put a public model's there, "
            f"by the pattern of {known[min(known)].name}: config.json alone, with the sizes of the publisher."
        )
    return known[architecture]


def files(architecture: str, checkpoint: str = "bf16", *, experts: bool = False) -> dict[str, Any]:
    """Return the files of a model: checkpoint is bf16, fp8, mxfp4, nvfp4, mixed (both by modelopt) or compressed-tensors.

    experts: the model has some, in a family that has models with and without.
    """
    held = json.loads(_path(architecture).read_text(encoding="utf-8"))
    config = copy.deepcopy(held["config.json"])
    if experts:
        config.get("text_config", config).update(held.get("experts", {}))
    out = {
        "config.json": config,
        "tokenizer.json": tokenizer(*MARKS, *OWN_MARKS.get(architecture, ())),
        "tokenizer_config.json": TOKENIZER_CONFIG,
    }
    if checkpoint in ("nvfp4", "mixed"):
        stated = NVFP4 if checkpoint == "nvfp4" else MIXED
        config["quantization_config"] = {"quant_method": "modelopt", **stated, "ignore": stated["exclude_modules"]}
        out["hf_quant_config.json"] = {"producer": {"name": "modelopt", "version": "0.40.0"}, "quantization": stated}
    elif checkpoint == "fp8":
        block = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
        config["quantization_config"] = block
    elif checkpoint == "compressed-tensors":
        config["quantization_config"] = COMPRESSED
    elif checkpoint == "mxfp4":
        left_out = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
        config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": left_out}
    elif checkpoint != "bf16":
        raise KeyError(checkpoint)
    return out


def block_drafter(target: Mapping[str, Any]) -> dict[str, Any]:
    """Return the files of a model that drafts blocks (DFlash) for the one with this config.json: few layers of its widths."""
    text = target.get("text_config", target)
    config = {
        "architectures": ["DFlashDraftModel"], "model_type": "qwen3", "num_hidden_layers": 5, "block_size": 16,
        "dflash_config": {"mask_token_id": 3, "target_layer_ids": [1, 9, 17, 25, 33]},
        "num_target_layers": text["num_hidden_layers"], "intermediate_size": 4096, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 128, "hidden_act": "silu", "rms_norm_eps": 1e-6, "torch_dtype": "bfloat16",
        **{key: text[key] for key in ("hidden_size", "vocab_size", "max_position_embeddings")},
    }  # fmt: skip
    return {"config.json": config, "tokenizer.json": tokenizer(*MARKS), "tokenizer_config.json": TOKENIZER_CONFIG}
