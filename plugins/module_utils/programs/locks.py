# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lock of modules and of programs that stay on a node: a file that says who holds it. It ends with the process that does."""

# Loading pathlib and typing would take longer than the locking.
# ruff: noqa: PTH116
from __future__ import annotations

import contextlib
import fcntl
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import typing as t

PAUSE = 0.1  # seconds between tries
MOST = 1000  # characters of a holder's words
UNKNOWN = "another process"


class Held(Exception):
    """Another process has the lock. `who` says which, in words."""

    def __init__(self, path: str, who: str, seconds: float) -> None:
        super().__init__(f"{path} has been held by {who} for {seconds:g} s.")
        self.who = who


@contextlib.contextmanager
def lock(
    path: str,
    by: str,
    seconds: float,
    clock: t.Callable[[], float] = time.monotonic,
    sleep: t.Callable[[float], None] = time.sleep,
) -> t.Iterator[str | None]:
    """Hold a lock; yields who had it until then, None if nobody had. Raises Held if another has it for longer than this, or OSError.

    by: this process in words, for others that wait.
    """
    other: str | None = None
    until = clock() + seconds
    while (file := _taken(path)) is None:
        other = _words(path) or other or UNKNOWN
        if clock() > until:
            raise Held(path, other, seconds)
        sleep(PAUSE)
    with file:
        file.truncate(0)
        file.write(by)
        file.flush()
        yield other


def holder(path: str) -> str | None:
    """Return who has a lock at this moment, in words; None if nobody has it."""
    with contextlib.suppress(OSError), _opened(path, os.O_RDONLY) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return file.read(MOST).strip() or UNKNOWN
    return None


def _opened(path: str, flags: int) -> t.TextIO:
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    return os.fdopen(descriptor, "r" if flags == os.O_RDONLY else "a+", encoding="utf-8", errors="replace")


def _taken(path: str) -> t.TextIO | None:
    """Return the lock's file with the lock held; None if another process holds it, or has just removed it."""
    file = _opened(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(file.fileno())):
            return file
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        file.close()
        raise
    file.close()
    return None


def _words(path: str) -> str | None:
    with contextlib.suppress(OSError), _opened(path, os.O_RDONLY) as file:
        return file.read(MOST).strip() or None
    return None
