"""The controller's side of taking turns: what this run is, and how long it waits for another."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import time
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric import turns

Plain = dict[str, t.Any]


def test_a_run_is_the_same_in_each_of_its_tasks_and_as_old_as_its_process() -> None:
    first = turns.this_run()
    time.sleep(0.05)
    second = turns.this_run()
    assert [first[key] for key in ("id", "controller", "by")] == [second[key] for key in ("id", "controller", "by")]
    assert abs(first["started"] - second["started"]) < 0.05 and second["age"] > first["age"] > 0
    assert f"process {os.getppid()}" in first["by"]


@pytest.mark.skipif(not pathlib.Path("/proc/self/stat").exists(), reason="not run: no /proc here")
def test_a_process_whose_name_is_made_to_mislead_has_its_own_age(tmp_path: pathlib.Path) -> None:
    program = tmp_path / "a) S 1 (b"
    program.symlink_to(sys.executable)
    with subprocess.Popen([program, "-c", "import time; time.sleep(60)"]) as process:
        age, boot = turns._age(process.pid)
        process.kill()
    assert 0 <= age < 30 and boot


def test_without_proc_there_is_still_an_age() -> None:
    assert turns._age(2**30) == (pytest.approx(time.monotonic() - turns._IMPORTED, abs=1), "")


def test_another_run_that_never_ends_is_named_and_nothing_was_changed() -> None:
    now = [0.0]
    shown: list[str] = []

    def call(_waited: Plain | None) -> Plain:
        now[0] += 10
        return {"changed": False, "waiting": {"who": "the run of Alice"}}

    answer = turns.in_turn(call, shown.append, 60, lambda: now[0])
    assert answer["failed"] and "the run of Alice" in answer["msg"] and "Nothing was changed" in answer["msg"]
    assert shown == ["This run waits for another one: the run of Alice."] and now[0] <= 80


def test_a_failure_is_passed_on_at_once() -> None:
    answer = {"failed": True, "msg": "no", "waiting": {"who": "x"}}
    assert turns.in_turn(lambda _waited: answer, lambda _text: None) == answer
