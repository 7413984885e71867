from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix import journal

PLAN = {"digest": "d1", "cases": [{"id": "a", "name": "A"}, {"id": "b", "name": "B"}]}
Plain = dict[str, t.Any]


def case(name: str) -> Plain:
    return {"event": "case", "case": name, "text": "ü\u2028"}


def begun(folder: pathlib.Path) -> bytes:
    with journal.Journal(folder) as made:
        made.begin(PLAN)
        made.append(case("a"))
        made.append(case("b"))
    return (folder / journal.NAME).read_bytes()


def test_a_last_line_that_is_torn_anywhere_is_survived(tmp_path: pathlib.Path) -> None:
    whole = begun(tmp_path)
    last = whole[:-1].rfind(b"\n") + 1
    for length in range(last, len(whole)):
        (tmp_path / journal.NAME).write_bytes(whole[:length])
        with journal.Journal(tmp_path) as made:
            assert list(made.done) == ["a"], length
            made.append(case("b"))
        assert (tmp_path / journal.NAME).read_bytes() == whole


def test_a_torn_first_line_is_a_journal_that_begins(tmp_path: pathlib.Path) -> None:
    (tmp_path / journal.NAME).write_bytes(begun(tmp_path)[:5])
    with journal.Journal(tmp_path) as made:
        assert made.head is None
        assert made.begin(PLAN)["digest"] == "d1"


def test_a_damaged_line_in_the_middle_is_an_error_that_names_it(tmp_path: pathlib.Path) -> None:
    whole = begun(tmp_path).splitlines(keepends=True)
    (tmp_path / journal.NAME).write_bytes(whole[0] + b"{}}\n" + whole[2])
    with pytest.raises(CollectionError, match=rf"{journal.NAME}: line 2 is damaged"):
        journal.Journal(tmp_path)
    with pytest.raises(CollectionError, match="line 2 is damaged"):  # and the lock was given back
        journal.Journal(tmp_path)


def test_a_damaged_last_line_is_not_cut_where_it_has_its_end(tmp_path: pathlib.Path) -> None:
    whole = begun(tmp_path).splitlines(keepends=True)
    damaged = b"".join([*whole[:2], whole[2][:-9] + b"\n"])
    (tmp_path / journal.NAME).write_bytes(damaged)
    with pytest.raises(CollectionError, match=r"line 3 is damaged\. Restore the file, or delete that line"):
        journal.Journal(tmp_path)
    assert (tmp_path / journal.NAME).read_bytes() == damaged
    (tmp_path / journal.NAME).write_bytes(b"".join(whole[:2]))  # the advice in the message works
    with journal.Journal(tmp_path) as made:
        assert list(made.done) == ["a"]


def test_two_runs_do_not_write_one_journal(tmp_path: pathlib.Path) -> None:
    code = "import fcntl,os,sys,time;f=os.open(sys.argv[1],os.O_RDWR);fcntl.flock(f,fcntl.LOCK_EX);print('held',flush=True);time.sleep(60)"
    begun(tmp_path)
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path / journal.LOCK)], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(CollectionError, match=rf"another run \(process {os.getpid()}\) is measuring here"):
            journal.Journal(tmp_path)
        other.kill()
    with journal.Journal(tmp_path) as made:
        assert set(made.done) == {"a", "b"}


def test_a_changed_matrix_is_noticed_and_may_be_accepted(tmp_path: pathlib.Path) -> None:
    begun(tmp_path)
    other = {"digest": "d2", "cases": [{"id": "b", "name": "B"}, {"id": "c", "name": "C"}]}
    with journal.Journal(tmp_path) as made:
        with pytest.raises(journal.Changed, match=r"1 cases are new \(C\), 1 are gone \(A\); 1 of 2 measured ones"):
            made.begin(other)
        assert made.head is not None
        assert made.head["digest"] == "d1"
        assert made.begin(other, accept=True)["digest"] == "d2"
        assert made.begin(other)["digest"] == "d2"
    assert [entry["event"] for entry in journal.read(tmp_path)] == ["plan", "case", "case", "plan"]


def test_nothing_is_no_journal(tmp_path: pathlib.Path) -> None:
    with pytest.raises(CollectionError, match="this is not a journal of a matrix"):
        journal.read(tmp_path)
