"""A file on a node is the old one or the new one; a link that somebody put there is replaced, not followed."""

from __future__ import annotations

import os
import pathlib
import stat

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.files import atomic_write, temporary


def names(folder: pathlib.Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_content_and_mode_are_as_asked_and_nothing_else_is_left(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.yaml"
    for content, mode in ((b"old", 0o644), (b"new", 0o600)):
        atomic_write(str(path), content, mode, (os.geteuid(), os.getegid()))
        assert path.read_bytes() == content and stat.S_IMODE(path.stat().st_mode) == mode
    assert names(tmp_path) == ["x.yaml"]


def test_what_a_killed_write_left_is_no_yaml_file_and_goes_with_the_next(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.yaml"
    left = pathlib.Path(temporary(str(path)))
    left.write_bytes(b"half")
    assert left.parent == tmp_path and left.suffix != ".yaml"
    atomic_write(str(path), b"new", 0o600)
    assert names(tmp_path) == ["x.yaml"]


@pytest.mark.parametrize("planted", ["x", ".x.dgxspark"])
def test_no_link_is_followed(tmp_path: pathlib.Path, planted: str) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"of somebody")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / planted).symlink_to(other)
    atomic_write(str(folder / "x"), b"ours", 0o600)
    assert other.read_bytes() == b"of somebody"
    assert names(folder) == ["x"] and not (folder / "x").is_symlink()


def test_a_write_that_fails_names_the_file_and_keeps_the_old_one(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as failed:
        atomic_write(str(path), b"new", 0o600)
    assert failed.value.filename == str(path)
    assert path.read_bytes() == b"old" and names(tmp_path) == ["x"]


def test_beneath_a_folder_s_descriptor(tmp_path: pathlib.Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        atomic_write("x", b"new", 0o600, folder=here)
    finally:
        os.close(here)
    assert (tmp_path / "x").read_bytes() == b"new" and names(tmp_path) == ["x"]
