# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From the outcomes and times of requests to the figures of each request and of a level. Pure.

The names are the field's, but tools define them differently. Here they mean:

- *TTFT*: from sending the request to the first text, reasoning included. A chunk that holds only the role does not count.
- *tokens/s* of a request: the tokens after the first moment, over the time after it. *TPOT* is its inverse. A stop token has no
  text; if the server counts it, the chunk that says so is its moment.
- *ITL*: the time of one token. A chunk of several tokens splits its gap among them: by the server's running counts, else equally
  by the count at the end (`itl_is_spread`). Chunks that arrive closer together than tokens can be generated count as one.
  The *gap* is the time between two chunks, whatever they hold.
- *peak* of a level: the sum of the tokens/s of as many requests as ran at once. It leaves out the waits for first tokens.
- *wall*: all tokens over the time from the first request's start to the last one's end.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import typing as t
from collections import Counter
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.stream import ChatStream

Status = t.Literal["ok", "failed", "garbage"]


@dataclass(frozen=True, slots=True)
class Burst:
    """An answer of at least `min_tokens` tokens came in one burst if a token took less than `min_token_s`."""

    min_tokens: int
    min_token_s: float


@dataclass(frozen=True, slots=True)
class Record:
    """The record of one request. question: which of the prompts it asked. Times are seconds of one clock."""

    index: int
    question: int
    status: Status
    began: float
    ended: float
    times: tuple[float, ...] = ()
    counts: tuple[int | None, ...] = ()
    tokens: int = 0
    tokens_are_counted: bool = False
    prompt_tokens: int | None = None
    reasoning_tokens: int | None = None
    finish_reason: str | None = None
    cause: str | None = None
    message: str = ""
    guard: str | None = None
    content: str = ""
    reasoning: str = ""


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one request. None: unknown."""

    tokens: int
    chunks: int
    prompt_tokens: int | None
    reasoning_tokens: int | None
    answer_tokens: int | None
    total_s: float
    ttft_s: float | None = None
    tokens_per_s: float | None = None
    tpot_s: float | None = None
    itl_median_s: float | None = None
    itl_p99_s: float | None = None
    itl_is_spread: bool = False
    gap_median_s: float | None = None
    burst: bool = False


@dataclass(frozen=True, slots=True)
class Level:
    """The figures of `n` concurrent requests. Only ok requests count for speeds and tokens."""

    n: int
    ok: int
    failed: int
    garbage: int
    bursts: int
    tokens: int
    wall_s: float | None
    peak_tokens_per_s: float | None
    wall_tokens_per_s: float | None
    per_request_tokens_per_s: float | None
    slowest_tokens_per_s: float | None
    ttft_median_s: float | None
    ttft_p99_s: float | None
    itl_median_s: float | None
    itl_p99_s: float | None
    tokens_are_counted: bool
    causes: dict[str, int] = field(default_factory=dict)


GARBAGE = "tokens.garbage"


def record_of(
    index: int,
    question: int,
    stream: ChatStream,
    ended: float,
    cause: str | None = None,
    message: str = "",
    guard: str | None = None,
) -> Record:
    """Return the record of a stream that ended, or was aborted for a cause; guard: the one that found garbage, if one did."""
    return Record(
        index=index,
        question=question,
        status="garbage" if cause == GARBAGE else "failed" if cause else "ok",
        began=stream.began,
        ended=ended,
        times=tuple(at for at, _count in stream.token_marks),
        counts=tuple(count for _at, count in stream.token_marks),
        tokens=stream.tokens,
        tokens_are_counted=stream.tokens_are_counted,
        prompt_tokens=stream.prompt_tokens,
        reasoning_tokens=stream.reasoning_tokens,
        finish_reason=stream.finish_reason,
        cause=cause,
        message=message,
        guard=guard,
        content=stream.content,
        reasoning=stream.reasoning,
    )


def quantile(values: t.Sequence[float], share: float) -> float | None:
    """Return the quantile at `share`, interpolated linearly between the two nearest values; None if there are none."""
    if not values:
        return None
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low, high = math.floor(place), math.ceil(place)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def figures_of(record: Record, burst: Burst) -> Figures:
    """Return the figures of one request."""
    answer = None if record.reasoning_tokens is None else max(0, record.tokens - record.reasoning_tokens)
    known = Figures(
        record.tokens,
        len(record.times),
        record.prompt_tokens,
        record.reasoning_tokens,
        answer,
        record.ended - record.began,
    )
    if not record.times:
        return known
    ttft, span = record.times[0] - record.began, record.times[-1] - record.times[0]
    is_burst = record.tokens >= burst.min_tokens and span < burst.min_token_s * (record.tokens - 1)
    moments = _moments(record, burst)
    after = record.tokens - moments[0][1]
    if is_burst or span <= 0 or after < 1:
        return dataclasses.replace(known, ttft_s=ttft, burst=is_burst)
    times = _token_times(record, burst)
    return dataclasses.replace(
        known,
        ttft_s=ttft,
        tokens_per_s=after / span,
        tpot_s=span / after,
        itl_median_s=quantile(times, 0.5),
        itl_p99_s=quantile(times, 0.99),
        itl_is_spread=not _runs(record) and record.tokens != len(record.times),
        gap_median_s=quantile(_gaps(record.times), 0.5),
    )


def level_of(n: int, records: t.Sequence[Record], burst: Burst) -> Level:
    """Return the figures of a level with `n` requests at once."""
    good = [record for record in records if record.status == "ok"]
    each = [figures_of(record, burst) for record in good]
    speeds = [figures.tokens_per_s for figures in each if figures.tokens_per_s is not None]
    firsts = [figures.ttft_s for figures in each if figures.ttft_s is not None]
    times = [
        time for r, f in zip(good, each, strict=True) if f.tokens_per_s is not None for time in _token_times(r, burst)
    ]
    wall = max(r.ended for r in records) - min(r.began for r in records) if records else None
    tokens = sum(record.tokens for record in good)
    # With 8 requests of which 2 run at once, only 2 speeds add up.
    turns = max(1.0, len(records) / n)
    return Level(
        n=n,
        ok=len(good),
        failed=sum(record.status == "failed" for record in records),
        garbage=sum(record.status == "garbage" for record in records),
        bursts=sum(figures.burst for figures in each),
        tokens=tokens,
        wall_s=wall,
        peak_tokens_per_s=sum(speeds) / turns if speeds else None,
        wall_tokens_per_s=tokens / wall if wall else None,
        per_request_tokens_per_s=quantile(speeds, 0.5),
        slowest_tokens_per_s=min(speeds, default=None),
        ttft_median_s=quantile(firsts, 0.5),
        ttft_p99_s=quantile(firsts, 0.99),
        itl_median_s=quantile(times, 0.5),
        itl_p99_s=quantile(times, 0.99),
        tokens_are_counted=all(record.tokens_are_counted for record in good),
        causes=dict(Counter(record.cause for record in records if record.cause)),
    )


def _gaps(times: t.Sequence[float]) -> list[float]:
    return [late - early for early, late in itertools.pairwise(times)]


def _runs(record: Record) -> bool:
    """Whether the server sent running counts, chunk by chunk."""
    counts = [count for count in record.counts if count is not None]
    return len(counts) == len(record.times) > 0 and counts == sorted(counts) and counts[0] > 0


def _moments(record: Record, burst: Burst) -> list[tuple[float, int]]:
    """Return the moments at which chunks arrived, each with the tokens so far: one per chunk if the server sends no counts.

    A proxy, for example, may hold chunks back and deliver several at one moment.
    """
    counts = t.cast(tuple[int, ...], record.counts) if _runs(record) else range(1, len(record.times) + 1)
    found: list[tuple[float, int]] = []
    for at, count in zip(record.times, counts, strict=True):
        if found and at - found[-1][0] < burst.min_token_s:
            found[-1] = found[-1][0], count
        else:
            found.append((at, count))
    return found


def _token_times(record: Record, burst: Burst) -> list[float]:
    """Return the time of each token after the first moment."""
    moments = _moments(record, burst)
    (began, held), found = moments[0], list[float]()
    share = 1.0 if _runs(record) else (len(record.times) - held) / max(1, record.tokens - held)
    for at, count in moments[1:]:
        fresh = count - held
        # Text without a new token, such as the rest of a character: its wait counts towards the next token.
        if fresh:
            found += [(at - began) / fresh * share] * fresh
            began, held = at, count
    return found
