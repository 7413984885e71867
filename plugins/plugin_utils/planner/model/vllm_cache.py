# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vLLM's cache layout: blocks of one size for all, layers in groups with a block table each.

Sources: vLLM 0.17.1 to 0.32.0 v1/core/kv_cache_utils.py (get_kv_cache_groups, get_num_blocks,
get_max_concurrency_for_kv_cache_config, _auto_fit_max_model_len), v1/kv_cache_interface.py (max_memory_usage_bytes of each
spec), model_executor/models/config.py (HybridAttentionMambaModelConfig). A block of a group holds a page of each of its
layers; all groups draw blocks from one pool, so a model with several kinds of layers holds fewer tokens than bytes suggest.
"""

from __future__ import annotations

import math
import typing as t
from dataclasses import dataclass, replace

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError

from .model import KV_BYTES, Attention, Facts, Parallelism, state_bytes
from .sparse import (
    ALIGNED,
    ALIGNED_PLAIN,
    Compressed,
    aligned,
    entry_bytes,
    index_bytes,
    latent_index_bytes,
    overlap,
)

BLOCK = 16
MLA_BLOCK = 64
# vLLM 0.33.0, v1/attention/backends/mla/sparse_swa.py, models/deepseek_v4/compressor.py (CompressorStateCache): tokens per block of
# compressed layers by default, of their windows, and of a compressor's FP32 states by its ratio. It rejects any other ratio.
COMPRESSED_BLOCK, WINDOW_BLOCK = 256, 64
STATE_BLOCK = {4: 4, 128: 8}
# v1/kv_cache_interface.py, MLAAttentionSpec: bytes per token in its own format.
# nvfp4_ds_mla is of forks, with slots of FP8's size or less: SLOTS has the narrowest (local-inference-lab/vllm#82, 432 of 656).
MLA_TOKEN_BYTES = {"fp8_ds_mla": 656, "nvfp4_ds_mla": 656}
SLOTS = {"nvfp4_ds_mla": 432}

# config/cache.py, MambaDType: bytes per value of a recurrent state if a type is set; else the checkpoint's.
STATE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True)
class Kind:
    """Layers cached alike. page: bytes of one block of one layer on one GPU, 0: it fits into any block; block: tokens per block.

    window: tokens of a sliding window; states: blocks per request whatever its length. beside: bytes per block outside
    the page, an indexer's keys. packed: a block holds the pages of all layers of its group, whatever their size.
    """

    layers: int
    page: float
    block: int
    window: int | None = None
    states: int | None = None
    beside: float = 0.0
    packed: bool = False


@dataclass(frozen=True)
class Version:
    """What differs by release. ratio: if layer counts differ by less, groups have the largest, else the smallest; batches: in flight."""

    ratio: float = 1.5
    batches: int = 1


@dataclass(frozen=True)
class Layout:
    """The cache of one rank. groups: kinds with the layers of one group; block_bytes: bytes per block across all layers."""

    groups: tuple[Kind, ...]
    block_bytes: float
    in_flight: int

    @property
    def block(self) -> int:
        """Tokens of the smallest block with pages, which `block_size` becomes (vLLM 0.18.0 v1/engine/core.py:271); 0: none has pages."""
        return min((group.block for group in self.groups if group.page), default=0)

    def blocks(self, size: float) -> int:
        """Return the number of blocks in this many bytes."""
        return max(int(size // self.block_bytes), 0) if self.block_bytes else 0

    def request(self, length: int) -> int:
        """Return the blocks of one request of this many tokens.

        A window keeps its tokens and those being computed, and may begin within a block.
        """
        needed = 0
        for group in self.groups:
            if group.states is not None:
                needed += group.states
            elif group.window is not None:
                needed += math.ceil(min(group.window - 1 + self.in_flight, length) / group.block) + 1
            else:
                needed += math.ceil(length / group.block)
        return needed

    def longest(self, size: float, most: int) -> int:
        """Return the longest request that fits into this many bytes, as `max_model_len: auto` finds it; 0 if none fits."""
        low, high, blocks = 0, most, self.blocks(size)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.request(middle) <= blocks else (low, middle - 1)
        return low

    def tokens(self, size: float, length: int) -> int:
        """Return the total tokens of concurrent requests of this length that fit: what vLLM logs since 0.20.

        If not even one fits, return the length of the longest that does.
        """
        needed = self.request(length)
        if not needed or self.blocks(size) < needed:
            return self.longest(size, length)
        return int(self.blocks(size) / needed * length)

    def logged_before_0_20(self, size: float) -> int:
        """Return the number that older releases log: as if each group held the tokens of the smallest block."""
        return self.blocks(size) // len(self.groups) * min(group.block for group in self.groups) if self.groups else 0


def _token_bytes(a: Attention, dtype: str, parallelism: Parallelism) -> float:
    return max(a.kv_heads / parallelism.tp, 1) * (a.head_dim + a.values) * KV_BYTES.get(dtype, 2.0)


def asked_block(settings: t.Mapping[str, t.Any]) -> int | None:
    """Return the tokens of a block that are asked for; None if the engine chooses."""
    asked = settings.get("block_size") or settings.get("page_size")
    return asked if isinstance(asked, int) and not isinstance(asked, bool) and asked > 0 else None


def kinds(
    facts: Facts,
    parallelism: Parallelism,
    settings: t.Mapping[str, t.Any],
    *,
    head: bool = False,
    drafts: int = 0,
    drafter: t.Sequence[Attention] = (),
    checkpoints: int = 0,
    aligned: bool = True,
) -> list[Kind]:
    """List a model's kinds of layers. head: its own prediction head is loaded and has a cache; drafts: tokens drafted.

    drafter: a drafter's layers with their own cache. checkpoints: additional states per request with prefix caching.
    A hybrid's attention blocks grow until a page holds a state, and the state's page is padded to match. Drafted tokens
    lengthen its convolution's state, and take a state each. aligned: blocks stay a multiple of the requested size.
    """
    dtype = str(settings.get("kv_cache_dtype", "auto"))
    block = asked_block(settings)
    if facts.compressed:
        latent = [replace(c, layers=math.ceil(c.layers / parallelism.pp)) for c in facts.compressed]
        if head and facts.head and facts.head.compressed:
            latent.append(facts.head.compressed)
        return compressed_kinds(latent, KV_BYTES.get(dtype, 2.0), block or COMPRESSED_BLOCK)
    attention = list(facts.attention)
    if head and facts.head and facts.head.attention:
        attention.append(facts.head.attention)
    mla = [facts.mla] if facts.mla else []
    if head and facts.head and facts.head.mla:
        mla.append(facts.head.mla)
    # Layers are cached alike if their heads, width and window are equal, not if their bytes happen to match.
    merged: dict[tuple[float, float, int | None], tuple[float, float]] = {}

    def add(alike: tuple[float, float, int | None], layers: float, size: float) -> None:
        merged[alike] = (merged.get(alike, (0.0, size))[0] + layers, size)

    for m in mla:
        size = MLA_TOKEN_BYTES.get(dtype) or (m.kv_lora_rank + m.rope_dim) * KV_BYTES.get(dtype, 2.0)
        add((0, size, None), m.layers / parallelism.pp, size)
    for a in attention:
        add(
            (max(a.kv_heads / parallelism.tp, 1), a.head_dim + a.values, a.window),
            a.layers / parallelism.pp,
            _token_bytes(a, dtype, parallelism),
        )
    tokens = block or (MLA_BLOCK if facts.mla else BLOCK)
    found: list[Kind] = []
    if facts.linear:
        layers = math.ceil(facts.linear.layers / parallelism.pp)
        kept = STATE_BYTES.get(str(settings.get("mamba_ssm_cache_dtype")), facts.linear.state_bytes)
        state = state_bytes(replace(facts.linear, state_bytes=kept), parallelism, drafts) / (
            facts.linear.layers / parallelism.pp
        )
        if not merged:
            return [Kind(layers, state, BLOCK, None, 1 + drafts)]
        own = next(size for _layers, size in merged.values())
        step = max(MLA_BLOCK if facts.mla else BLOCK, block if block and aligned else 0)
        tokens = max(tokens if block else 0, step * math.ceil(state / (step * own)))
        states = (1 if settings.get("disable_radix_cache") else 2 + checkpoints) + drafts
        grows = settings.get("mamba_cache_mode") == "all"
        found.append(Kind(layers, tokens * own, tokens, None, None if grows else states))
        if facts.lookup and facts.lookup.conv:
            found.append(Kind(facts.lookup.layers, 0.0, tokens, None, states))
    for a in drafter:
        add(
            (max(a.kv_heads / parallelism.tp, 1), a.head_dim + a.values, a.window),
            a.layers,
            _token_bytes(a, dtype, parallelism),
        )
    keys = max((a.indexer.head_dim * 2 / a.indexer.ratio for a in attention if a.indexer), default=0.0)
    # The indexers of latent layers have pages of their own in the same group (MLAAttentionSpec, role INDEXER).
    chosen = (
        sum(latent_index_bytes(m.indexer, m.layers) for m in mla if m.indexer) / sum(m.layers for m in mla)
        if mla
        else 0.0
    )
    for (heads, _width, window), (number, size) in merged.items():
        beside = (chosen if heads == 0 else keys) * tokens
        found.append(Kind(math.ceil(number), size * tokens, tokens, window, None, beside))
    if keys:
        # The indexer's newest keys before compression: a ring buffer in one block.
        found.append(Kind(1, 0.0, tokens, None, 1))
    return found


def compressed_kinds(layers: t.Sequence[Compressed], size: float, block: int) -> list[Kind]:
    """List the kinds of layers with a compressed cache. size: bytes per element; block: tokens per block.

    vLLM 0.33.0, models/deepseek_v4 and v1/core/kv_cache_planning.py (_get_packed_kv_cache_groups; before 0.29.0 in
    kv_cache_utils.py, group_and_unify_kv_cache_specs, with the same result for DeepSeek V4 Flash): entries and the indexer's
    keys share blocks; windows, and the FP32 states that compressors keep for the tokens of an entry, have their own.
    """
    to = ALIGNED if size < 2 else ALIGNED_PLAIN
    found: list[Kind] = []
    windows: dict[int, list[Compressed]] = {}
    for c in layers:
        windows.setdefault(c.window, []).append(c)
        if not c.ratio:
            continue
        if c.ratio not in STATE_BLOCK:
            raise CollectionError(
                f"facts.compressed: ratio {c.ratio}: vLLM's compressors support only {' and '.join(map(str, STATE_BLOCK))}. "
                "Correct the facts, or serve the model with another engine."
            )
        spans = overlap(c.ratio)
        tokens = STATE_BLOCK[c.ratio]
        widths = [(entry_bytes(c, size), c.head_dim)]
        if c.indexer:
            widths.append((index_bytes(c.indexer, size), c.indexer.head_dim))
        for entry, width in widths:
            found.append(Kind(c.layers, aligned(block / c.ratio * entry, to), block, packed=True))
            state = tokens * 2 * spans * width * 4  # a value and a score per token
            found.append(Kind(c.layers, aligned(state, to), tokens, spans * c.ratio, packed=True))
    for window, alike in windows.items():
        page = aligned(WINDOW_BLOCK * max(entry_bytes(c, size) for c in alike), to)
        found.append(Kind(sum(c.layers for c in alike), page, WINDOW_BLOCK, window, packed=True))
    return found


def _fewest_padded(tuples: t.Sequence[int]) -> int:
    """Return the layers per group: at least the first's, with the least padding; ties go to the larger.

    vLLM 0.33.0, v1/core/kv_cache_planning.py, _approximate_gcd.
    """
    return min(range(tuples[0], max(tuples) + 1), key=lambda size: (sum(-count % size for count in tuples), -size))


def _packed(found: t.Sequence[Kind], in_flight: int) -> Layout:
    """Lay out kinds with different pages: kinds with equal blocks and windows form groups, and the largest sets the block size.

    Published starts on two Sparks, context 500000: 652,465 tokens in 20 GB (vLLM PR 41834); 577,640 in 10 GB with
    half the batched tokens.
    """
    alike: dict[tuple[int, int | None], list[Kind]] = {}
    for kind in found:
        alike.setdefault((kind.block, kind.window), []).append(kind)
    kinds_ = sorted(alike.values(), key=lambda group: group[0].window is not None)
    size = _fewest_padded([max(kind.layers for kind in group) for group in kinds_])
    groups: list[Kind] = []
    largest = 0.0
    for group in kinds_:
        layers = max(kind.layers for kind in group)
        count = math.ceil(layers / size)
        page = sum(kind.page * math.ceil(kind.layers / count) for kind in group)
        largest = max(largest, page)
        groups += [replace(group[0], page=page, layers=math.ceil(layers / count))] * count
    return Layout(tuple(groups), largest, in_flight)


def layout(found: t.Sequence[Kind], version: Version, batched: int) -> Layout:
    """Join kinds of layers into groups. batched: tokens that a step may compute (`max_num_batched_tokens`).

    Kinds that grow alike form one group. Otherwise every page is enlarged to the largest, by larger blocks, or by padding
    if it does not divide it (0.24; earlier versions fail), and groups have equal layer counts.
    """
    in_flight = batched * version.batches
    if not found:
        return Layout((), 0.0, in_flight)
    if any(kind.packed for kind in found):
        return _packed(found, in_flight)
    small = [kind for kind in found if not kind.page]
    found = [kind for kind in found if kind.page]
    alike = {(kind.block, kind.window, kind.states) for kind in found}
    if len(alike) == 1:
        layers = sum(kind.layers for kind in found)
        whole = sum(kind.layers * (kind.page + kind.beside) for kind in found)
        return Layout((replace(found[0], layers=layers), *small), whole, in_flight)
    page = max(kind.page for kind in found)
    same = [
        kind
        if kind.states is not None or page % kind.page
        else replace(kind, block=int(kind.block * page // kind.page), beside=kind.beside * page // kind.page)
        for kind in found
    ]
    fewest, most = min(kind.layers for kind in same), max(kind.layers for kind in same)
    size = most if most < fewest * version.ratio else fewest
    groups: list[Kind] = []
    beside = 0.0
    for kind in same:
        count = math.ceil(kind.layers / size)
        groups += [replace(kind, page=page, layers=math.ceil(kind.layers / count))] * count
        beside = max(beside, groups[-1].layers * kind.beside)
    return Layout((*groups, *small), size * page + beside, in_flight)
