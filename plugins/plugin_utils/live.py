# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A screen that outlives the task that opened it: starts the program that draws (`top_screen.py`), and tells it what to show.

The two share a folder of mode 0700, which is all that the next task must know. The program holds a lock on a file there as long as it
runs: whoever can take it sees that the owner has quit.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import typing as t

from ansible import constants

from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.files import atomic_write
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import packages, top_screen

NEEDS = ("rich>=13",)
_LOCK, _ERROR = "lock", "error"
_LOOK_S = 0.1
_END_S = 5.0
# rich takes a size from these, and would not see the window's.
_FIXED = ("COLUMNS", "LINES", "JUPYTER_COLUMNS", "JUPYTER_LINES")


def lacks() -> str:
    """Return what this controller lacks for a screen and how to install it, in one line; "" if it lacks nothing."""
    return packages.problem(needs=NEEDS)


class Screen:
    """What is drawn on a terminal. folder: of one that an earlier task has opened; "" for none yet."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    @property
    def _place(self) -> pathlib.Path:
        return pathlib.Path(self.folder)

    def draw(self, tty: str, page: t.Any, seconds: float) -> bool:
        """Show the page for so long, and return whether the owner has quit. tty: the name of the terminal; "" if there is none."""
        if not self.folder and tty:
            self._open(tty, page)
        if not self.folder:
            time.sleep(seconds)
            return False
        self.show(page)
        self.wait(seconds)
        return self.closed

    def _open(self, tty: str, page: t.Any) -> None:
        """Start the program on that terminal. It shows the page until it is quit, or this task's parent ends."""
        env = {name: value for name, value in os.environ.items() if name not in _FIXED}
        env |= {"NO_COLOR": "1"} if constants.ANSIBLE_NOCOLOR else {}
        try:
            terminal = os.open(tty, os.O_RDWR | os.O_NOCTTY)
        except OSError:  # closed meanwhile, or another's: as without a terminal
            return
        try:
            self.folder = tempfile.mkdtemp(prefix="dgxspark-top-")
            self.show(page)
            with (self._place / _LOCK).open("w") as lock, (self._place / _ERROR).open("w") as error:
                fcntl.flock(lock, fcntl.LOCK_EX)
                # Its own session, or it would end with this task. It inherits the lock.
                subprocess.Popen(
                    [sys.executable, top_screen.__file__, self.folder, str(os.getppid())],
                    stdin=terminal, stdout=terminal, stderr=error, env=env, pass_fds=[lock.fileno()], start_new_session=True,
                )  # fmt: skip
        finally:
            os.close(terminal)

    def show(self, page: t.Any) -> None:
        """Show this page from now on, unless it was quit."""
        with contextlib.suppress(OSError):
            atomic_write(str(self._place / top_screen.PAGE), json.dumps(page).encode(), 0o600)

    @property
    def closed(self) -> bool:
        """Whether it has ended, or never was."""
        if not self.folder:
            return True
        try:
            with (self._place / _LOCK).open() as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            pass
        return True

    def wait(self, seconds: float) -> None:
        """Wait so long, or until it is quit."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.closed:
            time.sleep(_LOOK_S)

    def end(self) -> str:
        """Give the terminal back; return why the program broke down, "" if it did not or there is no screen."""
        if not self.folder:
            return ""
        if not self.closed:
            (self._place / top_screen.END).touch()
            self.wait(_END_S)
        said = ""
        with contextlib.suppress(OSError):
            said = (self._place / _ERROR).read_text(encoding="utf-8").strip()
        shutil.rmtree(self._place, ignore_errors=True)
        return said.rpartition("\n")[2]
