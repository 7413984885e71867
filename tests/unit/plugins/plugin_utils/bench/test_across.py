"""What shows only across requests: answers that a full batch changes, equal answers to different questions, wrong ones."""

from __future__ import annotations

import dataclasses
import random

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.across import (
    alike,
    fingerprint,
    load_limits_of,
    not_judged,
    parted,
    right,
    wrong,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.figures import Record
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.guards import limits_of

LIMITS = load_limits_of(knowledge.load("guards"))
REQUESTS = limits_of(knowledge.load("guards")).requests
ONES = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
NUMBERS = ", ".join([*ONES, *(f"{ten}-{one}" for ten in ("twenty", "thirty", "forty") for one in ONES)])
EXPECT = r"twenty-one\W+twenty-two"


def noise(seed: int, words: int = 40) -> str:
    chance = random.Random(seed)
    return " ".join("".join(chance.choices("abcdefghij", k=chance.randint(2, 8))) for _n in range(words))


def answer(text: str, question: int = 0, reason: str = "stop", tokens: int = 0, last: float = 2.0) -> Record:
    return Record(0, question, "ok", 0.0, last, (1.0, last), (None, None), tokens, finish_reason=reason, content=text)


# --- a full batch against one request alone ---------------------------------------------------------------------------


def test_answers_that_part_at_once_in_a_full_batch_are_garbage() -> None:
    alone = [answer(NUMBERS)] * 2
    (sign,) = parted(alone, [answer(noise(n)) for n in range(8)], EXPECT, LIMITS.parting)
    assert (sign.id, sign.severity) == ("bench.parted", "error")
    assert "8 of 8" in sign.message


def test_answers_that_part_late_are_what_rounding_in_a_batch_does() -> None:
    alone = [answer(NUMBERS)] * 2
    late = NUMBERS.split(", ")
    together = [answer(", ".join([*late[: 20 + n], *noise(n).split()])) for n in range(8)]
    assert not parted(alone, together, None, LIMITS.parting)


def test_another_beginning_with_the_right_answer_is_sound() -> None:
    """A model may say `Sure!` first in a full batch; what was asked for is there."""
    together = [answer("Sure, here are the numbers that you asked for, in words: " + NUMBERS)] * 8
    assert not parted([answer(NUMBERS)] * 2, together, EXPECT, LIMITS.parting)


def test_a_model_that_parts_from_itself_when_alone_says_nothing_of_the_batch() -> None:
    assert not parted(
        [answer(noise(90)), answer(noise(91))], [answer(noise(n)) for n in range(8)], None, LIMITS.parting
    )


def test_one_of_eight_is_not_the_batch() -> None:
    together = [answer(NUMBERS)] * 7 + [answer(noise(1))]
    assert not parted([answer(NUMBERS)] * 2, together, EXPECT, LIMITS.parting)


def test_marks_and_case_do_not_part_answers_and_thoughts_alone_are_not_compared() -> None:
    assert not parted([answer(NUMBERS)] * 2, [answer(NUMBERS.upper().replace(", ", "\n"))] * 8, None, LIMITS.parting)
    thinking = [Record(0, 0, "ok", 0, 1, (1.0,), (None,), 1, reasoning=noise(n)) for n in range(8)]
    assert not parted([answer(NUMBERS)] * 2, thinking, None, LIMITS.parting)
    assert not parted([answer(NUMBERS)], [answer(noise(n)) for n in range(8)], None, LIMITS.parting)


# --- equal answers to different questions -----------------------------------------------------------------------------


def test_equal_answers_to_different_questions_are_garbage() -> None:
    (sign,) = alike([answer(noise(1), 0), answer(noise(2), 1), answer(noise(1), 2)], LIMITS.alike)
    assert (sign.id, sign.severity) == ("bench.alike", "error")


def test_equal_answers_to_one_question_and_short_ones_are_none() -> None:
    assert not alike([answer(noise(1), 3), answer(noise(1), 3)], LIMITS.alike)
    assert not alike([answer("Yes.", 0), answer("Yes.", 1), answer("", 2), answer("", 3)], LIMITS.alike)


# --- known answers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("right", "errors"), [(8, 0), (5, 0), (4, 1), (0, 1)])
def test_fluent_nonsense_shows_in_answers_that_are_known(right: int, errors: int) -> None:
    records = [answer("It is 391.", 0)] * right + [answer("It is 17, of course.", 0)] * (8 - right)
    assert len(wrong([(record, "391") for record in records], LIMITS.wrong)) == errors


def test_an_answer_that_was_cut_is_not_wrong_and_few_are_no_proof() -> None:
    cut = [(answer("Let me see", 0, reason="length"), "391")] * 8
    assert not wrong(cut, LIMITS.wrong)
    assert not wrong([(answer("17", 0), "391")] * 2, LIMITS.wrong)
    assert not wrong([(answer("17", 0), None)] * 8, LIMITS.wrong)


# --- the fingerprint --------------------------------------------------------------------------------------------------


def cut_at_limit(text: str) -> list[Record]:
    return [answer(text, n, reason="length", tokens=3072, last=171.0) for n in range(8)]


def test_the_seed_s_fingerprint_is_garbage_where_the_text_says_nothing_either() -> None:
    """Eight streams of one repeated token, equal speeds, all cut: found after the end, without the per-stream guards."""
    signs = fingerprint(cut_at_limit("!" * 3072), REQUESTS, LIMITS.squeezed, LIMITS.burst)
    assert {sign.id: sign.severity for sign in signs} == {
        "tokens.identical-speed": "error",
        "tokens.all-length": "error",
    }


def test_sound_answers_that_were_cut_in_step_are_odd_at_most() -> None:
    """A batch runs in lockstep: sound streams that are cut at the limit together have the same speed, too."""
    signs = fingerprint(cut_at_limit(noise(5, 700)), REQUESTS, LIMITS.squeezed, LIMITS.burst)
    assert {sign.severity for sign in signs} == {"warning"}


@pytest.mark.parametrize(
    "text", ["391", "The sum is 391, as 17 times 23 is.", noise(5, 60), "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12"]
)
def test_short_answers_that_were_cut_in_step_are_odd_at_most(text: str) -> None:
    """Too short to judge by compression; whether each one has content was judged by its own guards."""
    signs = fingerprint(cut_at_limit(text), REQUESTS, LIMITS.squeezed, LIMITS.burst)
    assert {sign.id: sign.severity for sign in signs} == {
        "tokens.identical-speed": "warning",
        "tokens.all-length": "warning",
    }


def test_nothing_in_any_answer_is_garbage() -> None:
    signs = fingerprint(cut_at_limit(""), REQUESTS, LIMITS.squeezed, LIMITS.burst)
    assert {sign.id for sign in signs if sign.severity == "error"} >= {"tokens.no-content"}


def test_garbage_and_failures_are_not_counted_twice() -> None:
    bad = [dataclasses.replace(record, status="garbage") for record in cut_at_limit("!" * 900)]
    assert not fingerprint(bad, REQUESTS, LIMITS.squeezed, LIMITS.burst)
    assert not alike(bad, LIMITS.alike)


def test_a_missing_limit_is_named() -> None:
    entries = {name: entry for name, entry in knowledge.load("guards").items() if name != "parting"}
    with pytest.raises(CollectionError, match="the entry 'parting' is missing"):
        load_limits_of(entries)


def test_two_runs_alone_that_agree_for_a_few_words_only_prove_nothing() -> None:
    alone = [answer(f"one two three four five six seven eight {noise(n)}") for n in range(2)]
    assert not parted(alone, [answer(noise(n)) for n in range(10, 18)], None, LIMITS.parting)


# --- thoughts, and what cannot be judged ------------------------------------------------------------------------------


def thought(text: str) -> Record:
    return Record(0, 0, "ok", 0.0, 2.0, (1.0, 2.0), (None, None), 512, finish_reason="length", reasoning=text)


def test_thoughts_are_compared_where_a_model_came_to_no_answer() -> None:
    alone = [thought(noise(1))] * 2
    (sign,) = parted(alone, [thought(noise(50 + n)) for n in range(8)], EXPECT, LIMITS.parting)
    assert (sign.id, sign.severity) == ("bench.parted", "error")
    assert "8 of 8 thoughts" in sign.message
    assert not parted(alone, [thought(noise(1))] * 8, EXPECT, LIMITS.parting)


def test_another_beginning_that_thoughts_of_a_batch_share_is_odd_at_most() -> None:
    """A batch's rounding tips a choice between two beginnings, for several streams alike."""
    together = [thought(f"{noise(2, 20)} {noise(60 + n)}") for n in range(8)]
    (sign,) = parted([thought(noise(1))] * 2, together, EXPECT, LIMITS.parting)
    assert (sign.id, sign.severity) == ("bench.parted", "warning")


@pytest.mark.parametrize(
    ("alone", "together", "words"),
    [
        (
            [answer(NUMBERS)] * 2,
            [thought(noise(n)) for n in range(8)],
            "2 answers and 0 thoughts alone and 0 answers and 8",
        ),
        (
            [answer(NUMBERS)] * 2,
            [answer(NUMBERS)] * 3,
            "3 answers and 0 thoughts together; at least 2 alone and 4 together",
        ),
        ([answer(NUMBERS)], [answer(NUMBERS)] * 8, "1 answers and 0 thoughts alone"),
        ([answer(noise(1)), answer(noise(2))], [answer(noise(n)) for n in range(8)], "agree for 0 words only"),
    ],
)
def test_what_cannot_be_judged_is_said(alone: list[Record], together: list[Record], words: str) -> None:
    assert not parted(alone, together, None, LIMITS.parting)
    (sign,) = not_judged(8, alone, together, LIMITS.parting)
    assert (sign.id, sign.severity) == ("bench.not-judged", "warning")
    assert words in sign.message


def test_nothing_is_said_where_it_is_judged_or_there_is_no_batch() -> None:
    assert not not_judged(8, [answer(NUMBERS)] * 2, [answer(noise(n)) for n in range(8)], LIMITS.parting)
    assert not not_judged(1, [answer(NUMBERS)] * 2, [answer(NUMBERS)], LIMITS.parting)


# --- the right answer -------------------------------------------------------------------------------------------------

PROMPT = {"ask": "Write the numbers from one to thirty in words.", "expect": EXPECT, "early": r"one\W+two\W+three"}


def rights(alone: list[Record], together: list[Record], begun: bool = False) -> list[str] | None:
    signs = right(alone, together, PROMPT, LIMITS.right, begun)
    return None if signs is None else [sign.message for sign in signs]


def test_greedy_answers_are_checked_against_the_right_one() -> None:
    assert rights([answer(NUMBERS)] * 2, [answer(f"Sure! {NUMBERS}")] * 8) == []
    assert rights([answer(NUMBERS)] * 2, [answer(NUMBERS)] * 7 + [answer(noise(1))]) == []
    (said,) = rights([answer(NUMBERS)] * 2, [answer(NUMBERS)] * 5 + [answer(noise(1))] * 3) or []
    assert "3 of 8 answers to the greedy prompt sent together are wrong" in said
    alone, together = rights([answer(NUMBERS), answer(noise(2))], [answer(noise(1))]) or []
    assert "1 of 2 answers to the greedy prompt sent alone are wrong" in alone
    assert "1 of 1 answers" in together


def test_an_answer_that_was_cut_is_right_as_far_as_it_goes_where_that_is_enough() -> None:
    begun = answer("Sure: one, two, three, four", reason="length")
    assert rights([begun] * 2, [begun]) is None  # garbage may follow
    assert rights([begun] * 2, [begun], begun=True) == []
    assert rights([begun] * 2, [answer(noise(1), reason="length")]) != []
    # Without a pattern for the beginning it is unknown, and what is unknown is not judged.
    lost = answer(noise(1), reason="length")
    assert right([lost] * 2, [lost], {"ask": PROMPT["ask"], "expect": EXPECT}, LIMITS.right) is None


def test_thoughts_about_the_prompt_are_sound_and_others_are_not_judged() -> None:
    about = thought("The user wants me to write the numbers from one to thirty in words. Let me think.")
    assert rights([about] * 2, [about]) is None
    assert rights([about] * 2, [about], begun=True) == []
    assert rights([thought(noise(1))] * 2, [thought(noise(2))]) is None


def test_without_a_right_answer_nothing_is_checked() -> None:
    assert right([answer("a")] * 2, [answer("b")], {"ask": "Say something."}, LIMITS.right) is None


def test_a_short_answer_to_most_questions_is_garbage() -> None:
    hello = "Hello! How can I help you today?"
    assert alike([answer(hello, 0), answer(hello, 1)], LIMITS.alike)
    assert alike([answer(hello, n) for n in range(3)] + [answer(noise(1), 3)], LIMITS.alike)
    assert not alike([answer(hello, 0), answer(hello, 1), answer(noise(1), 2), answer(noise(2), 3)], LIMITS.alike)
