# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guards that tell garbage from text while it streams, and a check over all requests after the end.

They are pure: each request has a `TextGuard` that is fed text in pieces of any size; where the pieces are cut does not change
the result. The guards look at:

- *words*: runs of letters and digits, and each Chinese, Japanese or Korean character. A line that is at least a fifth
  punctuation (tables, JSON, code) counts as one new word, since such lines repeat naturally; so does a short line, as of a list of
  moves or a matrix, whose words are counted beside in a longer window.
- the exact end of the text, in any characters. Lists and drawings that repeat may end; whether the model ended them by itself is
  known at the end.
- at the end, the letters: whether they are drawn at random (letters.py).

No guard sees fluent nonsense: for that, ask for something with a known answer.
"""

from __future__ import annotations

import re
import typing as t
from collections import Counter, deque
from dataclasses import dataclass, field
from operator import itemgetter

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, from_plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench import letters

STEP = 64  # characters between two checks of the end of the text
_PIECE = 200  # characters after which an unfinished line is checked as it is
_STRUCTURED = 0.2  # share of punctuation at which a line is no longer prose
_KEY = 16  # characters used to look for a loop
_CANDIDATES = 64

# Scripts without spaces between words: kana, ideographs (with extension A), Hangul syllables.
_WORD = re.compile(
    r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]|[^\W_\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]+"
)
_LETTERS = re.compile(r"[^\W_]+")  # the characters for which str.isalnum() is true
_SPACE = re.compile(r"\s")
_RUN = re.compile(r"\w+")
_TOKEN = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class Flood:
    """In the last `window` words, an n-gram occurs more than base + per_100 per hundred words times, and at least at `density`."""

    n: int
    base: int
    per_100: float
    density: float
    window: int
    distinct: float
    min_words: int


@dataclass(frozen=True, slots=True)
class Loop:
    """The text ends with at least `min_chars` characters that are `repeats` exact repetitions of up to `max_period` characters.

    If the repeated text is structure, as in a list of equal values, it may still end: then `structured_chars` characters are
    needed, or a whole text that was cut. An answer that is nothing but `repeats` times the same `echo_words` words or more needs no
    `min_chars`.
    """

    echo_words: int
    min_chars: int
    structured_chars: int
    repeats: int
    max_period: int


@dataclass(frozen=True, slots=True)
class Stagnation:
    """At most the share `distinct` of the last `window` words are distinct; of the last `listed` in lines of up to `line_chars`."""

    listed: int
    line_chars: int
    window: int
    distinct: float


@dataclass(frozen=True, slots=True)
class Single:
    """A single token makes up this share of at least `min_tokens` tokens.

    Or a single run of at least `run_chars` letters does, if it repeats a sequence of up to `run_period` letters.
    """

    min_tokens: int
    share: float
    run_chars: int
    run_period: int


@dataclass(frozen=True, slots=True)
class Requests:
    """Compares speeds to this many decimal places, among at least this many requests."""

    digits: int
    min_requests: int


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of all guards."""

    flood: Flood
    loop: Loop
    stagnation: Stagnation
    single: Single
    soup: letters.Soup
    requests: Requests


def limits_of(entries: t.Mapping[str, t.Mapping[str, t.Any]]) -> Limits:
    """Build the limits from the entries of `knowledge/guards`, by id. Raises CollectionError that names guard and key."""
    kinds: dict[str, t.Any] = {
        "flood": Flood,
        "loop": Loop,
        "stagnation": Stagnation,
        "single": Single,
        "soup": letters.Soup,
        "requests": Requests,
    }
    return Limits(**built(entries, kinds))


def built(entries: t.Mapping[str, t.Mapping[str, t.Any]], kinds: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Build limits of the given kinds, by entry id. Raises CollectionError that names guard and key."""
    missing = [name for name in kinds if name not in entries]
    if missing:
        raise CollectionError(f"guards: the entry {missing[0]!r} is missing.")
    return {name: from_plain(kind, entries[name]["values"], f"guards.{name}") for name, kind in kinds.items()}


@dataclass(frozen=True, slots=True)
class GuardHit:
    """What a guard found, after how many characters, with a sample."""

    guard: t.Literal["flood", "loop", "stagnation", "single", "soup"]
    at: int
    message: str
    sample: str


@dataclass(slots=True)
class _Window:
    """The last words, with a count of each of their n-grams."""

    size: int
    n: int
    words: deque[str] = field(default_factory=deque)
    grams: dict[tuple[str, ...], int] = field(default_factory=dict)
    _order: deque[tuple[str, ...]] = field(default_factory=deque)
    _last: tuple[str, ...] = ()

    def add(self, word: str) -> None:
        self.words.append(word)
        gram = self._last = (*self._last, word)[-self.n :]
        if len(gram) == self.n:
            self.grams[gram] = self.grams.get(gram, 0) + 1
            self._order.append(gram)
        if len(self.words) > self.size:
            oldest = self._order.popleft()
            if self.grams[oldest] == 1:
                del self.grams[oldest]
            else:
                self.grams[oldest] -= 1
            self.words.popleft()

    def most_common(self) -> tuple[tuple[str, ...], int]:
        """Return the most frequent n-gram, and its count."""
        return max(self.grams.items(), key=itemgetter(1))


def _marks(text: str) -> tuple[int, int]:
    """Return how many characters of a text are punctuation, and how many are not whitespace."""
    solid = len("".join(text.split()))
    return solid - sum(map(len, _LETTERS.findall(text))), solid


def _is_structure(line: str) -> bool:
    marks, solid = _marks(line)
    return marks >= _STRUCTURED * max(solid, 1)


def _is_list(text: str) -> bool:
    """Whether a text is structure with content, such as a value and its separator, or a line of a drawing."""
    marks, solid = _marks(text)
    return _STRUCTURED * solid <= marks and (marks < solid or (0 < solid < len(text) and "\n" in text))


def _end_of_line(text: str) -> int:
    """Return the length of the first line, 0 if it has not ended yet. A stuck model may never end its line."""
    newline = text.find("\n", 0, 2 * _PIECE)
    space = _SPACE.search(text, _PIECE - 1, 2 * _PIECE) if len(text) >= _PIECE else None
    ends = [at + 1 for at in (newline, space.start() if space else -1) if at >= 0]
    return min(ends) if ends else 2 * _PIECE if len(text) >= 2 * _PIECE else 0


class TextGuard:
    """The guard of one request's text. Its first hit stays in `trip`."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.trip: GuardHit | None = None
        self.length = 0
        self._waiting = ""  # text too short for the next check
        self._judged = 0  # characters in the lines whose words were checked
        self._line = ""
        self._tail = ""
        self._counts: Counter[str] = Counter()
        self._tokens = 0
        self._flood = _Window(limits.flood.window, limits.flood.n)
        self._recent = _Window(limits.stagnation.window, 1)
        self._listed = _Window(limits.stagnation.listed, 1)

    def feed(self, text: str) -> GuardHit | None:
        """Take more text; return the hit so far. Checks in whole steps, because most pieces are one token."""
        self._waiting += text
        while len(self._waiting) >= STEP and self.trip is None:
            piece, self._waiting = self._waiting[:STEP], self._waiting[STEP:]
            self._take(piece)
            if self.trip is None:
                self._look_at_end()
        return self.trip

    def close(self, ended: bool = False) -> GuardHit | None:
        """End the text; return the hit. ended: by the model itself, so that a list or drawing that repeats has come to its end."""
        if self.trip is None and self._waiting:
            self._take(self._waiting)
        if self.trip is None and self._line:
            self._words(self._line)
        if self.trip is None:
            self._look_at_end(closed=True, ended=ended)
        single = self.limits.single
        is_drawing = ended and self._tail.strip().count("\n") > 1
        if self.trip is None and not is_drawing and self._tokens >= single.min_tokens:
            token, count = self._counts.most_common(1)[0]
            if count >= single.share * self._tokens:
                self._found("single", self.length, f"{token!r} is {count} of its {self._tokens} tokens", token)
        if self.trip is None:
            self._look_at_runs()
        if self.trip is None and (found := letters.soup(self._tail, self.limits.soup)):
            self._found("soup", self.length, found, self._tail)
        return self.trip

    def _look_at_runs(self) -> None:
        """Look for one token repeated without a break: one endless word, which the word guards do not see."""
        single, text = self.limits.single, self._tail
        run = max(_RUN.findall(text), key=len, default="")
        if len(run) < max(single.run_chars, single.share * _marks(text)[1]):
            return
        for period in range(1, single.run_period + 1):
            if run[period:] == run[:-period]:
                token = run[:period]
                self._found("single", self.length, f"{token!r} occurs {len(run) // period} times in one word", token)
                return

    def _found(self, guard: t.Any, at: int, message: str, sample: str) -> None:
        self.trip = GuardHit(guard, at, message, " ".join(sample.split())[:120] or repr(sample[:20]))

    def _take(self, piece: str) -> None:
        self._tail += piece
        most = self.limits.loop.repeats * self.limits.loop.max_period
        if len(self._tail) > 2 * most:
            self._tail = self._tail[-most:]
        self.length += len(piece)
        self._line += piece
        while self.trip is None:
            end = _end_of_line(self._line)
            if not end:
                return
            line, self._line = self._line[:end], self._line[end:]
            self._words(line)

    def _words(self, line: str) -> None:
        self._judged += len(line)
        tokens = _TOKEN.findall(line)
        self._tokens += len(tokens)
        self._counts.update(tokens)
        # A line of structure counts as one unique word, so that the words around it do not become neighbours.
        words = [f"\n{self._judged}"]
        if not _is_structure(line):
            words = _WORD.findall(line.casefold())
            if line.endswith("\n") and len(line) <= self.limits.stagnation.line_chars:
                for word in words:
                    self._listed.add(word)
                words = [f"\n{self._judged}"]
        for word in words:
            self._flood.add(word)
            self._recent.add(word)
        if self.trip is None:
            self._look_at_words()

    def _look_at_words(self) -> None:
        flood, words = self.limits.flood, self._flood.words
        if len(words) >= flood.min_words:
            gram, count = self._flood.most_common()
            often = count > flood.base + flood.per_100 * len(words) / 100
            dense = count >= flood.density * (len(words) - flood.n + 1)
            if often and dense and len(set(words)) <= flood.distinct * len(words):
                text = " ".join(gram)
                self._found(
                    "flood", self._judged, f"{text!r} occurs {count} times in the last {len(words)} words", text
                )
                return
        stagnation = self.limits.stagnation
        for recent in (self._recent, self._listed):
            different = len(recent.grams)
            if len(recent.words) >= recent.size and different <= stagnation.distinct * stagnation.window:
                sample = " ".join(word for (word,) in list(recent.grams)[:8])
                message = f"only {different} different words are among the last {len(recent.words)}"
                self._found("stagnation", self._judged, message, sample)
                return

    def _look_at_echo(self) -> None:
        """Look for an answer that is one passage again and again, and nothing else."""
        loop, words = self.limits.loop, self._tail.split()
        if len(self._tail) < self.length or len(words) < loop.repeats * loop.echo_words:
            return
        for count in range(loop.repeats, len(words) // loop.echo_words + 1):
            size, rest = divmod(len(words), count)
            if not rest and words == words[:size] * count and not _is_structure(" ".join(words[:size])):
                sample = " ".join(words[:size])
                self._found("loop", self.length, f"it is {count} times the same {size} words", sample)
                return

    def _look_at_end(self, closed: bool = False, ended: bool = False) -> None:
        loop = self.limits.loop
        tail = self._tail[-(loop.repeats * loop.max_period) :]
        if closed:
            self._look_at_echo()
        if len(tail) < loop.min_chars or self.trip is not None:
            return
        key, end = tail[-_KEY:], len(tail) - 1
        for _candidate in range(_CANDIDATES):
            # The nearest earlier occurrence of the text's last characters gives the period, or a part of it.
            before = tail.rfind(key, 0, end)
            period = len(tail) - _KEY - before
            if before < 0 or period > loop.max_period or loop.repeats * period > len(tail):
                return
            unit = tail[-period:]
            list_may_end = (not closed or (ended and "\n" in unit)) and _is_list(unit)
            span = max(loop.structured_chars if list_may_end else loop.min_chars, loop.repeats * period)
            if span > len(tail):
                return
            if tail[-span:-period] == tail[period - span :]:
                sample = tail[-period:]
                self._found("loop", self.length, f"its last {span} characters repeat the same {period}", sample)
                return
            end = before + _KEY - 1


# --- after the end ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of one request. tokens_per_s None: unknown. has_content: whether there is anything beside reasoning."""

    name: str
    tokens_per_s: float | None
    has_content: bool
    finish_reason: str | None


@dataclass(frozen=True, slots=True)
class Sign:
    """What requests have in common. An error means that their answers are garbage."""

    id: str
    severity: t.Literal["error", "warning"]
    message: str
    remedy: str


_REMEDY = (
    "Read the answers. A model that has collapsed races to the token limit: see CUDA graphs against the batch size."
)


def compare(answers: t.Sequence[Answer], limits: Requests) -> list[Sign]:
    """Look for what requests to a collapsed model have in common: equal speeds, no content, all cut at the limit.

    Equal speeds or a common limit alone are a warning; together, or with no content, they are its fingerprint.
    """
    if not answers:
        return []
    empty = not any(answer.has_content for answer in answers)
    if len(answers) < limits.min_requests:
        return [_empty(answers)] if empty else []
    speeds = {None if a.tokens_per_s is None else round(a.tokens_per_s, limits.digits) for a in answers}
    equal = len(speeds) == 1 and None not in speeds
    cut = all(answer.finish_reason == "length" for answer in answers)
    signs = [_empty(answers)] if empty else []
    if equal:
        severity: t.Literal["error", "warning"] = "error" if empty or cut else "warning"
        message = f"all {len(answers)} requests ran at {speeds.pop()} tokens/s, to {limits.digits} decimal places."
        signs.append(Sign("tokens.identical-speed", severity, message, _REMEDY))
    if cut:
        message = f"all {len(answers)} requests ended at the token limit."
        signs.append(Sign("tokens.all-length", "error" if empty or equal else "warning", message, _REMEDY))
    return signs


def _empty(answers: t.Sequence[Answer]) -> Sign:
    message = f"no content came in any of {len(answers)} requests." if len(answers) > 1 else "no content came."
    return Sign("tokens.no-content", "error", message, _REMEDY)
