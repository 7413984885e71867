# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Look for known lines in a log: a stream of lines and patterns in; what matched, where, how often, with an excerpt, out.

It runs on the nodes as well as on the controller, so that a journal is searched in place and only the matches travel, with secrets
masked. Memory does not grow with the log.
"""

from __future__ import annotations

import fnmatch
import functools
import re
import typing as t
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils.secrets_in_text import mask
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, Severity

PIECE = 2048  # characters of a physical line to search at a time: some logs are one line of progress bars
OVERLAP = 512  # characters of the previous piece, so that no match is cut in two
EXCERPT = 300
LEAST = 4  # characters; a shorter text is not worth searching for
BEFORE, TAIL = 60, 120  # of an excerpt: characters before the match, and of the line's end, where the cause stands

TRACED = 500  # lines of a traceback, within which its last one is looked for
_OPENS = "Traceback (most recent call last):"
RAISED = re.compile(r"[A-Za-z_][\w.]{0,120}(?:Error|Exception|Exit|Interrupt|Timeout)(?::|$)")

_ESCAPES = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


@dataclass(frozen=True, slots=True)
class Pattern:
    """What to look for. texts: of which each line that the expression matches has one; "" is in all lines."""

    id: str
    expression: re.Pattern[str]
    texts: tuple[str, ...] = ("",)


@dataclass(frozen=True, slots=True)
class Signature:
    """A pattern with its meaning, from the knowledge base (`knowledge/signatures/`). follows_from: ids, or parts of ids with *."""

    id: str
    pattern: str
    severity: Severity
    cause: str
    remedy: str = ""
    benign: bool = False
    fatal: bool = False
    vague: bool = False
    component: str = ""
    source: tuple[str, ...] = ()
    follows_from: tuple[str, ...] = ()

    def follows(self, others: t.Collection[str]) -> bool:
        """Whether this one may be a consequence of one of the others."""
        return any(fnmatch.filter((other for other in others if other != self.id), name) for name in self.follows_from)


@dataclass(slots=True)
class Hit:
    """Lines of a log that one pattern matched: the numbers (from 1) of the first and the last, and how many.

    excerpt, values: of the first one, its text and what the pattern captured by name.
    """

    id: str
    first: int
    last: int
    count: int
    excerpt: str
    values: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Reading:
    """The outcome for one log. error: why it could not be read (the rest is then empty).

    ended: the last line that reports an error and that no pattern matched, if that was looked for.
    """

    name: str
    lines: int = 0
    hits: tuple[Hit, ...] = ()
    error: str | None = None
    ended: Hit | None = None


def compile_patterns(entries: t.Iterable[t.Mapping[str, t.Any]]) -> list[Pattern]:
    """Compile entries that have `id` and `pattern`. CollectionError names the entry whose pattern is not a regular expression."""
    found = []
    for entry in entries:
        try:
            found.append(Pattern(str(entry["id"]), re.compile(entry["pattern"]), needed(entry["pattern"]) or ("",)))
        except (KeyError, TypeError) as exc:
            raise CollectionError("signatures: each needs an id and a pattern, both strings.") from exc
        except re.error as exc:
            raise CollectionError(f"signatures: {entry['id']}: pattern: not a regular expression: {exc}.") from exc
    return found


@functools.lru_cache(maxsize=4096)
def literal(pattern: str) -> str:
    """Return the longest run of plain characters that every match of `pattern` must contain, "" if none is certain.

    Most lines then need no match of the expression: `in` is many times faster. Groups, sets, alternatives and optional
    parts do not count.
    """
    best = run = ""
    depth = position = 0
    while position < len(pattern):
        char = pattern[position]
        plain = ""
        width = 1
        if char == "\\":
            width = 2
            following = pattern[position + 1 : position + 2]
            plain = following if following and not following.isalnum() else ""
        elif char == "[":
            width = _set_length(pattern, position)
        elif char == "(":
            if pattern.startswith("(?i", position):
                return ""
            depth += 1
        elif char == ")":
            depth -= 1
        elif char == "|" and depth == 0:
            return ""
        elif char not in ".^$*+?{|":
            plain = char
        position += width
        quantifier = pattern[position : position + 1]
        if quantifier and quantifier in "*?{+":
            # `a+` keeps at least one, but what follows it need not be adjacent to that one.
            plain = ""
            if quantifier == "{":
                position = pattern.index("}", position)
            position += 1
            if pattern[position : position + 1] == "?":
                position += 1
        run = run + plain if plain and depth == 0 else ""
        best = max(best, run, key=len)
    return best


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


def _set_length(pattern: str, start: int) -> int:
    position = start + 1
    position += pattern[position : position + 1] == "^"
    position += pattern[position : position + 1] == "]"
    while position < len(pattern) and pattern[position] != "]":
        position += 2 if pattern[position] == "\\" else 1
    return position + 1 - start


def excerpt(text: str, start: int = 0) -> str:
    """Return a part of a line for display: around `start`, without control characters, secrets masked.

    A long line is shown with its end: programs that wrap errors put the cause there.
    """
    # Mask first: a cut must not leave half a secret that no longer looks like one.
    hidden = mask(text)
    begin = max(0, start - BEFORE - max(0, len(text) - len(hidden))) if len(hidden) > EXCERPT else 0
    shown = _plain(hidden[begin:])
    if len(shown) > EXCERPT:
        shown = f"{shown[: EXCERPT - TAIL].rstrip()} ... {shown[-TAIL:].lstrip()}"
    return f"... {shown}" if begin else shown


def _plain(text: str) -> str:
    return " ".join(_CONTROLS.sub(" ", _ESCAPES.sub("", text)).split(" ")).strip()


def pieces(file: t.BinaryIO) -> t.Iterator[tuple[int, str]]:
    """Yield a binary file's lines with their numbers; a long one in overlapping pieces, under one number."""
    number, before, inside = 0, b"", False
    while True:
        chunk = file.readline(PIECE)
        if not chunk:
            return
        if not inside:
            number, before = number + 1, b""
        inside = not chunk.endswith(b"\n")
        yield number, (before + chunk).rstrip(b"\r\n").decode("utf-8", errors="replace")
        before = chunk[-OVERLAP:]


def numbered(text: str) -> t.Iterator[tuple[int, str]]:
    """Yield a text's lines with their numbers, long ones in pieces like `pieces`."""
    number = start = 0
    while start <= len(text):
        found = text.find("\n", start)
        number, end = number + 1, len(text) if found < 0 else found
        for place in range(start, max(start + 1, end), PIECE):
            yield number, text[max(start, place - OVERLAP) : min(place + PIECE, end)].rstrip("\r")
        start = end + 1


class Matcher:
    """Finds patterns. One is tried only on lines that have one of its texts."""

    def __init__(self, patterns: t.Iterable[Pattern]) -> None:
        self._tried = [(text, pattern) for pattern in patterns for text in pattern.texts]

    def find(self, line: str) -> list[tuple[Pattern, re.Match[str]]]:
        """Return every pattern that a line matches, once, with its first match."""
        tried = [pattern for text, pattern in self._tried if text in line]
        found: dict[str, tuple[Pattern, re.Match[str]]] = {}
        for pattern in tried:
            if pattern.id not in found and (match := pattern.expression.search(line)):
                found[pattern.id] = (pattern, match)
        return list(found.values())


class Scan:
    """Looks for all patterns in a log's lines, one at a time. A line counts once for a pattern, in however many pieces it comes.

    Where a line that matches opens a traceback, the excerpt goes on with what the traceback ends with: that is the fault.
    unknown: gets each line that no pattern matches.
    """

    def __init__(self, patterns: t.Sequence[Pattern], unknown: t.Callable[[int, str], None] | None = None) -> None:
        self._matcher = Matcher(patterns)
        self._unknown = unknown
        self._hits: dict[str, Hit] = {}
        self._number = 0
        self._opened: list[Hit] = []
        self._column = self._opened_at = 0  # where the traceback stands in its line, and in which
        self._begun = False  # whether its last line has come, without what it says

    def see(self, number: int, line: str) -> None:
        """Look at a line."""
        self._number = number
        if self._opened:
            self._follow(number, line)
        found = self._matcher.find(line)
        if self._unknown is not None and not found:
            self._unknown(number, line)
        for pattern, match in found:
            hit = self._hits.get(pattern.id)
            if hit is None:
                named = {key: excerpt(value)[:80] for key, value in match.groupdict().items() if value}
                hit = self._hits[pattern.id] = Hit(pattern.id, number, number, 1, excerpt(line, match.start()), named)
                if (place := line.find(_OPENS)) >= 0:
                    self._opened, self._column, self._opened_at = [*self._opened, hit], place, number
            elif hit.last != number:
                hit.last, hit.count = number, hit.count + 1

    def _follow(self, number: int, line: str) -> None:
        """Look for the end of a traceback: the first line that is not indented, behind what prefix its lines have."""
        raised = RAISED.match(line) or RAISED.match(line, self._column)
        late = number >= self._opened_at + TRACED
        text = line[raised.start() :] if raised else line[self._column :].strip() if self._begun else ""
        if text and not late:
            for hit in self._opened:
                hit.excerpt = f"{hit.excerpt} {'' if self._begun else '... '}{excerpt(text)}"
        # What an exception says may begin on the line after its name.
        self._begun = (self._begun and not text) or bool(raised and text.rstrip().endswith(":"))
        if late or ((raised or text) and not self._begun):
            self._opened, self._begun = [], False

    def passing(self, lines: t.Iterable[tuple[int, str]]) -> t.Iterator[str]:
        """Look at each line on its way to another reader, which gets a long line's pieces without their overlap."""
        for number, line in lines:
            again = number == self._number
            self.see(number, line)
            yield line[OVERLAP:] if again else line

    def reading(self, name: str) -> Reading:
        """Return what was found so far."""
        return Reading(name, self._number, tuple(self._hits.values()))


def scan(name: str, lines: t.Iterable[tuple[int, str]], patterns: t.Sequence[Pattern]) -> Reading:
    """Look for all patterns in numbered lines."""
    made = Scan(patterns)
    for number, line in lines:
        made.see(number, line)
    return made.reading(name)
