"""The load guard: when it drops the page cache, and when it stops."""

from __future__ import annotations

import pathlib
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.load_guard import (
    LARGE,
    MOST,
    Guard,
    Settings,
    free_kib,
    is_due,
)

SETTINGS: Settings = {"floor_mib": 100, "interval_s": 0, "max_s": 60}


def meminfo(free_kib: int) -> str:
    return f"MemTotal:  500000 kB\nMemFree:  {free_kib} kB\nMemAvailable:  400000 kB\n"


class Node:
    def __init__(self, root: pathlib.Path, free: int) -> None:
        self.proc = root / "proc"
        (self.proc / "sys/vm").mkdir(parents=True)
        (self.proc / "meminfo").write_text(meminfo(free))
        listener = socket.socket(socket.AF_UNIX)
        listener.bind("")  # an abstract name of its own
        listener.listen(2 * MOST)
        self.address = listener.getsockname()
        self.guard = Guard(SETTINGS, listener, str(self.proc))

    def load(self, name: bytes) -> socket.socket:
        """Act as a rank that is loading."""
        made = socket.socket(socket.AF_UNIX)
        made.connect(self.address)
        made.sendall(name)
        return made

    def written(self) -> dict[str, str]:
        return {path.name: path.read_text().strip() for path in (self.proc / "sys/vm").iterdir()}


@given(st.integers(0, 10**6), st.integers(1, 1000))
def test_it_is_due_below_the_floor_of_what_is_free_not_of_what_is_available(free: int, floor: int) -> None:
    assert free_kib(meminfo(free)) == free
    assert is_due(meminfo(free), {**SETTINGS, "floor_mib": floor}) == (free < floor * 1024)


def test_below_the_floor_the_cache_goes_and_memory_is_compacted(tmp_path: pathlib.Path) -> None:
    node = Node(tmp_path, free=1000)
    with node.load(b"rank-0"):
        assert node.guard.step(now=1001.0)
        assert node.written() == {"drop_caches": "1", "compact_memory": "1"}
    assert not node.guard.step(now=1002.0)


@pytest.mark.parametrize(("free", "loads"), [(500000, True), (1000, False)])
def test_with_room_or_without_a_load_nothing_is_done(tmp_path: pathlib.Path, free: int, loads: bool) -> None:
    node = Node(tmp_path, free)
    connection = node.load(b"rank-0") if loads else None
    assert node.guard.step(now=1001.0) == loads
    assert node.written() == {}
    if connection:
        connection.close()


def test_a_load_that_begins_on_fragmented_memory_has_it_compacted_once(tmp_path: pathlib.Path) -> None:
    node = Node(tmp_path, free=400000)
    counts = "  1" * LARGE
    (node.proc / "buddyinfo").write_text(f"Node 0, zone DMA {counts}  0\nNode 0, zone Normal {counts}  0  0\n")
    with node.load(b"rank-0"):
        assert node.guard.step(now=1001.0)
        assert node.written() == {"drop_caches": "1", "compact_memory": "1"}
        assert node.guard.step(now=1002.0) and node.guard.dropped == 1
        (node.proc / "buddyinfo").write_text(f"Node 0, zone Normal {counts}  0  2\n")
        with node.load(b"rank-1"):
            assert node.guard.step(now=1003.0) and node.guard.dropped == 1


def test_a_load_that_never_ends_is_given_up(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = Node(tmp_path, free=1000)
    with node.load(b"stuck") as stuck:
        assert node.guard.look(1000.0) == ["stuck"]
        with node.load(b"young"):
            assert node.guard.look(1050.0) == ["stuck", "young"]
            assert node.guard.look(1061.0) == ["young"]
        assert "stuck has not become ready within 60 s" in capsys.readouterr().err
        assert stuck.recv(1) == b""
    assert not node.guard.step(now=1062.0)


def test_it_ends_when_all_loads_have(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = Node(tmp_path, free=1000)
    node.guard.run(linger_s=0)
    assert "All loads have finished" in capsys.readouterr().err


def test_a_rank_can_speak_for_itself_alone(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither a name nor a flood of connections affects another rank's load, or the journal."""
    node = Node(tmp_path, free=1000)
    with node.load(b"honest"):
        assert node.guard.look(1000.0) == ["honest"]
        flood = [node.load(b"honest\nFAKE LINE \x1b[31m" + b"x" * 500) for _each in range(MOST + 5)]
        names = node.guard.look(1001.0)
        assert len(names) == MOST and "honest" in names
        assert all(len(name) <= 64 and name.isprintable() for name in names)
        for each in flood:
            each.close()
        for _read in range(12):  # what they said is read in small pieces
            names = node.guard.look(1002.0)
        assert names == ["honest"]
        node.guard.look(1100.0)
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "\x1b" not in said
