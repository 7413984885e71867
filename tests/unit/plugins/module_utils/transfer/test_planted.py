"""What a rank that can write beside the weights could lay for root to fall over: nothing outside is ever written or read."""

from __future__ import annotations

import io
import os
import pathlib
import threading
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.transfer import parcel as parcels
from ansible_collections.dgxspark.cluster.plugins.module_utils.transfer.relay import Counter, Link, relay
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.tests.unit.plugins.module_utils.transfer.test_relay import (
    CONTENT,
    TOKEN,
    content_of,
    fill,
    free_port,
    made,
)

Plant = t.Callable[[pathlib.Path, pathlib.Path], None]
SECRET = b"root's own\n"
SEEN = {"m/blobs/a", "m/blobs/b", "m/blobs/c", "m/.seal", "m/refs/main", "m/snapshots/1/model"}


@pytest.fixture
def outside(tmp_path: pathlib.Path) -> t.Iterator[pathlib.Path]:
    """A folder of the host's, which must be at the end as it was."""
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
    """Copy from one node to another, into the second of which something was laid."""
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
    assert any(f"{place} is a link, or no folder, and root follows no link there" in str(error) for error in errors)


def test_bytes_of_a_stream_do_not_follow_a_link_either(tmp_path: pathlib.Path, outside: pathlib.Path) -> None:
    goal = made(tmp_path / "node")
    item = goal.items[0]
    begun = tmp_path / "node" / f"{item.path}.part"
    begun.parent.mkdir(parents=True)
    for name in ("shadow", "new"):
        begun.symlink_to(outside / name)
        assert parcels.keep(goal, item, io.BytesIO(CONTENT[item.path])) == item.sha256
    begun.symlink_to(outside / "shadow")
    assert parcels.keep(goal, item, io.BytesIO(b"wrong")) != item.sha256
    assert not begun.is_symlink()


def test_a_file_that_is_linked_out_is_not_handed_on(tmp_path: pathlib.Path, outside: pathlib.Path) -> None:
    """Not even where its bytes are right: what root sends to others is what lies in its own folder."""
    fill(tmp_path)
    (tmp_path / "m/blobs/b").unlink()
    (tmp_path / "m/blobs/b").symlink_to(outside / "shadow")
    link = Link("node1", free_port(), None, ("node2",), ("127.0.0.1",), 1)
    with pytest.raises(CollectionError, match="m/blobs/b is not as its list says"):
        relay(made(tmp_path), link, TOKEN, Counter())
