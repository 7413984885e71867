"""Start the engine on a CPU with dummy weights, and print as JSON what it holds: bytes of weights, blocks, tokens.

Usage, with the engine's own Python: engine_memory.py FOLDER LENGTH. FOLDER has the model's config.json and nothing else.
The last line is the JSON; the engine's log about its cache comes before it.
"""

from __future__ import annotations

import json
import sys
import typing as t

import torch
from vllm import LLM
from vllm.model_executor.model_loader import base_loader

REQUESTS = 8


def weights(model: torch.nn.Module) -> int:
    """Return the bytes of the parameters; those that two modules share count once."""
    held = {each.data_ptr(): each.numel() * each.element_size() for each in model.parameters()}
    return sum(held.values())


def main(folder: str, length: int) -> None:
    """Start the engine and print what it holds."""
    loaded: list[int] = []
    pack = base_loader.process_weights_after_loading

    def counted(model: torch.nn.Module, *given: t.Any) -> None:
        # On a CPU the matrices are packed next, and their parameters are emptied.
        loaded.append(weights(model))
        pack(model, *given)

    base_loader.process_weights_after_loading = counted
    engine = LLM(
        model=folder, load_format="dummy", skip_tokenizer_init=True, enforce_eager=True, dtype="bfloat16", max_model_len=length,
        max_num_seqs=REQUESTS, distributed_executor_backend="uni",
    )  # fmt: skip
    config = engine.llm_engine.vllm_config
    held = {
        "weights": loaded[0],
        "blocks": config.cache_config.num_gpu_blocks,
        "block_size": config.cache_config.block_size,
        "states": config.cache_config.mamba_ssm_cache_dtype,
        "batched": config.scheduler_config.max_num_batched_tokens,
    }
    print(json.dumps(held))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
