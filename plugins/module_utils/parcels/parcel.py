# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A parcel: large files that several nodes shall have alike, with their SHA-256, and what is laid beside them at the end.

A file that was verified once is not read again while its size and time of change stay what they were: the seal, a small
file of the node's own, notes both. Whatever the seal does not know is read and counted, never trusted by its name.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import typing as t
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils import placed
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import GIB, Change, FabricError

CHUNK = 4 * 1024 * 1024  # bytes
Told = t.Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Item:
    """One file. path: below the parcel's root. size: bytes. sha256: hex."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Parcel:
    """All files. links: path → target, texts: path → content, both laid once every item is there and right.

    seal: where the node notes what it has verified; below the root, too.
    """

    root: str
    seal: str
    items: tuple[Item, ...]
    links: dict[str, str] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class State:
    """What a node has of a parcel. Bytes: of the whole, to be moved yet, and to be read again since no seal knows them."""

    total: int
    missing: int
    unread: int
    changes: tuple[Change, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether nothing is to be done."""
        return not self.changes


def place(parcel: Parcel, path: str) -> pathlib.Path:
    """Return where a file of the parcel lies. FabricError for a path that leads out of its root."""
    pure = pathlib.PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or not pure.parts:
        raise FabricError(
            f"{path!r} leads out of {parcel.root}. The list of files is not one of ours; nothing was done."
        )
    return pathlib.Path(parcel.root) / pure


def part(path: pathlib.Path) -> pathlib.Path:
    """Return where what has come of a file lies until all of it is there and right."""
    return path.with_name(f"{path.name}.part")


def stamp(path: pathlib.Path) -> list[int] | None:
    """Return size and time of change (ns) of a plain file; None where there is none."""
    try:
        seen = path.stat()
    except OSError:
        return None
    return [seen.st_size, seen.st_mtime_ns]


def read_seal(parcel: Parcel) -> dict[str, t.Any]:
    """Return path → [size, time, sha256]; empty where there is no seal, or none that can be read."""
    try:
        known = json.loads(place(parcel, parcel.seal).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def write_seal(parcel: Parcel) -> None:
    """Note that all items are verified as they are now."""
    known = {item.path: [*(stamp(place(parcel, item.path)) or [0, 0]), item.sha256] for item in parcel.items}
    placed.write(str(place(parcel, parcel.seal)), (json.dumps(known, sort_keys=True) + "\n").encode(), 0o644)


def sealed(parcel: Parcel, item: Item, known: t.Mapping[str, t.Any]) -> bool:
    """Whether a file is as it was when it was verified."""
    return known.get(item.path) == [*(stamp(place(parcel, item.path)) or ()), item.sha256]


def state(parcel: Parcel) -> State:
    """Return what a node has, by its seal, sizes and times: no large file is read."""
    known = read_seal(parcel)
    missing = unread = 0
    changes = []
    for item in parcel.items:
        if sealed(parcel, item, known):
            continue
        path = place(parcel, item.path)
        seen = stamp(path)
        if seen and seen[0] == item.size:
            unread += item.size
            changes.append(Change(str(path), "seal", None, "verified"))
            continue
        begun = stamp(part(path))
        missing += item.size - (min(begun[0], item.size) if begun else 0)
        changes.append(Change(str(path), "file", f"{seen[0]} bytes" if seen else None, f"{item.size} bytes"))
    for name, target in parcel.links.items():
        link = place(parcel, name)
        before = str(link.readlink()) if link.is_symlink() else None
        if before != target:
            changes.append(Change(str(link), "link", before, target))
    for name, text in parcel.texts.items():
        there = placed.read(str(place(parcel, name)))
        if there is None or there[0] != text.encode():
            changes.append(Change(str(place(parcel, name)), "file", None, text if len(text) < 200 else "its text"))
    return State(sum(item.size for item in parcel.items), missing, unread, tuple(changes))


def lay(parcel: Parcel) -> None:
    """Lay links and texts beside files that are there and verified, and seal them."""
    for name, target in parcel.links.items():
        link = place(parcel, name)
        if link.is_symlink() and str(link.readlink()) == target:
            continue
        link.parent.mkdir(parents=True, exist_ok=True)
        beside = link.with_name(f".{link.name}.dgxspark")
        with contextlib.suppress(FileNotFoundError):
            beside.unlink()
        beside.symlink_to(target)
        beside.replace(link)
    for name, text in parcel.texts.items():
        there = placed.read(str(place(parcel, name)))
        if there is None or there[0] != text.encode():
            placed.write(str(place(parcel, name)), text.encode(), 0o644)
    write_seal(parcel)


def digest(path: pathlib.Path, told: Told = lambda _bytes: None) -> str:
    """Return a file's SHA-256, and let go of it in the page cache: that memory is the GPU's, too."""
    made = hashlib.sha256()
    try:
        with path.open("rb", buffering=0) as file:
            while data := file.read(CHUNK):
                made.update(data)
                told(len(data))
            forget(file.fileno())
    except OSError as exc:
        raise FabricError(f"{path} cannot be read: {exc.strerror}. See to the disk, and run as root.") from exc
    return made.hexdigest()


def forget(descriptor: int) -> None:
    """Let go of a file in the page cache. What a kernel refuses here does no harm."""
    with contextlib.suppress(OSError):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def verified(parcel: Parcel, item: Item, known: t.Mapping[str, t.Any], told: Told = lambda _bytes: None) -> bool:
    """Whether a file is there and right. One of the right size that is wrong is removed: it has to be moved again."""
    if sealed(parcel, item, known):
        return True
    path = place(parcel, item.path)
    seen = stamp(path)
    if not seen or seen[0] != item.size:
        return False
    if digest(path, told) == item.sha256:
        return True
    path.unlink()
    return False


def keep(parcel: Parcel, item: Item, source: t.IO[bytes], told: Told = lambda _bytes: None) -> str:
    """Write a stream into a part, and keep it as the file where its SHA-256 is right; return the SHA-256 that it has."""
    path = place(parcel, item.path)
    begun, made = part(path), hashlib.sha256()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with begun.open("wb") as file:
            while data := source.read(CHUNK):
                made.update(data)
                file.write(data)
                told(len(data))
            file.flush()
            os.fsync(file.fileno())
            forget(file.fileno())
    except OSError as exc:
        raise placed.cannot_write(str(begun), exc) from exc
    if made.hexdigest() == item.sha256:
        begun.replace(path)
    else:
        begun.unlink()
    return made.hexdigest()


def refuse_full_disk(root: str, needed: int, reserve_gib: float, what: str) -> None:
    """FabricError where a disk has not the room for so many bytes and the reserve (GiB)."""
    free = placed.free_mib(root)
    if free < needed / 2**20 + reserve_gib * 1024:
        raise FabricError(
            f"{root} has {free / 1024:.1f} GiB free, but {what} needs {needed / GIB:.1f} GiB more, and {reserve_gib:g} GiB "
            "are to stay free. Nothing was moved. Free room there, or put the caches on another disk "
            "(k8s_dgx_serving.cache_dir)."
        )
