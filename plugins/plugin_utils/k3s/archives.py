# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Archives of images for K3s's images folder: their names there, and why some are refused.

K3s imports each file of that folder at its start, and from v1.32.0+k3s1 on also one that appears while it runs
(k3s-io/k3s pkg/agent/containerd/watcher.go). It cannot tell a replaced file of the same size from the old one, so names there
carry the digest; a file with such a name has been verified.
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import MIB, Finding

# The formats that K3s reads (rancher/wharfie pkg/tarfile). The longest match counts.
ENDINGS = (".tar", ".tar.lz4", ".tar.bz2", ".tbz", ".tar.gz", ".tgz", ".tar.zst", ".tzst")
_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,150}$")
_SHA256 = re.compile(r"^[0-9a-f]{64}$")


@dataclass(frozen=True, slots=True)
class Archive:
    """An archive on the controller. name: in the images folder, by default the file's own."""

    path: str
    sha256: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """What the controller has of an archive; path: absolute. Size and digest are None if the file is missing."""

    path: str = ""
    size: int | None = None
    sha256: str | None = None


def seen(stat: t.Mapping[str, t.Any]) -> Seen:
    """Convert ansible.builtin.stat's answer about an archive. It has a digest only if one was requested."""
    return Seen(str(stat["path"]), stat["size"], stat.get("checksum")) if stat.get("isreg") else Seen()


def plan(
    archives: t.Sequence[Archive], there: t.Sequence[Seen], host: str
) -> tuple[list[dict[str, t.Any]], list[Finding]]:
    """Return what goes into the images folder of a host (`name`, `older`, `path`, `sha256`, `mib`), and findings.

    there: one for each archive, in the same order. older: a pattern for the names of the same archive with other digests.
    """
    findings: list[Finding] = []

    def wrong(path: str, message: str, remedy: str) -> None:
        findings.append(Finding("k3s.archive", "error", f"{host}: k3s_image_archives: {path}", message, remedy))

    planned: dict[str, dict[str, t.Any]] = {}
    for archive, file in zip(archives, there, strict=True):
        name = archive.name or archive.path.rpartition("/")[2]
        ending = next((ending for ending in sorted(ENDINGS, key=len, reverse=True) if name.endswith(ending)), None)
        digest = archive.sha256 or file.sha256
        if not _NAME.match(name) or ending is None:
            wrong(archive.path, f"{name} is not a name that K3s imports.", f"It must end in {', '.join(ENDINGS)}.")
        elif archive.sha256 and not _SHA256.match(archive.sha256):
            wrong(archive.path, f"{archive.sha256} is not a SHA-256.", "Give 64 hexadecimal digits, or leave it out.")
        elif name in planned:
            wrong(archive.path, f"{planned[name]['path']} has the name {name}, too.", "Give one of them another name.")
        elif file.size is None or digest is None:
            wrong(archive.path, "it does not exist on the controller.", "Put it there, or remove it from the list.")
        else:
            stem = name.removesuffix(ending)
            planned[name] = {
                "name": f"{stem}-{digest[:12]}{ending}",
                "older": f"^{re.escape(stem)}-[0-9a-f]{{12}}{re.escape(ending)}$",
                "path": file.path,
                "sha256": digest,
                "mib": -(-file.size // MIB),
            }
    return list(planned.values()), findings
