"""One lock for modules and programs: it says who has it, ends with its process, and may be a file that goes afterwards."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import threading
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.programs import locks
from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.locks import Held, holder, lock


@pytest.fixture
def path(tmp_path: pathlib.Path) -> str:
    return str(tmp_path / "x.lock")


def test_a_free_lock_is_taken_at_once_and_says_by_whom(path: str) -> None:
    assert holder(path) is None
    with lock(path, "the run of Alice", 0) as before:
        assert before is None
        assert holder(path) == "the run of Alice"
    assert holder(path) is None, "its words stay, but nobody has it"
    with lock(path, "Bob", 0) as before:
        assert before is None and holder(path) == "Bob"


def test_who_holds_it_for_too_long_is_named(path: str) -> None:
    passed: list[float] = []
    with (
        lock(path, "the run of Alice", 0),
        pytest.raises(Held, match="held by the run of Alice for 3 s") as held,
        lock(path, "Bob", 3, lambda: sum(passed), passed.append),
    ):
        pass
    assert held.value.who == "the run of Alice" and sum(passed) > 3
    assert holder(path) is None


@pytest.mark.parametrize("removes", [False, True])
def test_who_waited_gets_it_and_learns_for_whom(path: str, removes: bool) -> None:
    """A holder that removes the file with the lock still held leaves no two holders."""
    taken, told = threading.Event(), []

    def wait(seconds: float) -> None:
        taken.set()
        threading.Event().wait(0.01)

    def second() -> None:
        with lock(path, "Bob", 60, sleep=wait) as before:
            told.append((before, holder(path)))

    thread = threading.Thread(target=second)
    with lock(path, "Alice", 0):
        thread.start()
        assert taken.wait(30)
        if removes:
            pathlib.Path(path).unlink()
    thread.join()
    assert told == [("Alice", "Bob")]


def test_it_ends_with_a_process_that_is_killed(path: str) -> None:
    code = f"""
import sys, time
sys.path[:] = {sys.path!r}
from {locks.__name__} import lock
with lock({path!r}, "a process", 0):
    print("taken", flush=True)
    time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as other:
        assert t.cast("t.IO[str]", other.stdout).readline() == "taken\n"
        assert holder(path) == "a process"
        other.kill()
    with lock(path, "Bob", 0):
        assert holder(path) == "Bob"


def test_a_link_that_somebody_put_there_is_not_followed(path: str, tmp_path: pathlib.Path) -> None:
    other = tmp_path / "other"
    other.write_text("of somebody")
    pathlib.Path(path).symlink_to(other)
    with pytest.raises(OSError), lock(path, "Bob", 0):
        pass
    assert other.read_text() == "of somebody" and holder(path) is None
