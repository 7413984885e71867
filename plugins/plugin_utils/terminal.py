# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prints text for people on the controller's terminal, without mixing it into output that a program parses."""

from __future__ import annotations

import os
import sys
import time
import typing as t

from ansible import constants
from ansible.utils.display import Display

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import lines
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.answer import seconds

# Programs parse these callbacks' standard output, so text for people goes to standard error.
FOR_PROGRAMS = frozenset({"json", "jsonl"})


def _terminal() -> str:
    """Return the name of the terminal that standard output is; "" if it is none, cannot draw, or is another program's now."""
    try:
        if not sys.stdout.isatty() or os.environ.get("TERM", "dumb") in ("dumb", "unknown"):
            return ""
        name = os.ttyname(sys.stdout.fileno())
    except (OSError, ValueError):
        return ""
    try:
        return name if os.tcgetpgrp(sys.stdout.fileno()) == os.getpgrp() else ""
    except OSError:  # not this session's
        return name


# Read here, in the process that loads the plugins: a task's own process has no terminal.
TERMINAL = _terminal()

_display = Display()


def for_program() -> bool:
    """Whether a program parses the standard output."""
    return str(constants.DEFAULT_STDOUT_CALLBACK).rpartition(".")[2] in FOR_PROGRAMS


def say(text: str) -> None:
    """Print the text as it is, but without control characters: part of it may come from a node, a file or a server.

    `debug` would quote and wrap it.
    """
    _display.display(lines(text), stderr=for_program())


class Progress:
    """How far a step that waits has come, with the time so far: a line when that is new, at most one in `pause` seconds."""

    def __init__(self, clock: t.Callable[[], float] = time.monotonic, pause: float = 15.0) -> None:
        self._clock, self._pause = clock, pause
        self._began = clock()
        self._said, self._when = "", self._began - pause

    def tell(self, state: str) -> None:
        """Say it, if it is new and the last line is not too fresh: what is passed over comes with the next call."""
        now = self._clock()
        if not state or state == self._said or now - self._when < self._pause:
            return
        self._said, self._when = state, now
        say(f"…        {state} ({seconds(now - self._began)})")
