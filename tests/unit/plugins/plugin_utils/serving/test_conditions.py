"""Conditions as functions say what jmespath's own interpreter says: on every rule, and where the two could part."""

from __future__ import annotations

import itertools
import typing as t

import jmespath
import pytest

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving import conditions, evidence, facts, profile
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving import verdict as verdicts

VALUES: tuple[t.Any, ...] = (None, True, False, 0, 1, 0.0, 1.5, "", "1", "ab", [], [0], {}, {"c": 1}, {"c": None})
EXPRESSIONS = (
    "a", "a.c", "a.c.d", "!a", "!(a.c)", "a && b", "a || b", "a && b && a", "a || b || `false`", "(a || b) && !b",
    "a == b", "a != b", "a < b", "a >= b", "a == `0`", "a == `1`", "a == `true`", "a == `null`", "a == 'ab'", "a != 'ab'",
    "'ab' == a", "a == `[]`", "[a, b]", "[`1`, 'ab']", "contains(['ab', '1'], a)", "a[0]", "a[?@ == `0`]", "a.*", "a | b", "@",
    "not_null(a, b)", "type(a)", "{x: a}",
)  # fmt: skip
FAILING = ("contains(a, b)", "starts_with(a, 'a')", "sort_by(a, &c)", "nothing(a)", "length(a, b)")


def outcome(run: t.Callable[[], t.Any]) -> tuple[t.Any, ...]:
    try:
        value = run()
    except (jmespath.exceptions.JMESPathError, TypeError) as exc:
        return type(exc), str(exc)
    return type(value), value


@pytest.mark.parametrize("expression", EXPRESSIONS + FAILING)
def test_the_same_of_every_kind_of_value(expression: str) -> None:
    made, parsed = conditions.compiled(jmespath.compile(expression).parsed), jmespath.compile(expression)
    for a, b in itertools.product(VALUES, repeat=2):
        for document in ({"a": a, "b": b}, {"a": a}, a):
            assert outcome(lambda d=document: made(d)) == outcome(lambda d=document: parsed.search(d)), document


def test_the_same_of_every_rule_on_every_row() -> None:
    known = verdicts.base()
    written = {key: jmespath.compile(entry["when"]) for key, entry in knowledge.load("rules").items()}
    for row in evidence.load_rows():
        run = row.run
        given = {
            "engine": {"name": run.engine, "version": run.version},
            "parallel": {"nodes": run.nodes, "tp": run.tp, "pp": run.pp, "ep": run.ep},
            "settings": dict(run.settings),
        }
        chosen = profile.resolve({**profile.find(run.model), "variants": {}, "settings": {}}, given)
        found = verdicts.judge(chosen, known)
        document = facts.document(chosen, found.settings, found.draft, found.pools, {})
        for rule in known.rules:
            assert rule.condition(document) == written[rule.id].search(document), (row.id, rule.id)
