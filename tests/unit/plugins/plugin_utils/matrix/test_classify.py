"""What a case came to, where the logs' known lines say nothing."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import signatures
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix import classify
from ansible_collections.dgxspark.cluster.tests.unit import matrix_driven

Plain = dict[str, t.Any]


def outcome(**ended: t.Any) -> classify.Outcome:
    return classify.classify(classify.Ended(**ended), signatures.load_table(), {})


@pytest.mark.parametrize(
    "line",
    [
        "ImportError: no module named 'fast_kernels', falling back to the slow ones",
        "[2026-11-25 10:00:00] WARNING utils.py:7: ImportError: no module named 'fast_kernels'",
        "RuntimeError: no such counter; ignored",
    ],
)
def test_a_fault_that_the_engine_has_dealt_with_is_no_crash(line: str) -> None:
    logs = {"rank0": f"loading\n{line}\nstill loading\n"}
    found = outcome(stage="switch", message="not ready in 900 s", timed_out=True, logs=logs)
    assert (found.cls, found.line) == ("hang", "still loading")


def test_a_fault_that_ended_the_engine_is_a_crash_though_another_was_dealt_with() -> None:
    text = "ImportError: no x, falling back to y\nImportError: no y\nKeyError: ignored by nobody, falling back\n"
    found = outcome(stage="switch", message="ended", logs={"rank0": text})
    assert (found.cls, found.line) == ("startup_crash", "ImportError: no y")


def test_a_rank_that_was_asked_to_end_shows_no_fault_of_its_own() -> None:
    stopped = "loading\nsupervisor: rank 0: stopped by SIGTERM.\n"
    logs = {"rank0": stopped, "rank1": "loading\nValueError: no such backend\n"}
    found = outcome(stage="switch", message="ended", logs=logs)
    assert (found.cls, found.where, found.line) == ("startup_crash", "rank1:2", "ValueError: no such backend")
    found = outcome(stage="switch", message="not ready in 900 s", timed_out=True, logs={"rank0": stopped})
    assert found.cls == "hang"


def level(ok: int, **causes: int) -> Plain:
    return {"workloads": [{"name": "chat", "levels": [matrix_driven.level(8, "failed", ok, 10.0, **causes)]}]}


@pytest.mark.parametrize(
    ("ok", "causes", "cls"),
    [
        (0, {"tokens.hang": 8}, "hang"),
        (3, {"tokens.hang": 5}, "hang"),
        (2, {"tokens.hang": 5, "tokens.refused": 1}, "hang"),
        (7, {"tokens.hang": 1}, "requests_failed"),
        (3, {"tokens.refused": 5}, "requests_failed"),
    ],
)
def test_where_most_requests_hang_it_is_a_hang(ok: int, causes: dict[str, int], cls: str) -> None:
    assert outcome(stage=None, report=level(ok, **causes)).cls == cls
