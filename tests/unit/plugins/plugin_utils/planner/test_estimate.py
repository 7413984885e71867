"""Estimates of speed: what must hold whatever the constants are, and that they are used only where nobody measured."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.judgement.table import serving_table
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.model import estimate
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.model.model import (
    Attention,
    Dense,
    Diffusion,
    Facts,
    Head,
    Linear,
    Moe,
    Parallelism,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.model.sparse import (
    Compressed,
    GroupIndexer,
    Hyper,
    Indexer,
    Lookup,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.model.speculation import Draft
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.profile.profile import (
    DEFAULT_PRECISION,
    Engine,
    Profile,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.vocabulary import images
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.plan import launch_plan

FIGURES = estimate.load_figures()
FORMATS = ("bf16", "fp8", "nvfp4")
DRAFT = Draft("EAGLE", 3, 1, 4, False)


def attention(layers: int) -> Attention:
    return Attention(layers, heads=32, kv_heads=8, head_dim=128)


MOE = Moe(layers=40, experts=128, top_k=8, intermediate=768)
FACTS = Facts(
    "Invented", 4096, 100000, 131072, (attention(40),), moe=MOE, head=Head(attention(1), dense=Dense(1, 8192))
)
DENSE = Facts("Invented", 4096, 100000, 131072, (attention(40),), dense=Dense(40, 16384))
HYBRID = dataclasses.replace(FACTS, attention=(attention(10),), linear=Linear("gdn", 30, 16, 128, 32, 128))


def profile(facts: Facts | None = FACTS, parallelism: Parallelism | None = None, **stored: str) -> Profile:
    parallelism = parallelism or Parallelism()
    return Profile(
        "invented", "", "", "invented/model", "reported", Engine("sglang", "0.5.12"), parallelism.tp * parallelism.pp, parallelism, {}, facts,
        DEFAULT_PRECISION | stored,
    )  # fmt: skip


def speed(
    of: Profile, n: int = 1, draft: Draft | None = None, figures: estimate.Figures = FIGURES, **said: t.Any
) -> float:
    known = {key: said.pop(key) for key in ("accepted", "context") if key in said}
    return estimate.tokens_per_second(of, said, draft, n, figures, **known)


BLOCKS = dataclasses.replace(DENSE, diffusion=Diffusion(canvas=256, steps=(12, 17, 30)))
models = st.sampled_from([FACTS, DENSE, HYBRID, BLOCKS])
levels = st.integers(1, 16)
spreads = st.sampled_from([Parallelism(), Parallelism(2), Parallelism(4), Parallelism(4, 1, 4), Parallelism(2, 2)])
drafts = st.sampled_from([None, DRAFT, Draft("DFLASH", 6, 1, 7, False)])


@given(models, levels, spreads, drafts, st.floats(1.01, 10))
def test_more_bandwidth_is_never_slower(
    facts: Facts, n: int, parallelism: Parallelism, draft: Draft | None, factor: float
) -> None:
    faster = dataclasses.replace(FIGURES, bandwidth_gb_s=FIGURES.bandwidth_gb_s * factor)
    assert speed(profile(facts, parallelism), n, draft, faster) > speed(profile(facts, parallelism), n, draft)


@given(
    models, levels, drafts, st.sampled_from(["experts", "attention", "dense", "linear", "embeddings", "shared_experts"])
)
def test_more_bytes_of_one_format_are_never_faster(facts: Facts, n: int, draft: Draft | None, kind: str) -> None:
    """Equal costs for all formats, so that only bytes differ: a format's kernels may be slower than its bytes suggest."""
    same = {key: 1.3 if key.startswith(("read", "experts")) else cost for key, cost in FIGURES.costs.items()}
    figures = dataclasses.replace(FIGURES, costs=same)
    speeds = [speed(profile(facts, **{kind: form}), n, draft, figures) for form in FORMATS]
    assert speeds == sorted(speeds)


@given(models, levels, drafts, st.integers(1, 100_000), st.integers(1, 100_000))
def test_a_longer_context_is_never_faster(facts: Facts, n: int, draft: Draft | None, one: int, other: int) -> None:
    short, long = sorted((one, other))
    assert speed(profile(facts), n, draft, context=long) <= speed(profile(facts), n, draft, context=short)


@given(models, spreads, drafts, st.integers(1, 63))
def test_more_requests_take_a_longer_step_each(
    facts: Facts, parallelism: Parallelism, draft: Draft | None, n: int
) -> None:
    moved = [estimate.work(profile(facts, parallelism), {}, draft, count, FIGURES) for count in (n, n + 1)]
    assert estimate.seconds(moved[1], FIGURES) > estimate.seconds(moved[0], FIGURES)


@given(models, levels, st.floats(1, 4), st.floats(1, 4))
def test_speed_grows_with_accepted_tokens(facts: Facts, n: int, one: float, other: float) -> None:
    few, many = sorted((one, other))
    assert speed(profile(facts), n, DRAFT, accepted=few) <= speed(profile(facts), n, DRAFT, accepted=many)


@given(st.floats(0.01, 0.99), st.floats(0.5, 1), st.integers(1, 20))
def test_accepted_tokens_grow_with_depth_and_stay_below_what_is_verified(
    first: float, decay: float, steps: int
) -> None:
    figures = dataclasses.replace(FIGURES, acceptance={"other": (first, decay)})
    length = estimate.tokens_per_step("X", steps, figures)
    assert 1 < length < steps + 1
    assert length >= estimate.tokens_per_step("X", steps - 1, figures)


@given(st.integers(2, 512), st.floats(0, 200), st.floats(0, 200))
def test_reached_experts_grow_with_tokens_up_to_all(experts: int, one: float, other: float) -> None:
    few, many = sorted((one, other))
    reached = [estimate.distinct(experts, experts / 2, tokens) for tokens in (few, many)]
    assert 0 <= reached[0] <= reached[1] <= experts


def test_one_token_reaches_just_its_experts() -> None:
    assert estimate.distinct(128, 8, 1) == pytest.approx(8)


@given(st.integers(1, 8), st.floats(0, 1))
def test_the_busiest_rank_has_no_less_than_its_share_and_no_more_than_there_are(ranks: int, share: float) -> None:
    reached = 128 * share
    most = estimate.busiest(128, reached, ranks)
    assert reached / ranks <= most + 1e-9
    assert most <= min(reached, 128 / ranks) + 1e-9


def test_a_pass_of_a_canvas_yields_a_share_of_it() -> None:
    took = estimate.seconds(estimate.work(profile(BLOCKS), {}, None, 1, FIGURES), FIGURES)
    assert speed(profile(BLOCKS)) == pytest.approx(256 / 18 / took)


@given(levels, st.integers(1, 48))
def test_a_canvas_of_more_steps_is_slower(n: int, steps: int) -> None:
    block = t.cast(Diffusion, BLOCKS.diffusion)
    few, more = (
        dataclasses.replace(BLOCKS, diffusion=dataclasses.replace(block, steps=(1, count, 64)))
        for count in (steps, steps + 1)
    )
    assert speed(profile(more), n) < speed(profile(few), n)


@given(st.integers(1, 512), levels)
def test_a_pass_of_a_canvas_does_more_than_a_step_of_one_token(canvas: int, n: int) -> None:
    facts = dataclasses.replace(BLOCKS, diffusion=Diffusion(canvas, (1, 1, 1)))
    passes, step = (estimate.work(profile(of), {}, None, n, FIGURES) for of in (facts, DENSE))
    assert estimate.seconds(passes, FIGURES) > estimate.seconds(step, FIGURES)


@given(st.floats(0, 6), st.floats(0.1, 6), levels)
def test_more_copies_of_a_canvas_are_slower(copies: float, more: float, n: int) -> None:
    figures = [dataclasses.replace(FIGURES, canvas_copies=count) for count in (copies, copies + more)]
    few, many = (speed(profile(BLOCKS), n, figures=own) for own in figures)
    assert many < few
    assert speed(profile(DENSE), n, figures=figures[0]) == speed(profile(DENSE), n)


def test_published_figures_of_a_model_that_denoises_are_in_the_interval() -> None:
    """Four owners of a Spark with this checkpoint, from the profile's sources."""
    made = launch_plan("diffusiongemma-26b-a4b-it-nvfp4-vllm")["estimate"]
    for key, published in {"n1": (95.62, 120, 146.3, 158), "n4": (174.3, 215, 257), "n8": (204.0,)}.items():
        assert all(made["low"][key] < figure < made["high"][key] for figure in published)
        assert min(published) * 0.9 < made[key] < max(published) * 1.25


def test_the_interval_is_that_of_the_steps() -> None:
    made = t.cast(dict[str, t.Any], estimate.estimate(profile(BLOCKS), {}, None, FIGURES))
    low, high = FIGURES.interval["plain"]["n1"]
    exact = speed(profile(BLOCKS))
    assert made["low"]["n1"] == pytest.approx(exact * low * 18 / 31, abs=0.051)
    assert made["high"]["n1"] == pytest.approx(exact * high * 18 / 13, abs=0.051)
    assert "14.2 tokens a pass expected, 8.3 to 19.7 depending on the text" in made["basis"]


@given(models, levels, spreads)
def test_without_graphs_nothing_is_faster(facts: Facts, n: int, parallelism: Parallelism) -> None:
    assert speed(profile(facts, parallelism), n, disable_cuda_graph=True) < speed(profile(facts, parallelism), n)


def test_a_batch_above_the_largest_graph_runs_without() -> None:
    assert speed(profile(), 16, cuda_graph_max_bs=8) == speed(profile(), 16, disable_cuda_graph=True)
    assert speed(profile(), 8, cuda_graph_max_bs=8) == speed(profile(), 8)


@given(models, levels)
def test_sockets_are_slower_than_roce_and_one_rank_has_neither(facts: Facts, n: int) -> None:
    two = profile(facts, Parallelism(2))
    assert speed(two, n, nccl_transport="socket") < speed(two, n, nccl_transport="roce")
    assert speed(profile(facts), n, nccl_transport="socket") == speed(profile(facts), n, nccl_transport="roce")


def test_no_more_run_at_once_than_the_engine_takes() -> None:
    assert speed(profile(), 8, max_running_requests=4) == speed(profile(), 4)


@given(models, spreads, drafts, st.sampled_from(["roce", "socket"]))
def test_the_interval_holds_the_estimate(
    facts: Facts, parallelism: Parallelism, draft: Draft | None, transport: str
) -> None:
    found = estimate.estimate(profile(facts, parallelism), {"nccl_transport": transport}, draft, FIGURES)
    assert found
    for key in ("n1", "n4", "n8"):
        assert found["low"][key] <= found[key] <= found["high"][key]


@given(models, levels, st.integers(2, 16))
def test_a_drafter_of_blocks_counts_its_drafts_not_its_steps(facts: Facts, n: int, tokens: int) -> None:
    """SGLang says one step for a block, vLLM as many as the block has drafts; both run the same."""
    one, many = (Draft("DSPARK", steps, 1, tokens, False) for steps in (1, tokens - 1))
    assert speed(profile(facts), n, one) == speed(profile(facts), n, many)


def test_drafts_pass_more_often_in_code_than_in_prose() -> None:
    found = t.cast(dict[str, t.Any], estimate.estimate(profile(), {}, DRAFT, FIGURES))
    prose, code = found["texts"]["prose"], found["texts"]["code"]
    assert 1 < prose["accepted"] < code["accepted"] < DRAFT.steps + 1
    assert prose["n1"] < found["n1"] < code["n1"]
    plain = t.cast(dict[str, t.Any], estimate.estimate(profile(), {}, None, FIGURES))
    assert plain["texts"] == {}


def test_a_drafter_of_blocks_has_an_interval_of_its_own() -> None:
    block = Draft("DFLASH", 7, 1, 8, False)
    own, without = FIGURES.interval["blocks"]["n1"], {k: v for k, v in FIGURES.interval.items() if k != "blocks"}
    for figures, (low, high) in (
        (FIGURES, own),
        (dataclasses.replace(FIGURES, interval=without), FIGURES.interval["drafted"]["n1"]),
    ):
        found = t.cast(dict[str, t.Any], estimate.estimate(profile(), {}, block, figures))
        exact = speed(profile(), 1, block)
        assert found["low"]["n1"] == pytest.approx(exact * low, abs=0.051)
        assert found["high"]["n1"] == pytest.approx(exact * high, abs=0.051)


def test_an_interval_is_that_of_the_requests() -> None:
    factors = {"n1": (0.9, 1.1), "n4": (0.8, 1.2), "n8": (0.7, 1.3)}
    figures = dataclasses.replace(FIGURES, interval={**FIGURES.interval, "plain": factors})
    found = t.cast(dict[str, t.Any], estimate.estimate(profile(), {}, None, figures))
    for key, (low, high) in factors.items():
        exact = speed(profile(), int(key[1:]), figures=figures)
        assert found["low"][key] == pytest.approx(exact * low, abs=0.051)
        assert found["high"][key] == pytest.approx(exact * high, abs=0.051)


def test_a_model_without_facts_has_no_estimate() -> None:
    assert estimate.estimate(profile(None), {}, None, FIGURES) is None
    with pytest.raises(CollectionError, match="facts"):
        estimate.work(profile(None), {}, None, 1, FIGURES)


def test_an_estimate_is_shown_as_one_and_never_beside_a_measured_row() -> None:
    unproven = launch_plan("qwen3.6-35b-a3b-fp8")
    assert unproven["estimate"]["n1"] > 0
    shown = "\n".join(serving_table(unproven))
    assert "estimate  n=1" in shown
    assert "not measured" in shown
    proven = launch_plan("glm-4.7-nvfp4", overrides={"variant": "plain"})
    measured = [row for row in proven["evidence"] if row["equal"]]
    assert measured and proven["estimate"] == {}
    assert "estimate" not in "\n".join(serving_table(proven))
    assert estimate.promise(proven, 4) == measured[0]["n4"]
    assert estimate.promise(unproven, 4) == unproven["estimate"]["n4"]


def test_a_plan_without_facts_promises_nothing() -> None:
    made = launch_plan("apertus-70b-instruct-nvfp4")
    assert made["estimate"] == {}
    assert estimate.promise(made) is None


def test_figures_of_the_first_stack_that_no_rule_was_made_from_are_near() -> None:
    """MiniMax M2.7 over four Sparks: 35.9, 92.3, 136.0 tokens/s. The fit knows it; the interval must still hold it."""
    found = launch_plan("minimax-m2.7-nvfp4")["estimate"]
    for key, measured in (("n1", 35.9), ("n4", 92.3), ("n8", 136.0)):
        assert found["low"][key] * 0.95 <= measured <= found["high"][key] * 1.05


def test_a_table_of_lookups_costs_no_time_and_hyper_connections_do() -> None:
    table = dataclasses.replace(FACTS, lookup=Lookup(1, 20_000_000, 2560))
    assert speed(profile(table)) == speed(profile())
    assert speed(profile(dataclasses.replace(FACTS, hyper=Hyper(4, 320)))) < speed(profile())


def test_sparse_attention_slows_down_less_with_the_context() -> None:
    own = dataclasses.replace(FACTS.attention[0], indexer=GroupIndexer(4, 128, budget=2048, ratio=4))
    sparse = dataclasses.replace(FACTS, attention=(own,))
    latent = Compressed(40, 32, 512, 64, 1024, 1024, 8, 128, 4, Indexer(32, 128, budget=2048))
    compressed = dataclasses.replace(FACTS, attention=(), compressed=(latent,))
    lost = [
        speed(profile(facts), context=2000) / speed(profile(facts), context=200_000)
        for facts in (FACTS, sparse, compressed)
    ]
    assert lost[0] > 1.5 * lost[1] > 1.5
    assert lost[0] > 1.5 * lost[2] > 1.5


def test_an_image_with_kernels_of_its_own_is_not_estimated() -> None:
    plan = launch_plan("deepseek-v4-flash-0731-vllm")
    made = plan["estimate"]
    assert "kernels of its own (B12X" in plan["not_judged"]["speed"] and "kernels of its own (B12X" in "\n".join(
        serving_table(plan)
    )
    low, high = FIGURES.interval["rare"]["n1"]
    assert made["low"]["n1"] / made["n1"] == pytest.approx(low, abs=0.02)
    assert made["high"]["n1"] / made["n1"] == pytest.approx(high, abs=0.02)
    assert launch_plan("glm-4.7-fp8")["estimate"]["kernels"] == ""


@pytest.mark.parametrize(
    ("image", "known"),
    [
        ("eugr/spark-vllm-b12x:nightly", True),
        ("eugr/spark-vllm-b12x@sha256:" + "0" * 64, True),
        ("registry:5000/eugr/spark-vllm-b12x", False),
        ("eugr/spark-vllm:latest", False),
        (None, False),
    ],
)
def test_a_fork_is_known_by_its_name(image: str | None, known: bool) -> None:
    assert bool(images.own_kernels(images.load_images(), image)) is known
