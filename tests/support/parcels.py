"""A parcel of three files that nodes copy from each other."""

from __future__ import annotations

import hashlib
import os
import pathlib

from ansible_collections.dgxspark.cluster.plugins.module_utils.transfer import parcel as parcels
from ansible_collections.dgxspark.cluster.plugins.module_utils.transfer.parcel import Item, Parcel

TOKEN = "t0k3n-of-this-run"
BIG = 3 * 2**20 + 17
CONTENT = {"m/blobs/a": os.urandom(BIG), "m/blobs/b": b"small", "m/blobs/c": b""}


def made(root: pathlib.Path, content: dict[str, bytes] | None = None) -> Parcel:
    content = CONTENT if content is None else content
    items = tuple(Item(path, len(data), hashlib.sha256(data).hexdigest()) for path, data in content.items())
    return Parcel(str(root), "m/.seal", items, {"m/snapshots/1/model": "../../blobs/a"}, {"m/refs/main": "1"})


def fill(root: pathlib.Path, content: dict[str, bytes] | None = None) -> None:
    content = CONTENT if content is None else content
    for path, data in content.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)


def seal(parcel: Parcel) -> None:
    """Make a node believe that its files are right as they are."""
    known: parcels.Known = {}
    for item in parcel.items:
        parcels.note(parcel, item, known, parcels.stamp(parcel.files, item.path))
    parcels.lay(parcel, known)


def content_of(root: pathlib.Path) -> dict[str, bytes]:
    return {path: (root / path).read_bytes() for path in CONTENT if (root / path).exists()}
