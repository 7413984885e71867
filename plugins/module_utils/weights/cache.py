# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Weights in the layout of the hub's cache, which engines read: what a node has of a repository, its list, its removal.

`hub/models--ORG--NAME/` holds `blobs/BLOB` (named by SHA-256 for LFS files, else by git's id), `snapshots/COMMIT/PATH` (links to
blobs) and `refs/main`. Beside them lies a list of ours for each commit, `dgxspark-COMMIT.json`: every file with its size and
SHA-256. `refs/main` names the commit that an engine without a network finds: the one that was chosen last.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import re
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils import placed
from ansible_collections.dgxspark.cluster.plugins.module_utils.parcels import parcel as parcels
from ansible_collections.dgxspark.cluster.plugins.module_utils.parcels.parcel import Item, Parcel
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import Change, FabricError, from_plain, to_plain

COMMIT = re.compile(r"^[0-9a-f]{40}$")
_REPO = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*$")
_BLOB = re.compile(r"^[0-9a-f]{40}$|^[0-9a-f]{64}$")
STALE_S = 600  # an unfinished download that nobody has touched for so long belongs to a process that is gone


@dataclass(frozen=True, slots=True)
class File:
    """A file of a repository. blob: its name in the cache. sha256: None until it was read or the hub told it."""

    path: str
    blob: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """A commit of a repository, whole. ignore: patterns of files that were left out on purpose."""

    repo: str
    revision: str
    files: tuple[File, ...]
    ignore: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Bytes on disk: equal files count once."""
        return sum({file.blob: file.size for file in self.files}.values())


def folder(repo: str) -> str:
    """Return a repository's folder in the cache; FabricError for what is no name of one."""
    if not _REPO.match(repo):
        raise FabricError(f"{repo!r} is no repository of the hub: those are ORG/NAME.")
    return "models--" + repo.replace("/", "--")


def checked(given: t.Any, where: str) -> Manifest:
    """Return a list as it was given; FabricError where it is none."""
    made = from_plain(Manifest, given, where)
    folder(made.repo)
    wrong = [
        file.path for file in made.files if not _BLOB.match(file.blob) or not re.match(r"^[0-9a-f]{64}$", file.sha256)
    ]
    if wrong or not COMMIT.match(made.revision):
        raise FabricError(
            f"{where}: {(wrong or [made.revision])[0]!r}: it is no list of ours. Make it anew by a download."
        )
    return made


def parcel(hub: str, manifest: Manifest) -> Parcel:
    """Return what a node shall have of a commit, below the cache's folder `hub`."""
    base = folder(manifest.repo)
    blobs = {file.blob: file for file in manifest.files}
    snapshot = f"{base}/snapshots/{manifest.revision}"
    links = {}
    for file in manifest.files:
        up = "../" * (file.path.count("/") + 2)
        links[f"{snapshot}/{file.path}"] = f"{up}blobs/{file.blob}"
    return Parcel(
        root=hub,
        seal=f"{base}/.dgxspark-seal-{manifest.revision}.json",
        items=tuple(Item(f"{base}/blobs/{blob}", file.size, file.sha256) for blob, file in sorted(blobs.items())),
        links=links,
        texts={f"{base}/dgxspark-{manifest.revision}.json": text(manifest), f"{base}/refs/main": manifest.revision},
    )


def text(manifest: Manifest) -> str:
    """Return a list as it is written down."""
    return json.dumps(to_plain(manifest), indent=1, sort_keys=True) + "\n"


def current(hub: str, repo: str) -> str | None:
    """Return the commit that an engine without a network would find."""
    there = placed.read(f"{hub}/{folder(repo)}/refs/main")
    return there[0].decode("ascii", "replace").strip() if there else None


def read(hub: str, repo: str, revision: str | None) -> Manifest | None:
    """Return the list of a commit (None: of the current one) that a node has; None where it has none."""
    revision = revision or current(hub, repo)
    if revision is None or not COMMIT.match(revision):
        return None
    path = f"{hub}/{folder(repo)}/dgxspark-{revision}.json"
    there = placed.read(path)
    if there is None:
        return None
    try:
        return checked(json.loads(there[0]), path)
    except ValueError as exc:
        raise FabricError(f"{path} is no JSON: {exc}. Remove it, and have the weights downloaded again.") from exc


def listed(
    hub: str, repo: str, listing: t.Mapping[str, t.Any], ignore: t.Sequence[str], told: parcels.Told
) -> Manifest:
    """Read downloaded files and return their list. FabricError for one whose bytes are not what the hub promised; it is
    removed, so that the next download brings it again.

    listing: `revision` and `files` (path, size, blob, sha256 or None) as the hub tells them.
    """
    files = []
    for each in listing["files"]:
        blob = each["sha256"] or each["blob"]
        path = pathlib.Path(hub) / folder(repo) / "blobs" / blob
        seen = parcels.stamp(path)
        if seen is None:
            raise FabricError(
                f"{repo}: {each['path']} did not come with the download. Run again: the rest goes on from here."
            )
        sha256 = parcels.digest(path, told)
        right = sha256 == each["sha256"] if each["sha256"] else _git_blob(path) == each["blob"]
        if not right or seen[0] != each["size"]:
            path.unlink()
            promised = f"SHA-256 {each['sha256']}" if each["sha256"] else f"git blob {each['blob']}"
            raise FabricError(
                f"{repo}: {each['path']} has other bytes than the hub promised ({promised}; {each['size']} bytes, came {seen[0]} "
                f"with SHA-256 {sha256}). It was removed: run again; what is right stays. If it comes wrong again, a proxy or the "
                "disk spoils it."
            )
        files.append(File(each["path"], blob, each["size"], sha256))
    return Manifest(repo, str(listing["revision"]), tuple(files), tuple(ignore))


def _git_blob(path: pathlib.Path) -> str:
    """Return git's id of a small file: SHA-1 of a header and its content."""
    content = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def missing(hub: str, repo: str, listing: t.Mapping[str, t.Any]) -> int:
    """Return how many bytes of a listing are not there yet."""
    blobs = {each["sha256"] or each["blob"]: each["size"] for each in listing["files"]}
    base = pathlib.Path(hub) / folder(repo) / "blobs"
    return sum(size for blob, size in blobs.items() if (parcels.stamp(base / blob) or [-1])[0] != size)


def arrived(hub: str, repo: str) -> int:
    """Return how many bytes of a repository are there, those of unfinished files included."""
    base = pathlib.Path(hub) / folder(repo) / "blobs"
    try:
        return sum(entry.stat().st_size for entry in os.scandir(base))
    except OSError:
        return 0


def sweep(hub: str, repo: str, now: float) -> int:
    """Remove what killed downloads left (the hub's library never goes on with those); return the bytes that came free.

    now: seconds since the epoch.
    """
    freed = 0
    for path in (pathlib.Path(hub) / folder(repo) / "blobs").glob("*.incomplete"):
        seen = path.stat()
        if now - seen.st_mtime > STALE_S:
            path.unlink()
            freed += seen.st_size
    return freed


def removal(hub: str, repo: str) -> list[pathlib.Path]:
    """Return what of a repository is ours, by our lists: links, blobs that no other commit uses, lists and seals."""
    base = pathlib.Path(hub) / folder(repo)
    ours = {path.stem.removeprefix("dgxspark-") for path in base.glob("dgxspark-*.json")}
    gone: list[pathlib.Path] = []
    kept = {
        link.resolve()
        for snapshot in base.glob("snapshots/*")
        if snapshot.name not in ours
        for link in snapshot.rglob("*")
        if link.is_symlink()
    }
    blobs: set[pathlib.Path] = set()
    for revision in sorted(ours):
        manifest = read(hub, repo, revision)
        for file in manifest.files if manifest else ():
            blob = base / "blobs" / file.blob
            gone.append(base / "snapshots" / revision / file.path)
            if blob.resolve() not in kept:
                blobs |= {blob, parcels.part(blob)}
        gone += [base / f"dgxspark-{revision}.json", base / f".dgxspark-seal-{revision}.json"]
        gone.append(base / "trees" / f"{revision}.json")
    if ours and current(hub, repo) in ours:
        gone.append(base / "refs/main")
        gone += (pathlib.Path(hub) / ".locks" / folder(repo)).glob("*.lock")
    return [path for path in (*sorted(blobs), *gone) if path.is_symlink() or path.exists()]


def remove(hub: str, repo: str, *, dry: bool = False) -> list[Change]:
    """Remove what is ours of a repository, and folders that are empty then; return what went."""
    gone = removal(hub, repo)
    found = [Change(str(path), "file", "there", None) for path in gone]
    if dry:
        return found
    for path in gone:
        path.unlink()
    base = pathlib.Path(hub) / folder(repo)
    for place in sorted((p for p in base.rglob("*") if p.is_dir()), key=lambda p: -len(p.parts)):
        _drop(place)
    _drop(base)
    _drop(pathlib.Path(hub) / ".locks" / folder(repo))
    return found


def _drop(place: pathlib.Path) -> None:
    """Remove a folder where it is empty."""
    if place.is_dir() and not any(place.iterdir()):
        place.rmdir()
