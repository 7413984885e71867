# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Signatures for the reader of NCCL's logs: fast on several million lines, and aware of which may follow from which."""

from __future__ import annotations

import fnmatch
import functools
import re
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.signatures import compile_patterns, excerpt, literal

LEAST = 4  # characters; a shorter text is not worth searching for


@dataclass(frozen=True, slots=True)
class Signature:
    """A pattern with its meaning, from the knowledge base (`knowledge/signatures/`)."""

    id: str
    pattern: str
    severity: t.Literal["error", "warning", "info"]
    cause: str
    remedy: str = ""
    benign: bool = False
    fatal: bool = False
    follows_from: tuple[str, ...] = ()

    def follows(self, others: t.Collection[str]) -> bool:
        """Whether this one may be a consequence of one of the others."""
        return any(fnmatch.filter((other for other in others if other != self.id), name) for name in self.follows_from)


class Matcher:
    """Finds signatures. A pattern is tried only on lines that contain one of the texts it needs to match."""

    def __init__(self, signatures: t.Sequence[Signature]) -> None:
        self._always: list[tuple[str, re.Pattern[str]]] = []
        self._by_text: list[tuple[str, str, re.Pattern[str]]] = []
        for pattern in compile_patterns({"id": each.id, "pattern": each.pattern} for each in signatures):
            texts = needed(pattern.expression.pattern)
            if texts is None:
                self._always.append((pattern.id, pattern.expression))
            for text in texts or ():
                self._by_text.append((text, pattern.id, pattern.expression))

    def find(self, line: str) -> list[tuple[str, dict[str, str]]]:
        """Return id and captured texts of every signature in a line, each once."""
        found: dict[str, dict[str, str]] = {}
        tried = [(name, pattern) for text, name, pattern in self._by_text if text in line]
        for name, pattern in (*tried, *self._always):
            if name not in found and (match := pattern.search(line)):
                found[name] = {key: excerpt(value) for key, value in match.groupdict().items() if value is not None}
        return list(found.items())


@functools.lru_cache(maxsize=1024)
def needed(pattern: str) -> tuple[str, ...] | None:
    """Return texts of which a line must contain one for the pattern to match; None if they cannot be determined."""
    texts = tuple(literal(branch) for branch in branches(pattern))
    return texts if all(len(text) >= LEAST for text in texts) and "(?i" not in pattern else None


def branches(pattern: str) -> list[str]:
    """Split a pattern at its top-level alternatives."""
    found = [""]
    depth, place, inside = 0, 0, False  # inside a set of characters
    while place < len(pattern):
        width = 2 if pattern[place] == "\\" else 1
        char = pattern[place : place + width]
        if inside:
            inside = char != "]"
        elif char == "[":
            inside = True
            width = len(re.match(r"\[\^?\]?", pattern[place:])[0])  # type: ignore[index]
            char = pattern[place : place + width]
        else:
            depth += (char == "(") - (char == ")")
        if char == "|" and depth == 0 and not inside:
            found.append("")
        else:
            found[-1] += char
        place += width
    return found
