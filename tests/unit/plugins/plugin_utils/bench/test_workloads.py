"""What is asked: the same for the same seed, and as many different questions as a workload has."""

from __future__ import annotations

import re

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.across import holds
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.workloads import questions, workload_of

SHIPPED = knowledge.load("workloads")
FORM = {"sentences": 3, "shared": False, "form": "$number: $what.", "words": {"what": ["a", "b", "c", "d", "e"]}}
PLAIN = {
    "max_tokens": 64,
    "temperature": 0,
    "seed": 7,
    "timeout_s": 5,
    "prompts": [{"ask": "One?"}, {"ask": "Two?", "expect": "2"}],
}


def test_questions_come_in_turn_and_carry_what_is_expected() -> None:
    asked = questions(workload_of("plain", {"plain": PLAIN}), 5)
    assert [question.text for question in asked] == ["One?", "Two?", "One?", "Two?", "One?"]
    assert [question.number for question in asked] == [0, 1, 0, 1, 0]
    assert asked[1].expect == "2"
    assert [question.seed for question in asked] == [7, 8, 9, 10, 11]


def test_own_filling_differs_for_each_request_and_shared_filling_is_one() -> None:
    own = questions(workload_of("w", {"w": PLAIN | {"fill": FORM}}), 6)
    assert len({question.text for question in own}) == 6
    assert own == questions(workload_of("w", {"w": PLAIN | {"fill": FORM}}), 6)
    assert re.match(r"1: [a-e]\. 2: [a-e]\. 3: [a-e]\.\n\nOne\?$", own[0].text)
    shared = questions(workload_of("w", {"w": PLAIN | {"fill": FORM | {"shared": True}}}), 6)
    assert len({question.text.rpartition("\n")[0] for question in shared}) == 1
    other = questions(workload_of("w", {"w": PLAIN | {"fill": FORM, "seed": 8}}), 6)
    assert other[0].text != own[0].text


def test_a_later_level_asks_on_where_the_one_before_ended() -> None:
    """Otherwise the server's prefix cache would answer."""
    work = workload_of("w", {"w": PLAIN | {"fill": FORM | {"sentences": 20}}})
    assert questions(work, 2, start=4) == questions(work, 6)[4:]


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_workloads_can_be_asked(name: str) -> None:
    asked = questions(workload_of(name, SHIPPED), 16)
    assert all(question.text.strip() and "$" not in question.text for question in asked)
    assert len({question.text for question in asked}) >= min(4, len(SHIPPED[name]["prompts"]))


def test_the_lengths_that_the_seeds_state_are_kept() -> None:
    assert SHIPPED["generation"]["max_tokens"] == 3072


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"prompts": [{"ask": "x", "expect": "("}]},
            r"workload w: prompts\.0\.expect: '\(' is not a regular expression",
        ),
        ({"fill": FORM | {"form": "$nobody"}}, r"workload w: fill\.form: \$nobody"),
        ({"fill": FORM | {"form": "costs $ 5"}}, r"workload w: fill\.form"),
    ],
)
def test_what_no_schema_can_check_is_said(change: dict[str, object], words: str) -> None:
    with pytest.raises(CollectionError, match=words):
        questions(workload_of("w", {"w": PLAIN | change}), 1)


def test_an_unknown_workload_is_refused_with_those_that_are() -> None:
    with pytest.raises(CollectionError, match=r"There is no workload 'chatt'.*chat, code"):
        workload_of("chatt", SHIPPED)


@pytest.mark.parametrize("name", ["long-context", "agents"])
def test_what_the_filling_says_is_what_a_right_answer_contains(name: str) -> None:
    """Asked for one sentence, that sentence is a right answer, and another one is not."""
    known = [question for question in questions(workload_of(name, SHIPPED), 12) if question.expect]
    assert len(known) >= 4
    for question in known:
        filling, _blank, asked = question.text.rpartition("\n\n")
        numbers = re.findall(r"(?:day|rule) (\d+)", asked)
        sentences = [each for each in filling.split(". ") if re.search(rf"(?:day|Rule) {numbers[0]}\b", each)]
        assert holds(question.expect, sentences[0])
        assert not holds(question.expect, "I do not know which one that is.")


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ({"ask": "x", "sentence": 9, "expect": "$what"}, "sentence 9: the filling has 3 sentences"),
        ({"ask": "x", "sentence": 1, "expect": "$who"}, "names no words of fill.words: 'who'"),
    ],
)
def test_a_sentence_that_is_not_there_is_one_error(prompt: dict[str, object], words: str) -> None:
    with pytest.raises(CollectionError, match=words):
        questions(workload_of("w", {"w": PLAIN | {"fill": FORM, "prompts": [prompt]}}), 1)
