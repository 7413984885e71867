from __future__ import annotations

import copy
import pathlib
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix import compare, journal, results
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


def test_the_seeds_tables_lie_beside_each_other() -> None:
    """EP 1 and EP 4 of one model: seed 000 says that EP 4 loses 3 to 7 % at n = 8."""
    made = compare.matrix_compare("000-qwen3.5-397b-ep1", "000-qwen3.5-397b-ep4")
    at_eight = [row["change"] for row in made["rows"] if row["n"] == 8]
    assert at_eight
    assert -0.1 < sum(at_eight) / len(at_eight) < 0
    assert made["only"]["before"] == ["mtp-triton", "mtp-cutlass"]


def test_what_is_no_log_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(CollectionError, match="there is no such folder or journal, and no matrix of that id"):
        compare.load(str(tmp_path / "none"))
