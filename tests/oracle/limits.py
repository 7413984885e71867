"""What the oracle cannot judge, as its transformers has no torch and its model files are not those of an image: one list for all tests.

An entry counts only where the engine's own words are there too, so that a refusal for another reason is still seen.
"""

from __future__ import annotations

from typing import NamedTuple

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.versions import matches


class Limit(NamedTuple):
    """What is beyond the oracle: how the checkpoint's name begins, the engine and its versions, the engine's words, and why."""

    checkpoint: str
    engine: str
    versions: str
    words: str
    why: str


BEYOND = (
    Limit("gemma-4-26B-A4B-it", "vllm", ">=0.19.1,<0.28.0", "is a per-layer attribute",
          "it has the newest transformers that the release allows, an image of that release an older one"),
    Limit("Qwen3", "vllm", "==0.19.1", "failed to be inspected", "the release loads the model's class, whose transformers asks for torch"),
    Limit("Mistral-Small-4", "vllm", "<0.26.0", "must be an instance of MistralTokenizer", "mistral_common, whose tokenizer that is, is a stand-in"),
    Limit("Mistral-Small-4", "vllm", "<0.19.1", "KeyError: 'mistral4'", "the checkpoint has params.json, which needs no transformers; here it has config.json"),
    Limit("NVIDIA-Nemotron-3-Nano", "vllm", "<0.19.1", "does not recognize this architecture", "the checkpoint's own code has the configuration"),
)  # fmt: skip


def beyond(model: str, engine: str, version: str, reason: str | None) -> str:
    """Return why the oracle cannot judge what an engine said of a model (owner/checkpoint); empty where it can."""
    for limit in BEYOND:
        mine = model.rpartition("/")[2].startswith(limit.checkpoint) and engine == limit.engine
        if mine and matches(version, limit.versions) and limit.words in (reason or ""):
            return f"beyond the oracle ({limit.why}); the stock {version} says: {(reason or '')[:120]}"
    return ""
