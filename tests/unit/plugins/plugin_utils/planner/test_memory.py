from __future__ import annotations

import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import GIB, from_plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.judgement import knowledge_base
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.model import memory
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.model.model import (
    Attention,
    Dense,
    Diffusion,
    Facts,
    Parallelism,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.model.sparse import Lookup
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.profile.profile import DEFAULT_PRECISION, find
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving import plan

NEED = memory.Demand(
    weights=50.0,
    weights_by_kind={},
    weights_from="made",
    kv_bytes_token=1024.0,
    slot_bytes=0.0,
    draft=1.0,
    graphs=2.0,
    activations=1.0,
    context=0.5,
    load_peak=51.0,
)
STATES = memory.Demand(**{**NEED.__dict__, "slot_bytes": 0.1 * GIB})
ULTRA = "nemotron-3-ultra-550b-nvfp4"
BIG = "qwen3.5-397b-a17b-nvfp4"


def ultra(fraction: float, **settings: t.Any) -> dict[str, t.Any]:
    return plan.launch_plan(ULTRA, {"free_gib": 100.7}, {"settings": {"mem_fraction_static": fraction, **settings}})


def test_more_fraction_is_more_cache() -> None:
    low, high = (memory.sglang_pools(NEED, 100, {"mem_fraction_static": share}) for share in (0.6, 0.8))
    assert low.kv == pytest.approx(10)
    assert high.kv == pytest.approx(30)
    assert high.kv_tokens == 30 * GIB // 1024


def test_the_floor_is_where_the_cache_is_empty() -> None:
    pools = memory.sglang_pools(STATES, 100, {"mem_fraction_static": 0.6, "max_mamba_cache_size": 40})
    assert pools.floor == pytest.approx((50 + 4) / 100)
    at_floor = memory.sglang_pools(STATES, 100, {"mem_fraction_static": pools.floor, "max_mamba_cache_size": 40})
    assert at_floor.kv == pytest.approx(0, abs=1e-9)


def test_the_ceiling_leaves_what_comes_after_the_pools() -> None:
    pools = memory.sglang_pools(NEED, 100, {"mem_fraction_static": 0.6})
    assert pools.ceiling == pytest.approx(1 - (1 + 2 + 1 + 0.5) / 100)


@given(st.floats(60, 120), st.integers(1, 10**6))
def test_a_planned_fraction_lies_between_floor_and_ceiling(free: float, context: int) -> None:
    pools = memory.sglang_pools(NEED, free, {}, context_length=context)
    assert pools.chosen_by == "planned"
    assert pools.chosen <= pools.ceiling
    assert pools.kv > 0


def test_states_without_a_number_take_their_share_of_the_rest() -> None:
    pools = memory.sglang_pools(STATES, 100, {"mem_fraction_static": 0.69})
    assert pools.mamba == pytest.approx(19 * 0.9 / 1.9, abs=0.1)


@pytest.mark.parametrize(
    ("settings", "speculative", "slots"),
    [
        ({}, False, 3),
        ({}, True, 5),
        ({"mamba_scheduler_strategy": "extra_buffer"}, False, 5),
        ({"mamba_scheduler_strategy": "extra_buffer", "disable_overlap_schedule": True}, True, 4),
        ({"mamba_scheduler_strategy": "no_buffer"}, True, 3),
        ({"disable_radix_cache": True}, True, 1),
    ],
)
def test_slots_of_one_request(settings: dict[str, t.Any], speculative: bool, slots: int) -> None:
    assert memory.slots_per_request(settings, speculative) == slots


@pytest.mark.parametrize(
    ("slots", "speculative", "running"), [(48, False, 16), (96, True, 19), (160, True, 32), (18, False, 6)]
)
def test_measured_requests_of_hybrids(slots: int, speculative: bool, running: int) -> None:
    pools = memory.sglang_pools(
        STATES,
        100,
        {"mem_fraction_static": 0.9, "max_mamba_cache_size": slots},
        speculative=speculative,
        draft_tokens=4,
    )
    assert pools.max_running_requests == running


@given(st.floats(0.6, 0.9), st.none() | st.integers(1, 200), st.booleans(), st.integers(1, 16))
def test_weights_states_and_cache_are_the_share(fraction: float, slots: int | None, drafts: bool, tokens: int) -> None:
    settings = {"mem_fraction_static": fraction, "max_mamba_cache_size": slots}
    pools = memory.sglang_pools(STATES, 100, settings, speculative=drafts, draft_tokens=tokens)
    assert pools.weights + pools.mamba + pools.kv == pytest.approx(100 * fraction)


def test_the_measured_boots_of_the_largest_model() -> None:
    """P = 100.7 GiB and the measured weights: 0.85 has no cache, 0.88 less than one context, 0.90 and 0.92 are fine."""
    refused = ultra(0.85)
    assert refused["verdict"] == "blocked"
    assert refused["memory"]["kv_gib"] < 0
    assert "memory.below-floor" in {f["rule"] for f in refused["findings"] if f["severity"] == "error"}
    tight = ultra(0.88)
    assert tight["verdict"] != "blocked"
    assert "memory.below-one-context" in {f["rule"] for f in tight["findings"] if f["severity"] == "warning"}
    for fraction in (0.90, 0.92):
        fine = ultra(fraction)
        assert fine["verdict"] == "proven"
        assert not {f["rule"] for f in fine["findings"] if f["rule"] == "memory.below-one-context"}
    assert ultra(0.90)["memory"]["kv_gib"] == pytest.approx(2.22, abs=0.2)  # logged


def test_the_measured_pools_of_the_smaller_sibling() -> None:
    found = plan.launch_plan("nemotron-3-super-120b-nvfp4", {"free_gib": 104}, {"variant": "ep1"})["memory"]
    assert found["kv_gib"] == pytest.approx(31.62, abs=0.3)  # logged


def test_scales_are_held_twice_while_they_are_loaded() -> None:
    found = plan.launch_plan(ULTRA, {"free_gib": 88}, {"settings": {"mem_fraction_static": 0.9}})
    assert found["memory"]["load_peak_gib"] == pytest.approx(83.72 + 7.5, abs=0.1)
    assert "memory.load-peak" in {f["rule"] for f in found["findings"]}
    enough = plan.launch_plan(ULTRA, {"free_gib": 92}, {"settings": {"mem_fraction_static": 0.9}})
    assert "memory.load-peak" not in {f["rule"] for f in enough["findings"]}


def test_vllm_counts_from_the_total() -> None:
    pools = memory.vllm_pools(NEED, 110, 120, {"gpu_memory_utilization": 0.8})
    assert pools.kv == pytest.approx(0.8 * 120 - 50 - 1 - 1 - 0.5)
    assert pools.ceiling == pytest.approx(110 / 120)
    assert pools.knob == "gpu_memory_utilization"


TILED = memory.Canvases(copies=6, logits=1.5, counted=10)


def canvases(engine: str, requests: int | None, canvas: int = 256, by: memory.Canvases = TILED) -> memory.Demand:
    facts = Facts("Made", 64, 2**18, 4096, (Attention(2, 8, 4, 16),), diffusion=Diffusion(canvas, (12, 17, 30)))
    assumed = memory.Assumed(0.0, 0.0, 8, canvases=by)
    running = {"max_running_requests": requests}
    return memory.demand(facts, DEFAULT_PRECISION, Parallelism(), running, assumed, engine=engine, head=False)


def test_a_sampler_needs_the_logits_of_all_requests_and_the_copies_of_one() -> None:
    """A copy of a canvas is 0.25 GiB: 256 x 2^18 x 4 bytes."""
    made = canvases("vllm", 10).sampler
    assert made
    assert made.needed == pytest.approx(0.25 * (10 + 5))
    # Half of what is free once the logits are there is for groups of ten copies: 2.5 GiB each.
    assert [made.taken(free) for free in (-5, 0, 7.5, 12.4, 12.5, 27.5, 500)] == [
        pytest.approx(0.25 * (10 + 5 * group)) for group in (1, 1, 1, 1, 2, 5, 10)
    ]
    # Many requests need more while their logits are made, in BF16 and FP32 at once.
    many = canvases("vllm", 40).sampler
    assert many
    assert many.needed == pytest.approx(0.25 * 1.5 * 40)


def test_a_sampler_that_takes_all_requests_at_once_needs_all_copies() -> None:
    """Before vLLM 0.25.1."""
    made = canvases("vllm", 10, by=memory.Canvases(copies=6, logits=1.5)).sampler
    assert made
    assert made.needed == made.taken(1) == pytest.approx(0.25 * 10 * 6)


def test_vllms_sampler_is_outside_its_share() -> None:
    of = memory.Demand(**{**NEED.__dict__, "sampler": canvases("vllm", 10).sampler})
    given, planned = ({"gpu_memory_utilization": 0.8}, {"max_running_requests": 10**6})
    plain, more = (memory.vllm_pools(each, 110, 120, given) for each in (NEED, of))
    assert (more.kv, more.ceiling, more.sampler_needed) == (plain.kv, plain.ceiling, 3.75)
    assert more.free_needed == plain.free_needed + 3.75
    assert more.used == plain.used + 0.25 * (10 + 2 * 5)  # 14 GiB are free besides the share: two at once
    # What the plan chooses itself leaves room for it.
    assert memory.vllm_pools(of, 110, 120, planned, context_length=4096).chosen * 120 + 3.75 <= 110


@pytest.mark.parametrize(
    ("version", "requests", "needed"),
    [("0.25.0", 8, 12.0), ("0.25.1", 8, 3.25), ("0.29.0", 8, 3.25), ("0.33.0", 8, 3.0)],
)
def test_what_the_sampler_needs_by_release(version: str, requests: int, needed: float) -> None:
    change = {"engine": {"version": version, "versions": ""}, "settings": {"max_num_seqs": requests}}
    made = plan.launch_plan("diffusiongemma-26b-a4b-it-nvfp4-vllm", {"free_gib": 110}, change)["memory"]
    assert made["sampler_needed_gib"] == pytest.approx(needed, abs=0.01)
    assert made["sampler_gib"] >= made["sampler_needed_gib"]


def test_sglang_samples_all_requests_at_once() -> None:
    by = knowledge_base.assumed(knowledge_base.base(), "sglang", "0.5.23").canvases
    assert (by.copies, by.counted) == (3, 0)


@pytest.mark.parametrize(
    ("free", "requests", "said"), [(None, 10, True), (None, 2, False), (101, 10, True), (102, 10, False)]
)
def test_a_share_without_room_for_the_sampler_is_said(free: float | None, requests: int, said: bool) -> None:
    """At 0.8 ten requests need 3.75 GiB besides 97.4."""
    settings = {"gpu_memory_utilization": 0.8, "max_num_seqs": requests}
    cluster = {"free_gib": free} if free else {}
    made = plan.launch_plan("diffusiongemma-26b-a4b-it-nvfp4-vllm", cluster, {"settings": settings})
    assert ("memory.vllm-sampler" in {f["rule"] for f in made["findings"]}) is said


def test_sglangs_reserve_has_the_sampler_in_it() -> None:
    all_at_once = memory.Canvases(copies=6, logits=1.5)
    need, without = canvases("sglang", 10, by=all_at_once), canvases("sglang", None, canvas=1, by=all_at_once)
    assert need.sampler is None
    assert need.activations == pytest.approx(without.activations + 15, abs=0.01)


@given(st.integers(1, 64), st.integers(1, 512), st.floats(-10, 200))
def test_more_requests_or_longer_canvases_need_more(requests: int, canvas: int, free: float) -> None:
    made, more, longer = (
        canvases("vllm", *size).sampler for size in ((requests, canvas), (requests + 1, canvas), (requests, canvas + 1))
    )
    assert made
    assert more
    assert longer
    assert made.needed < min(more.needed, longer.needed)
    assert made.needed <= made.taken(free) <= made.copy * made.requests * 6 + 1e-9
    assert made.taken(free) <= max(made.needed, free)


def test_vllm_on_one_spark_against_what_was_measured() -> None:
    found = plan.launch_plan("qwen3.5-122b-a10b-nvfp4-vllm")["memory"]
    assert found["weights_gib"] == 76
    assert found["kv_gib"] == pytest.approx(17, abs=1)


def test_what_free_memory_may_be_decides_only_where_it_must() -> None:
    """Unmeasured, 0.60 leaves no cache at 101 GiB but some at 115.8: a warning. Measured at 101, it is refused."""
    settings = {"settings": {"mem_fraction_static": 0.6}}
    unmeasured = plan.launch_plan(BIG, {}, {"variant": "ep1", **settings})
    assert unmeasured["memory"]["kv_gib"] < 0
    assert {"memory.below-floor-unmeasured", "memory.assumed"} <= {f["rule"] for f in unmeasured["findings"]}
    assert unmeasured["verdict"] != "blocked"
    measured = plan.launch_plan(BIG, {"free_gib": 101}, {"variant": "ep1", **settings})
    assert "memory.below-floor" in {f["rule"] for f in measured["findings"] if f["severity"] == "error"}
    hopeless = plan.launch_plan(BIG, {}, {"variant": "ep1", "settings": {"mem_fraction_static": 0.5}})
    assert hopeless["verdict"] == "blocked"


def test_scales_stay_twice_before_the_version_that_drops_them() -> None:
    """0.5.12 overwrites the loaded scales with the swizzled ones; earlier versions keep both: a ninth of the experts."""
    old, new = (
        plan.memory_plan(BIG, {"free_gib": 110}, {"engine": {"version": version, "versions": ""}})["weights_by_kind"]
        for version in ("0.5.11", "0.5.12")
    )
    assert old["experts"] / new["experts"] == pytest.approx(10 / 9, abs=0.001)
    assert old["linear"] == new["linear"]


def test_the_knobs_are_not_mixed() -> None:
    found = plan.launch_plan(ULTRA, {}, {"settings": {"gpu_memory_utilization": 0.8}})
    assert found["verdict"] == "blocked"
    assert "memory.vllm-fraction-given" in {f["rule"] for f in found["findings"]}


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_a_table_of_lookups_is_memory_unless_it_stays_on_the_disk(engine: str) -> None:
    facts = Facts("Made", 64, 1000, 4096, (Attention(2, 8, 4, 16),), dense=Dense(2, 256), lookup=Lookup(1, 2**24, 64))
    held, left = (
        memory.demand(
            facts, DEFAULT_PRECISION, Parallelism(), {"lookup_on_disk": on_disk}, memory.Assumed(1, 1, 1), engine=engine,
            head=False,
        ).weights
        for on_disk in (False, True)
    )  # fmt: skip
    assert held - left == pytest.approx(2)


def test_what_a_loader_keeps_is_none_of_the_cache() -> None:
    """InstantTensor: 12.5 GiB of cache where another loader left 17.6, with the same weights and share."""
    left = {
        form: plan.launch_plan("deepseek-v4-flash-0731-vllm", {"free_gib": 115}, {"settings": {"load_format": form}})[
            "memory"
        ]
        for form in ("auto", "instanttensor")
    }
    assert left["auto"]["weights_gib"] == left["instanttensor"]["weights_gib"]
    assert 4.4 <= left["auto"]["kv_gib"] - left["instanttensor"]["kv_gib"] <= 5.2


@pytest.mark.parametrize(
    ("tp", "gib"),
    [
        # vLLM logged 65.97 GiB on one H100 with Marlin (vllm-project/vllm#23278). Split in two, 1440 columns become 1536, not 2944.
        (1, 65.97),
        (2, 34.3),
    ],
)
def test_vllm_pads_experts_in_mxfp4(tp: int, gib: float) -> None:
    parallel = {"nodes": tp, "tp": tp}
    found = plan.launch_plan("gpt-oss-120b-vllm", {"free_gib": 115}, {"parallel": parallel})["memory"]
    assert found["weights_gib"] == pytest.approx(gib, rel=0.01)


def test_a_context_that_the_engine_chooses_is_profiled_as_the_model_s_own() -> None:
    chosen, own = (
        plan.launch_plan("glm-4.7-flash-vllm", {}, {"settings": {"max_model_len": length}})["memory"]["activations_gib"]
        for length in ("auto", 202752)
    )
    assert chosen == own > 0


def test_vllm_profiles_as_many_pictures_as_a_batch_has_room_for() -> None:
    """Its log with 65536 batched tokens: `profiled with 4 image items`, and with 8192 one, of 16384 tokens each."""
    wide, usual, narrow = (
        plan.launch_plan("qwen3.5-122b-a10b-nvfp4-vllm", {}, {"settings": {"max_num_batched_tokens": batched}})[
            "memory"
        ]
        for batched in (65536, 16384, 8192)
    )
    tower = 65536 * (2 * 1152 + 2 * 4304 + 1536) * 2 / GIB
    per_batch = (
        usual["activations_gib"] - narrow["activations_gib"]
    )  # of 8192 tokens: the tower takes as much for one picture as for none
    assert wide["activations_gib"] - usual["activations_gib"] == pytest.approx(6 * per_batch + 3 * tower, abs=0.05)


@pytest.mark.parametrize(
    ("version", "dtype", "share", "severity"),
    [
        ("0.33.0", "fp8", 0.9, "error"),  # a release's layout is the engine's own
        ("nightly", "fp8", 0.9, "warning"),  # within the error of planned caches for builds
        ("nightly", "fp8", 0.5, "error"),
        ("nightly", "nvfp4_own", 0.5, "warning"),  # counted as two bytes, but may take a fraction of that
        ("nightly", "nvfp4_own", 0.1, "error"),
    ],
)
def test_a_context_above_the_cache_is_an_error_where_the_plan_is_sure(
    version: str, dtype: str, share: float, severity: str
) -> None:
    def planned(**own: t.Any) -> dict[str, t.Any]:
        given = {"context_length": 262144, "kv_cache_dtype": dtype, **own}
        return plan.launch_plan(
            "qwen3.5-122b-a10b-nvfp4-vllm",
            {"free_gib": 115},
            {"engine": {"version": version, "versions": ""}, "settings": given},
        )

    whole = planned()["memory"]["kv_bytes_token"] * 262144
    made = planned(kv_cache_memory_bytes=int(whole * share))
    found = {f["rule"]: f["severity"] for f in made["findings"] if "below-one-context" in f["rule"]}
    assert list(found.values()) == [severity]
    assert made["memory"]["kv_tokens"] < 262144


@pytest.mark.parametrize(
    ("version", "severity"),
    [("0.33.0", "error"), ("nightly", "warning"), ("0.33.0+image.0123456789ab", "error")],
)
def test_what_hangs_on_the_release_is_an_error_where_the_release_is_known(version: str, severity: str) -> None:
    def planned(**own: t.Any) -> dict[str, t.Any]:
        engine = {"version": version, "versions": ""}
        return plan.launch_plan("qwen3.5-122b-a10b-nvfp4-vllm", {"free_gib": 115}, {"engine": engine, "settings": own})

    def found(word: str, **own: t.Any) -> dict[str, str]:
        return {f["rule"]: f["severity"] for f in planned(**own)["findings"] if word in f["rule"]}

    # A little below the share that weights and a profile run take; far below, no release starts.
    floor = planned()["memory"]["floor"]
    assert list(found("no-cache", gpu_memory_utilization=floor - 0.01).values()) == [severity]
    assert list(found("no-cache", gpu_memory_utilization=0.4).values()) == ["error"]
    few = found("fewer-blocks", kv_cache_memory_bytes=4 * GIB, max_running_requests=2000)
    assert list(few.values()) == [severity]


# --- whose memory it is -----------------------------------------------------------------------------------------------

QWEN3_8B: dict[str, t.Any] = {
    "architecture": "Qwen3ForCausalLM", "hidden_size": 4096, "vocab_size": 151936, "native_context": 40960,
    "attention": [{"layers": 36, "heads": 32, "kv_heads": 8, "head_dim": 128}], "dense": {"layers": 36, "intermediate": 12288},
}  # fmt: skip
NANO, CODER = "nemotron-3-nano-30b-nvfp4-vllm", "qwen3-coder-30b-a3b-instruct-fp8"
# SGLang 0.5.12, one H200, random weights: model, whether in BF16, settings, GiB free, of weights and of cache, tokens.
ON_AN_H200: list[tuple[str, bool, dict[str, t.Any], float, float, float, int]] = [
    ("", True, {"mem_fraction_static": 0.8}, 139.13, 15.28, 96.0, 699103),
    ("", True, {"mem_fraction_static": 0.6, "kv_cache_dtype": "fp8_e5m2"}, 139.13, 15.28, 68.16, 992776),
    (CODER, True, {"mem_fraction_static": 0.8}, 139.11, 56.89, 54.38, 593914),
    (CODER, False, {"mem_fraction_static": 0.7}, 139.11, 29.15, 68.2, 744896),
    (NANO, True, {"mem_fraction_static": 0.8}, 139.13, 58.94, 27.56, 4818123),
    (NANO, True, {"mem_fraction_static": 0.8, "max_mamba_cache_size": 48}, 139.13, 58.94, 50.16, 8764524),
]


@pytest.mark.parametrize(("name", "wide", "settings", "free", "weights", "kv", "tokens"), ON_AN_H200)
def test_on_a_gpu_with_its_own_memory_the_plan_is_the_engines_log(
    name: str, wide: bool, settings: dict[str, t.Any], free: float, weights: float, kv: float, tokens: int
) -> None:
    """Without what a Spark's MemAvailable loses beside the tensors, the formulas agree to the third digit."""
    entry = find(name) if name else {"facts": QWEN3_8B}
    precision = DEFAULT_PRECISION | ({} if wide else entry["precision"])
    facts = from_plain(Facts, entry["facts"], name)
    load = knowledge_base.assumed(knowledge_base.base(), "sglang", "0.5.12", unified=False)
    need = memory.demand(facts, precision, Parallelism(), settings, load, engine="sglang", head=False)
    pools = memory.sglang_pools(need, free, settings, context_length=facts.native_context)
    assert pools.weights == pytest.approx(weights, rel=0.005)
    assert pools.kv == pytest.approx(kv, rel=0.005)
    assert pools.kv_tokens == pytest.approx(tokens, rel=0.005)


def test_a_spark_has_the_platforms_share_in_both_engines() -> None:
    known = knowledge_base.base()
    for engine, version in (("sglang", "0.5.12"), ("vllm", "0.33.0")):
        assert knowledge_base.assumed(known, engine, version).load == pytest.approx(1.8)
    assert knowledge_base.assumed(known, "sglang", "0.5.12", unified=False).load == 0
    # nobody measured what vLLM takes there
    assert knowledge_base.assumed(known, "vllm", "0.33.0", unified=False).load == pytest.approx(1.8)


def staged(architecture: str, pp: int, version: str = "0.5.12") -> dict[str, t.Any]:
    entry = {
        "id": "mine", "title": "mine", "model": "a/b", "proven": "untested", "engine": {"name": "sglang", "version": version},
        "facts": {**QWEN3_8B, "architecture": architecture}, "parallel": {"nodes": pp, "tp": 1, "pp": pp}, "precision": {},
        "settings": {"mem_fraction_static": 0.8}, "source": [{"of": "settings", "from": "here", "verified": "inferred"}],
    }  # fmt: skip
    found: dict[str, t.Any] = plan.launch_plan(entry, {"free_gib": 100})["memory"]
    return found


@pytest.mark.parametrize(("architecture", "layers"), [("LlamaForCausalLM", 12), ("MiniMaxM2ForCausalLM", 36)])
def test_a_stage_whose_class_does_not_tell_its_layers_keeps_a_cache_of_all(architecture: str, layers: int) -> None:
    """SGLang takes 0 and the number of all layers where the class has neither start_layer nor end_layer."""
    memory_ = staged(architecture, 3)
    assert memory_["kv_bytes_token"] == 2 * 8 * 128 * 2 * layers
    assert staged(architecture, 1)["kv_bytes_token"] == 2 * 8 * 128 * 2 * 36
    assert memory_["weights_gib"] < staged(architecture, 1)["weights_gib"] / 2
