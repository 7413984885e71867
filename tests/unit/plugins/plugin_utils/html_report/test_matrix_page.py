from __future__ import annotations

import html.parser
import pathlib

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.html_report import charts, matrix_page
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix import cases, journal, report, results
from ansible_collections.dgxspark.cluster.tests.unit import matrix_driven

SHIPPED = sorted(knowledge.load(cases.KIND))


class Reader(html.parser.HTMLParser):
    """What is on the page: the rows of each table by its class, the text, and what it would fetch or run."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.fetched: list[str] = []
        self.words: list[str] = []
        self._goes_on = False  # a <wbr> ends no word
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._goes_on = tag == "wbr"
        given = dict(attrs)
        self.fetched += [str(given[name]) for name in ("src", "data") if name in given]
        self.fetched += [str(given["href"])] if str(given.get("href", "")).startswith(("http", "//")) else []

    def handle_data(self, data: str) -> None:
        said = " ".join(data.split())
        if self._goes_on:
            self.words[-1] += said
        else:
            self.words.append(said)
        self._goes_on = False


@pytest.mark.parametrize("name", SHIPPED)
def test_a_seeds_table_is_a_page_of_itself(name: str) -> None:
    made = results.of_rows(cases.load(name))
    page = Reader(matrix_page.page(made))
    assert not {"script", "link", "img", "iframe"} & set(page.tags)
    assert page.fetched == []
    text = set(page.words)
    assert {case["name"] for case in made["cases"]} <= text
    assert set(report.winner_lines(made)) <= text
    shapes = len(made["winners"])
    assert page.tags.count("table") == shapes + 1 + bool([c for c in made["cases"] if c["outcome"] != "good"])
    log = report.markdown(made)
    assert all(line in log.replace("\\", "") for line in report.winner_lines(made))


def test_a_log_that_says_no_more_than_the_outcome_is_no_line_of_it() -> None:
    made = results.of_rows(cases.load("000-glm-4.7"))
    lines = {case["line"] for case in made["cases"] if case["outcome"] != "good"}
    assert lines == {""}, "startup_crash, worker_restart and bench_crash are the outcome again"
    assert report.counted(made) == "20 good, 13 start-up crashes, 3 worker restarted, 2 crashes"
    page = matrix_page.page(made)
    assert page.count("its log has no line of it") == 3, "once for each outcome"
    assert "startup_crash" not in page and "bench_crash" not in page
    assert "this speed does not count" not in page
    assert "this speed does not count" in matrix_page.page(results.of_rows(cases.load("004-nemotron-3-super")))
    said = results.of_rows(cases.load("000-qwen3.5-397b-ep4"))
    assert any("garbage @ n=8" in case["line"] for case in said["cases"]), "what tells more stays"
    assert not any(mark in case["line"] for case in said["cases"] for mark in "\u274c\u2020\u2021")


@pytest.mark.parametrize(
    ("name", "shape", "winner"),
    [
        ("000-qwen3.5-397b-ep1", "throughput", "mtp-cutlass"),
        ("000-qwen3.5-397b-ep4", "throughput", "triton/flashinfer/flashinfer_cutlass/piecewise"),
        ("000-glm-4.7", "single", "mtp-triton"),
        ("000-glm-4.7", "throughput", "mtp-cutlass"),
        ("002-gemma-4-31b", "single", "steps-6"),
        ("002-gemma-4-31b", "throughput", "steps-4"),
        ("004-nemotron-3-super", "throughput", "ep4-09"),
    ],
)
def test_the_seeds_winners_win(name: str, shape: str, winner: str) -> None:
    assert results.of_rows(cases.load(name))["winners"][shape]["peak"]["name"] == winner


def test_a_measured_matrix_shows_every_case_and_the_line_of_its_failure(tmp_path: pathlib.Path) -> None:
    matrix_driven.run(tmp_path)
    made = results.of_journal(journal.read(tmp_path))
    page = matrix_page.page(made)
    for line in ("is not available", "Not enough memory", "an illegal instruction was encountered", "watchdog timeout"):
        assert line in page or line == "is not available"
    for case in made["cases"]:
        assert f'href="{case["evidence"]}/"' in page
        assert (tmp_path / case["evidence"]).is_dir()
    assert "Noise of repeats" in page


def test_what_a_server_said_is_shown_as_text(tmp_path: pathlib.Path) -> None:
    matrix_driven.run(tmp_path)
    made = results.of_journal(journal.read(tmp_path))
    made["cases"][3] |= {"line": "<script>alert(1)</script> | `x`", "outcome": "startup_crash"}
    assert "<script>" not in matrix_page.page(made)
    assert "<script>" not in report.markdown(made)


def test_the_frontier_is_what_nothing_surpasses() -> None:
    points = [charts.Point(x, y, "") for x, y in ((1, 9), (2, 8), (2, 7), (3, 3), (1, 8), (4, 1))]
    assert [(p.x, p.y) for p in charts.frontier(points)] == [(1, 9), (2, 8), (3, 3), (4, 1)]


@pytest.mark.parametrize(("most", "last"), [(0, 1), (0.9, 1), (7, 8), (153, 200), (98, 100)])
def test_scales_are_round_and_reach_beyond(most: float, last: float) -> None:
    assert charts.ticks(most)[-1] == pytest.approx(last)


def test_anything_else_is_refused() -> None:
    with pytest.raises(CollectionError, match="this is not a matrix's result"):
        matrix_page.page({"cases": [{}]})
