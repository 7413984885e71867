from __future__ import annotations

import copy
import math
import pathlib
import random
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.html_report import matrix_page
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix import compare, journal, report, results
from ansible_collections.dgxspark.cluster.tests.unit import matrix_driven

Plain = dict[str, t.Any]


@pytest.fixture(scope="module")
def entries(tmp_path_factory: pytest.TempPathFactory) -> list[Plain]:
    folder = tmp_path_factory.mktemp("whole")
    matrix_driven.run(folder)
    return journal.read(folder)


def slower(entries: list[Plain], name: str, factor: float) -> list[Plain]:
    """Return the journal with one case's speed at n=4 changed."""
    made = copy.deepcopy(entries)
    for entry in made:
        if entry.get("name") == name:
            for run in entry["runs"]:
                run["workloads"][0]["levels"][1]["figures"]["peak_tokens_per_s"] *= factor
    return made


def good(entries: list[Plain]) -> str:
    return next(str(entry["name"]) for entry in entries if entry.get("outcome") == "good")


def test_a_log_beside_itself_differs_in_nothing(entries: list[Plain]) -> None:
    made = results.of_journal(entries)
    compared = compare.compare(made, made)
    assert compared["rows"]
    assert {row["verdict"] for row in compared["rows"]} == {"same"}
    assert compare.table(compared)[0].startswith("Engine, image and platform are the same")


@pytest.mark.parametrize(("factor", "verdict"), [(0.9, "slower"), (1.1, "faster"), (0.99, "same")])
def test_what_moved_beyond_the_noise_is_told(entries: list[Plain], factor: float, verdict: str) -> None:
    name = good(entries)
    compared = compare.compare(results.of_journal(entries), results.of_journal(slower(entries, name, factor)))
    row = next(row for row in compared["rows"] if (row["case"], row["n"], row["sum"]) == (name, 4, "peak"))
    assert (row["verdict"], row["change"]) == (verdict, pytest.approx(factor - 1))
    assert 0 < row["noise"] < 0.02  # the repeats differ by one per cent
    told = [line for line in compare.table(compared) if line.startswith(verdict.upper())]
    assert len(told) == (verdict != "same")


def test_what_broke_and_what_runs_on_another_version_is_told(entries: list[Plain]) -> None:
    name = good(entries)
    later = copy.deepcopy(entries)
    later[0]["engine"]["version"] = "0.5.12"
    entry = next(each for each in later if each.get("name") == name)
    entry |= {"outcome": "startup_crash", "line": "KeyError: 'x'", "runs": []}
    made = compare.table(compare.compare(results.of_journal(entries), results.of_journal(later)))
    assert made[0] == "engine: 0.5.11 -> 0.5.12"
    assert made[1] == f"NO LONGER PASSES  {name}: good -> start-up crash: KeyError: 'x'"


def of_level(entries: list[Plain], name: str, made: Plain | None) -> Plain:
    """Return the results with one case's level of 8 requests replaced, or removed, in every run."""
    later = copy.deepcopy(entries)
    for run in next(each for each in later if each.get("name") == name)["runs"]:
        run["workloads"][0]["levels"][2:] = [] if made is None else [made]
    return results.of_journal(later)


@pytest.mark.parametrize(
    ("level", "said"),
    [
        (matrix_driven.level(8, "failed", 0, 0.0, **{"tokens.refused": 8}), "16 of 16 requests failed"),
        (matrix_driven.level(8, "failed", 7, 34.0, **{"tokens.refused": 1}), "2 of 16 requests failed"),
        (matrix_driven.level(8, "garbage", 0, 34.0), "garbage"),
        (None, "not measured"),
    ],
)
def test_a_level_that_comes_through_worse_is_broken(entries: list[Plain], level: Plain | None, said: str) -> None:
    name = good(entries)
    made, later = results.of_journal(entries), of_level(entries, name, level)
    compared = compare.compare(made, later)
    assert [(each["case"], each["n"]) for each in compared["broken"]] == [(name, 8)]
    assert f"NO LONGER PASSES  {name}, chat, n=8: good -> {said}" in compare.table(compared)
    assert compare.compare(later, made)["broken"] == []
    assert compare.compare(later, later)["broken"] == []


@pytest.mark.parametrize("planned", [False, True])
def test_a_case_that_vanished_is_broken_where_it_passed(entries: list[Plain], planned: bool) -> None:
    names = [good(entries), next(str(each["name"]) for each in entries if each.get("outcome") == "startup_crash")]
    later = [each for each in copy.deepcopy(entries) if each.get("name") not in names]
    if not planned:
        later[0]["cases"] = [case for case in later[0]["cases"] if case["name"] not in names]
    compared = compare.compare(results.of_journal(entries), results.of_journal(later))
    assert [each["case"] for each in compared["broken"]] == names[:1]
    assert any(f"NO LONGER PASSES  {names[0]}: good -> not measured yet" in line for line in compare.table(compared))


def results_of(chance: random.Random, repeats: int, factor: float = 1.0) -> Plain:
    """Return results of six figures by both sums, with a noise of three per cent."""
    runs = []
    for _run in range(repeats):
        levels = [matrix_driven.level(n, "good", n, 10.0 * n) for n in (1, 2, 4, 8, 16, 32)]
        for level in levels:
            for which in ("peak_tokens_per_s", "wall_tokens_per_s"):
                level["figures"][which] *= factor * chance.gauss(1, 0.03)
        runs.append({"workloads": [{"name": "chat", "levels": levels}], "acceptance": None})
    plan = {"id": "a", "name": "a", "labels": {}, "also": [], "blocked": "", "promise": {}, "memory": {}}
    head = dict.fromkeys(("matrix", "title", "profile", "model", "repeats", "source"), "") | {"engine": {}}
    said = dict.fromkeys(("message", "line", "where", "cause", "remedy", "evidence", "started", "finished"), "")
    case = {"event": "case", "case": "a", "outcome": "good", "seconds": 1, "runs": runs, **said}
    return results.of_journal([{"event": "plan", "cases": [plan], **head}, case])


def test_where_nothing_changed_nothing_is_slower() -> None:
    chance = random.Random(7)
    alarms = 0
    for _each in range(400):
        rows = compare.compare(results_of(chance, 2), results_of(chance, 2))["rows"]
        assert len(rows) == 12
        alarms += any(row["verdict"] != "same" for row in rows)
    assert alarms < 0.05 * 400


def test_a_loss_of_fifteen_per_cent_is_found() -> None:
    chance = random.Random(8)
    compared = [compare.compare(results_of(chance, 3), results_of(chance, 3, 0.85)) for _each in range(100)]
    rows = [row for each in compared for row in each["rows"]]
    assert sum(row["verdict"] == "slower" for row in rows) > 0.98 * len(rows)


@pytest.mark.parametrize("freedom", range(1, 31))
def test_the_table_of_t_is_students(freedom: int) -> None:
    """With t = sqrt(f) tan(a) the density is cos(a)^(f-1), integrated by Simpson's rule."""
    end, steps = math.atan(compare._T99[freedom - 1] / math.sqrt(freedom)), 400
    weights = [1, *[4, 2] * (steps // 2 - 1), 4, 1]
    inner = sum(w * math.cos(end * i / steps) ** (freedom - 1) for i, w in enumerate(weights)) * end / steps / 3
    whole = math.sqrt(math.pi) * math.gamma(freedom / 2) / math.gamma((freedom + 1) / 2) / 2
    assert inner / whole == pytest.approx(0.99, abs=2e-5)


def with_long(entries: list[Plain], *levels: Plain, first: bool = False) -> Plain:
    """Return the results with the workload `long` added to one case, after the other one or before it."""
    later = copy.deepcopy(entries)
    for run in next(each for each in later if each.get("name") == good(entries))["runs"]:
        run["workloads"].insert(0 if first else 1, {"name": "long", "levels": list(levels)})
    return results.of_journal(later)


def test_the_log_and_the_page_show_every_workload(entries: list[Plain]) -> None:
    made = with_long(entries, matrix_driven.level(4, "good", 4, 77.0))
    lines = report.markdown(made).splitlines()
    place = lines.index("### Workload long")
    assert lines[place + 2] == "| case | n=4 tok/s |"
    assert lines[place + 4].endswith("| 77.0/69.3 |")
    page = matrix_page.page(made)
    shown = page[page.index("<h2>Workload long</h2>") :]
    assert good(entries) in shown
    assert "77.0/69.3" in shown
    assert "Workload chat." in page
    for text in (report.markdown(results.of_journal(entries)), matrix_page.page(results.of_journal(entries))):
        assert "Workload" not in text


def test_every_workload_is_compared_with_itself(entries: list[Plain]) -> None:
    name = good(entries)
    before = with_long(entries, matrix_driven.level(4, "good", 4, 77.0))
    after = with_long(entries, matrix_driven.level(4, "good", 4, 50.0), first=True)
    compared = compare.compare(before, after)
    moved = [row for row in compared["rows"] if row["verdict"] != "same"]
    assert {(row["case"], row["workload"], row["n"]) for row in moved} == {(name, "long", 4)}
    assert compared["broken"] == []
    assert any(line.startswith(f"SLOWER  {name}, long, n=4, peak: 77.0 -> 50.0") for line in compare.table(compared))
    (gone,) = compare.compare(before, results.of_journal(entries))["broken"]
    assert (gone["case"], gone["workload"], gone["n"], gone["after"]) == (name, "long", 4, "not measured")


def test_the_seeds_tables_lie_beside_each_other() -> None:
    """EP 1 and EP 4 of one model: seed 000 says that EP 4 is 3 to 7 % slower at n = 8."""
    made = compare.matrix_compare("000-qwen3.5-397b-ep1", "000-qwen3.5-397b-ep4")
    at_eight = [row["change"] for row in made["rows"] if row["n"] == 8]
    assert at_eight
    assert -0.1 < sum(at_eight) / len(at_eight) < 0
    assert made["only"]["before"] == ["mtp-triton", "mtp-cutlass"]


def test_what_is_no_log_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(CollectionError, match="there is no such folder or journal, and no matrix of that id"):
        compare.load(str(tmp_path / "none"))
