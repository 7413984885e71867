# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Weights in the layout of the hub's cache, which engines read: what a node has of a repository, its list, its removal.

Below a node's folder of caches, ranks read `huggingface/hub/models--ORG--NAME/`: `blobs/BLOB` (named by SHA-256 for LFS files,
else by git's id), `snapshots/COMMIT/PATH` (links to blobs) and `refs/main`, the commit that an engine finds without a network: the
one chosen last. What root trusts is in `weights/`, which only root can open: for each commit the list of every file with its size
and SHA-256, and the seal; which commit was chosen; downloads in progress. A copy of the list is kept beside the weights, for
transport to another site, and is read only there.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
import re
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils import node_files
from ansible_collections.dgxspark.cluster.plugins.module_utils.beneath import Beneath
from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import from_json, line
from ansible_collections.dgxspark.cluster.plugins.module_utils.transfer import parcel as parcels
from ansible_collections.dgxspark.cluster.plugins.module_utils.transfer.parcel import Item, Parcel
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import (
    Change,
    CollectionError,
    from_plain,
    to_plain,
)

HUB = "huggingface/hub"
OWN = "weights"
COMING = f"{OWN}/coming"  # the hub's library downloads here, where only root can write
COMMIT = re.compile(r"^[0-9a-f]{40}$")
_REPO = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*$")
_BLOB = re.compile(r"^[0-9a-f]{40}$|^[0-9a-f]{64}$")
# Limit for a JSON file that is read whole: the list of tensors is the largest. A published one has 23.5 MB
# (huggingface.js, pull request 1954); 384 experts in 60 layers make 276,480 names and 31 MB if NVFP4 has four tensors per matrix.
JSON_MOST = 128 * 2**20
STALE_S = 600  # an unfinished download that is unchanged for this long belongs to a dead process


@dataclass(frozen=True, slots=True)
class File:
    """A file of a repository. blob: its name in the cache. sha256: of its content, hex."""

    path: str
    blob: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """A complete commit of a repository. ignore: patterns of files that were left out on purpose."""

    repo: str
    revision: str
    files: tuple[File, ...]
    ignore: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Bytes on disk: identical files count once."""
        return sum({file.blob: file.size for file in self.files}.values())


def folder(repo: str) -> str:
    """Return a repository's folder in the cache; CollectionError for an invalid name."""
    if not _REPO.fullmatch(repo):
        raise CollectionError(f"{repo!r} is not the name of a repository on the hub (ORG/NAME).")
    return "models--" + repo.replace("/", "--")


def checked(given: t.Any, where: str) -> Manifest:
    """Validate a list from plain data; CollectionError for anything else."""
    made = from_plain(Manifest, given, where)
    folder(made.repo)
    wrong = [
        file.path
        for file in made.files
        if not _BLOB.fullmatch(file.blob)
        or not re.fullmatch(r"[0-9a-f]{64}", file.sha256)
        or not 0 <= file.size < 2**50
        or not _below(file.path)
    ]
    if wrong or not COMMIT.fullmatch(made.revision):
        raise CollectionError(
            f"{where}: {line((wrong or [made.revision])[0], 200)!r}: it is not a list written by this collection. Download it again."
        )
    return made


def _below(path: str) -> bool:
    """Whether a path leads to a file below its folder, in printable characters."""
    return path.isprintable() and len(path) < 4096 and not {"", ".", ".."} & set(path.split("/"))


def parcel(root: str, manifest: Manifest) -> Parcel:
    """Return the wanted files of a commit on a node, below its folder of caches."""
    goal = hub_parcel(root, manifest, HUB)
    own = f"{OWN}/{folder(manifest.repo)}"
    mine = {f"{own}/{manifest.revision}.json": text(manifest), f"{own}/main": manifest.revision}
    return dataclasses.replace(goal, seal=f"{own}/{manifest.revision}.seal.json", texts={**goal.texts, **mine}, own=OWN)


def hub_parcel(root: str, manifest: Manifest, below: str = "") -> Parcel:
    """Return a commit in the hub's layout in a folder, with its list beside it."""
    base = f"{below}/{folder(manifest.repo)}".lstrip("/")
    blobs = {file.blob: file for file in manifest.files}
    snapshot = f"{base}/snapshots/{manifest.revision}"
    links = {}
    for file in manifest.files:
        up = "../" * (file.path.count("/") + 2)
        links[f"{snapshot}/{file.path}"] = f"{up}blobs/{file.blob}"
    return Parcel(
        root=root,
        seal=f"{base}/seal.json",
        items=tuple(Item(f"{base}/blobs/{blob}", file.size, file.sha256) for blob, file in sorted(blobs.items())),
        links=links,
        texts={f"{base}/dgxspark-{manifest.revision}.json": text(manifest), f"{base}/refs/main": manifest.revision},
    )


def text(manifest: Manifest) -> str:
    """Return a list as JSON text."""
    return json.dumps(to_plain(manifest), indent=1, sort_keys=True) + "\n"


def current(root: str, repo: str) -> str | None:
    """Return the commit that was chosen last, which an engine finds without a network."""
    return _commit(root, f"{OWN}/{folder(repo)}/main")


def _commit(root: str, path: str) -> str | None:
    there = Beneath(root).read(path, 1024)
    return there.decode("ascii", "replace").strip() if there else None


def read(root: str, repo: str, revision: str | None) -> Manifest | None:
    """Return a node's list of a commit (None: the current one); None if it has none."""
    revision = revision or current(root, repo)
    return _list(root, f"{OWN}/{folder(repo)}/{revision}.json", revision)


def small_files(root: str, manifest: Manifest, names: t.Sequence[str]) -> dict[str, t.Any]:
    """Return JSON files of a commit by name, verified against our list; files that the commit lacks are left out.

    Ranks can write where weights are kept, so no file is opened through its link there, and content that differs from the list is
    refused. Raises CollectionError for such a file, for one above JSON_MOST bytes, and for invalid JSON.
    """
    found = {}
    for file in manifest.files:
        if file.path not in names:
            continue
        where = f"{manifest.repo}: {file.path}"
        if file.size > JSON_MOST:
            raise CollectionError(
                f"{where} has {file.size} bytes, more than the {JSON_MOST} that are read from such a file."
            )
        content = Beneath(root).read(_blob(HUB, manifest.repo, file.blob), file.size)
        if content is None or hashlib.sha256(content).hexdigest() != file.sha256:
            raise CollectionError(
                f"{where} is missing, or differs from the list of this collection. Have the weights verified (model_weights_verify=true)."
            )
        try:
            found[file.path] = from_json(content, most=JSON_MOST, of_python=True)
        except ValueError as exc:
            raise CollectionError(f"{where} is not JSON: {exc}.") from exc
    return found


def brought(source: str, repo: str, revision: str | None) -> Manifest | None:
    """Return the list beside the weights in an owner's folder; None if there is none."""
    revision = revision or _commit(source, f"{folder(repo)}/refs/main")
    return _list(source, f"{folder(repo)}/dgxspark-{revision}.json", revision)


def _list(root: str, path: str, revision: str | None) -> Manifest | None:
    if revision is None or not COMMIT.fullmatch(revision):
        return None
    there = Beneath(root).read(path)
    if there is None:
        return None
    try:
        return checked(from_json(there, most=JSON_MOST), f"{root}/{path}")
    except ValueError as exc:
        raise CollectionError(
            f"{root}/{path} is not JSON: {exc}. Remove it, and have the weights downloaded again."
        ) from exc


def listed(
    root: str,
    repo: str,
    listing: t.Mapping[str, t.Any],
    ignore: t.Sequence[str],
    known: parcels.Known,
    told: parcels.Told,
) -> Manifest:
    """Read downloaded files, move new ones into place, record them, and return the list. Raises CollectionError for a file whose content
    differs from the hub's promise; it is removed, so that the next download fetches it again.

    listing: `revision` and `files` (path, size, blob, sha256 or None) from the hub.
    """
    files, right, seen = [], {}, {}
    for each in listing["files"]:
        blob = each["sha256"] or each["blob"]
        if blob not in right:
            seen[blob] = parcels.stamp(Beneath(root), _blob(HUB, repo, blob))
            right[blob] = _right(root, repo, each, blob, told)
        files.append(File(each["path"], blob, each["size"], right[blob]))
    for blob, sha256 in right.items():
        if _settle(root, repo, blob):
            seen[blob] = parcels.stamp(Beneath(root), _blob(HUB, repo, blob))
        known[_blob(HUB, repo, blob)] = [*(seen[blob] or ()), sha256]
    return Manifest(repo, str(listing["revision"]), tuple(files), tuple(ignore))


def _blob(below: str, repo: str, blob: str) -> str:
    return f"{below}/{folder(repo)}/blobs/{blob}"


def _right(root: str, repo: str, each: t.Mapping[str, t.Any], blob: str, told: parcels.Told) -> str:
    """Return the SHA-256 of a new or existing blob, once it is verified against the hub's promise."""
    files = Beneath(root)
    path = next((place for below in (COMING, HUB) if files.stat(place := _blob(below, repo, blob))), None)
    if path is None:
        raise CollectionError(f"{repo}: {each['path']} was not downloaded. Run again: the rest continues from here.")
    sha1, sha256, size = hashlib.sha1(b"blob %d\0" % each["size"], usedforsecurity=False), hashlib.sha256(), 0
    with files.open(path) as file:
        while data := file.read(parcels.CHUNK):
            sha256.update(data)
            if not each["sha256"]:
                sha1.update(data)
            size += len(data)
            told(len(data))
        parcels.forget(file.fileno())
    seen = sha256.hexdigest()
    right = seen == each["sha256"] if each["sha256"] else sha1.hexdigest() == each["blob"]  # git's id is SHA-1
    if right and size == each["size"]:
        return seen
    files.unlink(path)
    promised = f"SHA-256 {each['sha256']}" if each["sha256"] else f"git blob {each['blob']}"
    raise CollectionError(
        f"{repo}: {each['path']} has other bytes than the hub promised ({promised}; {each['size']} bytes, came {size} "
        f"with SHA-256 {seen}). It was removed: run again; what is right stays. If it comes wrong again, a proxy or the "
        "disk spoils it."
    )


def _settle(root: str, repo: str, blob: str) -> bool:
    """Move a downloaded, verified blob to where ranks read it; return whether there was one."""
    files, here, there = Beneath(root), _blob(COMING, repo, blob), _blob(HUB, repo, blob)
    if files.stat(here) is None:
        return False
    try:
        files.rename(here, there)
    except OSError as exc:
        raise node_files.cannot_write(f"{root}/{there}", exc) from exc
    return True


def lacking(root: str, repo: str, listing: t.Mapping[str, t.Any]) -> list[t.Mapping[str, t.Any]]:
    """Return the files of a listing that are missing, identical ones once."""
    files = Beneath(root)
    found: dict[str, t.Mapping[str, t.Any]] = {}
    for each in listing["files"]:
        blob = each["sha256"] or each["blob"]
        seen = [files.stat(_blob(below, repo, blob)) for below in (COMING, HUB)]
        if not any(stat and stat.st_size == each["size"] for stat in seen):
            found.setdefault(blob, each)
    return list(found.values())


def missing(root: str, repo: str, listing: t.Mapping[str, t.Any]) -> int:
    """Return the missing bytes of a listing."""
    return sum(each["size"] for each in lacking(root, repo, listing))


def arrived(root: str, repo: str) -> int:
    """Return the bytes of a download that have arrived, those of unfinished files included."""
    files, base = Beneath(root), f"{COMING}/{folder(repo)}/blobs"
    try:
        return sum(seen.st_size for name in files.names(base) if (seen := files.stat(f"{base}/{name}")))
    except OSError:
        return 0


def sweep(root: str, repo: str, now: float) -> int:
    """Remove what killed downloads left (the hub's library never resumes those); return the freed bytes.

    now: seconds since the epoch.
    """
    files, freed = Beneath(root), 0
    for below in (COMING, HUB):
        base = f"{below}/{folder(repo)}/blobs"
        for name in files.names(base):
            seen = files.stat(f"{base}/{name}") if name.endswith(".incomplete") else None
            if seen and now - seen.st_mtime > STALE_S:
                files.unlink(f"{base}/{name}")
                freed += seen.st_size
    return freed


def removal(root: str, repo: str) -> list[str]:
    """Return which files of a repository are ours, by our lists: links, blobs that no other commit uses, lists and seals."""
    files, base, own = Beneath(root), f"{HUB}/{folder(repo)}", f"{OWN}/{folder(repo)}"
    ours = {name.removesuffix(".json") for name in files.names(own) if COMMIT.match(name.removesuffix(".json"))}
    gone: list[str] = []
    kept = {
        pathlib.PurePosixPath(files.target(path) or "").name
        for revision in files.names(f"{base}/snapshots")
        if revision not in ours
        for path, is_folder in files.walk(f"{base}/snapshots/{revision}")
        if not is_folder
    }
    blobs: set[str] = set()
    for revision in sorted(ours):
        manifest = read(root, repo, revision)
        for file in manifest.files if manifest else ():
            gone.append(f"{base}/snapshots/{revision}/{file.path}")
            if file.blob not in kept:
                # Earlier releases kept partial downloads beside the blobs.
                blobs |= {f"{base}/blobs/{file.blob}", f"{base}/blobs/{file.blob}.part", f"{own}/{file.blob}.part"}
        gone += [f"{base}/dgxspark-{revision}.json", f"{own}/{revision}.json", f"{own}/{revision}.seal.json"]
        gone.append(f"{base}/trees/{revision}.json")
    if ours and _commit(root, f"{base}/refs/main") in ours:
        gone.append(f"{base}/refs/main")
        locks = f"{HUB}/.locks/{folder(repo)}"
        gone += [f"{locks}/{name}" for name in files.names(locks) if name.endswith(".lock")]
    gone.append(f"{own}/main")
    return [path for path in (*sorted(blobs), *gone) if files.target(path) is not None or files.stat(path)]


def remove(root: str, repo: str, *, dry: bool = False) -> list[Change]:
    """Remove our files of a repository, and folders that are then empty; return what was removed."""
    files, gone = Beneath(root), removal(root, repo)
    found = [Change(f"{root}/{path}", "file", "there", None) for path in gone]
    if dry:
        return found
    for path in gone:
        files.unlink(path)
    files.clear(f"{COMING}/{folder(repo)}")
    for base in (f"{HUB}/{folder(repo)}", f"{OWN}/{folder(repo)}", f"{HUB}/.locks/{folder(repo)}"):
        for below, is_folder in list(files.walk(base)):
            if is_folder:
                files.rmdir(below)
        files.rmdir(base)
    for base in (COMING, OWN):
        files.rmdir(base)
    return found
