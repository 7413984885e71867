# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decodes a streamed chat completion: server-sent events of OpenAI-compatible servers (SGLang, vLLM …).

Pure: takes bytes and their arrival times, returns text and figures.
"""

from __future__ import annotations

import json
import re
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError

_DECODE = json.JSONDecoder().decode
_HALF = re.compile("[\ud800-\udfff]")  # a lone surrogate, possible with JSON escapes, which no encoding accepts
_GAVE_UP = frozenset({"abort", "error"})  # SGLang's and vLLM's finish reasons for a request that they gave up
_TEXT = re.compile(rb'"(?:content|reasoning|reasoning_content)": ?("(?:[^"\\]|\\.)+")')
_LEARNING = 8  # learning the form of events costs as much as reading this many
_MOST = 1 << 20  # bytes of one event; no chat server sends more
_MOST_TEXT = 16 << 20  # characters of one answer, and pieces of it
_LARGEST = 1 << 40  # tokens; no model has such a context
_HIDDEN = 16  # tokens of an answer that have no text: its end, the marks around reasoning
_WRONG_JSON = (ValueError, RecursionError)


class StreamError(CollectionError):
    """The input is not a stream of chat completions. `cause`: a request's, as client._REMEDIES has them."""

    cause = "protocol"


class ServerError(StreamError):
    """The server reports a failure in the middle of its answer."""

    cause = "server-error"


class Delta(t.NamedTuple):
    """A piece of text: of the answer, or of the reasoning before it."""

    content: str = ""
    reasoning: str = ""


class EventReader:
    """Server-sent events: takes pieces of bytes, yields the `data` of complete events (WHATWG HTML, section 9.2.6)."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []  # of a line that has not ended
        self._data: list[bytes] = []
        self._kind = b""
        self._size = 0  # bytes of the partial event

    @property
    def between(self) -> bool:
        """Whether no partial event is pending."""
        return not (any(self._rest) or self._data or self._kind)

    def feed(self, piece: bytes, final: bool = False) -> t.Iterator[str]:
        """Yield the data of each event that this piece completes. final: nothing follows.

        Raises ServerError for an event named `error`, whatever its data.
        """
        one = self.between and piece.startswith(b"data:") and piece.endswith(b"\n\n")
        if one and piece.count(b"\n") == 2 and b"\r" not in piece:  # one whole event, as nearly all pieces are
            yield piece[5:-2].removeprefix(b" ").decode("utf-8", "replace")
            return
        self._size += len(piece)
        self._rest.append(piece)
        for line in self._lines(piece, final):
            if line.startswith(b"data:"):
                self._data.append(line.rstrip(b"\r\n")[5:].removeprefix(b" "))
            elif line.startswith(b"event:"):
                self._kind = line.rstrip(b"\r\n")[6:].removeprefix(b" ")
            elif line in (b"\n", b"\r\n", b"\r"):
                data, kind = b"\n".join(self._data).decode("utf-8", "replace"), self._kind
                has_data, self._data, self._kind, self._size = bool(self._data), [], b"", 0
                if has_data and kind == b"error":
                    raise _aborted(_said(data))
                if has_data:
                    yield data
        if self._size > _MOST:
            raise StreamError("the server sends one event that never ends.")

    def _lines(self, piece: bytes, final: bool) -> list[bytes]:
        """Return the lines that this piece completes; joins what came before only if there are any."""
        held = len(self._rest) > 1 and self._rest[-2].endswith(b"\r")  # an LF may follow a CR in the next piece
        if not (final or held or b"\n" in piece or b"\r" in piece):
            return []
        lines = b"".join(self._rest).splitlines(keepends=True)  # bytes split at LF, CR LF and CR only
        whole = not lines or lines[-1].endswith(b"\n") or (final and lines[-1].endswith(b"\r"))
        self._rest = [] if whole else [lines.pop()]
        return lines


def _aborted(words: t.Any) -> ServerError:
    return ServerError(f"the server aborted in the middle of the answer: {' '.join(_clean(words).split())[:200]}.")


def _said(data: str) -> t.Any:
    """Return the message of an error event: OpenAI's form, a bare message, or not JSON at all."""
    try:
        event = _DECODE(data)
    except _WRONG_JSON:
        return data
    error = (event.get("error") or event) if isinstance(event, dict) else event
    return (error.get("message") or error) if isinstance(error, dict) else error


def _clean(value: t.Any) -> str:
    """Return a value as a text that any encoding accepts."""
    try:
        text = str(value)
    except RecursionError:
        return "nested too deeply"
    return text if text.isascii() else _HALF.sub("\N{REPLACEMENT CHARACTER}", text)


def _number(value: t.Any, otherwise: int | None) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST else otherwise


class _Alike(t.NamedTuple):
    """The bytes around the text of events that differ only in their text."""

    head: bytes  # up to and including the quote before the text
    tail: bytes
    reasoning: bool

    def read(self, piece: bytes) -> Delta | None:
        """Return the text if the piece is one such event; None if it is not, or may be something else."""
        head, tail, reasoning = self
        if not (piece.startswith(head) and piece.endswith(tail)):
            return None
        try:
            # A JSON string contains no raw newline or unescaped quote, so this is the text and nothing else.
            text = _clean(_DECODE(piece[len(head) - 1 : -len(tail)].decode()))
        except _WRONG_JSON:
            return None
        return (Delta("", text) if reasoning else Delta(text)) if text else None


class ChatStream:
    """One streamed chat completion. Times are seconds of any monotonic clock.

    most_tokens: the request's max_tokens, None: not bounded. reached: set by the client once it is connected.
    """

    def __init__(self, began: float, most_tokens: int | None = None) -> None:
        self.began = began
        self.reached = False
        self.most_tokens = most_tokens
        self.first: float | None = None
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._length = 0  # bytes of text
        self.pieces = 0
        self.model: str | None = None
        self.finish_reason: str | None = None
        self.done = False
        # For each piece of text: its arrival time, and the server's token count by then, if it reports one.
        self.times: list[float] = []
        self.counts: list[int | None] = []
        # The same for an end without text, other than at the limit: a stop token has no text.
        self._stop: tuple[float, int | None] | None = None
        self.prompt_tokens: int | None = None
        self.reasoning_tokens: int | None = None
        self._usage: int | None = None
        self._events = EventReader()
        self._alike: _Alike | None = None
        self._credit = 2 * _LEARNING

    def feed(self, piece: bytes, now: float, final: bool = False) -> list[Delta]:
        """Take more bytes; return the text in them. Raises StreamError if they are not a stream of completions."""
        if self._alike:
            delta = self._alike.read(piece)
            if delta:
                self._credit += 1
                self._took(delta, now)
                return [delta]
        found, between = [], self._events.between
        for data in self._events.feed(piece, final):
            if data.strip() == "[DONE]":
                self.done = True
                break
            ended, delta = self.ended, self._event(data)
            if delta.content or delta.reasoning:
                self._took(delta, now)
                found.append(delta)
            elif not ended and self.finish_reason not in (None, "length") and self.times:
                self._stop = now, self._usage
        one = len(found) == 1 and between and self._events.between
        self._alike = self._learnt(piece) if one else None
        return found

    def _took(self, delta: Delta, now: float) -> None:
        self.first = now if self.first is None else self.first
        self.pieces += 1
        self.times.append(now)
        self.counts.append(self._usage)
        self._content.append(delta.content)
        self._reasoning.append(delta.reasoning)
        self._length += len(delta.content.encode()) + len(delta.reasoning.encode())
        if self._length > _MOST_TEXT:
            raise StreamError("the server sends an answer that never ends.")

    @property
    def content(self) -> str:
        """The answer so far."""
        self._content = ["".join(self._content)]
        return self._content[0]

    @property
    def reasoning(self) -> str:
        """The reasoning so far."""
        self._reasoning = ["".join(self._reasoning)]
        return self._reasoning[0]

    def _learnt(self, piece: bytes) -> _Alike | None:
        """Return the bytes around this piece's text, if they parse the same way around another text.

        All else in the piece is as before, so parsing it again changes nothing; a fresh stream tests that. The test costs as much as
        parsing several events and must pay off: a server that counts tokens in each event never sends two alike.
        """
        if self._credit < _LEARNING:
            return None
        self._credit -= _LEARNING
        for place in _TEXT.finditer(piece):
            head, tail = piece[: place.start(1) + 1], piece[place.end(1) :]
            trial = ChatStream(0.0)
            trial._credit = 0
            deltas = trial.feed(head + b'another"' + tail, 0.0)
            if deltas in ([Delta("another")], [Delta("", "another")]):
                return _Alike(head, tail, bool(deltas[0].reasoning))
        return None

    def _event(self, data: str) -> Delta:
        try:
            event = _DECODE(data)
        except _WRONG_JSON:
            raise StreamError(f"an event of the stream is not JSON: {data[:80]!r}.") from None
        if not isinstance(event, dict):
            raise StreamError(f"an event of the stream is not an object: {data[:80]!r}.")
        if event.get("error"):
            raise _aborted(_said(data))
        self.model = _clean(event.get("model") or "") or self.model
        if "usage" in event:
            self._counted(event["usage"])
        choices = event.get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            return Delta()
        self.finish_reason = _clean(choices[0].get("finish_reason") or "") or self.finish_reason
        if self.finish_reason in _GAVE_UP:
            raise _aborted(f"it ended with finish_reason {self.finish_reason!r}")
        delta = choices[0].get("delta")
        if not isinstance(delta, dict):
            return Delta()
        # SGLang and older vLLM send reasoning_content, newer vLLM reasoning.
        reasoning = delta.get("reasoning_content") or delta.get("reasoning") or ""
        return Delta(_clean(delta.get("content") or ""), _clean(reasoning))

    def _counted(self, usage: t.Any) -> None:
        if not isinstance(usage, dict):
            return
        details = usage.get("completion_tokens_details")
        # OpenAI and vLLM report reasoning tokens in the details, SGLang beside the other counts.
        reasoning = details.get("reasoning_tokens") if isinstance(details, dict) else usage.get("reasoning_tokens")
        self._usage = _number(usage.get("completion_tokens"), self._usage)
        self.prompt_tokens = _number(usage.get("prompt_tokens"), self.prompt_tokens)
        self.reasoning_tokens = _number(reasoning, self.reasoning_tokens)

    @property
    def ended(self) -> bool:
        """Whether the server has ended the answer."""
        return self.finish_reason is not None

    @property
    def miscounted(self) -> int | None:
        """The server's count, if it cannot be: more than was asked for, or than bytes of text. None: it can be."""
        most = self._length + _HIDDEN
        bounds = most if self.most_tokens is None else min(most, self.most_tokens)
        return self._usage if self._usage is not None and self._usage > bounds else None

    @property
    def tokens(self) -> int:
        """Tokens so far: the server's count if it can be, else the number of text pieces, each of which may hold several."""
        if self._usage is not None and self.miscounted is None:
            return self._usage
        return self.pieces if self.most_tokens is None else min(self.pieces, self.most_tokens)

    @property
    def tokens_are_counted(self) -> bool:
        """Whether the server counts the tokens, and its count can be."""
        return self._usage is not None and self.miscounted is None

    @property
    def token_marks(self) -> list[tuple[float, int | None]]:
        """Arrival times with the server's token count by then; includes the stop token if it is counted."""
        if self.miscounted is not None:
            return [(at, None) for at in self.times]
        marks = list(zip(self.times, self.counts, strict=True))
        counted = self._usage is not None and self._usage > self.pieces
        return [*marks, self._stop] if self._stop and counted else marks

    @property
    def ttft_s(self) -> float | None:
        """Time to first text, reasoning included, in seconds."""
        return None if self.first is None else self.first - self.began

    @property
    def tokens_per_s(self) -> float | None:
        """Speed after the first token; None if there was only one piece, or no time passed."""
        marks = self.token_marks
        if not marks or marks[-1][0] <= marks[0][0] or self.tokens < 2:
            return None
        return (self.tokens - 1) / (marks[-1][0] - marks[0][0])
