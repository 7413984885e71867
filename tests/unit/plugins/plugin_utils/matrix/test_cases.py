from __future__ import annotations

import functools
import math
import pathlib
import re
import typing as t

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix import cases, report, results
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import promised_speed
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.plan import launch_plan

CLUSTER = {"hosts": ["spark1", "spark2", "spark3", "spark4"]}
SHIPPED = sorted(knowledge.load(cases.KIND))
Plain = dict[str, t.Any]


@functools.cache
def planned(name: str) -> list[cases.Case]:
    matrix = cases.load(name)
    return cases.planned(matrix, lambda overrides: launch_plan(matrix.profile, CLUSTER, overrides))


def invented(**more: t.Any) -> cases.Matrix:
    entry = {"id": "x", "title": "X", "profile": "gemma-4-31b-it", "source": ["test"], "verified": "inferred", **more}
    knowledge.validate(cases.KIND, entry, "test")
    return cases.matrix_of(entry)


def fake(overrides: t.Mapping[str, t.Any]) -> Plain:
    """A planner: all settings are used, but for `b`, which the engine overrides where `a` is 2; `c` above 3 is blocked."""
    settings = dict(overrides.get("settings", {}))
    runs = {key: {"value": value, "by": "asked"} for key, value in settings.items()}
    if settings.get("a") == 2 and "b" in runs:
        runs["b"] = {"value": 0, "by": "default"}
    errors = [{"severity": "error", "message": "too many.", "remedy": ""}] if settings.get("c", 0) > 3 else []
    return {
        "model": "m",
        "engine": {"name": "sglang"},
        "parallel": {"nodes": 1},
        "settings": settings,
        "resolved": runs,
        "verdict": "blocked" if errors else "unproven",
        "findings": errors,
        "evidence": [],
    }


@pytest.mark.parametrize("name", SHIPPED)
def test_a_seeds_table_is_a_matrix_of_its_rows(name: str) -> None:
    """Each row of the table is one case, and where the plan knows an equal row, it is one of the table's."""
    matrix = cases.load(name)
    names = [case["name"] for case in results.of_rows(matrix)["cases"]]
    assert len(set(names)) == len(names) == len(matrix.rows)
    assert set(names) <= {name for name, _labels, _choices in cases.combinations(matrix)}
    rows = {row["id"] for case in planned(name) for row in case.plan.get("evidence", ()) if row["equal"]}
    assert rows & set(matrix.rows)


@pytest.mark.parametrize("name", SHIPPED)
def test_every_combination_is_one_case_or_equal_to_one(name: str) -> None:
    told = [each for case in planned(name) for each in (case.name, *case.also)]
    assert sorted(told) == sorted(each[0] for each in cases.combinations(cases.load(name)))


def test_the_seeds_order_begins_with_what_won() -> None:
    assert [case.name for case in planned("002-gemma-4-31b")][:2] == ["steps-6", "steps-5"]
    assert planned("000-qwen3.5-397b-ep1")[0].name == "mtp-cutlass"


def test_blocked_cases_come_last_with_their_reason() -> None:
    found = planned("000-qwen3.5-397b-ep4")
    first = next(number for number, case in enumerate(found) if case.blocked)
    assert all(case.blocked for case in found[first:])
    assert not any(case.blocked for case in found[:first])
    eager = [
        case for case in found if case.labels["graphs"] == "eager" and case.labels["moe_runner_backend"] == "triton"
    ]
    assert eager
    assert all(case.blocked for case in eager)


def test_equal_cases_are_one_and_name_each_other() -> None:
    found = cases.planned(invented(axes={"a": [1, 2], "b": [1, 2]}), fake)
    assert [(case.name, case.also) for case in found] == [("1/1", ()), ("1/2", ()), ("2/1", ("2/2",))]


def test_exclusions_and_cases_by_name() -> None:
    matrix = invented(axes={"a": [1, 3], "b": [False, True]}, exclude=[{"a": 3, "b": [True]}], cases={"more": {"d": 1}})
    assert [each[0] for each in cases.combinations(matrix)] == ["1/off", "1/on", "3/off", "more"]


def test_keys_go_where_the_plan_wants_them() -> None:
    matrix = invented(
        base={"variant": "plain", "tp": 2}, cases={"one": {"image": "i:1", "version": "0.5.11", "x": None}}
    )
    (_name, _labels, choices) = cases.combinations(matrix)[0]
    assert cases.overrides_of(matrix, choices, {"instance": {"name": "second"}, "settings": {"y": 1}}) == {
        "instance": {"name": "second"},
        "variant": "plain",
        "parallel": {"tp": 2},
        "engine": {"image": "i:1", "version": "0.5.11"},
        "settings": {"x": None, "y": 1},
    }


def test_variables_of_the_environment_make_cases() -> None:
    """Each value is another run; base, axes and cases are merged by variable name."""
    variable = "SGLANG_ENABLE_JIT_DEEPGEMM"
    jit = {"on": {"environment": {variable: 1}}, "off": {"environment": {variable: 0}}}
    matrix = invented(
        base={"environment": {"NCCL_DEBUG": "INFO"}}, axes={"jit": jit, "more": {"x": {"environment": {"A": "1"}}}}
    )
    told = {
        name: cases.overrides_of(matrix, choices, {"environment": {"MINE": "1"}})["environment"]
        for name, _labels, choices in cases.combinations(matrix)
    }
    rest = {"NCCL_DEBUG": "INFO", "MINE": "1", "A": "1"}
    assert told == {"on/x": {variable: 1, **rest}, "off/x": {variable: 0, **rest}}
    matrix = invented(axes={"jit": jit})
    found = cases.planned(matrix, lambda overrides: launch_plan(matrix.profile, CLUSTER, overrides))
    assert [case.also for case in found] == [(), ()] and len({case.id for case in found}) == 2
    with pytest.raises(CollectionError, match="environment"):
        invented(cases={"one": {"environment": {"A": {"B": "1"}}}})


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"axes": {"a": [1]}, "exclude": [{"b": 1}]}, "exclude.0.b: there is no such axis. Axes: a."),
        (
            {"axes": {"a": [1, True]}, "exclude": [{"a": "yes"}]},
            "exclude.0.a: 'yes' is not a value of the axis. Values: 1, on.",
        ),
    ],
)
def test_an_exclusion_that_excludes_nothing_is_refused(more: Plain, said: str) -> None:
    with pytest.raises(CollectionError, match="matrix 'x'") as error:
        invented(**more)
    assert said in str(error.value)


def test_where_nothing_would_run_the_reasons_are_told() -> None:
    with pytest.raises(CollectionError, match=r"matrix 'x': no case would run\. too many\."):
        cases.planned(invented(axes={"c": [4, 5]}), fake)


def test_what_cannot_be_planned_is_a_blocked_case() -> None:
    def planner(overrides: t.Mapping[str, t.Any]) -> Plain:
        if overrides["settings"]["a"] == 3:
            raise CollectionError("3 does not divide it.")
        return fake(overrides)

    found = cases.planned(invented(axes={"a": [3, 4]}), planner)
    assert [(case.name, case.blocked) for case in found] == [("4", ""), ("3", "3 does not divide it.")]


def test_an_estimate_orders_what_nobody_measured() -> None:
    found = cases.planned(
        invented(axes={"a": [1, 3, 5]}),
        lambda overrides: {
            **fake(overrides),
            "estimate": {1: {}}.get(a := overrides["settings"]["a"], {"n1": a, "low": {"n1": 1}}),
        },
    )
    assert [(case.name, case.promise.kind) for case in found] == [
        ("5", "estimate"),
        ("3", "estimate"),
        ("1", "unknown"),
    ]


def test_the_order_follows_what_the_plan_promises() -> None:
    """Whether measured or estimated: with the real planner, for a seed whose table has unmeasured cases."""
    found = [case for case in planned("000-glm-4.7") if not case.blocked]
    assert {case.promise.kind for case in found} == {"measured", "estimate"}
    worth = [math.prod(promised_speed(case.plan, n) or 0 for n in (1, 4, 8)) for case in found]
    assert worth == sorted(worth, reverse=True)
    assert found[0].promise.kind == "estimate"


def test_an_estimate_is_shown_with_its_interval() -> None:
    told = "\n".join(report.plan_table("x", [planned("000-glm-4.7")[0], planned("002-gemma-4-31b")[0]]))
    [told_estimate] = re.findall(r"estimate: n1 ([0-9.]+) \(([0-9.]+) to ([0-9.]+)\), n4 ", told)
    speed, low, high = map(float, told_estimate)
    assert low < speed < high
    assert "measured m" in told
    assert told.count(" to ") == 3


def test_a_row_of_eight_requests_alone_is_not_put_before_better_ones() -> None:
    promises = {1: {"n1": 50, "n8": 200}, 2: {"n8": 150}, 3: {"n1": 30, "n8": 120}}
    found = cases.planned(
        invented(axes={"a": [3, 2, 1]}), lambda told: {**fake(told), "estimate": promises[told["settings"]["a"]]}
    )
    assert [case.name for case in found] == ["1", "2", "3"]


def test_an_owners_matrix_is_found_by_id_and_by_file(tmp_path: pathlib.Path) -> None:
    entry = {
        "id": "mine",
        "title": "Mine",
        "profile": "gemma-4-31b-it",
        "axes": {"a": [1]},
        "source": ["me"],
        "verified": "inferred",
    }
    (tmp_path / "matrices").mkdir()
    place = tmp_path / "matrices" / "mine.yml"
    place.write_text(yaml.safe_dump(entry), encoding="utf-8")
    assert cases.load("mine", [str(tmp_path)]) == cases.load(str(place))
    with pytest.raises(CollectionError, match="There is no matrices entry 'none'"):
        cases.load("none", [str(tmp_path)])


@given(
    st.dictionaries(
        st.sampled_from("abc"), st.lists(st.integers(0, 6), min_size=1, max_size=3, unique=True), min_size=1
    )
)
def test_no_configuration_is_there_twice_and_none_is_lost(axes: dict[str, list[int]]) -> None:
    matrix = invented(axes=axes)
    try:
        found = cases.planned(matrix, fake)
    except CollectionError:
        assert min(axes.get("c", [0])) > 3
        return
    assert len({case.id for case in found}) == len(found)
    assert sum(1 + len(case.also) for case in found) == len(cases.combinations(matrix))
