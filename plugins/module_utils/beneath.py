# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files beneath a folder that others can write to: root works there through folder descriptors, and follows no link.

The folder itself is the owner's choice, and may be a link to another disk. A pod that mounts the folder may have put anything
beneath it: a link, a pipe, a hard link to another file. Folders that are links are refused by name; anything but a plain file is
replaced, or counts as missing.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import stat
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.files import atomic_write, temporary
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Without O_NONBLOCK, opening a pipe would block.
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_ABSENT = (FileNotFoundError,)
MOST = 128 * 2**20  # bytes of a file that is read whole: it uses the host's memory
CHUNK = 4 * 2**20
DEEPEST = 64


def parts(root: str, path: str) -> tuple[str, ...]:
    """Return the names of a path beneath a root; CollectionError for one that leads out of it."""
    pure = pathlib.PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or not pure.parts:
        raise CollectionError(
            f"{path!r} points outside {root}. This collection did not write that list of files; nothing was done."
        )
    return pure.parts


class Beneath:
    """A folder. All paths are relative to it; OSError is the system's, CollectionError says what to check."""

    def __init__(self, root: str | pathlib.Path) -> None:
        self.root = str(root)

    @contextlib.contextmanager
    def folder(self, path: str | None, *, make: bool = False, mode: int = 0o755) -> t.Iterator[int]:
        """Open a folder (None: the root); make: create it with its parents. Yields its descriptor."""
        if make:
            pathlib.Path(self.root).mkdir(parents=True, exist_ok=True)
        here = os.open(self.root, _FOLDER)
        done = self.root
        try:
            for name in parts(self.root, path) if path else ():
                done = f"{done}/{name}"
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, mode, dir_fd=here)
                try:
                    deeper = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=here)
                except OSError as exc:
                    if exc.errno in (errno.ELOOP, errno.ENOTDIR):
                        raise _planted(done) from exc
                    raise
                os.close(here)
                here = deeper
            yield here
        finally:
            os.close(here)

    @contextlib.contextmanager
    def _beside(self, path: str, *, make: bool = False) -> t.Iterator[tuple[int, str]]:
        """Open a file's folder; yields the descriptor and the file's name in it."""
        *folders, name = parts(self.root, path)
        with self.folder("/".join(folders) or None, make=make) as here:
            yield here, name

    def stat(self, path: str) -> os.stat_result | None:
        """Return the status of a plain file; None if there is none."""
        with contextlib.suppress(*_ABSENT), self._beside(path) as (here, name):
            seen = os.stat(name, dir_fd=here, follow_symlinks=False)
            return seen if stat.S_ISREG(seen.st_mode) else None
        return None

    def open(self, path: str) -> t.IO[bytes]:
        """Open a plain file for reading. OSError if it is missing or not one."""
        with self._beside(path) as (here, name):
            return self._plain(os.open(name, os.O_RDONLY | _FILE, dir_fd=here), path, "rb")

    def read(self, path: str, most: int = MOST) -> bytes | None:
        """Return the content of a plain file; None if there is none, or if it has more bytes than any of ours."""
        seen = self.stat(path)
        if seen is None or seen.st_size > most:
            return None
        content = bytearray()
        with self.open(path) as file:
            while len(content) <= most and (data := file.read(CHUNK)):
                content += data
        return bytes(content) if len(content) <= most else None

    def create(self, path: str, mode: int = 0o644) -> t.IO[bytes]:
        """Create an empty file for reading and writing; it replaces whatever has its name."""
        with self._beside(path, make=True) as (here, name):
            with contextlib.suppress(*_ABSENT):
                os.unlink(name, dir_fd=here)
            made = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | _FILE, mode, dir_fd=here)
            os.fchmod(made, mode)
            return self._plain(made, path, "r+b")

    def resume(self, path: str) -> t.IO[bytes]:
        """Open a partial file for reading and writing; one with a second hard link is recreated, empty."""
        if self.stat(path) is not None:
            with self._beside(path) as (here, name), contextlib.suppress(FileNotFoundError):
                file = self._plain(os.open(name, os.O_RDWR | _FILE, dir_fd=here), path, "r+b")
                if os.fstat(file.fileno()).st_nlink == 1:  # of the open file: the name may refer to another by now
                    return file
                file.close()
        return self.create(path)

    def _plain(self, descriptor: int, path: str, mode: str) -> t.IO[bytes]:
        """Return a descriptor as an unbuffered file, after a check that it is a plain one."""
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "it is not a plain file", f"{self.root}/{path}")
        return t.cast("t.IO[bytes]", os.fdopen(descriptor, mode, buffering=0))

    def write(self, path: str, content: bytes, mode: int = 0o644) -> None:
        """Write a file atomically."""
        with self._beside(path, make=True) as (here, name):
            atomic_write(name, content, mode, folder=here)

    def rename(self, path: str, to: str) -> None:
        """Move a file; it replaces whatever has the new name."""
        with self._beside(path) as (here, name), self._beside(to, make=True) as (there, other):
            os.replace(name, other, src_dir_fd=here, dst_dir_fd=there)

    def unlink(self, path: str) -> bool:
        """Remove a file or a link; return whether there was one."""
        with contextlib.suppress(*_ABSENT), self._beside(path) as (here, name):
            os.unlink(name, dir_fd=here)
            return True
        return False

    def target(self, path: str) -> str | None:
        """Return a link's target; None if there is no link."""
        with contextlib.suppress(OSError), self._beside(path) as (here, name):
            return os.readlink(name, dir_fd=here)
        return None

    def symlink(self, path: str, target: str) -> None:
        """Create a link; it replaces whatever has its name."""
        beside = temporary(path)
        self.unlink(beside)
        with self._beside(beside, make=True) as (here, name):
            os.symlink(target, name, dir_fd=here)
        self.rename(beside, path)

    def names(self, path: str) -> list[str]:
        """Return the names in a folder; none if it does not exist."""
        with contextlib.suppress(*_ABSENT), self.folder(path) as here, os.scandir(here) as found:
            return sorted(entry.name for entry in found)
        return []

    def walk(self, path: str) -> t.Iterator[tuple[str, bool]]:
        """Yield everything in a folder, deepest first: its path, and whether it is a folder. Links are not followed."""
        if path.count("/") > DEEPEST:
            raise CollectionError(
                f"{self.root}/{path} is nested deeper than any folder of this collection ({DEEPEST} folders). Find out who put it there, and remove it."
            )
        for name in self.names(path):
            below = f"{path}/{name}"
            try:
                with self._beside(below) as (here, _name):
                    deeper = stat.S_ISDIR(os.stat(name, dir_fd=here, follow_symlinks=False).st_mode)
            except FileNotFoundError:  # another writer has removed it
                continue
            if deeper:
                yield from self.walk(below)
            yield below, deeper

    def rmdir(self, path: str) -> bool:
        """Remove a folder if it is empty; return whether it was."""
        with contextlib.suppress(OSError), self._beside(path) as (here, name):
            os.rmdir(name, dir_fd=here)
            return True
        return False

    def clear(self, path: str) -> None:
        """Remove a folder with its contents."""
        for below, is_folder in list(self.walk(path)):
            self.rmdir(below) if is_folder else self.unlink(below)
        self.rmdir(path)


def _planted(where: str) -> CollectionError:
    return CollectionError(
        f"{where} is a symlink, or not a directory. Root follows no symlink there, because anyone who can write there could point it anywhere. "
        f"Nothing was done. Find out who put it there (ls -ld {where}), and remove it; to have the caches on another disk, move them "
        "as a whole (k8s_dgx_serving.cache_dir)."
    )
