"""Log files: globs, gzip, files that are no log, and endless lines."""

from __future__ import annotations

import gzip
import pathlib
import tracemalloc

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl import files
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError


def test_paths_and_globs_lead_to_each_file_once(tmp_path: pathlib.Path) -> None:
    for name in ("rank1.log", "rank0.log"):
        (tmp_path / name).write_text("x\n")
    (tmp_path / "again.log").symlink_to(tmp_path / "rank0.log")
    found = files.expand([str(tmp_path / "rank0.log"), str(tmp_path / "*.log")])
    assert sorted(pathlib.Path(name).resolve().name for name in found) == ["rank0.log", "rank1.log"]


def test_a_path_that_leads_nowhere_is_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(CollectionError, match=r"nothing\*\.log: there is no such file"):
        files.expand([str(tmp_path / "nothing*.log")])


@pytest.mark.parametrize("packed", [False, True])
def test_lines_come_back_whatever_their_encoding(tmp_path: pathlib.Path, packed: bool) -> None:
    path = tmp_path / "rank0.log"
    data = "one\r\nzwei \xe4\n".encode("latin-1") + b"three"
    path.write_bytes(gzip.compress(data) if packed else data)
    assert [line.strip() for line in files.read_lines(str(path))] == ["one", "zwei \ufffd", "three"]
    path.write_bytes("one\r\nzwei \xe4\n".encode("utf-16"))  # as PowerShell redirects
    assert [line.strip() for line in files.read_lines(str(path))] == ["one", "zwei \xe4"]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "empty"),
        (b" \n\n", "empty"),
        (b"\x7fELF\0\0\0", "binary"),
        ("te\0xt".encode("utf-16"), "binary"),
        (b"\x1f\x8bnot gzip", "not a complete gzip file"),
    ],
)
def test_what_is_no_log_is_one_clear_error(tmp_path: pathlib.Path, data: bytes, says: str) -> None:
    path = tmp_path / "rank0.log"
    path.write_bytes(data)
    with pytest.raises(CollectionError, match=rf"rank0\.log: .*{says}"):
        list(files.read_lines(str(path)))


def test_a_line_without_end_is_read_in_pieces(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "rank0.log"
    path.write_bytes(b"x" * (3 * files.LONGEST + 5))
    assert max(len(line) for line in files.read_lines(str(path))) <= files.LONGEST


def test_a_text_is_cut_into_lines_as_a_file_is() -> None:
    text = "one\r\ntwo\n\nthree"
    assert [line.rstrip() for line in files.text_lines(text)] == ["one", "two", "", "three"]
    assert list(files.text_lines("")) == []
    assert max(map(len, files.text_lines("x" * (3 * files.LONGEST + 5)))) <= files.LONGEST


def test_a_text_is_cut_into_lines_without_a_second_one_in_memory() -> None:
    text = "spark1:1:1 [0] NCCL INFO Using network IB\n" * 100_000
    tracemalloc.start()
    try:
        assert sum(1 for _line in files.text_lines(text)) == 100_000
        assert tracemalloc.get_traced_memory()[1] < len(text) / 100
    finally:
        tracemalloc.stop()
