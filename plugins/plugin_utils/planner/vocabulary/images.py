# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Known engine images, looked up by name or digest."""

from __future__ import annotations

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge

KIND = "images"
Images = t.Mapping[str, knowledge.Entry]


def entries(overlays: t.Sequence[str] = ()) -> t.Mapping[str, knowledge.Entry]:
    """Return all images by id, the owner's last. Treat the entries as read-only."""
    return knowledge.shared(KIND, tuple(overlays))


def load_images(overlays: t.Sequence[str] = ()) -> Images:
    """Return all entries, including the owner's, by name and by digest; the last entry with a name wins."""
    known = knowledge.load(KIND, overlays).values()
    return {name: entry for entry in known for name in (entry["image"], entry.get("digest")) if name}


def find_image(images: Images, image: str | None) -> knowledge.Entry:
    """Return the entry of an image given by tag, by digest, or as `NAME@DIGEST`; empty if unknown."""
    named = image or ""
    return images.get(named) or images.get(named.partition("@")[2]) or {}


def own_kernels(images: Images, image: str | None) -> str:
    """Return which kernels of its own an image has, or an empty string; a fork is known by its name, whatever the tag."""
    name = (image or "").partition("@")[0]
    head, _colon, tag = name.rpartition(":")
    repository = head if head and "/" not in tag else name
    found = [entry["kernels"] for key in (name, repository) if "kernels" in (entry := images.get(key, {}))]
    return str(found[0]) if found else ""
