"""tools/refresh.py against a stand-in of the package index and of GitHub: what is newer, what is touched, what was not looked at."""

from __future__ import annotations

import json
import pathlib
import runpy
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.tests.support.http_answers import Answering, served

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = runpy.run_path(str(ROOT / "tools" / "refresh.py"))
FILE = [{"yanked": False}]
RELEASES = {
    "0.33.0": FILE, "0.34.0": FILE, "0.34.0rc1": FILE, "0.35.0": [{"yanked": True}], "0.36.0": [], "0.2.0": FILE, "x": FILE,
}  # fmt: skip
LOOKED: dict[str, t.Any] = {
    "packages": {"vllm": {"engine": "vllm", "touches": "tables"}, "sglang": {"engine": "sglang", "touches": "tables"}},
    "releases": {
        "up/multus": {"component": "multus", "touches": "digests"},
        "up/gone": {"component": "multus", "touches": "x"},
    },
    "recipes": ["up/recipes"],
}


class Answers(Answering):
    def do_GET(self) -> None:
        known: dict[str, t.Any] = {
            "/vllm/json": {"releases": RELEASES},
            "/sglang/json": {"releases": []},
            "/up/multus/releases/latest": {"tag_name": "v99.1\x1b[2J"},
            "/up/recipes/commits?per_page=1": [
                {"sha": "a" * 40, "commit": {"committer": {"date": "2026-11-20T00:00:00Z"}}}
            ],
        }
        self.answer(200 if self.path in known else 404, json.dumps(known.get(self.path)).encode())


@pytest.fixture(scope="module")
def report() -> t.Iterator[str]:
    with served(Answers) as url:
        yield TOOL["report"](TOOL["Asked"](url, url), LOOKED)


def test_only_final_releases_with_files_that_are_newer_than_the_oldest_table_count() -> None:
    assert TOOL["finals"](RELEASES) == ["0.2.0", "0.33.0", "0.34.0"]
    assert TOOL["without_table"]("vllm", TOOL["finals"](RELEASES)) == ["0.34.0"]


def test_a_new_release_is_named_with_what_it_touches(report: str) -> None:
    assert "vllm: newest release 0.34.0" in report and "without a table: 0.34.0" in report
    assert "profiles claim ranges without 0.34.0" in report
    assert "up/multus: v99.1" in report and "\x1b" not in report
    assert "up/recipes: newest commit aaaaaaaaaa of 2026-11-20" in report


def test_what_was_not_reached_is_said(report: str) -> None:
    assert "## Not looked at" in report and "- up/gone: " in report.partition("## Not looked at")[2]


def test_only_kinds_all_of_whose_sources_were_reached_are_dated() -> None:
    asked = TOOL["Asked"]("x", "x")
    asked.unreached["up/gone"] = "no answer"
    kinds = TOOL["reached"](asked, {"dates": {"engines": ["vllm"], "platform": ["up/multus", "up/gone"]}})
    assert kinds == ["engines"]
    held = TOOL["LOOKS"].read_text(encoding="utf-8")
    made = TOOL["dated"](held, kinds, "2099-01-01")
    assert made.count("2099-01-01") == 1 and TOOL["dated"](made, [], "x") == made
    newer = TOOL["yaml"].safe_load(TOOL["dated"](held, ["versions"], "2099-01-01", {"kernel": "9.0.0"}))["entries"]
    assert [e["newest"]["kernel"] for e in newer if e["id"] == "versions"] == ["9.0.0"]
    with pytest.raises(SystemExit, match="nothing-of-ours"):
        TOOL["dated"](held, ["nothing-of-ours"], "2099-01-01")
    with pytest.raises(TOOL["CollectionError"], match="looked"):
        TOOL["dated"](held, ["versions"], "soon")


def test_the_report_says_when_each_kind_was_last_looked_at(report: str) -> None:
    said = report.partition("## Last looks before this one")[2]
    assert all(kind in said for kind in TOOL["knowledge"].load("looks"))


def test_what_is_looked_at_exists() -> None:
    looked = TOOL["yaml"].safe_load((ROOT / "tools" / "refresh.yml").read_text(encoding="utf-8"))
    named = {*looked["packages"], *looked["releases"]}
    by_refresh = {kind for kind, entry in TOOL["knowledge"].load("looks").items() if entry["by"] == "refresh"}
    assert by_refresh == set(looked["dates"]) and all(set(each) <= named for each in looked["dates"].values())
    for entry in looked["packages"].values():
        if "known" in entry:
            assert (ROOT / entry["known"].partition(": ")[0]).exists()
