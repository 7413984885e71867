# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A matrix's journal: one line of JSON for each finished thing, on disk before the next one begins.

The first line is the plan (all cases in order); each later one is a case's outcome. A killed run leaves at most a torn last line
without a newline, which is cut off; any other damage is an error. One run at a time holds the lock.
"""

from __future__ import annotations

import fcntl
import json
import os
import pathlib
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import from_json
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError

NAME = "journal.jsonl"
LOCK = "lock"
FORMAT = 1
Plain = dict[str, t.Any]


class Changed(CollectionError):
    """The matrix is not the one that the journal began with."""


class Journal:
    """The journal of one folder, open and locked. Use as a context manager."""

    def __init__(self, folder: pathlib.Path, *, later: bool = False) -> None:
        """Open it, or begin one. CollectionError if another run holds it, or, unless it is to be read `later`, a line is damaged."""
        self.folder = folder
        self.path = folder / NAME
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as exc:
            raise CollectionError(
                f"{folder}: cannot be written: {exc.strerror}. Choose another dgxspark_matrix_dir."
            ) from exc
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            owner = os.pread(self._lock, 32, 0).decode(errors="replace").strip()
            os.close(self._lock)
            raise CollectionError(
                f"{folder}: another run (process {owner or 'unknown'}) is measuring here. A run that was stopped ends after its case; "
                "wait for it, or choose another dgxspark_matrix_dir."
            ) from exc
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, str(os.getpid()).encode(), 0)
        self.entries: list[Plain] = []
        try:
            if not later:
                self.read()
        except BaseException:
            self.close()
            raise

    def read(self) -> None:
        """Read what is there. CollectionError if a line is damaged."""
        self.entries, whole = _parsed(self.path)
        if whole is not None:
            self._cut(whole)

    def __enter__(self) -> Journal:
        """Return the open journal."""
        return self

    def __exit__(self, *_exc: object) -> None:
        """Release the lock."""
        self.close()

    def close(self) -> None:
        """Release the lock."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _cut(self, length: int) -> None:
        with self.path.open("r+b") as file:
            file.truncate(length)
            os.fsync(file.fileno())

    def append(self, entry: Plain) -> None:
        """Append an entry; it is on disk when this returns."""
        line = json.dumps(entry, sort_keys=True, separators=(",", ":")).encode() + b"\n"
        new = not self.path.exists()
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            view = memoryview(line)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if new:
            _sync_folder(self.folder)
        self.entries.append(entry)

    @property
    def lock(self) -> int:
        """The lock's descriptor: a process that inherits it holds the lock too."""
        return self._lock

    @property
    def head(self) -> Plain | None:
        """The current plan: the first line, or the latest that a changed matrix added."""
        return next((entry for entry in reversed(self.entries) if entry["event"] == "plan"), None)

    @property
    def done(self) -> dict[str, Plain]:
        """The outcomes by case id."""
        return outcomes(self.entries)

    def begin(self, head: Plain, *, accept: bool = False) -> Plain:
        """Write the plan, or find it in the journal; return the current one.

        Raises Changed if the matrix, or what its cases resolve to, has changed, unless that is accepted: outcomes of cases
        that are still in it are kept.
        """
        old = self.head
        if old is None or (old["digest"] != head["digest"] and accept):
            self.append({"event": "plan", "format": FORMAT, **head})
            return self.entries[-1]
        if old["digest"] == head["digest"]:
            return old
        before, now = ({case["id"]: case["name"] for case in each["cases"]} for each in (old, head))
        gone = [before[key] for key in before if key not in now]
        new = [now[key] for key in now if key not in before]
        kept = sum(key in now for key in self.done)
        raise Changed(
            f"{self.path}: the matrix has changed since this run began: {len(new)} cases are new ({_few(new)}), {len(gone)} are "
            f"gone ({_few(gone)}); {kept} of {len(self.done)} measured ones are still in it. Give "
            "-e dgxspark_matrix_changed=accept to continue with those, or choose another dgxspark_matrix_dir."
        )


def _few(names: t.Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return (", ".join(names[:3]) + more) or "none"


def _sync_folder(folder: pathlib.Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _parsed(path: pathlib.Path) -> tuple[list[Plain], int | None]:
    """Return the entries, and the length of the intact part if the last line is torn."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return [], None
    except OSError as exc:
        raise CollectionError(f"{path}: cannot be read: {exc.strerror}.") from exc
    entries: list[Plain] = []
    begin = 0
    for number, line in enumerate(data.splitlines(keepends=True), 1):
        torn = not line.endswith(b"\n")
        try:
            entry = from_json(line)
            if not isinstance(entry, dict) or not isinstance(entry.get("event"), str):
                raise ValueError("no entry")
        except ValueError as exc:
            if torn:
                return entries, begin
            raise CollectionError(
                f"{path}: line {number} is damaged. Restore the file, or delete that line: its case is measured again."
            ) from exc
        if torn:  # complete but for its newline: never acknowledged
            return entries, begin
        if entry.get("format", FORMAT) != FORMAT:
            raise CollectionError(
                f"{path}: line {number}: format {entry['format']!r} is not known. Use a newer collection."
            )
        entries.append(entry)
        begin += len(line)
    return entries, None


def read(path: pathlib.Path) -> list[Plain]:
    """Return a journal's entries without locking it. CollectionError if there is none, or it has no plan."""
    place = path / NAME if path.is_dir() else path
    entries = _parsed(place)[0]
    if not any(entry["event"] == "plan" for entry in entries):
        raise CollectionError(f"{place}: this is not a journal of a matrix. Name its folder, or its {NAME}.")
    return entries


def outcomes(entries: t.Iterable[Plain]) -> dict[str, Plain]:
    """Return the cases' outcomes by id, in the order of measurement."""
    return {entry["case"]: entry for entry in entries if entry["event"] == "case"}
