# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of a model and what follows from them: tensors by kind, bytes per GPU, cache bytes per token, state per request.

Facts come from a public config.json. Sizes are in bytes. Each formula names the engine source it follows.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError

from .sparse import (
    Compressed,
    GroupIndexer,
    Hyper,
    LatentIndexer,
    Lookup,
    aligned,
    compressed_bytes,
    compressed_params,
    hyper_params,
    indexer_params,
    latent_index_bytes,
    latent_index_params,
)

# Bytes per weight. NVFP4: 4 bits plus one FP8 scale per 16 weights; MXFP4: one per 32; INT4 (AWQ, GPTQ): a BF16 scale
# and a 4-bit zero point per 128. FP8 scales, one per tensor or per 128 × 128 block, are negligible.
BYTES = {
    "fp32": 4.0,
    "bf16": 2.0,
    "fp8": 1.0,
    "nvfp4": 0.5 + 1 / 16,
    "mxfp4": 0.5 + 1 / 32,
    "int4": 0.5 + 2.5 / 128,
    "int4_g32": 0.5 + 2 / 32,
}
# How one kind of tensor is stored: a single format, or weight counts by format, with `rest` naming the format of the remainder.
Format = str | t.Mapping[str, t.Any]
# nvfp4_ds_mla, of forks: what most builds reserve is the slot of FP8 (spark-arena/sparkrun#247: 656 bytes, 584 with DeepSeek V4).
KV_BYTES = {
    "fp8": 1.0,
    "fp8_e4m3": 1.0,
    "fp8_e5m2": 1.0,
    "fp8_ds_mla": 1.0,
    "nvfp4_ds_mla": 1.0,
    "nvfp4": 0.5625,
    "fp4_e2m1": 0.5625,
}
# vLLM's other names for two-byte formats.
KV_WIDE = frozenset(["auto", "bf16", "bfloat16", "float16", "fp8_inc"])
NVFP4_GROUP = 16


@dataclass(frozen=True)
class Attention:
    """Layers of softmax attention. gated: the query projection is doubled. window: size of a sliding window in tokens.

    indexer: for sparse attention, selects the tokens that the layers attend to. value_dim: of a value, if it is not a key's head_dim.
    """

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    gated: bool = False
    window: int | None = None
    indexer: GroupIndexer | None = None
    value_dim: int | None = None

    @property
    def values(self) -> int:
        """The width of a value."""
        return self.value_dim or self.head_dim


@dataclass(frozen=True)
class Mla:
    """Layers of multi-head latent attention: the cache holds one latent of kv_lora_rank + rope_dim per token.

    indexer: for sparse attention (DSA), selects the tokens that the layers attend to, and has a cache of its own.
    """

    layers: int
    heads: int
    kv_lora_rank: int
    nope_dim: int
    rope_dim: int
    v_dim: int
    q_lora_rank: int | None = None
    indexer: LatentIndexer | None = None


@dataclass(frozen=True)
class Linear:
    """Layers with a state instead of a cache: mamba2 (key = group and state size), gdn (gated delta net), kda (Kimi's).

    interleaved: gdn's queries, keys, values and gate are one matrix, head by head, and are copied apart.
    gate_rank: kda's decay and output gate are each a product of two matrices of this rank; None: each is one full matrix.
    """

    kind: t.Literal["mamba2", "gdn", "kda"]
    layers: int
    key_heads: int
    key_dim: int
    value_heads: int
    value_dim: int
    conv: int = 4
    state_bytes: int = 4
    gate_rank: int | None = None
    interleaved: bool = False

    @property
    def inner(self) -> int:
        """Total width of the value heads."""
        return self.value_heads * self.value_dim

    @property
    def conv_width(self) -> int:
        """Width of the convolution input: the values plus twice the key width."""
        return self.inner + 2 * self.key_heads * self.key_dim

    def gates(self, hidden_size: int) -> tuple[int, int]:
        """Weights of one layer that produce one number per value (z; for kda also the decay), and one per head.

        vLLM 0.33.0, models/kimi_k3/nvidia/model.py (f_a, f_b, g_a, g_b, b) and bailing_moe_v3.py (f, g, b).
        """
        if self.kind != "kda":
            heads = 1 if self.kind == "mamba2" else 2  # dt, or a and b
            return hidden_size * self.inner, hidden_size * heads * self.value_heads
        rank = self.gate_rank
        each = hidden_size * rank + rank * self.inner if rank else hidden_size * self.inner
        return 2 * each, hidden_size * self.value_heads


@dataclass(frozen=True)
class Moe:
    """Layers with routed experts. latent: the experts' width where it differs from the model's."""

    layers: int
    experts: int
    top_k: int
    intermediate: int
    gated: bool = True
    latent: int | None = None
    shared_intermediate: int = 0


@dataclass(frozen=True)
class Dense:
    """Layers with a plain feed-forward block."""

    layers: int
    intermediate: int
    gated: bool = True


@dataclass(frozen=True)
class Vision:
    """The vision tower's memory: widths, and the largest picture or video in patches of patch_values numbers.

    tokens: how many the model reads for it; None: one per four patches.
    """

    width: int
    intermediate: int
    patches: int
    patch_values: int
    tokens: int | None = None

    def pictures(self, batched: int) -> int:
        """Return how many of the largest pictures go through the tower at once in a batch of this many tokens, at least one."""
        return max(batched // (self.tokens or self.patches // 4), 1)

    @property
    def peak_bytes(self) -> int:
        """BF16 peak in its feed-forward block: residual, norm, twice the block's width, and the picture itself."""
        return self.patches * (2 * self.width + 2 * self.intermediate + self.patch_values) * 2


def _layers(*parts: Attention | Mla | Compressed | Linear | Moe | Dense | None) -> int:
    """Return the total number of layers."""
    return sum(part.layers for part in parts if part)


@dataclass(frozen=True)
class Head:
    """A prediction head that ships with the model (MTP): a layer of its own kind that shares the embeddings."""

    attention: Attention | None = None
    mla: Mla | None = None
    compressed: Compressed | None = None
    moe: Moe | None = None
    dense: Dense | None = None

    @property
    def layers(self) -> int:
        """Number of layers."""
        return max((part.layers for part in (self.moe, self.dense) if part), default=1)

    @property
    def blocks(self) -> int:
        """Number of blocks: attention, experts, feed-forward."""
        return _layers(self.attention, self.mla, self.compressed, self.moe, self.dense)


@dataclass(frozen=True)
class Diffusion:
    """Text denoised in blocks: a canvas of this many tokens passes through the model repeatedly.

    steps: denoising passes per canvas, which depend on the text: fewest, usual, most.
    """

    canvas: int
    steps: tuple[int, ...]

    @property
    def tokens(self) -> tuple[float, ...]:
        """Tokens per pass: fewest, usual, most.

        One extra pass writes the canvas to the cache (vLLM 0.25.1 to 0.33.0 models/diffusion_gemma.py, is_encoder_phase).
        """
        return tuple(self.canvas / (steps + 1) for steps in reversed(self.steps))


@dataclass(frozen=True)
class Facts:
    """A model. Widths are in elements; *_params are weight counts that no rule derives (the vision tower)."""

    architecture: str
    hidden_size: int
    vocab_size: int
    native_context: int
    attention: tuple[Attention, ...] = ()
    mla: Mla | None = None
    compressed: tuple[Compressed, ...] = ()
    linear: Linear | None = None
    moe: Moe | None = None
    dense: Dense | None = None
    head: Head | None = None
    lookup: Lookup | None = None
    hyper: Hyper | None = None
    tied_embeddings: bool = False
    first_layer: str = "attention"
    position: str = "rope"
    vision_params: float = 0
    vision: Vision | None = None
    diffusion: Diffusion | None = None

    @property
    def blocks(self) -> int:
        """Number of blocks: attention, state, experts, feed-forward."""
        return _layers(*self.attention, self.mla, *self.compressed, self.linear, self.moe, self.dense)

    @property
    def hybrid(self) -> bool:
        """Whether some layers keep a state per request (SGLang: mamba pool)."""
        return self.linear is not None

    @property
    def head_dim_max(self) -> int:
        """The widest head of softmax attention; 0 if there is none. MLA is left out: it has its own kernels for its own widths."""
        return max((a.head_dim for a in self.attention), default=0)


@dataclass(frozen=True)
class Tensors:
    """Weights of one kind across all GPUs, and how they are split. experts: split by EP × TP."""

    kind: str
    params: float
    precision: str
    sharding: t.Literal["tp", "experts", "none"]

    @property
    def bytes(self) -> float:
        """Size in the checkpoint."""
        return self.params * BYTES[self.precision]


@dataclass(frozen=True)
class Parallelism:
    """How a model is spread: tensor, pipeline and expert parallelism."""

    tp: int = 1
    pp: int = 1
    ep: int = 1


def formats(stored: Format, whole: float) -> dict[str, float]:
    """Return the share of a kind's weights in each format. whole: the kind's weight count in the checkpoint.

    Raises CollectionError if the formats state more weights than there are.
    """
    if isinstance(stored, str):
        return {stored: 1.0}
    shares = {name: count / whole for name, count in stored.items() if name != "rest"}
    left = 1.0 - sum(shares.values())
    if left < -1e-9:
        raise CollectionError(
            f"precision: {dict(stored)} states more weights than the {whole:.0f} that the facts give."
        )
    return shares | {stored["rest"]: shares.get(stored["rest"], 0.0) + left}


def _stored(
    kind: str, params: float, stored: Format, sharding: t.Literal["tp", "experts", "none"], whole: float | None = None
) -> list[Tensors]:
    """List a kind's weights by format. whole: the checkpoint's count, if params includes copies."""
    shares = formats(stored, whole or params)
    return [Tensors(kind, params * share, name, sharding) for name, share in shares.items() if share]


def _attention_params(facts: Facts, a: Attention, tp: int) -> tuple[float, float]:
    """Weights of the layers, and the extra weights that all GPUs together hold because KV heads are replicated."""
    query = a.heads * a.head_dim * (2 if a.gated else 1)
    kv_width = a.kv_heads * (a.head_dim + a.values)
    once = facts.hidden_size * (query + kv_width + a.heads * a.values)
    # QKVParallelLinear: with fewer KV heads than ranks, each rank keeps one whole head.
    copies = max(tp / a.kv_heads, 1) - 1
    return a.layers * once, a.layers * facts.hidden_size * kv_width * copies


def _mla_params(facts: Facts, m: Mla) -> tuple[float, float]:
    """Weights that are sharded, and weights that every rank holds (the down projections)."""
    query_out = m.heads * (m.nope_dim + m.rope_dim)
    down = facts.hidden_size * (m.kv_lora_rank + m.rope_dim)
    query = facts.hidden_size * query_out
    if m.q_lora_rank:
        down += facts.hidden_size * m.q_lora_rank
        query = m.q_lora_rank * query_out
    up = m.kv_lora_rank * m.heads * (m.nope_dim + m.v_dim) + m.heads * m.v_dim * facts.hidden_size
    if m.indexer:
        down += sum(latent_index_params(m.indexer, facts.hidden_size, m.q_lora_rank or facts.hidden_size, m.layers))
    return m.layers * (query + up), m.layers * down


def _linear_params(facts: Facts, linear: Linear) -> float:
    inward = facts.hidden_size * linear.conv_width + sum(linear.gates(facts.hidden_size))
    return linear.layers * (inward + linear.inner * facts.hidden_size + linear.conv_width * linear.conv)


def _moe_tensors(facts: Facts, moe: Moe, precision: t.Mapping[str, Format], prefix: str = "") -> list[Tensors]:
    width = moe.latent or facts.hidden_size
    matrices = 3 if moe.gated else 2
    name = prefix or "experts"
    experts = moe.layers * moe.experts * matrices * width * moe.intermediate
    found = _stored(name, experts, precision["experts"], "experts")
    found += _stored(prefix or "router", moe.layers * moe.experts * facts.hidden_size, precision["router"], "none")
    if moe.shared_intermediate:
        shared = moe.layers * matrices * facts.hidden_size * moe.shared_intermediate
        found += _stored(prefix or "shared_experts", shared, precision["shared_experts"], "tp")
    if moe.latent:
        latent = moe.layers * 2 * facts.hidden_size * moe.latent
        found += _stored(prefix or "latent", latent, precision["latent"], "none")
    return found


def _blocks(
    facts: Facts,
    block: Facts | Head,
    attention: t.Sequence[Attention],
    compressed: t.Sequence[Compressed],
    precision: t.Mapping[str, Format],
    parallelism: Parallelism,
    prefix: str = "",
) -> list[Tensors]:
    found: list[Tensors] = []
    counted = [_attention_params(facts, a, parallelism.tp) for a in attention]
    latent = [_mla_params(facts, block.mla)] if block.mla else []
    latent += [compressed_params(c, facts.hidden_size) for c in compressed]
    latent += [(0.0, float(a.layers * indexer_params(a.indexer, facts.hidden_size))) for a in attention if a.indexer]
    whole = sum(own for own, _copied in counted) + sum(map(sum, latent))
    for own, copied in counted:
        found += _stored(prefix or "attention", own + copied, precision["attention"], "tp", whole)
    for sharded, everywhere in latent:
        if sharded:
            found += _stored(prefix or "attention", sharded, precision["attention"], "tp", whole)
        found += _stored(prefix or "attention", everywhere, precision["attention"], "none", whole)
    if block.moe:
        found += _moe_tensors(facts, block.moe, precision, prefix)
    if block.dense:
        d = block.dense
        params = d.layers * (3 if d.gated else 2) * facts.hidden_size * d.intermediate
        found += _stored(prefix or "dense", params, precision["dense"], "tp")
    return found


def tensors(facts: Facts, precision: t.Mapping[str, Format], parallelism: Parallelism | None = None) -> list[Tensors]:
    """List a model's weights by kind and format. Norms and biases are left out: they are less than one in a thousand."""
    parallelism = parallelism or Parallelism()
    found = _blocks(facts, facts, facts.attention, facts.compressed, precision, parallelism)
    if facts.linear:
        found += _stored("linear", _linear_params(facts, facts.linear), precision["linear"], "tp")
    tables = 1 if facts.tied_embeddings else 2
    found += _stored("embeddings", tables * facts.vocab_size * facts.hidden_size, precision["embeddings"], "tp")
    if facts.lookup:
        found += _stored("lookup", facts.lookup.params, precision["lookup"], "tp")
    if facts.hyper:
        mixers = hyper_params(facts.hyper, facts.hidden_size, facts.blocks)
        found += _stored("hyper", mixers, precision["hyper"], "none")
    if facts.vision_params:
        found += _stored("vision", facts.vision_params, precision["vision"], "tp")
    if facts.head:
        same = dict.fromkeys(precision, precision["head"])
        attention = (facts.head.attention,) if facts.head.attention else ()
        compressed = (facts.head.compressed,) if facts.head.compressed else ()
        found += _blocks(facts, facts.head, attention, compressed, same, parallelism, "head")
        found += _stored("head", head_params(facts, facts.head), precision["head"], "none")
    return found


def head_params(facts: Facts, head: Head) -> int:
    """Return the prediction head's weights outside its blocks, which every rank holds.

    It joins hidden state and embedding with one matrix of 2 × hidden → hidden, and has its own mixers.
    """
    mixers = hyper_params(facts.hyper, facts.hidden_size, head.blocks) if facts.hyper else 0
    return 2 * facts.hidden_size**2 + mixers


@dataclass(frozen=True)
class Nvfp4Layout:
    """How an engine lays out NVFP4 tensors: resident copies of the block scales, and the row multiple it pads to.

    row_multiple 0: no padding. Only experts without a gate are padded: engines refuse the others. mxfp4_rows, mxfp4_width:
    multiples to which the intermediate columns and the width of MXFP4 experts are padded.
    """

    scale_copies: int = 1
    row_multiple: int = 0
    mxfp4_rows: int = 1
    mxfp4_width: int = 1


def _expert_bytes(
    total: float, precision: str, moe: Moe, width: int, parallelism: Parallelism, layout: Nvfp4Layout
) -> float:
    """Bytes of the routed experts on one GPU, with the engine's padding and second copies.

    SGLang, modelopt_quant.py, ModelOptNvFp4FusedMoEMethod: it pads the rows of the first matrix, and with them the columns of
    the second; the first matrix's swizzled scales then no longer fit in their own storage and are kept beside it.
    Replayed with torch 2.11 (allocations of 0.5.12 in order): 79.64 and 20.76 GiB for the two shapes that the tests use.
    """
    share = total / (parallelism.tp * parallelism.pp)  # EP × the remaining TP is always TP parts in total
    rows = moe.intermediate / (parallelism.tp / parallelism.ep)
    if precision == "mxfp4":
        return share * aligned(rows, layout.mxfp4_rows) / rows * aligned(width, layout.mxfp4_width) / width
    if precision != "nvfp4":
        return share
    experts, group = moe.layers * moe.experts / parallelism.ep / parallelism.pp, NVFP4_GROUP
    padded = aligned(rows, layout.row_multiple) if layout.row_multiple else rows
    if moe.gated or padded == rows:
        scales = experts * (3 if moe.gated else 2) * rows * width / group
        return share + (layout.scale_copies - 1) * scales
    first, second = padded * width / group, padded * width / group
    return experts * (padded * width + rows * width / group + first + layout.scale_copies * second)


def gpu_bytes(
    facts: Facts,
    precision: t.Mapping[str, Format],
    parallelism: Parallelism,
    head: bool,
    layout: Nvfp4Layout | None = None,
) -> dict[str, float]:
    """Bytes of weights on one GPU, by kind. head: whether the model's own prediction head is loaded."""
    layout = layout or Nvfp4Layout()
    found: dict[str, float] = {}
    for item in tensors(facts, precision, parallelism):
        if item.kind == "head" and not head:
            continue
        # The head is on the last pipeline stage; embeddings are on the first, the output layer on the last: no stage has both.
        stages = 1 if item.kind in ("head", "lookup", "vision") else parallelism.pp
        if item.kind == "embeddings":
            stages = 1 if facts.tied_embeddings or parallelism.pp == 1 else 2
        if item.sharding == "experts":
            moe = facts.head.moe if item.kind == "head" and facts.head else facts.moe
            if moe is None:
                raise CollectionError(
                    f"{item.kind}: tensors cut by experts, but the model states no experts (moe). Add them."
                )
            own = Parallelism(parallelism.tp, stages, parallelism.ep)
            size = _expert_bytes(item.bytes, item.precision, moe, moe.latent or facts.hidden_size, own, layout)
        else:
            size = item.bytes / (parallelism.tp if item.sharding == "tp" else 1) / stages
            if item.precision == "nvfp4":
                size += (layout.scale_copies - 1) * item.params / (parallelism.tp * stages) / NVFP4_GROUP
        found[item.kind] = found.get(item.kind, 0.0) + size
    return found


def scale_bytes(facts: Facts, precision: t.Mapping[str, Format], parallelism: Parallelism) -> float:
    """Bytes of the experts' block scales on one GPU: they are held twice while a checkpoint loads.

    SGLang, modelopt_quant.py, create_weights: placeholders for the swizzled scales beside the scales.
    """
    if facts.moe is None or precision.get("experts") != "nvfp4":
        return 0.0
    moe = facts.moe
    params = moe.layers * moe.experts * (3 if moe.gated else 2) * (moe.latent or facts.hidden_size) * moe.intermediate
    return params / NVFP4_GROUP / (parallelism.tp * parallelism.pp)


def kv_bytes(
    facts: Facts,
    dtype: str,
    parallelism: Parallelism,
    head: bool = False,
    window_share: float = 1.0,
    length: float | None = None,
) -> float:
    """Bytes of cache per token on one GPU.

    dtype: the engine's name; `auto` and unknown names count as BF16. head: add one layer for the model's own prediction
    head. window_share: tokens kept in sliding-window layers per token of the other layers (SGLang: swa_full_tokens_ratio,
    0.8); a window's content does not grow with the context, but the pools do. length: of a request, to count what a step
    reads per token, which is less than it holds if an indexer selects tokens.
    Follows SGLang 0.5.12 model_runner_kv_cache_mixin.py (get_cell_size_per_token): K and V, with KV heads sharded by TP down
    to one per rank; MLA's latent is not sharded.
    """
    size = KV_BYTES.get(dtype, 2.0)

    def per_layer(a: Attention) -> float:
        values = max(a.kv_heads / parallelism.tp, 1) * (a.head_dim + a.values) * size
        if a.indexer is None:
            return values
        # The indexer's keys are BF16, and every rank holds all of them: vLLM 0.33.0, models/qwen4_exp/common/qsa_cache.py.
        chosen = 1.0 if length is None else min(1.0, a.indexer.budget / length)
        return values * chosen + a.indexer.head_dim * 2 / a.indexer.ratio

    total = sum(
        a.layers / parallelism.pp * per_layer(a) * (window_share if a.window is not None else 1.0)
        for a in facts.attention
    )
    if facts.mla:
        total += _latent_bytes(facts.mla, size, length) / parallelism.pp
    total += compressed_bytes(facts.compressed, size, length) / parallelism.pp
    if head and facts.head:
        if facts.head.compressed:
            total += compressed_bytes([facts.head.compressed], size, length)
        if facts.head.attention:
            total += facts.head.attention.layers * per_layer(facts.head.attention)
        if facts.head.mla:
            total += _latent_bytes(facts.head.mla, size, length)
    return total


def _latent_bytes(m: Mla, size: float, length: float | None) -> float:
    latents = m.layers * (m.kv_lora_rank + m.rope_dim) * size
    if m.indexer is None:
        return latents
    chosen = 1.0 if length is None else min(1.0, m.indexer.budget / length)
    return latents * chosen + latent_index_bytes(m.indexer, m.layers)


def state_bytes(linear: Linear, parallelism: Parallelism, drafts: int = 0) -> float:
    """Bytes of state per slot on one GPU: convolution and recurrent state.

    drafts: extra tokens that the convolution keeps (vLLM 0.17.1 layers/mamba/mamba_utils.py, num_spec).

    SGLang 0.5.12 configs/mamba_utils.py (Mamba2StateShape, mamba_cache_per_req): conv (kernel − 1) × width in BF16,
    state heads × head_dim × state size in `mamba_ssm_dtype`.
    """
    conv = (linear.conv - 1 + drafts) * linear.conv_width / parallelism.tp * 2
    state = linear.value_heads / parallelism.tp * linear.value_dim * linear.key_dim * linear.state_bytes
    return linear.layers / parallelism.pp * (conv + state)


def check_parallelism(facts: Facts, parallelism: Parallelism) -> None:
    """Reject a split that no engine supports: CollectionError names what does not divide."""
    if parallelism.tp % parallelism.ep:
        raise CollectionError(
            f"ep: {parallelism.ep} does not divide tp {parallelism.tp}. Choose ep 1 or a divisor of tp."
        )
    heads = {a.heads for a in facts.attention} | {c.heads for c in facts.compressed}
    heads |= {facts.mla.heads} if facts.mla else set()
    bad = sorted(count for count in heads if count % parallelism.tp)
    if bad:
        raise CollectionError(
            f"tp: {parallelism.tp} does not divide the {bad[0]} attention heads of {facts.architecture}."
        )
    if facts.moe and facts.moe.experts % parallelism.ep:
        raise CollectionError(
            f"ep: {parallelism.ep} does not divide the {facts.moe.experts} experts of {facts.architecture}."
        )
