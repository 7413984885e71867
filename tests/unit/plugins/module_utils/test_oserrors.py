"""An error of the kernel is reported as such, wherever a module reads or writes."""

from __future__ import annotations

import errno
import os
import pathlib
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils import node_files, oserrors, system
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError

WORDS = {
    errno.ENOSPC: "the disk is full",
    errno.EROFS: "read-only",
    errno.EIO: "dmesg",
    errno.EDQUOT: "quota",
    errno.ENFILE: "Too many open files in system",
}


def error(number: int) -> OSError:
    return OSError(number, os.strerror(number), "/some/file")


@pytest.mark.parametrize(("number", "words"), WORDS.items())
def test_only_a_missing_right_is_answered_with_root(number: int, words: str) -> None:
    said = oserrors.reason(error(number))
    assert words in said
    assert "root" not in said


@pytest.mark.parametrize("number", [errno.EPERM, errno.EACCES])
def test_a_missing_right_is(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    said = oserrors.reason(error(number))
    assert "become: true" in said and "a user who may" in said, (
        "on the owner's own machine, root may be the wrong answer"
    )
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "become" not in oserrors.reason(error(number))
    assert "lsattr" in oserrors.reason(error(number))


@pytest.mark.parametrize("number", WORDS)
@pytest.mark.parametrize(
    "call",
    [
        node_files.read,
        lambda path: node_files.write(path, b"x", 0o644),
        node_files.digest,
        system.read_file,
    ],
    ids=["read", "write", "digest", "read_file"],
)
def test_files_say_so(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, number: int, call: t.Callable[[str], t.Any]
) -> None:
    def refused(*_arguments: t.Any, **_named: t.Any) -> t.NoReturn:
        raise error(number)

    monkeypatch.setattr(pathlib.Path, "open", refused)
    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(CollectionError) as caught:
        call(str(tmp_path / "file"))
    assert WORDS[number] in str(caught.value) and str(tmp_path / "file") in str(caught.value)
    assert "root" not in str(caught.value).replace(str(tmp_path), "")
