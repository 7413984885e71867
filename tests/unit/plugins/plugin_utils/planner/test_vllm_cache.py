"""vLLM's cache: groups, pages, windows and states as vLLM's source lays them out, and what must hold of any layout."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import GIB, CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.model import vllm_cache
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.model.model import (
    Attention,
    Dense,
    Facts,
    Linear,
    Mla,
    Parallelism,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.profile.profile import find, resolve
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving import plan

NEW = vllm_cache.Version(1.5, 2)


def laid(
    facts: Facts, parallelism: Parallelism, settings: dict[str, object], *, head: bool = False, drafts: int = 0
) -> vllm_cache.Layout:
    found = vllm_cache.kinds(facts, parallelism, settings, head=head, drafts=drafts)
    return vllm_cache.layout(found, NEW, int(str(settings.get("chunked_prefill_size", 8192))))


def facts_of(profile: str) -> Facts:
    facts = resolve(find(profile)).facts
    assert facts
    return facts


OSS = Facts(
    "Invented",
    2880,
    201088,
    131072,
    (Attention(18, 64, 8, 64, window=128), Attention(18, 64, 8, 64)),
    dense=Dense(36, 1),
)
FLASH_NEXT = facts_of("qwen3.8-flash-next-nvfp4-vllm")
V4_FLASH = facts_of("deepseek-v4-flash-0731-vllm")


def test_one_kind_of_layers_is_one_group_and_every_byte_a_tokens() -> None:
    made = laid(facts_of("glm-4.7-nvfp4"), Parallelism(4), {"kv_cache_dtype": "fp8"})
    assert [group.layers for group in made.groups] == [92]
    assert made.tokens(30 * GIB, 202752) == pytest.approx(30 * GIB / (92 * 2 * 2 * 128), rel=0.001)


def test_what_a_window_keeps_does_not_grow_with_the_context() -> None:
    made = laid(OSS, Parallelism(), {"kv_cache_dtype": "fp8"})
    window, whole = made.groups
    assert (window.window, whole.window) == (128, None)
    assert made.request(131072) == (128 - 1 + 2 * 8192 + 15) // 16 + 1 + 131072 // 16
    assert made.request(4096) == 4096 // 16 + 1 + 4096 // 16


def test_pages_of_two_widths_become_one() -> None:
    """Gemma: the full layers' heads are twice as wide and fewer; their blocks hold more tokens for the same page."""
    made = laid(facts_of("gemma-4-26b-a4b-it"), Parallelism(), {})
    assert {group.page for group in made.groups} == {2 * 8 * 256 * 2 * 16}
    assert {(group.window, group.block) for group in made.groups} == {(1024, 16), (None, 32)}
    assert [group.layers for group in made.groups] == [5] * 6


def test_a_hybrids_page_holds_a_state_and_a_request_takes_its_states_once() -> None:
    facts = facts_of("qwen3.5-122b-a10b-nvfp4-vllm")
    made = laid(facts, Parallelism(), {"disable_radix_cache": False}, head=True, drafts=3)
    assert len(made.groups) == 4  # 13 attention layers including the head's, 36 with states in three groups
    states = [group for group in made.groups if group.states is not None]
    assert [group.states for group in states] == [5, 5, 5]
    assert made.request(2 * 32768) - made.request(32768) == pytest.approx(32768 / made.groups[-1].block, abs=1)


def test_a_compressed_cache_is_not_cut() -> None:
    facts = Facts("Invented", 2048, 1000, 4096, mla=Mla(10, 16, 512, 128, 64, 128))
    one, four = (laid(facts, Parallelism(tp), {"kv_cache_dtype": "fp8"}).block_bytes for tp in (1, 4))
    assert one == four == 10 * 64 * 576
    assert laid(facts, Parallelism(), {"kv_cache_dtype": "fp8_ds_mla"}).block_bytes == 10 * 64 * 656


sizes = st.floats(0, 100 * GIB)
lengths = st.integers(1, 300_000)
layouts = st.sampled_from(
    [
        laid(OSS, Parallelism(), {}),
        laid(facts_of("gemma-4-31b-it"), Parallelism(4), {}),
        laid(facts_of("qwen3.5-122b-a10b-nvfp4-vllm"), Parallelism(), {}, drafts=2),
        laid(facts_of("glm-4.7-nvfp4"), Parallelism(4), {}),
        *(
            laid(facts, Parallelism(2), {"kv_cache_dtype": "fp8"}, head=True, drafts=3)
            for facts in (FLASH_NEXT, V4_FLASH)
        ),
    ]
)


@given(layouts, sizes, lengths)
def test_the_longest_request_fits_and_a_longer_one_does_not(made: vllm_cache.Layout, size: float, most: int) -> None:
    found = made.longest(size, most)
    assert 0 <= found <= most
    assert found == 0 or made.request(found) <= made.blocks(size)
    assert found == most or made.request(found + 1) > made.blocks(size)


@given(layouts, sizes, sizes, lengths)
def test_more_memory_never_holds_fewer_tokens(made: vllm_cache.Layout, one: float, other: float, length: int) -> None:
    less, more = sorted((one, other))
    assert made.tokens(less, length) <= made.tokens(more, length)


@given(layouts, sizes, lengths)
def test_tokens_reach_the_length_exactly_where_vllm_starts(made: vllm_cache.Layout, size: float, length: int) -> None:
    assert (made.tokens(size, length) >= length) == (made.blocks(size) >= made.request(length))


VLLM = "qwen3.5-122b-a10b-nvfp4-vllm"


def planned(**settings: object) -> dict[str, object]:
    memory = plan.launch_plan(VLLM, overrides={"settings": settings})["memory"]
    assert isinstance(memory, dict)
    return memory


def test_a_cache_of_given_bytes_is_taken_as_it_is() -> None:
    assert planned(kv_cache_memory_bytes=8 * GIB)["kv_gib"] == pytest.approx(8)


def test_groups_depend_on_how_far_kinds_differ() -> None:
    kinds = [vllm_cache.Kind(10, 100, 16), vllm_cache.Kind(13, 100, 16, window=64)]
    assert [g.layers for g in vllm_cache.layout(kinds, NEW, 64).groups] == [10, 13]
    old = dataclasses.replace(NEW, ratio=1.25)
    assert [g.layers for g in vllm_cache.layout(kinds, old, 64).groups] == [10, 7, 7]


def logged(profile: str, **overrides: object) -> dict[str, object]:
    memory = plan.launch_plan(profile, overrides={"engine": {"versions": "", "image": None}, **overrides})["memory"]
    assert isinstance(memory, dict)
    return memory


@pytest.mark.parametrize(
    ("version", "drafts", "gib", "length", "tokens"),
    [
        # Logs that state GiB and tokens; benchmarks/published_caches.yml has their sources.
        ("0.19.0", 1, 24.05, 262144, 482080),
        ("0.19.0", 0, 21.43, 131072, 467712),
    ],
)
def test_a_hybrids_tokens_are_those_that_its_log_says(
    version: str, drafts: int, gib: float, length: int, tokens: int
) -> None:
    drafting = {"method": "mtp", "num_speculative_tokens": drafts} if drafts else None
    made = logged(
        VLLM,
        engine={"version": version, "versions": "", "image": None},
        settings={
            "kv_cache_memory_bytes": int(gib * GIB), "max_model_len": length, "speculative_config": drafting,
            "kv_cache_dtype": "fp8",
        },
    )  # fmt: skip
    assert made["kv_tokens_logged"] == tokens


@pytest.mark.parametrize(
    ("kept", "block"), [(None, 2096), ("auto", 2096), ("float32", 2096), ("bfloat16", 1072), ("float16", 1072)]
)
def test_a_hybrids_block_holds_a_state_of_the_type_that_is_set(kept: str | None, block: int) -> None:
    assert laid(facts_of("qwen3.5-122b-a10b-nvfp4-vllm"), Parallelism(), {"mamba_ssm_cache_dtype": kept}).block == block


def test_a_cache_without_layers_has_no_block() -> None:
    assert vllm_cache.layout([], NEW, 4096).block == 0


@pytest.mark.parametrize(("aligned", "block", "blocks"), [(True, 384, 2730), (False, 272, 3855)])
def test_a_hybrids_block_is_a_multiple_of_the_one_asked_for(aligned: bool, block: int, blocks: int) -> None:
    """Two attention layers, six with states of 137,216 bytes, 1 GiB: what vLLM 0.32.0 logged on a CPU, whose block is 128."""
    facts = Facts(
        "Invented", 512, 4096, 8192, (Attention(2, 8, 2, 64, gated=True),), linear=Linear("gdn", 6, 4, 64, 8, 64)
    )
    found = vllm_cache.kinds(facts, Parallelism(), {"block_size": 128}, aligned=aligned)
    made = vllm_cache.layout(found, NEW, 4096)
    assert {group.block for group in made.groups} == {block}
    assert made.blocks(GIB) == blocks
    if aligned:
        assert made.tokens(GIB, 4096) == 657769


def test_prefix_caching_keeps_a_state_more() -> None:
    facts = facts_of(VLLM)
    off, on = (laid(facts, Parallelism(), {"disable_radix_cache": off}) for off in (True, False))
    assert on.request(32768) - off.request(32768) == 3  # one in each group of states


def test_a_drafter_has_a_cache_of_its_own_and_widens_every_page() -> None:
    """A published boot: 30.98 GiB, 549,001 tokens at 262144 with seven DFlash tokens (vLLM 0.23)."""
    drafter = (Attention(6, 32, 8, 128),)
    found = vllm_cache.kinds(facts_of(VLLM), Parallelism(), {"disable_radix_cache": False}, drafts=7, drafter=drafter)
    made = vllm_cache.layout(found, vllm_cache.Version(), 8192)
    assert sorted({group.block for group in made.groups if group.states is None}) == [2176, 4352]
    assert [group.layers for group in made.groups] == [6] * 9
    assert made.tokens(30.98 * GIB, 262144) == 549001


@pytest.mark.parametrize(
    ("tp", "dtype", "off", "gib", "blocks", "tokens"),
    [
        # Logs of two Sparks and of one, at 262144 with three drafted tokens, with and without prefix caching: MiaAI-Lab's
        # recipes, and tonyd2wild/Qwen3.8-Flash-Next-NVFP4-DGX-Spark. Where they state GiB, rounded, the blocks agree.
        (2, "fp8", False, 32.02, 1435, 3652200),
        (2, "auto", False, 31.70, 1504, 2131159),
        (1, "fp8", False, None, 390, 992584),
        (2, "fp8", True, None, 744, 1970051),
    ],
)
def test_an_indexers_keys_lie_beside_the_pages_and_small_states_take_blocks(
    tp: int, dtype: str, off: bool, gib: float | None, blocks: int, tokens: int
) -> None:
    made = laid(FLASH_NEXT, Parallelism(tp), {"kv_cache_dtype": dtype, "disable_radix_cache": off}, head=True, drafts=3)
    assert made.tokens(blocks * made.block_bytes, 262144) == tokens
    assert gib is None or blocks * made.block_bytes / GIB == pytest.approx(gib, abs=0.005)


@pytest.mark.parametrize(("size", "batched", "tokens"), [(20e9, 16384, 652465), (10e9, 8192, 577640)])
def test_a_compressed_cache_is_packed(size: float, batched: int, tokens: int) -> None:
    """Two published boots of one image on two Sparks, context 500000 (luisefigueroa/pulsar-gb10-vllm-stack)."""
    made = laid(
        V4_FLASH, Parallelism(2), {"kv_cache_dtype": "fp8", "chunked_prefill_size": batched}, head=True, drafts=5
    )
    assert made.block_bytes == 1002240
    assert sorted((group.block, group.layers) for group in made.groups) == [
        (4, 21),
        (8, 20),
        (64, 23),
        (64, 23),
        (256, 21),
    ]
    assert made.tokens(size, 500000) == tokens


def test_a_ratio_that_vllms_compressors_do_not_know_is_refused() -> None:
    other = dataclasses.replace(V4_FLASH, compressed=(dataclasses.replace(V4_FLASH.compressed[1], ratio=16),))
    with pytest.raises(
        CollectionError, match=r"facts\.compressed: ratio 16: vLLM's compressors support only 4 and 128"
    ):
        laid(other, Parallelism(2), {"kv_cache_dtype": "fp8"})


def test_a_compressed_cache_without_a_format_is_wider() -> None:
    plain, fp8 = (laid(V4_FLASH, Parallelism(2), {"kv_cache_dtype": dtype}).block_bytes for dtype in ("auto", "fp8"))
    assert 1.5 * fp8 < plain < 2 * fp8
    assert laid(V4_FLASH, Parallelism(2), {"kv_cache_dtype": "fp8_ds_mla"}).block_bytes == fp8


def test_a_stage_caches_its_own_compressed_layers() -> None:
    whole, stage = (vllm_cache.kinds(V4_FLASH, Parallelism(1, stages), {}) for stages in (1, 2))
    assert [kind.layers for kind in stage] == [-(-kind.layers // 2) for kind in whole]
