"""Give the tiny model as many weights as a real one reads for a token: its answers stay, its speed is a real model's.

Usage: wide_model.py FOLDER TINY, with the Python of the engine's environment. What is added is zero, in the MLP alone, so that it
changes nothing of what the model computes; the engine reads and multiplies it all the same.
"""

from __future__ import annotations

import pathlib
import sys

import torch
from transformers import AutoTokenizer, LlamaForCausalLM

WIDTH = 1 << 16


def wider(old: torch.nn.Linear, rows: int, columns: int) -> torch.nn.Linear:
    """Return the layer with zeros around its weights."""
    new = torch.nn.Linear(columns, rows, bias=False, dtype=old.weight.dtype)
    with torch.no_grad():
        new.weight.zero_()
        new.weight[: old.out_features, : old.in_features] = old.weight
    return new


def main(folder: pathlib.Path, tiny: str) -> None:
    """Write the model down with a wide MLP."""
    model = LlamaForCausalLM.from_pretrained(tiny, dtype=torch.bfloat16)
    model.config.intermediate_size = WIDTH
    for layer in model.model.layers:
        mlp, hidden = layer.mlp, model.config.hidden_size
        mlp.gate_proj, mlp.up_proj = wider(mlp.gate_proj, WIDTH, hidden), wider(mlp.up_proj, WIDTH, hidden)
        mlp.down_proj = wider(mlp.down_proj, hidden, WIDTH)
    model.save_pretrained(folder, safe_serialization=True)
    AutoTokenizer.from_pretrained(tiny).save_pretrained(folder)
    print(f"{sum(each.numel() for each in model.parameters()) / 1e6:.0f} M parameters")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2])
