"""A value that cannot be is refused before anything runs, by the name of the variable that the owner typed."""

from __future__ import annotations

import pathlib
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


FILES = ("dgxspark_models_file", "dgxspark_plan_file", "dgxspark_top_file")


@pytest.mark.parametrize("name", [*FILES, "dgxspark_report_file"])
def test_a_file_that_cannot_be_written_is_refused_before_the_work(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("x", encoding="utf-8")
    for value in ("page.html", str(tmp_path / "page.html"), "file"):
        assert judge({name: value}) == []
    for value, said in (
        (".", f"{tmp_path} is a folder. Name a file in it."),
        ("file/page.html", f"{tmp_path}/file is no folder"),
        ("", "'' is not a path"),
        (7, "7 is not a path"),
        ("x" * 5000 + "/y", "no folder" if name in FILES else ""),
    ):
        assert [found for found in judge({name: value}) if said in str(found)] or not said
    monkeypatch.setattr(run_values.os, "access", lambda *_: False)
    [found] = judge({name: "page.html"})
    assert str(found) == f"{name}: no file can be written in {tmp_path}, by this user. Name another path."


@pytest.mark.parametrize("name", FILES)
def test_a_folder_that_is_not_there_is_told_with_what_makes_it(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    [found] = judge({name: "my pages/page.html"})
    assert found.remedy == f"Make it first: mkdir -p '{tmp_path}/my pages'"
    assert judge({"dgxspark_report_file": "reports/x.json"}) == [], "the playbooks make this one"
