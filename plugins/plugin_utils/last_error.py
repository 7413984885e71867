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
          "unable", "refused", "denied", "illegal", "no such", "not found", "no solution", "exit code", "ncc", "warning")  # fmt: skip
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
    """Remembers the last error of the lines that it is shown, in constant memory."""

    def __init__(self) -> None:
        self._frame = ""
        self._column = 0  # where the frame stands in its line; its source is indented more
        self._raised: Hit | None = None
        self._said: Hit | None = None

    def see(self, number: int, line: str) -> None:
        """Look at a line that no signature matches. number: from 1."""
        if "File " in line and (frame := _FRAME.search(line)):
            self._column = frame.start()
            self._frame = f"{frame['file']}:{frame['line']}" + (f", {frame['name']}" if frame["name"] else "")
            return
        low = line.lower()
        if not any(word in low for word in _WORDS):
            return
        if self._frame and line[self._column : self._column + 2].isspace():
            return
        raised = RAISED.search(line)
        if raised and self._frame:
            self._raised = Hit(ENDED, number, number, 1, excerpt(line, raised.start()), self._values())
            self._frame = ""
        elif (fault := _FAULT.search(line)) and not _NONE.search(line):
            self._said = Hit(ENDED, number, number, 1, excerpt(line, fault.start()))

    def _values(self) -> dict[str, str]:
        return {"frame": excerpt(self._frame)[-FRAME:]}

    def found(self) -> Hit | None:
        """Return the last exception with its frame, else the last line that reports an error; None if there is neither."""
        return self._raised or self._said
