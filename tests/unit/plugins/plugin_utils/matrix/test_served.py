"""Every case of a matrix classified by real output: an engine's process, its log, and the bench's findings on its streams."""

from __future__ import annotations

import dataclasses
import gzip
import json
import pathlib
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix import cases, journal
from ansible_collections.dgxspark.cluster.tests.unit import matrix_driven
from ansible_collections.dgxspark.cluster.tests.unit.matrix_served import RANK, SCRIPTED, Served

Plain = dict[str, t.Any]


def came_to(folder: pathlib.Path, made: cases.Matrix, engine: str) -> dict[str, Plain]:
    """Run the matrix; return the outcomes by the case's name."""
    ended = matrix_driven.run(folder, Served(folder / "engine", engine), made)
    planned = cases.planned(made, matrix_driven.planner)
    assert (ended["measured"], ended["left"]) == (len(planned), 0)
    done = journal.outcomes(journal.read(folder))
    return {case.name: done[case.id] for case in planned}


def told(found: dict[str, Plain]) -> None:
    scripts = dict(zip(_names(), matrix_driven.SCRIPTS * 4, strict=True))
    assert {name: entry["outcome"] for name, entry in found.items()} == {name: scripts[name] for name in found}
    for name, entry in found.items():
        script = SCRIPTED[scripts[name]]
        lines = [*script.get("says", []), *script.get("last", [])]
        if lines:
            assert entry["line"] in lines, entry
            assert entry["where"].startswith(RANK)


def _names() -> list[str]:
    return [name for name, _labels, _choices in cases.combinations(matrix_driven.matrix())]


@pytest.fixture(scope="module", params=["sglang", pytest.param("vllm", marks=pytest.mark.long)])
def nine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[pathlib.Path, dict[str, Plain]]:
    """One case of each script, by its name."""
    folder = tmp_path_factory.mktemp(request.param)
    whole = matrix_driven.matrix()
    named = {name: choices for name, _labels, choices in cases.combinations(whole)[: len(matrix_driven.SCRIPTS)]}
    return folder, came_to(folder, dataclasses.replace(whole, axes={}, cases=named, repeats=1), request.param)


@pytest.mark.more
def test_each_kind_of_end_is_told_apart(nine: tuple[pathlib.Path, dict[str, Plain]]) -> None:
    told(nine[1])


def test_what_was_answered_before_the_fault_has_its_speed(nine: tuple[pathlib.Path, dict[str, Plain]]) -> None:
    for entry in nine[1].values():
        if entry["stage"] is None:
            first, four = entry["runs"][0]["workloads"][0]["levels"]
            assert first["verdict"] == "good", entry
            assert first["figures"]["peak_tokens_per_s"] > 0
            assert four["verdict"] == {"good": "good", "garbage": "garbage"}.get(entry["outcome"], "failed")


def test_every_answer_is_kept(nine: tuple[pathlib.Path, dict[str, Plain]]) -> None:
    folder, found = nine
    for entry in found.values():
        if entry["outcome"] in ("good", "garbage"):
            with gzip.open(folder / entry["evidence"] / "answers-1" / "short-n4.jsonl.gz", "rt") as file:
                texts = [json.loads(line)["content"] for line in file]
            assert len(texts) == 4
            assert all(("!!!!" in text) == (entry["outcome"] == "garbage") for text in texts)


@pytest.mark.long
def test_thirty_six_cases(tmp_path: pathlib.Path) -> None:
    found = came_to(tmp_path, matrix_driven.matrix(), "sglang")
    assert len(found) == 36
    told(found)
