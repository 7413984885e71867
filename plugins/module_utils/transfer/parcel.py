# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A parcel: large files that several nodes need, with their SHA-256, and small ones that are written beside them at the end.

A verified file is not read again while its size and change times stay the same: the seal, a small file on each node, records
both. Whatever the seal does not know is read and hashed, never trusted by its name.

Users of the files may be able to write in the same folders, at any time: everything is accessed through folder descriptors,
without following links; incoming data is written where only root can write; and the seal has the times from before a file was read.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import typing as t
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils import node_files
from ansible_collections.dgxspark.cluster.plugins.module_utils.beneath import Beneath, parts
from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import from_json
from ansible_collections.dgxspark.cluster.plugins.module_utils.oserrors import cannot
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import GIB, Change, CollectionError

CHUNK = 4 * 1024 * 1024  # bytes
Told = t.Callable[[int], None]
Known = dict[str, t.Any]  # path -> [size, times, sha256]: verified files, as they were then


@dataclass(frozen=True, slots=True)
class Item:
    """One file. path: below the parcel's root. size: bytes. sha256: hex."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Parcel:
    """All files. links: path → target, texts: path → content, both written once every item exists and is correct.

    seal: where the node records what it has verified; also below the root. own: a folder below the root that only root can read
    or write, with what root trusts: the seal, the list.
    """

    root: str
    seal: str
    items: tuple[Item, ...]
    links: dict[str, str] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    own: str | None = None

    @property
    def files(self) -> Beneath:
        """The only access to its files."""
        return Beneath(self.root)


@dataclass(frozen=True, slots=True)
class State:
    """What a node has of a parcel. Bytes: in total, still to be moved, and to be read again because no seal covers them."""

    total: int
    missing: int
    unread: int
    changes: tuple[Change, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether nothing is left to do."""
        return not self.changes


def place(parcel: Parcel, path: str) -> pathlib.Path:
    """Return the path of a parcel's file, for messages. CollectionError for a path that leads out of its root."""
    return pathlib.Path(parcel.root, *parts(parcel.root, path))


def part(parcel: Parcel, path: str) -> str:
    """Return the path of a file's partial data until it is complete and correct: in root's own folder, if there is one."""
    return f"{parcel.own}/{pathlib.PurePosixPath(path).name}.part" if parcel.own else f"{path}.part"


def stamp(files: Beneath, path: str) -> list[int] | None:
    """Return size, modification time and change time (ns) of a plain file; None if there is none.

    Whoever writes to the file cannot set the change time back.
    """
    seen = files.stat(path)
    return [seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns] if seen else None


def read_seal(parcel: Parcel) -> Known:
    """Return what the seal covers; nothing if there is no readable seal."""
    try:
        known = from_json(parcel.files.read(parcel.seal) or b"")
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def break_seal(parcel: Parcel) -> None:
    """Delete the seal, so that everything is read again."""
    parcel.files.unlink(parcel.seal)


def note(parcel: Parcel, item: Item, known: Known, seen: t.Sequence[int] | None) -> None:
    """Record a verified file. seen: its stamp from before it was read, so that no later change passes as verified."""
    known[item.path] = [*(seen or ()), item.sha256]


def write_seal(parcel: Parcel, known: Known) -> None:
    """Write the seal: what is known of the items."""
    kept = {item.path: known[item.path] for item in parcel.items if item.path in known}
    parcel.files.write(parcel.seal, (json.dumps(kept, sort_keys=True) + "\n").encode())


def sealed(parcel: Parcel, item: Item, known: t.Mapping[str, t.Any]) -> bool:
    """Whether a file is unchanged since it was verified."""
    return known.get(item.path) == [*(stamp(parcel.files, item.path) or ()), item.sha256]


def state(parcel: Parcel) -> State:
    """Return what a node has, from its seal, sizes and times: no large file is read."""
    known = read_seal(parcel)
    missing = unread = 0
    changes = []
    for item in parcel.items:
        if sealed(parcel, item, known):
            continue
        path = str(place(parcel, item.path))
        seen = stamp(parcel.files, item.path)
        if seen and seen[0] == item.size:
            unread += item.size
            changes.append(Change(path, "seal", None, "verified"))
            continue
        begun = stamp(parcel.files, part(parcel, item.path))
        missing += item.size - (min(begun[0], item.size) if begun else 0)
        changes.append(Change(path, "file", f"{seen[0]} bytes" if seen else None, f"{item.size} bytes"))
    for name, target in parcel.links.items():
        before = parcel.files.target(name)
        if before != target:
            changes.append(Change(str(place(parcel, name)), "link", before, target))
    for name, text in parcel.texts.items():
        if parcel.files.read(name, len(text.encode())) != text.encode():
            changes.append(Change(str(place(parcel, name)), "file", None, text if len(text) < 200 else "its text"))
    return State(sum(item.size for item in parcel.items), missing, unread, tuple(changes))


def lay(parcel: Parcel, known: Known) -> None:
    """Write links and texts beside the files, and seal the verified files."""
    files, name = parcel.files, parcel.own or parcel.seal
    try:
        keep_own(parcel)
        for name, target in parcel.links.items():
            if files.target(name) != target:
                files.symlink(name, target)
        for name, text in parcel.texts.items():
            if files.read(name, len(text.encode())) != text.encode():
                files.write(name, text.encode())
        name = parcel.seal
        write_seal(parcel, known)
    except OSError as exc:
        raise node_files.cannot_write(str(place(parcel, name)), exc) from exc


def keep_own(parcel: Parcel) -> None:
    """Create root's own folder, closed to everyone else. CollectionError if that fails."""
    if parcel.own:
        try:
            with parcel.files.folder(parcel.own, make=True, mode=0o700) as folder:
                os.fchmod(folder, 0o700)
        except OSError as exc:
            raise node_files.cannot_write(str(place(parcel, parcel.own)), exc) from exc


def digest(parcel: Parcel, path: str, told: Told = lambda _bytes: None) -> str:
    """Return a file's SHA-256, and drop the file from the page cache: the GPU shares that memory."""
    made = hashlib.sha256()
    try:
        with parcel.files.open(path) as file:
            while data := file.read(CHUNK):
                made.update(data)
                told(len(data))
            forget(file.fileno())
    except OSError as exc:
        raise cannot("read", place(parcel, path), exc) from exc
    return made.hexdigest()


def forget(descriptor: int) -> None:
    """Drop a file from the page cache. A failure is harmless."""
    with contextlib.suppress(OSError):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def verified(parcel: Parcel, item: Item, known: Known, told: Told = lambda _bytes: None) -> bool:
    """Whether a file exists and is correct; records it if so. A wrong one of the right size is removed, to be moved again."""
    if sealed(parcel, item, known):
        return True
    seen = stamp(parcel.files, item.path)
    if not seen or seen[0] != item.size:
        return False
    if digest(parcel, item.path, told) == item.sha256:
        note(parcel, item, known, seen)
        return True
    parcel.files.unlink(item.path)
    return False


def keep(parcel: Parcel, item: Item, source: t.IO[bytes], known: Known, told: Told = lambda _bytes: None) -> str:
    """Write a stream to a partial file, and keep it if its SHA-256 is right; return the SHA-256 that it has."""
    begun, made, files = part(parcel, item.path), hashlib.sha256(), parcel.files
    try:
        keep_own(parcel)
        with files.create(begun) as file:
            while data := source.read(CHUNK):
                made.update(data)
                write(file, data)
                told(len(data))
            os.fsync(file.fileno())
            forget(file.fileno())
        if made.hexdigest() == item.sha256:
            settle(parcel, item, known)
        else:
            files.unlink(begun)
    except OSError as exc:
        raise node_files.cannot_write(str(place(parcel, begun)), exc) from exc
    return made.hexdigest()


def settle(parcel: Parcel, item: Item, known: Known) -> None:
    """Move a complete, correct partial file into place."""
    parcel.files.rename(part(parcel, item.path), item.path)
    note(parcel, item, known, stamp(parcel.files, item.path))


def write(file: t.IO[bytes], data: bytes | memoryview) -> None:
    """Write all data to an unbuffered file."""
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


def refuse_full_disk(root: str, needed: int, reserve_gib: float, what: str) -> None:
    """Raise CollectionError if a disk lacks room for the needed bytes and the reserve (GiB)."""
    free = node_files.free_mib(root)
    if free < needed / 2**20 + reserve_gib * 1024:
        raise CollectionError(
            f"{root} has {free / 1024:.1f} GiB free, but {what} needs {needed / GIB:.1f} GiB more, and {reserve_gib:g} GiB "
            "must stay free. Nothing was moved. Free space there, or put the caches on another disk "
            "(k8s_dgx_serving.cache_dir)."
        )
