# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vLLM's cache as vLLM lays it out: blocks of one size for all, layers in groups that each have a block table of their own.

Sources: vLLM 0.17.1 to 0.32.0 v1/core/kv_cache_utils.py (get_kv_cache_groups, get_num_blocks,
get_max_concurrency_for_kv_cache_config, _auto_fit_max_model_len), v1/kv_cache_interface.py (max_memory_usage_bytes of each
spec), model_executor/models/config.py (HybridAttentionMambaModelConfig). A block of a group holds a page of each of its
layers; all groups draw blocks from one pool, so a model of several kinds of layers has fewer tokens than bytes suggest.
"""

from __future__ import annotations

import math
import typing as t
from dataclasses import dataclass, replace

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.model import (
    KV_BYTES,
    Attention,
    Cut,
    Facts,
    state_bytes,
)

BLOCK = 16
MLA_BLOCK = 64
# v1/kv_cache_interface.py, MLAAttentionSpec: bytes of a token in a format of its own.
MLA_TOKEN_BYTES = {"fp8_ds_mla": 656}


@dataclass(frozen=True)
class Kind:
    """Layers that are cached alike. page: bytes of one block of one layer on one GPU; block: its tokens.

    window: tokens of a sliding window; states: blocks that a request takes whatever its length.
    """

    layers: int
    page: float
    block: int
    window: int | None = None
    states: int | None = None


@dataclass(frozen=True)
class Version:
    """What differs by release. ratio: kinds whose layers differ by less become groups of the larger; batches: in flight."""

    ratio: float = 1.5
    batches: int = 1


@dataclass(frozen=True)
class Layout:
    """The cache of one rank. groups: kinds with the layers of one group; block_bytes: what a block takes of all layers."""

    groups: tuple[Kind, ...]
    block_bytes: float
    in_flight: int

    def blocks(self, size: float) -> int:
        """Return the blocks in that many bytes."""
        return max(int(size // self.block_bytes), 0) if self.block_bytes else 0

    def request(self, length: int) -> int:
        """Return the blocks of one request of that many tokens.

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
        """Return the longest request that fits into that many bytes, as `max_model_len: auto` finds it; 0 where none does."""
        low, high, blocks = 0, most, self.blocks(size)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.request(middle) <= blocks else (low, middle - 1)
        return low

    def tokens(self, size: float, length: int) -> int:
        """Return the tokens of requests of that length that fit at once: what vLLM logs from 0.20 on.

        Where not one fits, the length of the longest that does.
        """
        needed = self.request(length)
        if not needed or self.blocks(size) < needed:
            return self.longest(size, length)
        return int(self.blocks(size) / needed * length)

    def logged_before_0_20(self, size: float) -> int:
        """Return the number that older releases log: as if each group held the tokens of the smallest block."""
        return self.blocks(size) // len(self.groups) * min(group.block for group in self.groups) if self.groups else 0


def _token_bytes(a: Attention, dtype: str, cut: Cut) -> float:
    return 2 * max(a.kv_heads / cut.tp, 1) * a.head_dim * KV_BYTES.get(dtype, 2.0)


def kinds(
    facts: Facts,
    cut: Cut,
    settings: t.Mapping[str, t.Any],
    *,
    head: bool = False,
    drafts: int = 0,
    drafter: t.Sequence[Attention] = (),
    checkpoints: int = 0,
) -> list[Kind]:
    """List a model's kinds of layers. head: its own prediction head is loaded and has a cache; drafts: tokens drafted.

    drafter: layers of a drafter with a cache of its own. checkpoints: more states that a request keeps with prefix caching.
    A hybrid's attention blocks grow until a page holds a state, and the state's page is padded to it. Drafted tokens make
    its convolution's state longer, and take a state each.
    """
    dtype = str(settings.get("kv_cache_dtype", "auto"))
    asked = settings.get("block_size") or settings.get("page_size")
    block = asked if isinstance(asked, int) and not isinstance(asked, bool) and asked > 0 else None
    attention = list(facts.attention)
    if head and facts.head and facts.head.attention:
        attention.append(facts.head.attention)
    mla = [facts.mla] if facts.mla else []
    if head and facts.head and facts.head.mla:
        mla.append(facts.head.mla)
    # Layers are cached alike where heads, their width and window are equal, not where their bytes happen to be.
    merged: dict[tuple[float, float, int | None], tuple[float, float]] = {}

    def add(alike: tuple[float, float, int | None], layers: float, size: float) -> None:
        merged[alike] = (merged.get(alike, (0.0, size))[0] + layers, size)

    for m in mla:
        size = MLA_TOKEN_BYTES.get(dtype) or (m.kv_lora_rank + m.rope_dim) * KV_BYTES.get(dtype, 2.0)
        add((0, size, None), m.layers / cut.pp, size)
    for a in attention:
        add((max(a.kv_heads / cut.tp, 1), a.head_dim, a.window), a.layers / cut.pp, _token_bytes(a, dtype, cut))
    tokens = block or (MLA_BLOCK if facts.mla else BLOCK)
    found: list[Kind] = []
    if facts.linear:
        layers = math.ceil(facts.linear.layers / cut.pp)
        state = state_bytes(facts.linear, cut, drafts) / (facts.linear.layers / cut.pp)
        if not merged:
            return [Kind(layers, state, BLOCK, None, 1 + drafts)]
        own = next(size for _layers, size in merged.values())
        step = MLA_BLOCK if facts.mla else BLOCK
        tokens = max(tokens if block else 0, step * math.ceil(state / (step * own)))
        states = (1 if settings.get("disable_radix_cache") else 2 + checkpoints) + drafts
        grows = settings.get("mamba_cache_mode") == "all"
        found.append(Kind(layers, tokens * own, tokens, None, None if grows else states))
    for a in drafter:
        add((max(a.kv_heads / cut.tp, 1), a.head_dim, a.window), a.layers, _token_bytes(a, dtype, cut))
    for (_heads, _width, window), (number, size) in merged.items():
        found.append(Kind(math.ceil(number), size * tokens, tokens, window))
    return found


def layout(found: t.Sequence[Kind], version: Version, batched: int) -> Layout:
    """Join kinds of layers into groups. batched: tokens that a step may compute (`max_num_batched_tokens`).

    Kinds that grow alike are one group. Else every page is made as large as the largest, by larger blocks, or by padding
    where it does not divide it (0.24; before, vLLM refuses), and groups have equally many layers.
    """
    in_flight = batched * version.batches
    if not found:
        return Layout((), 0.0, in_flight)
    alike = {(kind.block, kind.window, kind.states) for kind in found}
    if len(alike) == 1:
        layers = sum(kind.layers for kind in found)
        return Layout((replace(found[0], layers=layers),), sum(k.layers * k.page for k in found), in_flight)
    page = max(kind.page for kind in found)
    same = [
        kind
        if kind.states is not None or page % kind.page
        else replace(kind, block=int(kind.block * page // kind.page))
        for kind in found
    ]
    fewest, most = min(kind.layers for kind in same), max(kind.layers for kind in same)
    size = most if most < fewest * version.ratio else fewest
    groups: list[Kind] = []
    for kind in same:
        count = math.ceil(kind.layers / size)
        groups += [replace(kind, page=page, layers=math.ceil(kind.layers / count))] * count
    return Layout(tuple(groups), size * page, in_flight)
