"""The guards as a classifier, on the half of the texts that nothing was tuned on; benchmarks/guards_as_classifier.py has more seeds."""

from __future__ import annotations

import pytest

from ansible_collections.dgxspark.cluster.tests.unit import guard_texts
from ansible_collections.dgxspark.cluster.tests.unit.guard_texts import judged

GARBAGE, BENIGN, BLIND = (
    guard_texts.of("test", True),
    guard_texts.of("test", False),
    guard_texts.of("blind", True),
)


def test_the_halves_have_no_family_in_common_and_enough_of_each() -> None:
    assert len(GARBAGE) >= 19
    assert len(BENIGN) >= 50
    assert all(each.source for each in guard_texts.FAMILIES.values())


@pytest.mark.parametrize("n", judged.LEVELS)
def test_of_models_that_write_garbage_two_of_a_hundred_pass_at_most(n: int) -> None:
    modes = [mode for mode in ("always", "together", "load") if n > 1 or mode != "together"]
    passed = [
        (each.name, mode)
        for mode in modes
        for each in (*GARBAGE, *BLIND)
        if judged.result(each, n, mode, seed=n).verdict == "good"
    ]
    assert len(passed) <= 0.02 * len((*GARBAGE, *BLIND)) * len(modes), passed


@pytest.mark.parametrize(
    ("n", "seed"),
    [(1, 0), (4, 1), pytest.param(8, 0, marks=pytest.mark.more)],
    ids=["answers", "thoughts", "answers of eight"],
)
def test_nor_do_more_pass_whose_garbage_follows_the_question_or_the_right_answer(n: int, seed: int) -> None:
    passed = [
        (each.name, mode)
        for mode in judged.BEGUN
        for each in (*GARBAGE, *BLIND)
        if judged.result(each, n, mode, seed).verdict == "good"
    ]
    assert len(passed) <= 0.02 * len((*GARBAGE, *BLIND)) * len(judged.BEGUN), passed


@pytest.mark.parametrize("n", judged.LEVELS)
def test_of_models_that_write_odd_but_sound_texts_one_of_a_hundred_fails_at_most(n: int) -> None:
    found = {each.name: judged.result(each, n, "always", seed) for seed, each in enumerate(BENIGN)}
    failed = {name: result.message for name, result in found.items() if result.verdict != "good"}
    assert len(failed) <= 0.01 * len(BENIGN), failed


def test_of_odd_but_sound_texts_alone_one_of_a_hundred_is_called_garbage_at_most() -> None:
    texts = [each.make(guard_texts.random.Random(seed), "") for each in BENIGN for seed in range(2)]
    assert sum(judged.tripped(text, True) is not None for text in texts) <= 0.01 * len(texts)
