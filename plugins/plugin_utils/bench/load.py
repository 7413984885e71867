# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many concurrent streamed chat requests to one server: one event loop, and one guard state per stream.

A *turn* is a set of requests, of which `n` run at a time. Times are the arrival times of the bytes. The client's own cost is the
processor time of its one thread: as it nears the elapsed time, the figures become the client's and not the server's. Ignores proxies
and redirects.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json
import math
import ssl
import time
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.arrivals import Arrivals
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.client import (
    ChatRequest,
    Failure,
    closed,
    failure_of,
    first_model,
    named,
    page,
    read,
    reader,
    target_of,
    tls_of,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.figures import Record, record_of
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.guards import Limits, TextGuard
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.stream import ChatStream, StreamError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.workloads import Question, Workload

Say = t.Callable[[str], None]
_LOOK_S = 5.0  # between two progress messages, and two readings of /metrics
_BESIDE_S = 10.0  # timeout of /metrics
_MOST_PAGE = 8 << 20  # bytes of /metrics
# Timeout of the list of models, the first request: servers have it ready, but one that starts its processes from a slow disk, or
# is busy on two cores, takes seconds. A request's own timeout may be a day.
FIRST_S = 30.0
_GONE = frozenset(f"tokens.{cause}" for cause in ("refused", "unreachable", "tls", "hang", "truncated"))


@dataclass(frozen=True, slots=True)
class Planned:
    """A turn to come: how many run at once, their questions, and after how many seconds no more are sent.

    begins: it is the first turn of a group, which runs as a whole or not at all. scrape: it is the measured turn, so /metrics is read
    before, during and after it, and its end is reported. beside: requests that are sent all the while, to make up the load around
    the questions; half of the `n` are these, they are dropped as soon as the questions are answered, and only garbage is kept of them.
    """

    n: int
    workload: Workload
    questions: t.Sequence[Question]
    seconds: float
    scrape: bool = False
    begins: bool = False
    beside: tuple[Workload, t.Sequence[Question]] | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """The outcome of a turn.

    client_share: the processor time of the client's one thread over the elapsed time. If the kernel timestamps arrivals (plain
    connections, Linux), a busy client does not make tokens look late, but may send late; otherwise the share bounds the client's
    part of the figures. scrapes: /metrics at the beginning, periodically, and at the end; empty if there is no /metrics.
    began_at: seconds since 1970, by the clock of the machine that asks; it ended wall_s later.
    """

    n: int
    records: tuple[Record, ...]
    not_asked: int
    wall_s: float
    client_share: float
    scrapes: tuple[str, ...] = ()
    began_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Server:
    """What a server says about itself: the model's name, its metrics (empty if none), and JSON documents by path."""

    model: str
    metrics: str
    documents: dict[str, t.Any]


def turns(
    request: ChatRequest,
    planned: t.Sequence[Planned],
    limits: Limits,
    say: Say = lambda _text: None,
    within_s: float = math.inf,
) -> list[Turn]:
    """Run all planned turns, one after the other. Raises CollectionError if no request can be sent at all.

    After the first group of turns, begins no other that would probably not end within within_s (estimated as long as the previous
    one), and none after a group whose last turn found the server gone.

    The workload decides what is asked: prompt and max_tokens of `request` are not used, and its timeout caps the workload's.
    """
    _checked(request)
    return asyncio.run(_turns(request, planned, limits, say, within_s))


def server_of(request: ChatRequest, paths: t.Iterable[str] = ()) -> Server:
    """Return what the server says about itself: /metrics and these paths. Raises CollectionError if it names no model."""
    _checked(request)

    async def ask() -> Server:
        model = request.model or await _model(request)
        metrics = await _beside(request, "/metrics")
        documents = {path: _document(await _beside(request, path)) for path in paths}
        return Server(model, metrics, documents)

    return asyncio.run(ask())


def _checked(request: ChatRequest) -> None:
    """Raises CollectionError for an invalid URL, and for a CA file that cannot be read."""
    try:
        tls_of(request)
    except Failure as exc:
        raise CollectionError(f"{request.name}: {exc}. {exc.remedy}") from None


async def _beside(request: ChatRequest, path: str) -> str:
    """Return a document beside the API, such as /metrics; "" if there is none."""
    try:
        with named(request):
            root = target_of(request).path.removesuffix("/v1")
            text = await asyncio.wait_for(page(request, f"{root}{path}", _MOST_PAGE), _BESIDE_S)
    except Failure:
        return ""
    return text.decode(errors="replace")


def _document(text: str) -> t.Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


async def _turns(
    request: ChatRequest, planned: t.Sequence[Planned], limits: Limits, say: Say, within_s: float
) -> list[Turn]:
    began, marks, done = time.monotonic(), list[float](), list[Turn]()
    if not request.model:
        request = dataclasses.replace(request, model=await _model(request))
    for each in planned:
        if each.begins:
            marks.append(time.monotonic())
            if len(marks) > 1 and 2 * marks[-1] - marks[-2] - began > within_s:
                break
            if len(marks) > 1 and died(done):
                say(f"{done[-1].n} at once: no request finished, the server is gone, and nothing more is tried")
                break
        if each.beside and gone(done[-1].records):
            done.append(Turn(each.n, (), len(each.questions), 0.0, 0.0))
        else:
            done.append(await _turn(request, each, limits, say))
    return done


def died(done: t.Sequence[Turn]) -> bool:
    """Whether the server was gone in the last turn in which it was asked anything."""
    return gone(next((turn.records for turn in reversed(done) if turn.records), ()))


def gone(records: t.Sequence[Record]) -> bool:
    """Whether the server is gone: every request failed at its connection. A refusal or garbage is an answer."""
    return bool(records) and all(record.status == "failed" and record.cause in _GONE for record in records)


async def _turn(request: ChatRequest, planned: Planned, limits: Limits, say: Say) -> Turn:
    n, questions, seconds = planned.n, planned.questions, planned.seconds
    left, records = iter(questions), list[Record]()
    streams = set[ChatStream]()
    scrapes = [await _beside(request, "/metrics")] if planned.scrape else []
    others = n // 2 if planned.beside else 0

    async def ask(read_by: ssl.SSLContext | Arrivals, workload: Workload, question: Question) -> Record:
        stream = ChatStream(time.monotonic(), workload.max_tokens)
        streams.add(stream)
        within = dataclasses.replace(request, timeout=min(request.timeout, workload.timeout_s))
        record = await _one(read_by, within, workload, question, limits, stream)
        streams.discard(stream)
        return record

    async def user(read_by: ssl.SSLContext | Arrivals) -> None:
        for question in left:
            records.append(await ask(read_by, planned.workload, question))
            if time.monotonic() - began >= seconds:
                return

    async def other(read_by: ssl.SSLContext | Arrivals, number: int) -> None:
        workload, asked = t.cast(tuple[Workload, t.Sequence[Question]], planned.beside)
        for question in itertools.islice(itertools.cycle(asked), number, None):
            record = await ask(read_by, workload, question)
            if record.status == "garbage":
                records.append(record)
            if record.status != "ok":
                return

    async def watch() -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            say(_progress(planned, records, streams, time.monotonic() - began))
            if any(scrapes):
                scrapes.append(await _beside(request, "/metrics"))

    with reader(request) as read_by:
        began_at, began, busy = time.time(), time.monotonic(), time.thread_time()
        around = [asyncio.ensure_future(each) for each in (watch(), *(other(read_by, at) for at in range(others)))]
        try:
            await asyncio.gather(*(user(read_by) for _number in range(n - others)))
        finally:
            for each in around:
                each.cancel()
            await asyncio.gather(*around, return_exceptions=True)
    wall, busy = time.monotonic() - began, time.thread_time() - busy
    if any(scrapes):
        scrapes.append(await _beside(request, "/metrics"))
    if planned.scrape:  # warm-up and greedy prompt end silently
        say(_progress(planned, records, (), wall))
    records.sort(key=lambda record: record.index)
    share = busy / wall if wall else 0.0
    left_out = max(0, len(questions) - len(records))
    return Turn(n, tuple(records), left_out, wall, share, tuple(filter(None, scrapes)), began_at)


def _progress(planned: Planned, records: t.Sequence[Record], streams: t.Collection[ChatStream], passed: float) -> str:
    """Describe a turn's progress. The time left is extrapolated from what is done, and capped by the turn's bound."""
    count, done = len(planned.questions), len(records)
    tokens = sum(record.tokens for record in records) + sum(stream.tokens for stream in streams)
    said = f"{planned.n} at once: {done} of {count} requests, {tokens} tokens, {passed:.0f} s"
    if done == count or not done:
        return said
    left = min(passed / done * (count - done), max(planned.seconds, passed) - passed + passed / done * planned.n)
    return f"{said}, about {left:.0f} s left"


async def _one(
    read_by: ssl.SSLContext | Arrivals,
    request: ChatRequest,
    workload: Workload,
    question: Question,
    limits: Limits,
    stream: ChatStream,
) -> Record:
    guards = (TextGuard(limits), TextGuard(limits))
    failure: Failure | None = None
    try:
        with named(request, stream):
            asking = read(request, read_by, _body(request, workload, question), stream, guards)
            await asyncio.wait_for(asking, request.timeout)
        # Unlike the canary, accept reasoning alone as an answer: it has a speed, and may be cut by design.
        closed(stream, guards)
    except StreamError as exc:
        failure = failure_of(exc.cause, str(exc))
    except Failure as exc:
        failure = exc
    trip = next((guard.trip for guard in guards if guard.trip), None)
    return _cleaned(
        request,
        record_of(
            question.index,
            question.number,
            stream,
            time.monotonic(),
            cause=failure.cause if failure else None,
            message=f"{request.name} ({request.url}): {str(failure).rstrip('.')}. {failure.remedy}" if failure else "",
            guard=trip.guard if trip else None,
        ),
    )


def _body(request: ChatRequest, workload: Workload, question: Question) -> bytes:
    body = {
        "model": request.model,
        "messages": [{"role": "user", "content": question.text}],
        "max_tokens": workload.max_tokens,
        "temperature": workload.temperature,
        "seed": question.seed,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return json.dumps(body).encode()


async def _model(request: ChatRequest) -> str:
    request = dataclasses.replace(request, timeout=min(request.timeout, FIRST_S))
    try:
        with named(request):
            return await asyncio.wait_for(first_model(request), request.timeout)
    except Failure as exc:
        asked = " to the request for its list of models, which comes first" if exc.cause == "tokens.hang" else ""
        text = f"{request.name} ({request.url}): {str(exc).rstrip('.')}{asked}. {exc.remedy}"
        raise CollectionError(text.replace(request.api_key, "********") if request.api_key else text) from None


def _cleaned(request: ChatRequest, record: Record) -> Record:
    """Return the record without the key, which a server may echo."""
    if not request.api_key:
        return record
    texts = {
        name: getattr(record, name).replace(request.api_key, "********") for name in ("message", "content", "reasoning")
    }
    return dataclasses.replace(record, **texts)
