"""Runs that are cut off at random moments against a real systemd and netplan: the last one to be started stands."""

from __future__ import annotations

import os
import pathlib
import runpy
import shutil

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BENCHMARK = runpy.run_path(str(ROOT / "benchmarks" / "interrupted_runs.py"))
GONE = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  -\n"  # no file


@pytest.mark.parametrize(
    ("state", "final", "wrong"),
    [
        ("aa  -\n192.0.2.7/24\n\n", 7, []),
        (GONE + "\n\n", 0, []),
        ("aa  -\n192.0.2.8/24\n\n", 7, ["the interface has 192.0.2.8/24"]),
        ("bb  -\n192.0.2.7/24\n\n", 7, ["the file has changed after the end"]),
        (
            GONE + "\n\n",
            7,
            ["the interface has no address", "the file has changed after the end", "the file is not the last run's"],
        ),
        ("aa  -\n192.0.2.7/24\n0a1b\n", 7, ["a change is pending"]),
    ],
)
def test_what_was_seen_after_the_end_is_judged(state: str, final: int, wrong: list[str]) -> None:
    assert BENCHMARK["judged"](state, final, ("aa  -" if final else GONE.strip()) + "\n\n\n") == wrong


@pytest.mark.long
@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("mmdebstrap"), reason="not run: needs root and the lab's image"
)
def test_after_any_moment_the_last_run_stands_and_nothing_changes(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(BENCHMARK["main"].__globals__, "RESULT", tmp_path / "result.md")
    assert BENCHMARK["main"](tmp_path / "runs", 6, 3) == 0, (tmp_path / "result.md").read_text()
