# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Have an image on one node, in its containerd and, where others shall copy it, laid out beside; or take it away."""

from __future__ import annotations

import contextlib
import pathlib
import time
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils import placed
from ansible_collections.dgxspark.cluster.plugins.module_utils.images import layout
from ansible_collections.dgxspark.cluster.plugins.module_utils.images.containerd import FORMER, LABEL, Containerd, Login
from ansible_collections.dgxspark.cluster.plugins.module_utils.images.layout import Listing
from ansible_collections.dgxspark.cluster.plugins.module_utils.images.reference import Reference
from ansible_collections.dgxspark.cluster.plugins.module_utils.images.room import room, short
from ansible_collections.dgxspark.cluster.plugins.module_utils.parcels import parcel as parcels
from ansible_collections.dgxspark.cluster.plugins.module_utils.parcels.parcel import Parcel
from ansible_collections.dgxspark.cluster.plugins.module_utils.parcels.progress import Progress
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import Change, FabricError

_LOOK_S = 3.0  # between two questions how much of a pull is there


@dataclass(frozen=True, slots=True)
class Seen:
    """What a node has of an image. digest: what the reference stands for here; None where nobody has said yet.

    here: all of it, under whatever name. kept: under the name for which the kubelet looks.
    """

    digest: str | None = None
    here: bool = False
    kept: bool = False


@dataclass(frozen=True, slots=True)
class Wanted:
    """What shall be there. reference: the owner's. digest: what it stands for (None: asked of archive or registry).

    stage: the folder in which images are laid out for others, each in one of its own; it is ours alone, and goes when nothing
    is to be handed on. share: lay it out. refresh: ask what a tag stands for. reserve_gib: room that stays free.
    """

    reference: Reference
    stage: str
    digest: str | None = None
    archive: str | None = None
    login: Login | None = None
    share: bool = False
    refresh: bool = False
    reserve_gib: float = 0.0


def look(containerd: Containerd, reference: Reference, digest: str | None = None) -> Seen:
    """Return what the node has. A tag stands for what it stood for when we put it there, else for what the node has of it."""
    digest = digest or reference.digest
    if digest is None:
        rows = containerd.rows(f"name=={reference.asked}", f'labels."{LABEL}"=={reference.asked}')
        rows.sort(key=lambda row: (row.name == reference.asked, not row.ready))
        if not rows:
            return Seen()
        digest = rows[0].digest
    rows = [row for row in containerd.rows(f"target.digest=={digest}") if row.ready]
    return Seen(digest, bool(rows), any(row.name == reference.kept(digest) for row in rows))


def folder(stage: str, digest: str) -> str:
    """Return where an image is laid out."""
    return f"{stage}/{digest.replace(':', '-')}"


def parcel_of(wanted: Wanted, made: Listing) -> Parcel:
    """Return what is handed on of an image."""
    return layout.parcel(folder(wanted.stage, made.digest), made, wanted.reference.kept(made.digest))


def prospect(containerd: Containerd, wanted: Wanted) -> Listing:
    """Return what would come, without having it: from the archive, or as the registry says."""
    if wanted.archive:
        return layout.archived(wanted.archive, wanted.reference, containerd.platform)
    digest = wanted.digest or wanted.reference.digest
    return containerd.asked(wanted.reference.kept(digest) if digest else wanted.reference.asked, wanted.login)


def known(containerd: Containerd, wanted: Wanted) -> Listing | None:
    """Return what is there, under whatever name; None where it is not, or has to be asked for."""
    if wanted.refresh and not (wanted.digest or wanted.reference.digest):
        return None
    seen = look(containerd, wanted.reference, wanted.digest)
    return containerd.listing(seen.digest) if seen.digest and seen.here else None


def expected(containerd: Containerd, wanted: Wanted) -> Listing:
    """Return what will be there in the end; nothing is moved."""
    return known(containerd, wanted) or prospect(containerd, wanted)


def have(containerd: Containerd, wanted: Wanted, progress: Progress) -> tuple[Listing, bool]:
    """Have it; return its list, and whether anything changed in containerd. FabricError says what is in the way."""
    made = expected(containerd, wanted)
    if look(containerd, wanted.reference, made.digest).here:
        refuse_no_room(containerd, wanted, made, keep=False, lay=wanted.share)
        changed = named(containerd, wanted.reference, made.digest)
    else:
        changed = True
        refuse_no_room(containerd, wanted, made, keep=True, lay=wanted.share or bool(wanted.archive))
        if wanted.archive:
            goal = laid(wanted, made)
            with _opened(wanted.archive) as stream:
                layout.unpack(goal, wanted.archive, stream, _counted(progress, "export", made))
            bring(containerd, wanted, made, progress)
        else:
            progress.phase, progress.total, progress.bytes = "download", made.size, _arrived(containerd, made)
            containerd.pull(wanted.reference.kept(made.digest), wanted.reference.asked, wanted.login)
            verify(containerd, wanted.reference, made)
    if wanted.share:
        goal = laid(wanted, made)
        if not parcels.state(goal).whole:
            containerd.export(wanted.reference.kept(made.digest), goal, _counted(progress, "export", made))
    else:
        placed.remove(wanted.stage)
    return made, changed


def refuse_no_room(containerd: Containerd, wanted: Wanted, made: Listing, *, keep: bool, lay: bool) -> None:
    """FabricError where the disks have not the room."""
    rooms = {"root": room(containerd.root), "stage": room(wanted.stage)}
    if missing := short(rooms, made.size, wanted.reserve_gib, keep=keep, lay=lay):
        raise FabricError(f"{wanted.reference.spelled}: {missing}")


def named(containerd: Containerd, reference: Reference, digest: str) -> bool:
    """Have an image, all of which is there, under the name for which the kubelet looks; tell whether it was not."""
    rows = [row for row in containerd.rows(f"target.digest=={digest}") if row.ready]
    missing = not any(row.name == reference.kept(digest) for row in rows)
    if missing:
        containerd.tag(rows[0].name, reference.kept(digest), reference.asked)
    _settle(containerd, reference, digest)
    return missing


def _settle(containerd: Containerd, reference: Reference, digest: str) -> None:
    """Have a tag that was resolved anew stand for one digest alone; what it stood for before stays ours."""
    for row in containerd.rows(f'labels."{LABEL}"=={reference.asked}'):
        if row.digest != digest:
            containerd.retire(row.name, reference.asked)


def bring(containerd: Containerd, wanted: Wanted, made: Listing, progress: Progress) -> None:
    """Import what is laid out, and see that it is right."""
    containerd.load(parcel_of(wanted, made), _counted(progress, "import", made))
    containerd.label(wanted.reference.kept(made.digest), wanted.reference.asked)
    verify(containerd, wanted.reference, made)


def verify(containerd: Containerd, reference: Reference, made: Listing) -> None:
    """FabricError where containerd has not all of it, unpacked, under the name for which the kubelet looks."""
    _settle(containerd, reference, made.digest)
    if not look(containerd, reference, made.digest).kept:
        raise FabricError(
            f"{reference.kept(made.digest)}: containerd took it, but has not all of it, or has not unpacked it. See its log on this "
            "node (journalctl -u k3s -u k3s-agent -u containerd); run again when it is well."
        )


def gone(
    containerd: Containerd, reference: Reference, stage: str, *, dry: bool = False
) -> tuple[list[Change], list[str]]:
    """Remove what we put there for a reference; return what went, and the names that stay since containers run of them.

    The CRI plugin keeps one more name for each image, its config's digest, which would hold all of it: it goes too, where no
    name of somebody else's needs the image.
    """
    rows = containerd.rows(*(f'labels."{label}"=={reference.asked}' for label in (LABEL, FORMER)))
    going, stay = [], []
    used = containerd.running() if rows else set()
    for row in rows:
        alike = {each.name for each in containerd.rows(f"target.digest=={row.digest}")}
        by_id = {name for name in alike if name.startswith("sha256:")}
        if used & (alike if alike - by_id == {row.name} else {row.name}):
            stay.append(row.name)
        else:
            going += [row.name, *(sorted(by_id) if alike - by_id == {row.name} else [])]
    found = [Change(name, "image", "there", None) for name in going]
    if pathlib.Path(stage).exists():
        found.append(Change(stage, "folder", "there", None))
    if not dry:
        if going:
            containerd.remove(going)
        placed.remove(stage)
    return found, stay


def laid(wanted: Wanted, made: Listing) -> Parcel:
    """Return the parcel of an image, its folder made: root's alone, since an image may be private."""
    pathlib.Path(wanted.stage).mkdir(mode=0o700, parents=True, exist_ok=True)
    return parcel_of(wanted, made)


def _counted(progress: Progress, phase: str, made: Listing) -> t.Callable[[int], None]:
    """Return who counts bytes for whoever waits."""
    done = 0

    def more(count: int) -> None:
        nonlocal done
        done += count

    progress.phase, progress.total, progress.bytes = phase, made.size, lambda: done
    return more


def _opened(path: str) -> t.IO[bytes]:
    try:
        return pathlib.Path(path).open("rb")
    except OSError as exc:
        raise FabricError(f"{path} cannot be read: {exc.strerror} (k8s_dgx_image_archive).") from exc


def _arrived(containerd: Containerd, made: Listing) -> t.Callable[[], int]:
    last, asked = 0, 0.0

    def count() -> int:
        nonlocal last, asked
        if time.monotonic() - asked > _LOOK_S:
            with contextlib.suppress(FabricError):  # the pull itself says what is wrong
                last = containerd.arrived(made)
            asked = time.monotonic()
        return last

    return count
