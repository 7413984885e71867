# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The room that an image needs on a node, where it is laid out and where containerd keeps it."""

from __future__ import annotations

import pathlib
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils import placed
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import GIB

# Layers come compressed, and no manifest says how large they get. Engines' images about double or treble; nobody has
# published a figure for those that we know, so this is an assumption, on the safe side.
UNPACKED = 3

Room = dict[str, int]


def room(path: str) -> Room:
    """Return the free room (MiB) where a path lies or would lie, and a number that is the same for places on one disk."""
    place = pathlib.Path(path)
    while not place.exists():
        place = place.parent
    return {"device": place.stat().st_dev, "free_mib": placed.free_mib(path)}


def bytes_needed(size: int, *, keep: bool, lay: bool, more: int = 0) -> dict[str, int]:
    """Return the bytes that an image needs in each place; see `short`."""
    return {"root": size * (1 + UNPACKED) if keep else 0, "stage": (size if lay else 0) + more}


def short(
    rooms: t.Mapping[str, t.Mapping[str, int]], size: int, reserve_gib: float, *, keep: bool, lay: bool, more: int = 0
) -> str:
    """Return in words what is missing on a node; empty where nothing is.

    rooms: `root` (containerd's) and `stage` (where images are laid out). size: bytes of the image as it is moved. keep:
    containerd is to take it. lay: it is to be laid out. more: bytes that come there besides, such as an archive.
    """
    needs = bytes_needed(size, keep=keep, lay=lay, more=more)
    for device in {each["device"] for each in rooms.values()}:
        there = [name for name in needs if rooms[name]["device"] == device]
        need, free_mib = sum(needs[name] for name in there), min(rooms[name]["free_mib"] for name in there)
        if need and free_mib / 1024 < need / GIB + reserve_gib:
            words = {"root": "containerd keeps images", "stage": "they are laid out for others"}
            return (
                f"{free_mib / 1024:.1f} GiB are free where {' and '.join(words[name] for name in there)}, but an image of "
                f"{size / GIB:.1f} GiB, packed and unpacked, is thought to need {need / GIB:.1f} GiB, and {reserve_gib:g} GiB are to stay free. "
                "Nothing was moved. Free room there (`k3s crictl rmi --prune` removes images that nothing runs of)."
            )
    return ""
