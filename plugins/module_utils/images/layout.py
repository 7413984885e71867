# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An image as a list of blobs, and the OCI layout in which it is handed on: a folder of blobs, each named by its SHA-256.

A folder and not one archive: a chain passes a file on as soon as it is whole, so many files keep all nodes busy at once.
The archive that containerd reads and writes is a tar of just this folder, and is never written to disk.
"""

from __future__ import annotations

import json
import os
import tarfile
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.images.reference import DIGEST, Reference
from ansible_collections.dgxspark.cluster.plugins.module_utils.parcels import parcel as parcels
from ansible_collections.dgxspark.cluster.plugins.module_utils.parcels.parcel import Item, Parcel, Told
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import FabricError, from_plain

Plain = dict[str, t.Any]
Read = t.Callable[[str], bytes]  # a digest's bytes
NAME = "io.containerd.image.name"  # annotation, see containerd's core/images/annotations.go
TAG = "org.opencontainers.image.ref.name"  # annotation of the OCI image layout
_INDEX = "application/vnd.oci.image.index.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_VARIANTS = {"arm64": (None, "", "v8"), "amd64": (None, "", "v1")}


@dataclass(frozen=True, slots=True)
class Blob:
    """A blob of an image. size: bytes."""

    digest: str
    size: int


@dataclass(frozen=True, slots=True)
class Listing:
    """What of an image a platform needs. digest, kind: what its name stands for, and that one's media type."""

    digest: str
    kind: str
    platform: str
    blobs: tuple[Blob, ...]

    @property
    def size(self) -> int:
        """Bytes of all blobs: compressed, as they are moved."""
        return sum(blob.size for blob in self.blobs)


def checked(given: t.Any, where: str) -> Listing:
    """Return a list as it was given; FabricError where it is none."""
    made = from_plain(Listing, given, where)
    wrong = [digest for digest in (made.digest, *(blob.digest for blob in made.blobs)) if not DIGEST.match(digest)]
    if wrong or made.digest not in {blob.digest for blob in made.blobs}:
        raise FabricError(f"{where}: {(wrong or [made.digest])[0]!r}: it is no list of an image's blobs.")
    return made


def listing(read: Read, digest: str, platform: str) -> Listing:
    """Return what a platform (such as linux/arm64) needs of an image. FabricError where the image is not for it."""
    data = read(digest)
    top = _json(data, digest)
    blobs = {digest: len(data)}
    if "manifests" in top:
        fit = [each for each in top["manifests"] if _fits(each.get("platform"), platform)]
        manifests = [each["digest"] for each in fit]
        if not fit:
            found = {_platform(each.get("platform") or {}) for each in top["manifests"]} - {"unknown/unknown"}
            raise _not_for(digest, platform, ", ".join(sorted(found)))
    else:
        manifests = [digest]
    for each in manifests:
        data = read(each)
        manifest = _json(data, each)
        blobs[each] = len(data)
        try:
            parts = [manifest["config"], *manifest["layers"]]
            blobs |= {part["digest"]: int(part["size"]) for part in parts}
        except (KeyError, TypeError) as exc:
            raise FabricError(f"{each} is no manifest of an image (it has no {exc}).") from exc
        if "manifests" not in top:
            config = _json(read(manifest["config"]["digest"]), manifest["config"]["digest"])
            if not _fits(config, platform):
                raise _not_for(digest, platform, _platform(config))
    kind = str(top.get("mediaType") or (_INDEX if "manifests" in top else _MANIFEST))
    return Listing(digest, kind, platform, tuple(Blob(*each) for each in sorted(blobs.items())))


def _json(data: bytes, digest: str) -> Plain:
    try:
        found = json.loads(data)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise FabricError(f"{digest} is no manifest of an image: it is no JSON object.")
    return found


def _platform(given: t.Mapping[str, t.Any]) -> str:
    return f"{given.get('os', 'unknown')}/{given.get('architecture', 'unknown')}"


def _fits(given: t.Mapping[str, t.Any] | None, platform: str) -> bool:
    if given is None:
        return True
    architecture = platform.partition("/")[2]
    return _platform(given) == platform and given.get("variant") in _VARIANTS.get(architecture, (given.get("variant"),))


def _not_for(digest: str, platform: str, found: str) -> FabricError:
    return FabricError(
        f"The image {digest} is not for {platform}; it is for {found or 'nothing known'}. Name one that is built for these "
        "nodes (k8s_dgx_image)."
    )


def parcel(stage: str, made: Listing, name: str) -> Parcel:
    """Return the layout's folder as what nodes hand on. name: the one under which containerd shall keep the image."""
    top = next(blob for blob in made.blobs if blob.digest == made.digest)
    entry = {"mediaType": made.kind, "digest": made.digest, "size": top.size, "annotations": {NAME: name}}
    index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": [entry]}
    return Parcel(
        root=stage,
        seal=".dgxspark-seal.json",
        items=tuple(Item(_path(blob.digest), blob.size, blob.digest.partition(":")[2]) for blob in made.blobs),
        texts={"index.json": json.dumps(index), "oci-layout": '{"imageLayoutVersion": "1.0.0"}'},
    )


def _path(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")


def unpack(goal: Parcel, source: str, stream: t.IO[bytes], told: Told = lambda _bytes: None) -> None:
    """Fill the folder from an archive's stream. FabricError where it lacks a blob, or has one with other bytes.

    source: what the archive is, in words.
    """
    known = parcels.read_seal(goal)
    wanted = {item.path: item for item in goal.items if not parcels.verified(goal, item, known)}
    there = sum(item.size for item in goal.items) - sum(item.size for item in wanted.values())
    told(there)
    try:
        with tarfile.open(fileobj=stream, mode="r|*") as tar:
            for entry in tar:
                item = wanted.pop(entry.name.removeprefix("./"), None) if entry.isfile() else None
                if item is not None:
                    _keep(goal, item, t.cast(t.IO[bytes], tar.extractfile(entry)), source, told)
    except (tarfile.TarError, EOFError) as exc:
        raise FabricError(f"{source} is damaged, or no archive: {exc}. Nothing wrong of it was kept.") from exc
    if wanted:
        raise FabricError(f"{source} lacks {next(iter(wanted.values())).sha256[:12]}… of the image: it is not whole.")
    parcels.lay(goal)


def _keep(goal: Parcel, item: Item, source: t.IO[bytes], where: str, told: Told) -> None:
    made = parcels.keep(goal, item, source, told)
    if made != item.sha256:
        raise FabricError(
            f"{where} has other bytes than the name of {item.sha256[:12]}… says (SHA-256 {made[:12]}…): it is "
            "damaged. Nothing of that blob was kept; copy or export it anew."
        )


def pack(goal: Parcel, out: t.IO[bytes], told: Told = lambda _bytes: None) -> None:
    """Write the folder as an archive's stream."""
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.GNU_FORMAT) as tar:
        for path in (*goal.texts, *(item.path for item in goal.items)):
            with goal.files.open(path) as file:
                entry = tarfile.TarInfo(path)
                entry.size = os.fstat(file.fileno()).st_size
                tar.addfile(entry, _Counted(file, told))
                parcels.forget(file.fileno())


class _Counted:
    """A file that tells how much of it was read."""

    def __init__(self, file: t.IO[bytes], told: Told) -> None:
        self.file, self.told = file, told

    def read(self, count: int = -1) -> bytes:
        data = self.file.read(count)
        self.told(len(data))
        return data


def archived(path: str, wanted: Reference, platform: str) -> Listing:
    """Return what a platform needs of the image in an OCI archive: of the digest that the owner named, or that it has."""
    try:
        with tarfile.open(path, "r:*") as tar:
            members = {member.name.removeprefix("./"): member for member in tar if member.isfile()}

            def read(name: str) -> bytes:
                member = members.get(name)
                file = tar.extractfile(member) if member else None
                if file is None:
                    raise FabricError(
                        f"{path} has no {name}: it is no OCI archive, or not a whole one. Make it with `ctr images export`, "
                        "`skopeo copy --all docker://… oci-archive:…`, or Docker's save from release 25 on."
                    )
                return file.read()

            index = _json(read("index.json"), f"{path}: index.json")
            digest = _chosen(path, index.get("manifests") or [], wanted)
            return listing(lambda each: read(_path(each)), digest, platform)
    except FileNotFoundError as exc:
        raise FabricError(f"{path} is not there (k8s_dgx_image_archive).") from exc
    except (tarfile.TarError, EOFError, OSError) as exc:
        raise FabricError(f"{path} cannot be read as an archive: {exc}. Copy it anew.") from exc


def _chosen(path: str, entries: t.Sequence[Plain], wanted: Reference) -> str:
    """Return the digest of the image in an archive."""
    has = list(dict.fromkeys(str(each.get("digest")) for each in entries))
    if wanted.digest:
        if wanted.digest in has:
            return wanted.digest
        raise FabricError(
            f"{path} has no image {wanted.digest}, but {', '.join(has) or 'none at all'}. A tool that packs anew, or copies one "
            "architecture alone, makes another digest: copy with `skopeo copy --all` or `ctr images export`, or name in "
            "k8s_dgx_image what the archive has."
        )
    named = [
        str(each.get("digest"))
        for each in entries
        if (each.get("annotations") or {}).get(NAME) == wanted.asked
        or (each.get("annotations") or {}).get(TAG) in (wanted.tag, wanted.spelled, wanted.asked)
    ]
    fit = list(dict.fromkeys(named)) or has
    if len(fit) != 1:
        raise FabricError(
            f"{path} has {len(fit)} images that may be {wanted.spelled}: {', '.join(fit) or 'none'}. Name the digest in "
            "k8s_dgx_image."
        )
    return fit[0]
