from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import GIB, CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.judgement import knowledge_base, sizes
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.model import model
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.model.model import (
    Attention,
    Dense,
    Facts,
    Linear,
    Mla,
    Moe,
    Nvfp4Layout,
    Parallelism,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.model.sparse import (
    Compressed,
    GroupIndexer,
    Hyper,
    Indexer,
    Lookup,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.profile import profile

BF16 = profile.DEFAULT_PRECISION
NVFP4 = BF16 | {"experts": "nvfp4"}
PLAIN = Facts("Made", 64, 1000, 4096, (Attention(2, 8, 4, 16),), dense=Dense(2, 256))
ULTRA = profile.resolve(profile.find("nemotron-3-ultra-550b-nvfp4"))
SUPER = profile.resolve(profile.find("nemotron-3-super-120b-nvfp4"))


def total(facts: Facts, precision: dict[str, str], parallelism: Parallelism, head: bool = False) -> float:
    return sum(model.gpu_bytes(facts, precision, parallelism, head).values())


def test_a_dense_model_by_hand() -> None:
    attention = 2 * 64 * (8 * 16 + 2 * 4 * 16 + 8 * 16)
    dense = 2 * 3 * 64 * 256
    embeddings = 2 * 1000 * 64
    assert total(PLAIN, BF16, Parallelism()) == 2 * (attention + dense + embeddings)


def test_ranks_without_a_kv_head_of_their_own_hold_a_copy() -> None:
    copied = 2 * 64 * 2 * 4 * 16 * 2  # K and V once more, in BF16: eight ranks, four heads
    assert total(PLAIN, BF16, Parallelism(tp=8)) * 8 == pytest.approx(total(PLAIN, BF16, Parallelism()) + copied)


def test_routers_and_latent_projections_are_on_every_rank() -> None:
    facts = Facts("Made", 64, 1000, 4096, moe=Moe(2, 8, 2, 128, latent=32))
    one, four = (model.gpu_bytes(facts, BF16, Parallelism(tp=tp, ep=tp), False) for tp in (1, 4))
    assert four["router"] == one["router"]
    assert four["latent"] == one["latent"]
    assert four["experts"] == one["experts"] / 4


@given(st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4, 8]))
def test_all_ranks_together_hold_at_least_the_checkpoint(tp: int, ep: int) -> None:
    facts = Facts("Made", 64, 1000, 4096, (Attention(2, 8, 2, 16),), moe=Moe(2, 8, 2, 512, latent=32))
    if tp % ep:
        return
    whole = sum(item.bytes for item in model.tensors(facts, NVFP4))
    assert total(facts, NVFP4, Parallelism(tp=tp, ep=ep)) * tp >= whole - 1e-6


def test_experts_without_a_gate_are_padded_and_keep_the_first_scales_twice() -> None:
    facts = Facts("Made", 64, 1000, 4096, moe=Moe(1, 8, 2, 2688, gated=False, latent=32))
    whole = 8 * 2 * 32 * 2688 * model.BYTES["nvfp4"]
    found = model.gpu_bytes(facts, NVFP4, Parallelism(tp=4), False, Nvfp4Layout(1, 128))["experts"]
    codes = 8 * 2 * 768 * 32 / 2  # 2688 / 4 = 672 rows, padded to 768
    scales = 8 * (672 + 768 + 768) * 32 / 16  # the first matrix' as loaded and swizzled, the second's
    assert found == pytest.approx(codes + scales)
    for parallelism, kept in (
        (Parallelism(tp=4, ep=4), Nvfp4Layout(1, 128)),
        (Parallelism(tp=4), Nvfp4Layout()),
    ):  # 2688 = 21 × 128; no padding
        assert model.gpu_bytes(facts, NVFP4, parallelism, False, kept)["experts"] == pytest.approx(whole / 4)


@pytest.mark.parametrize("kind", ["experts", "dense"])
def test_scales_that_stay_twice_are_a_ninth_more(kind: str) -> None:
    facts = Facts("Made", 64, 1000, 4096, moe=Moe(1, 8, 2, 512), dense=Dense(1, 512))
    stored = NVFP4 | {"dense": "nvfp4"}
    once, twice = (
        model.gpu_bytes(facts, stored, Parallelism(tp=4), False, Nvfp4Layout(copies))[kind] for copies in (1, 2)
    )
    assert twice / once == pytest.approx(1 + (1 / 16) / model.BYTES["nvfp4"])


def test_a_kind_may_be_stored_in_several_formats() -> None:
    stored = BF16 | {"attention": {"fp8": 16384, "rest": "bf16"}}
    attention = 2 * 64 * (8 * 16 + 2 * 4 * 16 + 8 * 16)
    found = model.gpu_bytes(PLAIN, stored, Parallelism(), False)["attention"]
    assert found == pytest.approx(16384 + 2 * (attention - 16384))


def test_more_weights_in_a_format_than_there_are_is_an_error() -> None:
    with pytest.raises(CollectionError, match=r"precision: .* states more weights than the 49152"):
        model.tensors(PLAIN, BF16 | {"attention": {"fp8": 49153, "rest": "bf16"}})


def test_a_head_is_counted_only_where_it_is_loaded() -> None:
    assert "head" not in model.gpu_bytes(ULTRA.facts, ULTRA.precision, ULTRA.parallelism, False)
    assert model.gpu_bytes(ULTRA.facts, ULTRA.precision, ULTRA.parallelism, True)["head"] > GIB


@given(st.integers(1, 512), st.lists(st.integers(1, 64), min_size=3, max_size=3, unique=True))
def test_fewer_steps_are_more_tokens_of_a_pass(canvas: int, steps: list[int]) -> None:
    least, usual, most = model.Diffusion(canvas, tuple(sorted(steps))).tokens
    assert least < usual < most < canvas


def test_cache_bytes_of_each_kind() -> None:
    assert model.kv_bytes(PLAIN, "bf16", Parallelism()) == 2 * 2 * 4 * 16 * 2
    assert model.kv_bytes(PLAIN, "fp8_e4m3", Parallelism(tp=8)) == 2 * 2 * 1 * 16  # at least one head
    latent = Facts("Made", 64, 1000, 4096, mla=Mla(3, 8, 512, 128, 64, 128))
    assert model.kv_bytes(latent, "fp8_e4m3", Parallelism(tp=8)) == 3 * (512 + 64)  # not split
    sliding = Facts("Made", 64, 1000, 4096, (Attention(5, 8, 4, 16, window=1024), Attention(1, 8, 4, 16)))
    assert model.kv_bytes(sliding, "fp8_e4m3", Parallelism(), window_share=0.8) == 2 * 4 * 16 * (5 * 0.8 + 1)


def test_measured_cache_bytes_of_a_published_model() -> None:
    known = profile.resolve(profile.find("qwen3-vl-8b-instruct-fp8"))
    assert model.kv_bytes(known.facts, "fp8_e4m3", known.parallelism) == 73728


@pytest.mark.parametrize(
    ("known", "slots", "gib"),
    [(ULTRA, 48, 4.59), (SUPER, 96, 3.80), (SUPER, 19 * 4, 3.01)],  # the last: 19 requests, 4 draft tokens
)
def test_measured_states(known: profile.Profile, slots: int, gib: float) -> None:
    assert model.state_bytes(known.facts.linear, Parallelism(tp=4)) * slots / GIB == pytest.approx(gib, rel=0.01)


def test_states_of_a_gated_delta_net_by_hand() -> None:
    linear = Linear("gdn", 3, 4, 32, 8, 64)
    conv = 3 * (8 * 64 + 2 * 4 * 32) * 2
    assert model.state_bytes(linear, Parallelism()) == 3 * (conv + 8 * 64 * 32 * 4)


@pytest.mark.parametrize(
    ("parallelism", "text"),
    [(Parallelism(tp=3), "tp: 3 does not divide"), (Parallelism(tp=4, ep=3), "ep: 3 does not divide tp 4")],
)
def test_a_spread_that_does_not_divide_is_refused(parallelism: Parallelism, text: str) -> None:
    with pytest.raises(CollectionError, match=text):
        model.check_parallelism(PLAIN, parallelism)


@pytest.mark.parametrize("name", sorted(knowledge.shared("profile")))
def test_the_facts_give_the_published_size(name: str) -> None:
    known = profile.resolve(profile.find(name))
    if known.facts is None or known.checkpoint_gb is None:
        pytest.skip("no facts, or no published size")
    derived = sum(item.bytes for item in model.tensors(known.facts, known.precision)) / 1e9
    assert derived == pytest.approx(known.checkpoint_gb, rel=0.065)


def test_the_largest_model_is_right_to_a_thousandth() -> None:
    """Two published totals, three inferred widths: 1121 GB in BF16, 352.3 GB quantized."""
    assert sum(item.params for item in model.tensors(ULTRA.facts, ULTRA.precision)) * 2 / 1e9 == pytest.approx(
        1121, rel=1e-3
    )
    assert sum(item.bytes for item in model.tensors(ULTRA.facts, ULTRA.precision)) / 1e9 == pytest.approx(
        352.3, rel=1e-3
    )


@pytest.mark.parametrize(
    ("name", "variant", "measured"),
    [
        ("nemotron-3-ultra-550b-nvfp4", "ep4", 83.72),
        ("nemotron-3-super-120b-nvfp4", "ep1", 23.31),
        ("qwen3.5-122b-a10b-nvfp4-vllm", "mtp3", 76.0),
    ],
)
def test_weights_per_gpu_are_within_three_percent_of_what_was_measured(
    name: str, variant: str, measured: float
) -> None:
    """As the engine would log them: SGLang's figure is the drop in MemAvailable, vLLM's what PyTorch holds, head included."""
    assert logged(name, variant) == pytest.approx(measured, rel=0.03)


def test_a_boot_of_a_newer_version_shows_the_limit() -> None:
    """20.99 and 21.04 GiB were logged for EP 4 on 0.5.21: MemAvailable dropped by 2.9 GiB besides the tensors, not 1.8."""
    assert logged("nemotron-3-super-120b-nvfp4", "ep4") / 20.99 - 1 == pytest.approx(-0.054, abs=0.002)


def logged(name: str, variant: str) -> float:
    known = profile.resolve(profile.find(name), {"variant": variant})
    bare = dataclasses.replace(knowledge_base.base(), measurements=())
    pools = sizes.pools_of(known, sizes.drafted(known, bare.tables)[0], None, bare)
    assert pools is not None
    assert pools.weights_from == "derived from the model's facts"
    return pools.weights + (pools.draft if known.engine.name == "vllm" else 0.0)


@pytest.mark.parametrize(
    ("name", "parallelism", "replayed"),
    [
        ("nemotron-3-ultra-550b-nvfp4", Parallelism(4, 1, 4), 79.64),
        ("nemotron-3-super-120b-nvfp4", Parallelism(4, 1, 1), 20.76),
        ("nemotron-3-super-120b-nvfp4", Parallelism(4, 1, 4), 17.87),
        ("nemotron-3-super-120b-nvfp4", Parallelism(1, 1, 1), 68.26),
    ],
)
def test_tensors_against_what_pytorch_allocates(name: str, parallelism: Parallelism, replayed: float) -> None:
    """SGLang 0.5.12's allocations in order on a GPU with torch 2.11, each kind of dense layers in one format."""
    known = profile.resolve(profile.find(name))
    plain = BF16 | {"experts": "nvfp4", "shared_experts": "fp8", "linear": "fp8", "router": "fp32"}
    found = sum(model.gpu_bytes(known.facts, plain, parallelism, False, Nvfp4Layout(1, 128)).values())
    assert found / GIB == pytest.approx(replayed, rel=0.006)


def test_a_table_is_cut_and_what_mixes_streams_is_not() -> None:
    facts = dataclasses.replace(PLAIN, lookup=Lookup(1, 1000, 64), hyper=Hyper(4, 8))
    one, two = (model.gpu_bytes(facts, BF16, Parallelism(tp), False) for tp in (1, 2))
    assert (one["lookup"], two["lookup"]) == (2 * 64000, 64000)
    # Before attention and before feed-forward of two layers, and at the end: down to 8, up again, and one for each stream.
    assert one["hyper"] == two["hyper"] == 2 * 5 * 4 * 64 * (2 * 8 + 4)


def test_an_indexer_has_keys_of_its_own_and_bounds_what_a_step_reads() -> None:
    sparse = dataclasses.replace(
        PLAIN, attention=(dataclasses.replace(PLAIN.attention[0], indexer=GroupIndexer(4, 8, budget=100, ratio=4)),)
    )
    plain, keys = 2 * 2 * 4 * 16, 2 * 8 * 2 / 4
    assert model.kv_bytes(sparse, "fp8", Parallelism()) == plain + keys
    assert model.kv_bytes(sparse, "fp8", Parallelism(), length=50) == plain + keys
    assert model.kv_bytes(sparse, "fp8", Parallelism(), length=1000) == plain / 10 + keys
    # Its keys are BF16 whatever the cache is, and every rank has them all.
    assert model.kv_bytes(sparse, "auto", Parallelism(4)) == 2 * plain / 4 + keys
    assert total(sparse, BF16, Parallelism()) - total(PLAIN, BF16, Parallelism()) == 2 * 2 * 64 * 5 * 8


def test_a_compressed_cache_grows_by_its_ratio() -> None:
    def of(ratio: int | None, indexer: Indexer | None = None) -> Facts:
        return dataclasses.replace(
            PLAIN, attention=(), compressed=(Compressed(2, 8, 512, 64, 32, 16, 2, 128, ratio, indexer),)
        )

    indexed = of(4, Indexer(8, 128, budget=2048))
    # 584 bytes in FP8: 448, a scale byte per 64 of them, rounded up to eight, and 64 in BF16; an indexer's key is 128 and a scale.
    assert model.kv_bytes(of(None), "fp8", Parallelism()) == 0
    assert model.kv_bytes(of(128), "fp8", Parallelism()) == 2 * 584 / 128
    assert model.kv_bytes(indexed, "fp8", Parallelism()) == 2 * (584 + 132) / 4
    assert model.kv_bytes(indexed, "auto", Parallelism()) == 2 * (1024 + 256) / 4
    # For a long context: the window, all keys, and the entries that they select.
    read = model.kv_bytes(indexed, "fp8", Parallelism(), length=20480) * 20480
    assert read == pytest.approx(2 * (584 * 128 + 132 * 20480 / 4 + 584 * 2048 / 4))
    # Latents are not split: their down projections are on every rank.
    assert total(indexed, BF16, Parallelism(2)) > total(indexed, BF16, Parallelism()) / 2
    with pytest.raises(CollectionError, match="does not divide the 8 attention heads"):
        model.check_parallelism(indexed, Parallelism(3))
