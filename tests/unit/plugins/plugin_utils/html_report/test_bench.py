"""The page of a benchmark's report: its tables, another tool's figures beside them, and a report that is damaged."""

from __future__ import annotations

import json
import pathlib
import typing as t

import jsonschema
import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench import crosscheck
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench import report as form
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.html_report.bench import page
from ansible_collections.dgxspark.cluster.tests.unit.bench_reports import BESIDE, LEVEL, REPORT, level

SCHEMA = json.loads((pathlib.Path(__file__).parents[5] / "docs" / "schema" / "bench-report.json").read_text("utf-8"))


def test_what_it_means_stands_first_and_then_the_speed_over_requests_at_once() -> None:
    levels = [level(1, 40.0), level(4, 120.0), level(8, 160.0), level(16, 20.0, "garbage")]
    report = {**REPORT, "answer": ["One user gets 40 tokens/s."], "workloads": [{"name": "chat", "levels": levels}]}
    jsonschema.Draft202012Validator(SCHEMA).validate(report)
    shown = page(report).replace("\xa0", " ")
    assert shown.index("One user gets 40") < shown.index("<svg") < shown.index("<table")
    assert shown.count("<svg") == 4, "two charts, each for a phone and a desk"
    for words in ("n=8: 160.0 tok/s, good", "n=8: 20.0 tok/s, good", "n=16: 20.0 tok/s, garbage"):
        assert words in shown
    line = shown.split("<polyline")[1].split("points=")[1].split('"')[1]
    assert len(line.split()) == 3, "what is garbage is no part of the line"


def test_one_number_of_requests_makes_no_chart() -> None:
    for levels in ([level(1, 40.0)], [level(1, 40.0), level(4, None, "failed")]):
        assert "<svg" not in page({**REPORT, "workloads": [{"name": "chat", "levels": levels}]})


def test_another_tools_figures_are_on_the_page_as_the_terminal_has_them() -> None:
    report = {**REPORT, "crosscheck": BESIDE}
    jsonschema.Draft202012Validator(SCHEMA).validate(report)
    shown = page(report)
    assert "<h2>llama-benchy 0.4.0 on its own prompts</h2>" in shown
    assert "<code>--model &lt;Model&gt;</code>" in shown
    assert '<tr><th scope="row">4</th><td>123</td><td>31.5</td><td>3</td></tr>' in shown, (
        "no column of what it never measured"
    )
    assert "   4 at once: 123 tokens/s, 31.5 each, first token after - ms, 3 values" in form.table(report)


def test_what_it_measured_at_depth_is_shown_with_the_depth() -> None:
    result = {
        "version": "0.4.0",
        "benchmarks": [
            {"concurrency": 2, "context_size": 4096, "is_context_prefill_phase": True, "pp_throughput": {"mean": 1.0}},
            {
                "concurrency": 2,
                "context_size": 4096,
                "tg_throughput": {"mean": 50.0, "values": [49.0, 51.0]},
                "pp_throughput": {"mean": 2400.0},
            },
        ],
    }
    beside = {**BESIDE, "levels": crosscheck.rows(result), "result": result}
    report = {**REPORT, "mode": "arena", "crosscheck": beside}
    jsonschema.Draft202012Validator(SCHEMA).validate(report)
    shown = page(report)
    assert "<td>2</td><td>4096</td><td>2400</td></tr>" in shown and "prompt tokens/s" in shown
    assert any("4096 tokens of context, 2400 prompt tokens/s" in line for line in form.table(report))


def test_without_another_tool_there_is_the_models_own_table_alone() -> None:
    shown = page(REPORT)
    assert "<h1>Good</h1>" in shown and 'class="ok">good</td>' in shown
    assert shown.count("<table") == 1 and "acme/&lt;Model&gt;" in shown
    assert "a pod of the cluster" in shown and "asked from a pod of the cluster" in form.table(REPORT)[0]
    here = {**REPORT, "from": "controller"}
    assert "the controller" in page(here) and "asked from" not in form.table(here)[0]
    problem = {**BESIDE, "levels": [], "problem": "llama-benchy did not end."}
    shown = page({**REPORT, "crosscheck": problem})
    assert "llama-benchy did not end." in shown and shown.count("<table") == 1


def test_what_figures_leave_open_is_said_on_the_page_and_in_the_terminal() -> None:
    assert form.notes({"levels": [LEVEL]}) == []
    figures = {**LEVEL["figures"], "tokens_are_counted": False}
    silent = {**LEVEL, "figures": figures, "requests": [{"figures": {"itl_is_spread": False}}]}
    spread = {**LEVEL, "n": 8, "requests": [{"figures": {"itl_is_spread": True}}]}
    report = {**REPORT, "workloads": [{"name": "chat", "levels": [silent, spread]}]}
    shown = page(report)
    for words in (
        "1 at once: the server does not report its tokens, so chunks were counted.",
        "8 at once: chunks held several tokens and the server did not say how many each.",
    ):
        assert words in shown
        assert any(line.startswith(f"chat, {words}") for line in form.table(report))


@pytest.mark.parametrize(
    "damage", [{"workloads": None}, {"engine": {}}, {"workloads": [{"name": "chat", "levels": [{}]}]}]
)
def test_a_damaged_report_is_one_sentence(damage: dict[str, t.Any]) -> None:
    with pytest.raises(CollectionError, match=r"the report is damaged: .* docs/schema/bench-report\.json"):
        page({**REPORT, **damage})
