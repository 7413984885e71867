# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Signatures: lines with a meaning, as the knowledge base has them, looked for in many lines at little cost."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass

LEAST = 4  # characters of a text that is worth looking for first


@dataclass(frozen=True, slots=True)
class Signature:
    """A pattern with its meaning, as the knowledge base has it (`knowledge/signatures/`)."""

    id: str
    pattern: str
    severity: t.Literal["error", "warning", "info"]
    cause: str
    remedy: str = ""
    benign: bool = False
    fatal: bool = False
    consequence: bool = False


class Matcher:
    """Finds signatures. A pattern is tried only on lines that hold one of the texts it cannot match without."""

    def __init__(self, signatures: t.Sequence[Signature]) -> None:
        self._always: list[tuple[str, re.Pattern[str]]] = []
        self._by_text: list[tuple[str, str, re.Pattern[str]]] = []
        for signature in signatures:
            pattern = re.compile(signature.pattern)
            texts = needed(signature.pattern)
            if texts is None:
                self._always.append((signature.id, pattern))
            for text in texts or ():
                self._by_text.append((text, signature.id, pattern))

    def find(self, line: str) -> list[tuple[str, dict[str, str]]]:
        """Return id and captured texts of every signature in a line, each once."""
        found: dict[str, dict[str, str]] = {}
        tried = [(name, pattern) for text, name, pattern in self._by_text if text in line]
        for name, pattern in (*tried, *self._always):
            if name not in found and (match := pattern.search(line)):
                found[name] = {key: value for key, value in match.groupdict().items() if value is not None}
        return list(found.items())


def needed(pattern: str) -> tuple[str, ...] | None:
    """Return texts of which a line must hold one for the pattern to match; None where that cannot be told.

    Of each alternative at the top level the longest literal text counts; what is in groups is passed over.
    """
    if "(?i" in pattern:
        return None
    branches: list[list[str]] = [[""]]
    place = 0
    while place < len(pattern):
        char = pattern[place]
        runs = branches[-1]
        if char == "|":
            branches.append([""])
        elif char == "\\":
            place += 1
            if pattern[place].isalnum():
                runs.append("")
            else:
                runs[-1] += pattern[place]
        elif char in "([":
            place = _end(pattern, place)
            runs.append("")
        elif char in "*?{":  # what stands before may be missing
            runs[-1] = runs[-1][:-1]
            runs.append("")
            place = pattern.index("}", place) if char == "{" else place
        elif char in ".^$+":
            runs.append("")
        else:
            runs[-1] += char
        place += 1
    texts = tuple(max(runs, key=len) for runs in branches)
    return texts if all(len(text) >= LEAST for text in texts) else None


def _end(pattern: str, place: int) -> int:
    """Return where a group or a class of characters that begins at `place` ends."""
    if pattern[place] == "[":
        place += 2 if pattern[place + 1] == "^" else 1
        place += pattern[place] == "]"
        while pattern[place] != "]":
            place += 2 if pattern[place] == "\\" else 1
        return place
    place += 1
    while pattern[place] != ")":
        if pattern[place] == "\\":
            place += 1
        elif pattern[place] in "([":
            place = _end(pattern, place)
        place += 1
    return place
