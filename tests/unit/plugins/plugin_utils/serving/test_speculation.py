from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving import profile, speculation
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
        ({"gamma": 7, "topk": 2}, "top-k 1"),
        ({"gamma": 7, "steps": 3}, "one step"),
        ({"gamma": 7, "version": "0.5.12"}, r"not in SGLang 0\.5\.12"),
    ],
)
def test_dspark_is_strict(asked: dict[str, object], text: str) -> None:
    with pytest.raises(CollectionError, match=text):
        speculation.sglang_draft("DSPARK", **asked)  # type: ignore[arg-type]


def test_dspark_knows_its_number() -> None:
    assert speculation.sglang_draft("DSPARK", gamma=7, version="0.5.17").tokens == 8


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


def test_a_tree_has_an_end() -> None:
    assert speculation.sglang_draft("EAGLE3", 5, 32, 8).tokens == 32
    with pytest.raises(CollectionError, match="more than a tree"):
        speculation.sglang_draft("EAGLE3", 1, 32, 8)


def test_pipeline_stages_are_refused() -> None:
    with pytest.raises(CollectionError, match="pp 4"):
        speculation.sglang_draft("NEXTN", 3, 4, 1, pp=4)


def test_vllm_counts_drafts_only() -> None:
    assert speculation.vllm_draft("mtp", 3).tokens == 4
    with pytest.raises(CollectionError, match="num_speculative_tokens is missing"):
        speculation.vllm_draft("mtp", None)
