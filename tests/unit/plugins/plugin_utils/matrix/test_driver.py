"""A matrix of 36 cases against a scripted cluster: each case gets its class, and a killed run resumes."""

from __future__ import annotations

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix import cases, driver, journal, results, rows
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix.driver import Step
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import find_profile, recommend
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.plan import launch_plan
from ansible_collections.dgxspark.cluster.tests.unit import matrix_driven
from ansible_collections.dgxspark.cluster.tests.unit.matrix_driven import Scripted

Plain = dict[str, t.Any]
KILLS = 20


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("whole")
    assert matrix_driven.run(folder) == {"measured": 36, "left": 0, "ended": "done", "message": ""}
    return folder


def events(folder: pathlib.Path) -> list[str]:
    return (folder / "events").read_text().splitlines()


def test_every_case_is_classified_right(whole: pathlib.Path) -> None:
    made = cases.planned(matrix_driven.matrix(), matrix_driven.planner)
    done = journal.outcomes(journal.read(whole))
    assert len(made) == len(done) == 36
    assert {case.name: done[case.id]["outcome"] for case in made} == {
        case.name: matrix_driven.script_of(case) for case in made
    }


def test_a_failure_shows_its_line_and_where_it_stands(whole: pathlib.Path) -> None:
    for entry in journal.outcomes(journal.read(whole)).values():
        if entry["outcome"] in matrix_driven.LINES:
            assert entry["line"] in matrix_driven.LINES[entry["outcome"]], entry
            assert entry["where"] == "serve-default-rank2-0:2"
        assert (whole / entry["evidence"]).is_dir()


def test_the_model_before_serves_again(whole: pathlib.Path) -> None:
    assert (whole / "serving").read_text() == matrix_driven.BEFORE
    assert events(whole).count("restore") == 1


def test_a_bench_is_not_repeated_where_a_level_had_no_answer_at_all(whole: pathlib.Path) -> None:
    """Each request to a server that hangs runs into its timeout: repeats would take hours, and tell nothing new."""
    names = {
        case.name: matrix_driven.script_of(case)
        for case in cases.planned(matrix_driven.matrix(), matrix_driven.planner)
    }
    benches = [names[event.split()[1]] for event in events(whole) if event.startswith("bench")]
    once = ("illegal_instruction", "worker_restarted", "hang", "watchdog")
    assert {script: benches.count(script) for script in set(benches)} == {
        "good": 8,
        "garbage": 8,
        **dict.fromkeys(once, 4),
    }


def timeless(folder: pathlib.Path) -> list[Plain]:
    """Return the journal without its times."""
    skip = ("started", "finished", "seconds")
    return [{key: value for key, value in entry.items() if key not in skip} for entry in journal.read(folder)]


@pytest.mark.more
def test_killed_at_twenty_random_points_it_comes_to_the_same_journal(
    whole: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(36)
    place = pathlib.Path(matrix_driven.__file__)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, str(place), str(tmp_path), "--slow", "0.03"]
    killed = 0
    while killed < KILLS:
        with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            # Only once it holds the lock: before that, Python is starting.
            until = time.monotonic() + 30
            while process.poll() is None and not _locks(tmp_path, process.pid) and time.monotonic() < until:
                time.sleep(0.002)
            time.sleep(chance.uniform(0, 0.12))
            process.send_signal(signal.SIGKILL)
            said = process.communicate()[0]
        assert process.returncode in (-signal.SIGKILL, 0), said
        if process.returncode == 0:
            pytest.fail(f"it was done after {killed} kills: make it slower")
        killed += 1
    subprocess.run(command[:-2], env=env, check=True)
    assert timeless(tmp_path) == timeless(whole)
    assert (tmp_path / "serving").read_text() == matrix_driven.BEFORE
    known = {path.name for path in (whole / driver.CASES).iterdir()}
    assert {path.name for path in (tmp_path / driver.CASES).iterdir()} == known
    # No finished case was started again.
    switched = [event for event in events(tmp_path) if event.startswith("switch")]
    assert len(switched) <= 36 + KILLS


def _locks(folder: pathlib.Path, pid: int) -> bool:
    try:
        return (folder / journal.LOCK).read_text() == str(pid)
    except OSError:
        return False


@pytest.mark.more
def test_a_lost_node_ends_it_and_its_case_is_measured_later(tmp_path: pathlib.Path) -> None:
    third = journal_names(tmp_path)[2]
    ended = matrix_driven.run(tmp_path, Scripted(tmp_path, lost=third))
    assert (ended["ended"], ended["measured"], ended["left"]) == ("lost", 2, 34)
    assert "spark3: lost" in ended["message"]
    assert (tmp_path / "serving").read_text() == matrix_driven.BEFORE
    assert matrix_driven.run(tmp_path)["measured"] == 34


def journal_names(_folder: pathlib.Path) -> list[str]:
    return [case.name for case in cases.planned(matrix_driven.matrix(), matrix_driven.planner)]


def test_hours_bound_it_by_what_cases_took(tmp_path: pathlib.Path) -> None:
    ended = matrix_driven.run(tmp_path, hours=30 / 3600)
    assert ended["ended"] == "time"
    assert 0 < ended["measured"] < 36
    assert ended["left"] == 36 - ended["measured"]


def test_a_case_is_expected_to_take_what_good_ones_took(tmp_path: pathlib.Path) -> None:
    made = matrix_driven.matrix()
    with journal.Journal(tmp_path) as kept:
        for number, (outcome, seconds) in enumerate([("startup_crash", 5), ("startup_crash", 6), ("garbage", 7)]):
            kept.append({"event": "case", "case": f"bad{number}", "outcome": outcome, "seconds": seconds})
        assert driver.expected_s(kept, made) == made.minutes * 60
        for number, seconds in enumerate([900, 1000, 1500]):
            kept.append({"event": "case", "case": f"good{number}", "outcome": "good", "seconds": seconds})
        assert driver.expected_s(kept, made) == 1000


def test_the_first_case_is_begun_in_however_short_a_time(tmp_path: pathlib.Path) -> None:
    for measured in (1, 2):
        ended = matrix_driven.run(tmp_path, hours=1e-9)
        assert (ended["ended"], ended["measured"], ended["left"]) == ("time", 1, 36 - measured)


def test_asked_to_stop_it_ends_after_the_case(tmp_path: pathlib.Path) -> None:
    ended = matrix_driven.run(tmp_path, stopping=lambda: len(journal.outcomes(journal.read(tmp_path))) >= 3)
    assert (ended["ended"], ended["measured"]) == ("stopped", 3)
    assert (tmp_path / "serving").read_text() == matrix_driven.BEFORE


def test_where_what_serves_cannot_be_kept_nothing_is_touched(tmp_path: pathlib.Path) -> None:
    steps = Scripted(tmp_path)
    steps.save = lambda: Step(False, "the API did not answer")  # type: ignore[method-assign]
    with pytest.raises(CollectionError, match="nothing is touched: the API did not answer"):
        matrix_driven.run(tmp_path, steps)
    assert not (tmp_path / "events").exists()


def test_a_run_that_was_killed_after_its_last_case_restores(whole: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (tmp_path / journal.NAME).write_bytes((whole / journal.NAME).read_bytes())
    (tmp_path / "before").write_text(matrix_driven.BEFORE)
    (tmp_path / "serving").write_text("a case")
    assert matrix_driven.run(tmp_path)["measured"] == 0
    assert (tmp_path / "serving").read_text() == matrix_driven.BEFORE


def test_rows_are_of_cases_that_say_something_of_the_configuration(whole: pathlib.Path) -> None:
    found = rows.rows_of(
        cases.planned(matrix_driven.matrix(), matrix_driven.planner), journal.outcomes(journal.read(whole)), "scripted"
    )
    assert len(found) == 32  # without the four whose network was not the fabric
    assert {row["verdict"] for row in found} == {"stable", "crash", "garbage"}
    good = next(row for row in found if row["verdict"] == "stable" and "note" not in row)
    assert good["platform"] == {"driver": "580.142", "kernel": "6.19.11", "nccl": "2.29.7"}
    assert set(good["measured"]) == {"n1", "n4", "n8", "wall", "ttft_ms", "requests"}
    assert good["measured"]["ttft_ms"]["n8"] == 500
    assert good["measured"]["requests"]["n8"] == {"ok": 16, "failed": 0}


def test_results_name_winners_by_both_sums_and_the_noise(whole: pathlib.Path) -> None:
    made = results.of_journal(journal.read(whole))
    assert made["counts"] == dict.fromkeys(matrix_driven.SCRIPTS, 4)
    assert set(made["winners"]) == {"single", "agents", "throughput", "mixed"}
    assert made["winners"]["mixed"]["peak"]["name"] == made["winners"]["mixed"]["wall"]["name"]
    assert made["noise"] == pytest.approx(0.007, abs=0.001)
    assert json.loads(json.dumps(made)) is not None


def test_where_the_sums_disagree_both_winners_are_named() -> None:
    def level(peak: float, wall: float) -> Plain:
        return {"verdict": "good", "peak": peak, "wall": wall, "noise": {}}

    found = [
        {"id": "a", "name": "a", "outcome": "good", "levels": {1: level(10, 8)}},
        {"id": "b", "name": "b", "outcome": "good", "levels": {1: level(9, 8.5)}},
        {"id": "c", "name": "c", "outcome": "garbage", "levels": {1: level(99, 99)}},
    ]
    made = results.winners(found)
    assert {which: won["name"] for which, won in made["single"].items()} == {"peak": "a", "wall": "b"}
    assert "mixed" not in made


def test_the_next_plan_is_proven_by_an_owners_rows(tmp_path: pathlib.Path) -> None:
    """Real planner, a shipped profile, a configuration that nobody has measured."""
    cluster = {"hosts": ["spark1", "spark2", "spark3", "spark4"]}
    matrix = cases.matrix_of(
        {**matrix_driven.ENTRY, "axes": {"chunked_prefill_size": [2048, 4096]}, "base": {"variant": "steps-6"}}
    )
    planned = cases.planned(matrix, lambda overrides: launch_plan(matrix.profile, cluster, overrides))
    assert [case.plan["verdict"] for case in planned] == ["unproven", "unproven"]
    entry = {
        "outcome": "good",
        "name": "x",
        "finished": "2026-11-24T10:00:00Z",
        "runs": [matrix_driven.report("good", 50.0, 0)],
        "line": "",
        "message": "",
        "digest": "sha256:" + "0" * 64,
    }
    made = rows.rows_of(planned, {planned[0].id: entry}, "mine")
    rows.write(tmp_path / "evidence" / "mine.yml", "evidence", {"entries": made})
    again = [launch_plan(matrix.profile, cluster, case.overrides, [str(tmp_path)]) for case in planned]
    assert [each["verdict"] for each in again] == ["proven", "unproven"]
    assert again[0]["evidence"][0]["id"] == f"mine-{planned[0].id}"
    row = f"mine-{planned[0].id}"
    assert recommend(matrix.profile, "single", [str(tmp_path)])["better"] == row
    # The winner as a variant of the owner's own profile: it is recommended, proven, and planned by its shape.
    won = rows.profile_of("mine", find_profile(matrix.profile), planned, {"single": {"peak": {"id": planned[0].id}}})
    assert won is not None
    rows.write(tmp_path / "model_profiles" / "mine.yml", "profile", won)
    found = recommend(won["id"], "single", [str(tmp_path)])
    assert (found["row"], found["verdict"], found["variant"]) == (row, "proven", won["shapes"]["single"])
    again = launch_plan(won["id"], cluster, {"variant": found["variant"]}, [str(tmp_path)])
    assert again["verdict"] == "proven"
