# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that a module writes on a node: their differences, atomic writes, and the rollback.

A file's content never appears in an error; that of a secret file never appears in a diff either.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import stat
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.oserrors import cannot
from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.files import atomic_write
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import Change, CollectionError

SECRET = "(secret)"
_LIST = "list.json"  # in the folder of what was kept


@dataclass(frozen=True, slots=True)
class NodeFile:
    """A file with exactly this wanted content (text) and mode (octal, such as 0600)."""

    path: str
    content: str
    mode: int = 0o644
    secret: bool = False


def difference(file: NodeFile) -> Change | None:
    """Return how a node's file differs from the planned one; None if it does not."""
    there = read(file.path)
    if there is None:
        return Change(file.path, "file", None, SECRET if file.secret else file.content)
    text, mode = there
    if text != file.content.encode():
        before, after = text.decode("utf-8", "replace"), file.content
        return Change(file.path, "file", SECRET if file.secret else before, SECRET if file.secret else after)
    if mode != file.mode:
        return Change(file.path, "mode", f"{mode:04o}", f"{file.mode:04o}")
    return None


def read(path: str) -> tuple[bytes, int] | None:
    """Return content and mode of a plain file; None if it is missing. CollectionError if it cannot be read."""
    try:
        with pathlib.Path(path).open("rb") as file:
            return file.read(), stat.S_IMODE(os.fstat(file.fileno()).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as exc:
        raise cannot("read", path, exc) from exc


def write(path: str, content: bytes, mode: int) -> None:
    """Write a file atomically, and its folders. CollectionError says why that failed; nothing is left then."""
    target = pathlib.Path(path)
    made: list[pathlib.Path] = []
    try:
        made = [folder for folder in target.parents if not folder.exists()]
        target.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, content, mode)
    except OSError as exc:
        for folder in made:
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise cannot_write(path, exc) from exc


def cannot_write(path: str, exc: OSError) -> CollectionError:
    """Return the error for a file that could not be written."""
    return cannot("written", path, exc)


def digest(path: str) -> str | None:
    """Return the SHA-256 of a file; None if it is missing."""
    try:
        with pathlib.Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as exc:
        raise cannot("read", path, exc) from exc


def free_mib(path: str) -> int:
    """Return the free room in MiB of the file system of a path, which need not exist."""
    place = pathlib.Path(path)
    while not place.exists():
        place = place.parent
    seen = os.statvfs(place)
    return seen.f_bavail * seen.f_frsize // (1024 * 1024)


def recorded(path: str) -> dict[str, t.Any] | None:
    """Return what one of our programs recorded, a JSON object; None if there is no record.

    Raises CollectionError if it is damaged: what was recorded must be known before anything is changed or removed.
    """
    there = read(path)
    if there is None:
        return None
    try:
        found = json.loads(there[0])
    except (ValueError, RecursionError) as exc:
        raise _damaged(path) from exc
    if not isinstance(found, dict):
        raise _damaged(path)
    return found


def _damaged(path: str) -> CollectionError:
    return CollectionError(
        f"{path}: this record of what was changed on the node is damaged, so nothing was changed, and everything was kept. "
        "Check the files next to it, correct them by hand, then remove the record and run again."
    )


class Undo:
    """What a run replaces, for a rollback: copies in a folder on the same disk, and a list for the next run if this one is killed.

    notes: what the caller needs to know for the rollback; the list has them too.
    """

    def __init__(self, folder: str) -> None:
        self.folder = pathlib.Path(folder)
        self.notes: dict[str, t.Any] = {}
        self._kept: dict[str, str | None] = {}

    def resume(self) -> bool:
        """Take over what a killed run has kept; return whether there is anything."""
        path = str(self.folder / _LIST)
        found = recorded(path)
        if found is None:
            return False
        notes, kept = found.get("notes"), found.get("kept")
        if (
            not isinstance(notes, dict)
            or not isinstance(kept, dict)
            or any("/" in (copy or "") for copy in kept.values())
        ):
            raise _damaged(path)
        self.notes, self._kept = notes, kept
        return True

    def keep(self, path: str) -> None:
        """Save the current state of a file or folder, once."""
        if path in self._kept:
            return
        source = pathlib.Path(path)
        copy = self.folder / f"{len(self._kept)}-{source.name}"
        remove(str(copy))  # left by a killed run
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if source.is_dir():
                shutil.copytree(source, copy, symlinks=True)
            elif source.exists():
                shutil.copy2(source, copy)
        except OSError as exc:
            raise cannot_write(str(copy), exc) from exc
        self._kept[path] = copy.name if source.exists() else None
        listed = json.dumps({"notes": self.notes, "kept": self._kept})
        write(str(self.folder / _LIST), listed.encode(), 0o600)

    def restore(self) -> list[str]:
        """Restore everything; return the restored paths."""
        done = []
        for path, name in reversed(self._kept.items()):
            copy = self.folder / name if name else None
            if copy and not copy.exists():
                continue  # restored by a run that was killed meanwhile
            remove(path)
            if copy:
                pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
                shutil.move(copy, path)
            done.append(path)
        self.forget()
        return done

    def forget(self) -> None:
        """Delete what was kept."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.notes, self._kept = {}, {}


def remove(path: str) -> bool:
    """Remove a file, a link or a folder with its contents; return whether there was one."""
    place = pathlib.Path(path)
    if not place.is_symlink() and not place.exists():
        return False
    try:
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        else:
            place.unlink()
    except OSError as exc:
        raise cannot("removed", path, exc) from exc
    return True
