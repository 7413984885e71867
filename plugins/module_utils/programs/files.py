# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a file is written on a node: by modules, and by the programs that stay there. Loads nothing that a program does not have anyway."""

# Loading pathlib would take longer than the writing.
from __future__ import annotations

import contextlib
import os

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
SUFFIX = ".dgxspark"  # not that of any configuration: whoever reads a folder of those passes it over


def temporary(path: str) -> str:
    """Return the path under which a file is written before it is moved into place; a killed run may leave that.

    It is always the same, so the next run replaces what is left.
    """
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}.{name}{SUFFIX}"


def atomic_write(
    path: str, content: bytes, mode: int, owner: tuple[int, int] | None = None, folder: int | None = None
) -> None:
    """Write a file so that, whenever this is interrupted, the old one or the new one is there, also after a power cut.

    A link is replaced, not followed. owner: UID and GID, which only root can set. folder: the descriptor of the folder that
    `path` is relative to. Raises OSError; nothing is left then.
    """
    new = temporary(path)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(new, dir_fd=folder)
    descriptor = os.open(new, _NEW, 0o600, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if owner and os.geteuid() == 0:
                os.fchown(descriptor, *owner)
            os.fchmod(descriptor, mode)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        os.replace(new, path, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError as exc:
        with contextlib.suppress(OSError):
            os.unlink(new, dir_fd=folder)
        raise OSError(exc.errno, exc.strerror, path) from exc
    sync(path.rpartition("/")[0] or ("/" if path.startswith("/") else "."), folder)


def sync(path: str, folder: int | None = None) -> None:
    """Put a folder's names on the disk: of a file that was moved there, or removed."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
