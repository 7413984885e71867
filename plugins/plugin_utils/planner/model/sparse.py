# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Model parts beyond plain layers: indexers, compressed caches, lookup tables, hyper-connections.

Widths are in elements, sizes in bytes. Each formula names the engine source it follows.
"""

from __future__ import annotations

import math
import typing as t
from dataclasses import dataclass

# vLLM 0.33.0, models/deepseek_v4/attention.py and compressor.py. FP8: values with the rope part in BF16 and one scale byte per 64 of
# the rest, rounded up to 8 (584 bytes for 512), an indexer key with one FP32 scale (132 for 128), pages in multiples of 576 bytes.
# BF16: pages in multiples of 512.
SCALE_GROUP = 64
INDEX_SCALE = 4
INDEX_GROUP = 128
ALIGNED = 576
ALIGNED_PLAIN = 512


@dataclass(frozen=True)
class Indexer:
    """Selects the tokens that a layer attends to. It caches one key of head_dim per entry of the layer's cache.

    budget: the most tokens it selects.
    """

    heads: int
    head_dim: int
    budget: int


@dataclass(frozen=True)
class GroupIndexer(Indexer):
    """An indexer for layers that cache an entry for every token: it caches one key per `ratio` tokens."""

    ratio: int = 1


@dataclass(frozen=True)
class LatentIndexer(Indexer):
    """An indexer for layers of latent attention: it caches one FP8 key with its scales per `ratio` tokens.

    layers: how many layers have one of their own; the others take the choice of one before them. None: all.
    """

    ratio: int = 1
    layers: int | None = None


@dataclass(frozen=True)
class Compressed:
    """Layers that cache one latent of head_dim as key and value: one per token in the last `window`, and one per `ratio` tokens.

    ratio: None if these layers see only the window. The output goes through o_groups matrices of rank o_lora_rank.
    """

    layers: int
    heads: int
    head_dim: int
    rope_dim: int
    q_lora_rank: int
    o_lora_rank: int
    o_groups: int
    window: int
    ratio: int | None = None
    indexer: Indexer | None = None


@dataclass(frozen=True)
class Lookup:
    """Lookup tables from which each token reads a few rows. conv: width of the stateful convolution behind them, or None."""

    layers: int
    rows: int
    width: int
    conv: int | None = None

    @property
    def params(self) -> int:
        """Number of weights."""
        return self.layers * self.rows * self.width


@dataclass(frozen=True)
class Hyper:
    """Hyper-connections: this many residual streams, mixed by two matrices of this rank before each block and at the end."""

    streams: int
    rank: int


def overlap(ratio: int) -> int:
    """Return how many token spans form one entry: two at ratio 4 (vLLM 0.33.0, models/deepseek_v4/compressor.py, coff)."""
    return 2 if ratio == 4 else 1


def hyper_params(hyper: Hyper, hidden: int, blocks: int) -> int:
    """Return the weights of the mixers: one before each block and one at the end.

    A mixer projects streams × hidden down to the rank and back up, and has one injection per stream.
    vLLM 0.33.0, models/qwen4_exp/nvidia/hyperconnection.py, GatedResidual. Every rank holds them.
    """
    return (blocks + 1) * hyper.streams * hidden * (2 * hyper.rank + hyper.streams)


def indexer_params(indexer: Indexer, hidden: int) -> int:
    """Return the weights of one layer's indexer: its queries and its single key.

    vLLM 0.33.0, models/qwen4_exp/nvidia/indexer_qsa.py, index_qk_proj. Every rank holds them.
    """
    return hidden * (indexer.heads + 1) * indexer.head_dim


def latent_index_params(indexer: LatentIndexer, hidden: int, q_rank: int, layers: int) -> tuple[int, int]:
    """Return the weights of an indexer per latent layer: of its queries, and of its key and the heads' weights.

    Where not all `layers` have one, each has its share. vLLM 0.33.0, models/deepseek_v2.py, Indexer (wq_b, wk_weights_proj). Every
    rank holds them.
    """
    own = layers if indexer.layers is None else indexer.layers
    queries, keys = q_rank * indexer.heads * indexer.head_dim, hidden * (indexer.head_dim + indexer.heads)
    return queries * own // layers, keys * own // layers


def latent_index_bytes(indexer: LatentIndexer, layers: float) -> float:
    """Return the bytes per token that the indexers of these layers cache on every rank, whatever the format of the latents.

    vLLM 0.33.0, models/deepseek_v2.py, DeepseekV32IndexerCache, and SGLang 0.5.23, pool_configurator.py,
    _compute_dsa_indexer_cell_size: FP8 values and one FP32 scale per 128, 132 bytes for a key of 128, over the pooled tokens.
    """
    key = indexer.head_dim + indexer.head_dim // INDEX_GROUP * INDEX_SCALE
    return math.ceil(key / indexer.ratio) * (layers if indexer.layers is None else min(indexer.layers, layers))


def compressed_parts(c: Compressed, hidden: int) -> dict[str, int]:
    """Return the weights of one layer by part. TP shards q_b, o_a, o_b; every rank holds the rest.

    vLLM 0.33.0, models/deepseek_v4/attention.py and compressor.py. compress (the compressors and the indexer's head weights)
    is never quantized: its layers are created with quant_config=None.
    """
    width = c.heads * c.head_dim
    compress = index = 0
    if c.ratio:
        compress = 2 * overlap(c.ratio) * hidden * c.head_dim
        if c.indexer:
            index = c.q_lora_rank * c.indexer.heads * c.indexer.head_dim
            compress += hidden * (c.indexer.heads + 2 * overlap(c.ratio) * c.indexer.head_dim)
    return {
        "q_a": hidden * c.q_lora_rank,
        "q_b": c.q_lora_rank * width,
        "kv_a": hidden * c.head_dim,
        "o_a": width * c.o_lora_rank,
        "o_b": c.o_groups * c.o_lora_rank * hidden,
        "compress": compress,
        "index": index,
    }


def compressed_params(c: Compressed, hidden: int) -> tuple[float, float]:
    """Return the weights of all layers: those that are sharded, and those that every rank holds."""
    parts = compressed_parts(c, hidden)
    sharded = sum(parts[name] for name in ("q_b", "o_a", "o_b"))
    return float(c.layers * sharded), float(c.layers * (sum(parts.values()) - sharded))


def entry_bytes(c: Compressed, size: float) -> float:
    """Return the bytes of one cached latent. size: bytes per element; below 2 means FP8 with scales."""
    if size >= 2:
        return c.head_dim * size
    rest = c.head_dim - c.rope_dim
    return rest + c.rope_dim * 2 + math.ceil(rest / SCALE_GROUP / 8) * 8


def index_bytes(indexer: Indexer, size: float) -> float:
    """Return the bytes of one key that an indexer of compressed layers caches."""
    return indexer.head_dim + INDEX_SCALE if size < 2 else indexer.head_dim * size


def aligned(size: float, to: int) -> float:
    """Return a size rounded up to a multiple."""
    return math.ceil(size / to) * to


def compressed_bytes(layers: t.Sequence[Compressed], size: float, length: float | None = None) -> float:
    """Return the bytes of cache per token. size: bytes per element.

    length: of a request, to count what a step reads per token: the window, and what the indexer selects from the rest after it
    reads all its keys. Without it, count what a token adds to the cache; the window is then constant and left out.
    """
    total = 0.0
    for c in layers:
        entry = entry_bytes(c, size)
        seen = 0.0 if length is None else entry * min(1.0, c.window / length)
        if c.ratio:
            share = 1.0
            if c.indexer:
                seen += index_bytes(c.indexer, size) / c.ratio
                share = 1.0 if length is None else min(1.0, c.indexer.budget / length)
            seen += entry / c.ratio * share
        total += c.layers * seen
    return total
