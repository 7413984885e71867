# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Explain errors of the kernel: a full disk and a missing permission need different remedies."""

from __future__ import annotations

import errno
import os

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError

_REMEDIES = {
    errno.ENOSPC: "the disk is full. Free space on it (`df -h`, and `df -i` for inodes), and run again.",
    errno.EDQUOT: "the user's disk quota is used up. Free space, or raise the quota, and run again.",
    errno.EROFS: (
        "its file system is read-only. A disk error can cause that: see `dmesg`; fix it, remount it read-write, and run "
        "again."
    ),
    errno.EIO: "the disk reports an error. See `dmesg`: it may be failing.",
    errno.EBUSY: "something still uses it. Find out what (`fuser -v`, `lsof`), stop that, and run again.",
    errno.EISDIR: "a folder is in its place. Move it away, and run again.",
    errno.ENOTDIR: "a part of its path is a file, not a folder. Move that away, and run again.",
    errno.ELOOP: "it is a symlink where none is followed, or it points to itself. Put the file itself there, and run again.",
}


def reason(exc: OSError) -> str:
    """Return the reason in words, and what to do, as the text after a colon."""
    if exc.errno in (errno.EPERM, errno.EACCES):
        if os.geteuid() != 0:
            return f"{exc.strerror}. Run this as root (become: true), or as a user who may do it."
        return (
            f"{exc.strerror}, even for root. Check whether it is immutable (`lsattr`), or mounted without root access."
        )
    if exc.errno in _REMEDIES:
        return _REMEDIES[exc.errno]
    return f"{exc.strerror or exc}. Fix that, and run again."


def cannot(verb: str, path: object, exc: OSError) -> CollectionError:
    """Return the error for a path that cannot be read, written or removed."""
    return CollectionError(f"{path} cannot be {verb}: {reason(exc)}")
