"""Traps for root that a rank with write access beside the weights could lay: nothing outside is ever written or read."""

from __future__ import annotations

import dataclasses
import errno
import io
import os
import pathlib
import resource
import threading
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.beneath import Beneath
from ansible_collections.dgxspark.cluster.plugins.module_utils.transfer import parcel as parcels
from ansible_collections.dgxspark.cluster.plugins.module_utils.transfer.relay import Counter, Link, relay
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.tests.support.parcels import CONTENT, TOKEN, content_of, fill, made
from ansible_collections.dgxspark.cluster.tests.support.ports import free_port

Plant = t.Callable[[pathlib.Path, pathlib.Path], None]
SECRET = b"root's own\n"
SEEN = {"m/blobs/a", "m/blobs/b", "m/blobs/c", "m/.seal", "m/refs/main", "m/snapshots/1/model"}


@pytest.fixture
def outside(tmp_path: pathlib.Path) -> t.Iterator[pathlib.Path]:
    """A folder of the host's, which must be unchanged at the end."""
    place = tmp_path / "etc"
    place.mkdir()
    (place / "shadow").write_bytes(SECRET)
    (place / "big").write_bytes(b"\0" * len(CONTENT["m/blobs/a"]))
    before = {path.name: (path.read_bytes(), path.stat().st_mode, path.stat().st_mtime_ns) for path in place.iterdir()}
    yield place
    assert {
        path.name: (path.read_bytes(), path.stat().st_mode, path.stat().st_mtime_ns) for path in place.iterdir()
    } == before


def pull(folder: pathlib.Path) -> list[CollectionError]:
    """Copy from one node to another one, on which something was planted."""
    roots, port, errors = [folder / "node1", folder / "node2"], free_port(), []
    fill(roots[0])
    links = [
        Link("node1", port, None, ("node2",), ("127.0.0.1",), 20),
        Link("node2", port, ("node1", "127.0.0.1"), (), (), 20),
    ]

    def one(root: pathlib.Path, link: Link) -> None:
        try:
            relay(made(root), link, TOKEN, Counter())
        except CollectionError as exc:
            errors.append(exc)

    threads = [threading.Thread(target=one, args=each, daemon=True) for each in zip(roots, links, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    return errors


def hard_link(place: pathlib.Path, outside: pathlib.Path) -> None:
    os.link(outside / "shadow", place)


def pipe(place: pathlib.Path, _outside: pathlib.Path) -> None:
    os.mkfifo(place)


def link_to(name: str) -> Plant:
    def plant(place: pathlib.Path, outside: pathlib.Path) -> None:
        place.symlink_to(outside / name)

    return plant


@pytest.mark.parametrize("plant", [link_to("shadow"), link_to("new"), link_to("big"), hard_link, pipe])
@pytest.mark.parametrize(
    "path",
    ["m/blobs/a.part", "m/blobs/a", "m/.seal", "m/..seal.dgxspark", "m/refs/main", "m/refs/.main.dgxspark",
     "m/snapshots/1/model", "m/snapshots/1/.model.dgxspark"],
)  # fmt: skip
def test_a_link_or_a_pipe_in_place_of_a_file_is_replaced(
    tmp_path: pathlib.Path, outside: pathlib.Path, path: str, plant: Plant
) -> None:
    place = tmp_path / "node2" / path
    place.parent.mkdir(parents=True)
    plant(place, outside)
    assert not parcels.state(made(tmp_path / "node2")).whole
    assert not pull(tmp_path)
    assert content_of(tmp_path / "node2") == CONTENT
    assert parcels.state(made(tmp_path / "node2")).whole
    files = {str(path.relative_to(tmp_path / "node2")): path for path in (tmp_path / "node2").rglob("*")}
    assert {name for name, each in files.items() if each.is_symlink()} == {"m/snapshots/1/model"}
    assert {name for name, each in files.items() if not each.is_dir()} == SEEN


@pytest.mark.parametrize("path", ["m", "m/blobs", "m/refs", "m/snapshots", "m/snapshots/1"])
def test_a_link_in_place_of_a_folder_is_refused_by_name(
    tmp_path: pathlib.Path, outside: pathlib.Path, path: str
) -> None:
    place = tmp_path / "node2" / path
    place.parent.mkdir(parents=True)
    place.symlink_to(outside)
    errors = pull(tmp_path)
    assert any(
        f"{place} is a symlink, or not a directory. Root follows no symlink there" in str(error) for error in errors
    )


def test_bytes_of_a_stream_do_not_follow_a_link_either(tmp_path: pathlib.Path, outside: pathlib.Path) -> None:
    goal = made(tmp_path / "node")
    item = goal.items[0]
    begun = tmp_path / "node" / f"{item.path}.part"
    begun.parent.mkdir(parents=True)
    for name in ("shadow", "new"):
        begun.symlink_to(outside / name)
        assert parcels.keep(goal, item, io.BytesIO(CONTENT[item.path]), {}) == item.sha256
    begun.symlink_to(outside / "shadow")
    assert parcels.keep(goal, item, io.BytesIO(b"wrong"), {}) != item.sha256
    assert not begun.is_symlink()


def test_a_file_that_is_linked_out_is_not_handed_on(tmp_path: pathlib.Path, outside: pathlib.Path) -> None:
    """Not even where its bytes are right: what root sends to others is what lies in its own folder."""
    fill(tmp_path)
    (tmp_path / "m/blobs/b").unlink()
    (tmp_path / "m/blobs/b").symlink_to(outside / "shadow")
    link = Link("node1", free_port(), None, ("node2",), ("127.0.0.1",), 1)
    with pytest.raises(CollectionError, match="m/blobs/b is missing, or its SHA-256 is not the one in its list"):
        relay(made(tmp_path), link, TOKEN, Counter())


def folder(place: pathlib.Path, _outside: pathlib.Path) -> None:
    (place / "full").mkdir(parents=True)


@pytest.mark.parametrize("path", ["m/blobs/a", "m/refs/main", "m/snapshots/1/model", "m/.seal"])
def test_a_folder_in_place_of_a_file_is_named(tmp_path: pathlib.Path, outside: pathlib.Path, path: str) -> None:
    place = tmp_path / "node2" / path
    folder(place, outside)
    assert any(f"{place}" in str(error) and "folder" in str(error) for error in pull(tmp_path))


def test_a_file_that_is_too_large_for_memory_is_not_read_into_it(tmp_path: pathlib.Path) -> None:
    """A text beside the weights, which a rank can make as long as it likes, as a sparse file."""
    goal = made(tmp_path)
    fill(tmp_path)
    place = tmp_path / "m/refs/main"
    place.parent.mkdir(parents=True)
    with place.open("wb") as file:
        file.truncate(2**40)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (8 * 2**30, hard))
    try:
        assert str(place) in {change.subject for change in parcels.state(goal).changes}
        parcels.lay(goal, {})
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert place.read_text() == "1"


def test_what_is_changed_after_it_was_read_is_not_sealed(tmp_path: pathlib.Path) -> None:
    """While root reads hundreds of gigabytes, a rank has the time to change what was read first."""
    goal, known = made(tmp_path), parcels.read_seal(made(tmp_path))
    fill(tmp_path)
    assert all(parcels.verified(goal, item, known) for item in goal.items)
    (tmp_path / "m/blobs/a").write_bytes(b"\0" * len(CONTENT["m/blobs/a"]))
    parcels.lay(goal, known)
    assert [change.subject for change in parcels.state(goal).changes] == [str(tmp_path / "m/blobs/a")]


def test_what_comes_is_written_where_root_alone_is(tmp_path: pathlib.Path) -> None:
    goal = dataclasses.replace(made(tmp_path), own="own")
    item, seen = goal.items[0], []

    class Stream(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            seen.extend(sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")))
            return super().read(size)

    assert parcels.keep(goal, item, Stream(CONTENT[item.path]), {}) == item.sha256
    assert set(seen) == {"own", "own/a.part"}
    assert (tmp_path / "own").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / item.path).read_bytes() == CONTENT[item.path]


def test_folders_without_end_are_refused_by_name(tmp_path: pathlib.Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    for _depth in range(200):
        os.mkdir("d", dir_fd=here)
        deeper = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
    os.close(here)
    with pytest.raises(CollectionError, match=r"is nested deeper than any folder of this collection"):
        list(Beneath(tmp_path).walk("d"))


def test_a_file_that_is_shared_between_a_look_and_its_opening_is_not_written_to(
    tmp_path: pathlib.Path, outside: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = tmp_path / "begun.part"
    begun.write_bytes(b"")
    seen = begun.stat()
    begun.unlink()
    hard_link(begun, outside)
    monkeypatch.setattr(Beneath, "stat", lambda _self, _path: seen)
    with Beneath(tmp_path).resume("begun.part") as file:
        file.write(b"come")
    assert begun.read_bytes() == b"come"


@pytest.mark.parametrize(("number", "words"), [(errno.EIO, "dmesg"), (errno.EACCES, "root")])
def test_a_file_that_cannot_be_read_is_told_as_what_it_is(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, number: int, words: str
) -> None:
    fill(tmp_path)

    def refused(*_arguments: t.Any) -> t.NoReturn:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Beneath, "open", refused)
    with pytest.raises(CollectionError, match=rf"m/blobs/a cannot be read: .*{words}") as told:
        parcels.digest(made(tmp_path), "m/blobs/a")
    assert ("root" in str(told.value).removeprefix(str(tmp_path))) == (number == errno.EACCES)
