# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prints text for people on the controller's terminal, without mixing it into output that a program parses."""

from __future__ import annotations

import errno
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


class _Lasting:
    """A stream whose loss ends no run: its reader may go away (`| head`, `q` in a pager), or its disk may be full."""

    def __init__(self, stream: t.TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> t.Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as exc:
            self._lost(exc)
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as exc:
            self._lost(exc)

    def _lost(self, why: OSError) -> None:
        # What is left in the stream's buffer must go somewhere, or Python fails with it at the end.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)
        if why.errno != errno.EPIPE and self._stream is not sys.stderr:
            print(f"The output could not be written ({why.strerror}); the run goes on.", file=sys.stderr)


def outlive() -> None:
    """Let a run go on when nobody reads its output any more.

    ansible-core reads its tasks' results in a thread that such a write would end, and then waits for it for ever.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, _Lasting):
            setattr(sys, name, _Lasting(stream))


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
