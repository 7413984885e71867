"""What a playbook notes for the program that started it."""

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import outcome
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.outcome import Outcome


def noted(tmp_path: pathlib.Path, *events: outcome.Plain) -> pathlib.Path:
    for event in events:
        outcome.note(tmp_path / "noted", event)
    return tmp_path / "noted"


def test_the_last_failure_says_why_and_any_wait_in_vain_counts(tmp_path: pathlib.Path) -> None:
    waited = {"msg": "Task failed: dgxspark.cluster.kube_wait: default is not\nready.", "timed_out": True}
    place = noted(
        tmp_path,
        outcome.failure("unreachable", "spark3", {"msg": "no answer"}),
        outcome.failure("failed", "spark1", waited),
        outcome.failure("failed", "spark1", {"msg": "it is not serving"}),
        {"event": "stats", "stats": {outcome.LOST: ["spark3", "spark4"]}},
    )
    assert outcome.read(place) == Outcome("it is not serving", ("spark3", "spark4"), True)
    assert outcome.failure("failed", "spark1", waited)["why"] == "default is not ready."


def test_old_ranks_that_stay_are_no_wait_for_the_new_ones(tmp_path: pathlib.Path) -> None:
    stayed = {"msg": "default is not gone after 120 s.", "not_gone": True}
    found = outcome.read(noted(tmp_path, outcome.failure("failed", "spark1", stayed)))
    assert found == Outcome("default is not gone after 120 s.", not_gone=True)


def test_a_run_that_was_killed_leaves_what_it_had_noted(tmp_path: pathlib.Path) -> None:
    place = noted(tmp_path, outcome.failure("failed", "spark1", {"msg": "why"}))
    with place.open("a") as file:
        file.write('{"event": "fai')
    assert outcome.read(place) == Outcome("why")
    assert outcome.read(tmp_path / "none") == Outcome()


def test_the_owners_callbacks_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcome.constants, "CALLBACKS_ENABLED", ["ansible.posix.timer", outcome.CALLBACK])
    made = outcome.environment(pathlib.Path("/x"))
    assert made["ANSIBLE_CALLBACKS_ENABLED"] == f"ansible.posix.timer,{outcome.CALLBACK}"
