from __future__ import annotations

import itertools
import typing as t

import jmespath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.judgement.conditions import MOST, compiled, true

RULES = knowledge.load("rules")
PAGE = ("settings", "page_size")
KIND = ("settings", "kind")


@pytest.mark.parametrize(
    ("text", "document", "held"),
    [
        ("settings.page_size > `1`", {"settings": {"page_size": 2}}, True),
        ("settings.page_size > `1`", {"settings": {"page_size": 1}}, False),
        ("settings.page_size > `1`", {"settings": {}}, False),
        ("settings.page_size", {"settings": {"page_size": 0}}, True),  # 0 is true in JMESPath
        ("!(settings.kind)", {"settings": {"kind": ""}}, True),
        ("settings.kind == `null`", {"settings": {}}, True),
    ],
)
def test_a_condition_is_what_jmespath_says(text: str, document: dict[str, t.Any], held: bool) -> None:
    assert compiled(text, "here").holds(document) is held


@pytest.mark.parametrize(
    ("text", "known", "unknown", "held"),
    [
        ("settings.page_size > `1`", {}, {PAGE: ()}, None),
        ("settings.page_size > `1`", {}, {PAGE: (16, 32)}, True),
        ("settings.page_size > `1`", {}, {PAGE: (1,)}, False),
        ("settings.page_size > `1` && settings.kind == 'a'", {"kind": "b"}, {PAGE: ()}, False),
        ("settings.page_size > `1` && settings.kind == 'a'", {"kind": "a"}, {PAGE: ()}, None),
        ("settings.page_size > `1` || settings.kind == 'a'", {"kind": "a"}, {PAGE: ()}, True),
        ("settings.kind != 'a' && settings.kind != 'b'", {}, {KIND: ()}, None),
        ("settings.kind == 'a'", {}, {("settings",): ()}, None),
        ("contains(['a', 'b'], settings.kind || '')", {}, {KIND: ()}, None),
        ("contains(['a', 'b'], settings.kind || '')", {}, {KIND: ("c", "d")}, False),
        ("settings.kind == 'a'", {"kind": "a"}, {("model",): ()}, True),
    ],
)
def test_what_hangs_on_an_unknown_fact_has_no_answer(
    text: str, known: dict[str, t.Any], unknown: dict[tuple[str, ...], tuple[t.Any, ...]], held: bool | None
) -> None:
    assert compiled(text, "here").holds({"settings": known, "model": {}}, unknown) is held


kinds = st.sampled_from(["a", "b", "c", "z", True, False, None])
sizes = st.sampled_from([None, 0, 1, 2, 7])
texts = st.sampled_from(
    [
        "settings.kind == 'a' || settings.page_size >= `2`",
        "settings.kind != 'b' && !(settings.page_size == `1`)",
        "contains(['a', 'c'], settings.kind || '') && settings.page_size",
        "(settings.kind == 'a') == (settings.page_size > `1`)",
        "!(settings.kind) && settings.page_size < `2`",
    ]
)


@given(texts, kinds, sizes)
def test_an_answer_given_without_a_fact_is_the_answer_with_any_value_of_it(text: str, kind: t.Any, size: t.Any) -> None:
    condition = compiled(text, "here")
    without = condition.holds({"settings": {"page_size": size}}, {KIND: ()})
    if without is not None:
        assert condition.holds({"settings": {"kind": kind, "page_size": size}}) is without


CONDITIONS = [entry["when"] for entry in RULES.values()]
CONDITIONS += ['contains(`[1, 2, "a"]`, settings.a)', "settings.a.b == 'c'", "settings.a == settings.b"]
values = st.sampled_from([None, True, False, 0, 1, 7.5, "", "a", "c", "auto", [], ["a", 1], {}, {"b": "c"}])


@given(st.data(), st.sampled_from(CONDITIONS))
def test_every_condition_is_answered_as_by_jmespath_itself(data: st.DataObject, text: str) -> None:
    condition = compiled(text, "here")
    literals = [value for term in condition.terms for value in term.candidates]
    document: dict[str, t.Any] = {}
    for path in sorted(condition.reads):
        place = document
        for name in path[:-1]:
            inner = place.setdefault(name, {})
            place = inner if isinstance(inner, dict) else place
        place[path[-1]] = data.draw(st.sampled_from(literals) | values)
    try:
        said = true(jmespath.search(text, document))
    except (jmespath.exceptions.JMESPathError, TypeError):
        with pytest.raises((jmespath.exceptions.JMESPathError, TypeError)):
            condition.holds(document)
    else:
        assert condition.holds(document) is said


@pytest.mark.parametrize("name", sorted(RULES))
def test_a_shipped_rule_is_asked_within_the_bound_of_trials(name: str) -> None:
    """All values of a rule's two unknown facts are tried, so no shipped rule is judged by a part of the trials."""
    condition = compiled(RULES[name]["when"], name)
    assert len({repr(value) for term in condition.terms for value in term.candidates}) ** 2 <= MOST
    for pair in itertools.combinations(sorted(condition.reads), 2):
        assert condition.holds({}, dict.fromkeys(pair, ())) in (True, False, None)


@pytest.mark.parametrize(
    ("text", "words"),
    [("settings.page_size >", ["here", "JMESPath"]), ("!settings.page_size", ["here", "!(a.b)"])],
)
def test_a_bad_condition_is_one_error_that_says_where(text: str, words: list[str]) -> None:
    with pytest.raises(knowledge.KnowledgeError) as caught:
        compiled(text, "here")
    assert [word for word in words if word not in str(caught.value)] == []
    assert isinstance(caught.value, CollectionError)


@pytest.mark.parametrize("value", [None, False, "", [], {}, 0, 1, "x", [0], True])
def test_what_is_true_is_what_jmespath_takes_for_true(value: t.Any) -> None:
    assert true(value) is not jmespath.search("!a", {"a": value})
