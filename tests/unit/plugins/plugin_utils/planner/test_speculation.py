from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.model import speculation
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.profile import profile
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.plan import launch_plan


@given(
    st.sampled_from([*sorted(speculation.KNOWN), "nonsense"]),
    st.one_of(st.none(), st.integers(-1, 20)),
    st.one_of(st.none(), st.integers(-1, 40)),
    st.one_of(st.none(), st.integers(-1, 4)),
    st.booleans(),
    st.one_of(st.none(), st.integers(0, 9)),
    st.sampled_from(["0.5.10", "0.5.17", "0.5.23"]),
)
def test_never_below_steps_plus_one(
    algorithm: str,
    steps: int | None,
    tokens: int | None,
    topk: int | None,
    frozen: bool,
    gamma: int | None,
    version: str,
) -> None:
    """Whatever is asked for: a refusal, or at least steps + 1."""
    try:
        draft = speculation.sglang_draft(
            algorithm, steps, tokens, topk, version=version, frozen_drafter=frozen, gamma=gamma
        )
    except CollectionError as exc:
        assert exc.findings
        return
    assert draft.tokens >= draft.steps + 1
    if draft.forced:
        assert draft.findings


@given(st.integers(1, 20), st.integers(1, 40))
def test_top_k_1_forces(steps: int, tokens: int) -> None:
    draft = speculation.sglang_draft("NEXTN", steps, tokens, 1)
    assert draft.tokens == steps + 1
    assert draft.forced == (tokens != steps + 1)


def test_a_frozen_drafter_is_promoted_and_must_be_told() -> None:
    assert speculation.sglang_draft("NEXTN", 6, 7, 1, frozen_drafter=True).algorithm == "FROZEN_KV_MTP"
    with pytest.raises(CollectionError, match=r"6 is less than steps \+ 1 = 7, and FROZEN_KV_MTP does not adjust"):
        speculation.sglang_draft("NEXTN", 6, 6, 1, frozen_drafter=True)
    assert speculation.sglang_draft("NEXTN", 6, None, 1, frozen_drafter=True).tokens == 7


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"tokens": 7, "gamma": 7}, r"7 is not gamma \+ 1 = 8"),
        ({"tokens": 6, "gamma": 5, "block": 7}, r"6 is not gamma \+ 1 = 8"),
        ({"gamma": 7, "version": "0.5.12"}, r"not in SGLang 0\.5\.12"),
    ],
)
def test_dspark_is_strict(asked: dict[str, object], text: str) -> None:
    with pytest.raises(CollectionError, match=text):
        speculation.sglang_draft("DSPARK", **asked)  # type: ignore[arg-type]


def test_dspark_knows_its_number() -> None:
    assert speculation.sglang_draft("DSPARK", gamma=7, version="0.5.17").tokens == 8
    assert speculation.sglang_draft("DSPARK", gamma=7, block=4).tokens == 5


@pytest.mark.parametrize("algorithm", ["DFLASH", "DSPARK"])
def test_steps_and_top_k_that_the_engine_sets_to_1_block_nothing(algorithm: str) -> None:
    """SGLang 0.5.23 arg_groups/speculative_hook.py:342, :359, :765, :782: it overrides them with a warning."""
    draft = speculation.sglang_draft(algorithm, 3, None, 2, gamma=8, version="0.5.23")
    assert (draft.steps, draft.topk, draft.tokens) == (1, 1, 8 + (algorithm == "DSPARK"))
    assert [(f.severity, f.subject) for f in draft.findings] == [
        ("warning", "speculative_num_steps"),
        ("warning", "speculative_eagle_topk"),
    ]


@pytest.mark.parametrize(
    ("asked", "tokens"),
    [
        ({}, 16),
        ({"gamma": 10}, 10),
        ({"gamma": 10, "tokens": 4}, 4),
        ({"block": 5, "gamma": 10}, 5),
        ({"block": 5, "tokens": 5}, 5),
    ],
)
def test_dflash_without_a_number_takes_the_drafters_block_else_16(asked: dict[str, int], tokens: int) -> None:
    draft = speculation.sglang_draft("DFLASH", version="0.5.12", **asked)  # type: ignore[arg-type]
    assert draft.tokens == tokens
    assert [f.id for f in draft.findings] == ([] if asked else [speculation.ASSUMED_GAMMA])


def test_dflash_refuses_two_numbers_and_releases_that_lack_it() -> None:
    with pytest.raises(CollectionError, match="DFLASH demands one number"):
        speculation.sglang_draft("DFLASH", tokens=4, block=5)
    with pytest.raises(CollectionError, match=r"DFLASH is not in SGLang 0\.5\.10"):
        speculation.sglang_draft("DFLASH", version="0.5.10")


def test_ngram_without_a_number_takes_12() -> None:
    assert speculation.sglang_draft("NGRAM").tokens == 12


@pytest.mark.parametrize(
    "asked",
    [
        {"algorithm": 7},
        {"algorithm": None},
        {"version": 0.5},
        {"steps": "3"},
        {"steps": 3.0},
        {"gamma": "7"},
        {"pp": "2"},
    ],
)
def test_a_value_of_another_type_is_refused(asked: dict[str, object]) -> None:
    with pytest.raises(CollectionError, match="is not a"):
        speculation.sglang_draft(**{"algorithm": "DSPARK", **asked})  # type: ignore[arg-type]


def test_a_gamma_that_nobody_says_is_a_warning_and_the_engine_s_to_find_out() -> None:
    (told,) = speculation.sglang_draft("DSPARK", version="0.5.17").findings
    assert told.severity == "warning" and "assumes 7" in told.message
    own = {
        key: value
        for key, value in profile.find("minimax-m2.5-nvfp4").items()
        if key in ("model", "facts", "precision")
    }
    asked = own | {
        "id": "mine",
        "title": "mine",
        "proven": "untested",
        "engine": {"name": "sglang", "version": "0.5.23"},
        "parallel": {"nodes": 2, "tp": 2},
        "settings": {"speculative_algorithm": "DSPARK", "speculative_draft_model_path": "a/drafter"},
        "source": [{"of": "settings", "from": "here", "verified": "inferred"}],
    }
    argv = launch_plan(asked)["ranks"][0]["argv"]
    assert not [word for word in argv if "num-draft-tokens" in word]
    asked["settings"] |= {"speculative_dspark_block_size": 5}
    made = launch_plan(asked)
    assert made["speculation"]["tokens"] == 6 and made["ranks"][0]["argv"].count("--speculative-dspark-block-size") == 1


def test_a_number_that_dspark_compares_with_an_unknown_block_is_said_to_be_assumed() -> None:
    draft = speculation.sglang_draft("DSPARK", tokens=6, version="0.5.17")
    (told,) = draft.findings
    assert (draft.tokens, told.id) == (6, speculation.ASSUMED_GAMMA)
    assert told.message.endswith("The plan assumes 5.")
    assert not speculation.sglang_draft("DFLASH", tokens=6, version="0.5.17").findings, "DFLASH takes the number"


def test_a_tree_has_an_end() -> None:
    assert speculation.sglang_draft("EAGLE3", 5, 32, 8).tokens == 32
    with pytest.raises(CollectionError, match="more than a tree"):
        speculation.sglang_draft("EAGLE3", 1, 32, 8)
    # One step with top-k 8: its eight nodes, and the root.
    assert speculation.sglang_draft("EAGLE3", 1, 9, 8).tokens == 9
    with pytest.raises(CollectionError, match="more than a tree"):
        speculation.sglang_draft("EAGLE3", 1, 10, 8)


def test_pipeline_stages_are_refused() -> None:
    with pytest.raises(CollectionError, match="pp 4"):
        speculation.sglang_draft("NEXTN", 3, 4, 1, pp=4)


def test_vllm_counts_drafts_only() -> None:
    assert speculation.vllm_draft("mtp", 3).tokens == 4
    with pytest.raises(CollectionError, match="num_speculative_tokens is missing"):
        speculation.vllm_draft("mtp", None)
