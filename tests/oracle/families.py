"""Hand-made model files: what an engine reads of a model before it loads one, by architecture and quantization.

The sizes are those of the public configurations as far as they are known here; no weight, tokenizer or template is needed.
"""

from __future__ import annotations

import copy
import json
import pathlib
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
HARMONY = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>")


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
    marks = MARKS + (HARMONY if architecture == "GptOssForCausalLM" else ())
    out = {"config.json": config, "tokenizer.json": tokenizer(*marks), "tokenizer_config.json": TOKENIZER_CONFIG}
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
