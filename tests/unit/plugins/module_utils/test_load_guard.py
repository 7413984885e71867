"""The guard of loads: when it drops the page cache, and when it stops."""

from __future__ import annotations

import os
import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.load_guard import (
    Guard,
    Settings,
    free_kib,
    is_due,
    stale,
)

SETTINGS: Settings = {"floor_mib": 100, "interval_s": 1, "max_s": 60}


def meminfo(free_kib: int) -> str:
    return f"MemTotal:  500000 kB\nMemFree:  {free_kib} kB\nMemAvailable:  400000 kB\n"


class Node:
    def __init__(self, root: pathlib.Path, free: int) -> None:
        self.proc, self.marks = root / "proc", root / "loading"
        (self.proc / "sys/vm").mkdir(parents=True)
        self.marks.mkdir()
        (self.proc / "meminfo").write_text(meminfo(free))

    def guard(self) -> Guard:
        return Guard(SETTINGS, str(self.proc), str(self.marks))

    def mark(self, name: str, laid: float) -> None:
        (self.marks / name).touch()
        os.utime(self.marks / name, (laid, laid))

    def written(self) -> dict[str, str]:
        return {path.name: path.read_text().strip() for path in (self.proc / "sys/vm").iterdir()}


@given(st.integers(0, 10**6), st.integers(1, 1000))
def test_it_is_due_below_the_floor_of_what_is_free_not_of_what_is_available(free: int, floor: int) -> None:
    assert free_kib(meminfo(free)) == free
    assert is_due(meminfo(free), {**SETTINGS, "floor_mib": floor}) == (free < floor * 1024)


def test_below_the_floor_the_cache_goes_and_memory_is_compacted(tmp_path: pathlib.Path) -> None:
    node = Node(tmp_path, free=1000)
    node.mark("rank-0", 1000.0)
    assert node.guard().step(now=1001.0)
    assert node.written() == {"drop_caches": "1", "compact_memory": "1"}


@pytest.mark.parametrize(("free", "marked"), [(500000, True), (1000, False)])
def test_with_room_or_without_a_load_nothing_is_done(tmp_path: pathlib.Path, free: int, marked: bool) -> None:
    node = Node(tmp_path, free)
    if marked:
        node.mark("rank-0", 1000.0)
    assert node.guard().step(now=1001.0) == marked
    assert node.written() == {}


def test_a_load_that_never_ends_is_given_up(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = Node(tmp_path, free=1000)
    node.mark("dead", 1000.0)
    node.mark("young", 1050.0)
    assert stale(node.guard().read_marks(), 1061.0, SETTINGS) == ["dead"]
    assert node.guard().step(now=1061.0)
    assert [path.name for path in node.marks.iterdir()] == ["young"]
    assert "dead has not become ready within 60 s" in capsys.readouterr().err
    assert not node.guard().step(now=1111.0)


def test_it_ends_when_all_loads_have(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = Node(tmp_path, free=1000)
    node.guard().run()
    assert "All loads are over" in capsys.readouterr().err
