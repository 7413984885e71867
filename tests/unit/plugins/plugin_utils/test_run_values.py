"""A value that cannot be is refused before anything runs, by the name of the variable that the owner typed."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import Finding
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import run_values
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify import modes


def judge(given: dict[str, t.Any]) -> list[Finding]:
    return run_values.judge(given, modes.names())


@pytest.mark.parametrize("value", [1, "2", 64, "8"])
def test_a_number_of_sparks_is_taken(value: t.Any) -> None:
    assert judge({"sparks": value}) == []


@pytest.mark.parametrize("value", ["two", "", "2.5", 2.5, 0, "-1", True, None, [], {}, "2 4", "1" * 5000, "²", 10**9])
def test_what_is_no_number_of_sparks_is_refused(value: t.Any) -> None:
    [found] = judge({"sparks": value})
    assert found.severity == "error" and found.subject == "sparks" and "such as sparks=2" in found.remedy
    assert len(str(found)) < 250


@pytest.mark.parametrize("name", ["k8s_dgx_replicas", "dgxspark_top_rounds", "dgxspark_top_seconds"])
def test_other_numbers_are_refused_by_their_name(name: str) -> None:
    for value in (2, "4"):
        assert judge({name: value}) == []
    for wrong in ("four", -1, "1.5", "", None, [2], 10**9, True):
        [found] = judge({name: wrong})
        assert (found.severity, found.subject) == ("error", name) and "is not a whole number from" in found.message
    assert judge({"k8s_dgx_replicas": 0}) == [] and len(judge({"dgxspark_top_rounds": 0})) == 1


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("dgxspark_verify_mode", "fast", ["quick", "full", "strict"]),
        ("dgxspark_bench_mode", "fast", ["full", "quick", "arena"]),
        ("dgxspark_bench_from", "pods", ["controller", "pod"]),
        ("dgxspark_top_show", "yaml", ["table", "json"]),
    ],
)
def test_a_value_that_is_none_of_those_allowed_is_refused_with_them(name: str, value: str, allowed: list[str]) -> None:
    [found] = judge({name: value})
    assert found.subject == name and repr(value) in found.message
    assert all(each in found.message for each in allowed)
    for each in allowed:
        assert judge({name: each}) == []
    assert len(judge({name: [value]})) == 1
    assert "Did you mean" in judge({name: allowed[0][:-1]})[0].remedy
