# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The last resort for a log that nothing is known of: its last line that reports an error, and the frame in which that arose.

It invents no cause. Of the lines that no signature matches, a Python exception counts more than a line with a word of failure in it.
"""

from __future__ import annotations

import re

from ansible_collections.dgxspark.cluster.plugins.module_utils.signatures import RAISED, Hit, excerpt

ENDED = "ended"
FRAME = 160  # characters shown of a frame
# Looked for in small letters first: most lines have none of them, and cost no match of an expression.
_WORDS = ("error", "exception", "fatal", "panic", "fail", "segfault", "segmentation fault", "core dumped", "abort", "cannot", "could not",
          "unable", "refused", "denied", "illegal", "no such", "not found", "no solution", "exit code", "nccl warn")  # fmt: skip
_FAULT = re.compile(
    r"\b(?:error|exception|fatal|panic|segfault|segmentation fault|core dumped|abort(?:ed|ing)?|fail(?:ed|s|ure)?|cannot|could not|unable to"
    r"|refused|denied|illegal|no such|not found|no solution found)\b|\w(?:error|exception)\b|nccl warn|exit code:? [1-9-]|^warning\s+\w{3,60}\s",
    re.IGNORECASE,
)
# What only seems to report an error: a level below it, none at all, or a setting's name.
_NONE = re.compile(
    r"\b(?:INFO|DEBUG|TRACE)\b(?! .*\bWARN\b)|\b(?:0|no|without) (?:errors?|failures?)\b|\berrors?[ =:]+0\b|ignore.?errors|--\S*(?:error|fail)",
    re.IGNORECASE,
)
_FRAME = re.compile(r'File "(?P<file>[^"]{1,400})", line (?P<line>\d{1,9})(?:, in (?P<name>\S{1,120}))?')


class LastError:
    """Remembers the last error of the lines that it is shown, in constant memory. What is shown of it is made at the end alone."""

    def __init__(self) -> None:
        self._frame = ""
        self._column = 0  # where the frame stands in its line; its source is indented more
        self._raised: tuple[int, str, int, str] | None = None  # number, line, where in it, and its frame
        self._said: tuple[int, str, int, str] | None = None

    def see(self, number: int, line: str) -> None:
        """Look at a line that no signature matches. number: from 1."""
        if "File " in line and (frame := _FRAME.search(line)):
            self._column = frame.start()
            self._frame = f"{frame['file']}:{frame['line']}" + (f", {frame['name']}" if frame["name"] else "")
            return
        low = line.lower()
        if not any(word in low for word in _WORDS) and not low.startswith("warning "):
            return
        if self._frame:
            if line[self._column : self._column + 2].isspace():
                return
            if raised := RAISED.search(line):
                self._raised = (number, line, raised.start(), self._frame)
                self._frame = ""
                return
        if (fault := _FAULT.search(line)) and not _NONE.search(line):
            self._said = (number, line, fault.start(), "")

    def found(self) -> Hit | None:
        """Return the last exception with its frame, else the last line that reports an error; None if there is neither."""
        last = self._raised or self._said
        if last is None:
            return None
        number, line, start, frame = last
        values = {"frame": excerpt(frame)[-FRAME:]} if frame else {}
        return Hit(ENDED, number, number, 1, excerpt(line, start), values)
