# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One streamed chat request to an OpenAI-compatible server, with one deadline for the whole request, and its outcome.

Ignores proxies and redirects: the server is in the owner's cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import ssl
import time
import typing as t
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.arrivals import Arrivals
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.guards import Limits, TextGuard
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.http1 import Cut, Exchange, HttpError, exchange
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.stream import ChatStream, StreamError

Guards = tuple[TextGuard, TextGuard]  # of the answer, and of the reasoning before it
_PART = 4096
_MOST_LIST = 1 << 20  # bytes of a list of models


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A request to a server. url: with the version, such as http://10.0.0.1:30000/v1. timeout in seconds."""

    name: str
    url: str
    prompt: str
    max_tokens: int
    timeout: float
    model: str | None = None
    expect: str | None = None
    api_key: str | None = None
    validate_certs: bool = True
    ca_path: str | None = None
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a request. `text` is the beginning of the answer; unknown figures are None."""

    name: str
    url: str
    status: t.Literal["ok", "failed"]
    hosts: tuple[str, ...] = ()
    cause: str | None = None
    message: str = ""
    remedy: str = ""
    model: str | None = None
    ttft_s: float | None = None
    tokens: int = 0
    tokens_are_counted: bool = False
    tokens_per_s: float | None = None
    finish_reason: str | None = None
    has_content: bool = False
    has_reasoning: bool = False
    guard: str | None = None
    text: str = field(default="")


class Failure(Exception):
    """Why a request failed: its cause, a message, and a remedy."""

    def __init__(self, cause: str, message: str, remedy: str) -> None:
        super().__init__(message)
        self.cause, self.remedy = f"tokens.{cause}", remedy


_REMEDIES = {
    "refused": "Nothing listens there: check that the server's first rank is up and has loaded, and check the port.",
    "unreachable": "Check the address, the route from the controller, and the service or port of the server.",
    "tls": "Check the certificate's names, its dates and its CA (ca_path), or the scheme in the URL.",
    "unauthorized": "Give the server's API key in api_key (dgxspark.cluster.verify: k8s_dgx_api_key or dgxspark_verify_api_key).",
    "unavailable": "It is still loading, or overloaded: wait until /health answers, and see its log.",
    "http": "See the server's log for the request.",
    "hang": "The server accepted the request, and sends nothing more: a rank may be dead while /health still answers 200. "
    "See the logs of all ranks.",
    "truncated": "The server or something in between closed the connection early: see its log, and proxies' time-outs.",
    "protocol": "Is it an OpenAI-compatible chat server, and does the URL end with /v1?",
    "server-error": "See the logs of all ranks.",
    "garbage": "Stop using it: see the launch plan's rules for CUDA graphs, quantisation and expert parallelism.",
    "empty": "Check the chat template and the stop tokens.",
    "reasoning-only": "Raise max_tokens, so that it reaches its answer; or the reasoning parser takes everything as reasoning.",
    "unexpected": "It is fluent, and wrong or beside the point: read the answer; check quantisation and the chat template.",
}


def ask(request: ChatRequest, limits: Limits) -> Outcome:
    """Send the request and judge the answer. Raises CollectionError for an invalid URL or pattern, and nothing else."""
    target_of(request)
    stream = ChatStream(time.monotonic(), request.max_tokens)
    guards = TextGuard(limits), TextGuard(limits)
    try:
        with named(request, stream):
            asyncio.run(_asked(request, stream, guards))
        _judge(request, stream, guards)
    except StreamError as exc:
        return _outcome(request, stream, guards, failure_of(exc.cause, str(exc)))
    except Failure as exc:
        return _outcome(request, stream, guards, exc)
    return _outcome(request, stream, guards, None)


async def _asked(request: ChatRequest, stream: ChatStream, guards: Guards) -> None:
    async def both() -> None:
        model = request.model or await first_model(request, stream)
        body = {
            "model": model,
            "messages": [{"role": "user", "content": request.prompt}],
            "max_tokens": request.max_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        with reader(request) as read_by:
            await read(request, read_by, json.dumps(body).encode(), stream, guards)

    await asyncio.wait_for(both(), request.timeout)


async def first_model(request: ChatRequest, stream: ChatStream | None = None) -> str:
    """Return the first model of the server's list. Raises Failure if it lists none, and what `exchange` raises."""
    path = f"{target_of(request).path}/models"
    return model_named(await page(request, path, _MOST_LIST, stream), path)


async def page(request: ChatRequest, path: str, most: int, stream: ChatStream | None = None) -> bytes:
    """Return a page of at most `most` bytes. Raises Failure if there is none, and what `exchange` raises."""
    text = bytearray()

    def take(piece: bytes, _now: float) -> bool:
        text.extend(piece)
        if len(text) > most:
            raise failure_of("protocol", f"{path} is larger than {most >> 20} MiB")
        return False

    with reader(request) as read_by:
        done = await _sent(request, read_by, f"GET {path}", b"", take, stream)
    refused = refusal(done.status, "", done.refusal.decode(errors="replace"))
    if refused:
        raise refused
    return bytes(text)


@contextlib.contextmanager
def reader(request: ChatRequest) -> t.Iterator[ssl.SSLContext | Arrivals]:
    """What reads a server's answers on the running loop. Raises Failure if the CA file cannot be read."""
    tls = tls_of(request)
    if tls:
        yield tls
        return
    arrivals = Arrivals()
    try:
        yield arrivals
    finally:
        arrivals.close()


async def read(
    request: ChatRequest, read_by: ssl.SSLContext | Arrivals, body: bytes, stream: ChatStream, guards: Guards
) -> None:
    """Send a chat request and read its answer into `stream`. Raises Failure for garbage or a refusal, and what `exchange` raises."""

    def take(piece: bytes, now: float) -> bool:
        # In parts, so that a burst is read only up to the garbage in it.
        if len(piece) <= _PART:
            _feed(stream, guards, piece, now)
            return stream.done
        for at in range(0, len(piece), _PART):
            _feed(stream, guards, piece[at : at + _PART], now)
        return stream.done

    path = f"{target_of(request).path}/chat/completions"
    done = await _sent(request, read_by, f"POST {path}", body, take, stream)
    refused = refusal(done.status, done.kind, done.refusal.decode(errors="replace"))
    if refused:
        raise refused
    if not stream.done:
        _feed(stream, guards, b"", time.monotonic(), final=True)


async def _sent(
    request: ChatRequest,
    read_by: ssl.SSLContext | Arrivals,
    what: str,
    body: bytes,
    take: t.Callable[[bytes, float], bool],
    stream: ChatStream | None,
) -> Exchange:
    target = target_of(request)
    host = f"[{target.host}]" if ":" in target.host else target.host
    lines = [
        f"{what} HTTP/1.1",
        f"Host: {host}:{target.port}",
        f"Accept: {'text/event-stream' if body else 'application/json'}",
        "Accept-Encoding: identity",
        *(["Content-Type: application/json", f"Content-Length: {len(body)}"] if body else []),
        "Connection: close",
        *([f"Authorization: Bearer {request.api_key}"] if request.api_key else []),
    ]

    def begun(now: float) -> None:
        if stream:
            stream.began, stream.reached = now, True

    message = "\r\n".join([*lines, "", ""]).encode() + body
    return await exchange(target.host, target.port, read_by, message, take, begun)


def _feed(stream: ChatStream, guards: Guards, piece: bytes, now: float, final: bool = False) -> None:
    for delta in stream.feed(piece, now, final):
        trip = (delta.content and guards[0].feed(delta.content)) or (
            delta.reasoning and guards[1].feed(delta.reasoning)
        )
        if trip:
            raise failure_of("garbage", f"the answer is garbage: {trip.message} (guard {trip.guard})")


def closed(stream: ChatStream, guards: Guards) -> None:
    """Judge an answer at its end. Raises Failure if it was cut, shows nothing, or a guard finds garbage."""
    if not stream.ended:
        raise failure_of("truncated", f"the stream ended after {stream.pieces} pieces of text, without saying why")
    for guard in guards:
        trip = guard.close(ended=stream.finish_reason != "length")
        if trip:
            raise failure_of("garbage", f"the answer is garbage: {trip.message} (guard {trip.guard})")
    if not (stream.content.strip() or stream.reasoning.strip()):
        if stream.finish_reason == "length" and stream.tokens >= guards[0].limits.single.min_tokens:
            # Up to its limit it drew tokens that show nothing: line ends, spaces, or marks that the tokenizer leaves out.
            raise failure_of("garbage", f"the answer is garbage: {stream.tokens} tokens, and not one visible character")
        raise failure_of("empty", f"the answer is empty ({stream.finish_reason})")


def _judge(request: ChatRequest, stream: ChatStream, guards: Guards) -> None:
    closed(stream, guards)
    if not stream.content.strip():
        raise failure_of("reasoning-only", f"only reasoning came back, and no answer ({stream.finish_reason})")
    if request.expect and not re.search(request.expect, stream.content, re.IGNORECASE):
        raise failure_of("unexpected", f"the answer does not contain {request.expect!r}: {short(stream.content)!r}")


def failure_of(cause: str, message: str) -> Failure:
    """Return the failure of a known cause, named without its prefix `tokens.`."""
    return Failure(cause, message, _REMEDIES[cause])


def refusal(status: int, kind: str, text: str) -> Failure | None:
    """Return the failure in an answer's head, or None. kind: its media type; text: the beginning of an error's body."""
    if status == 200 and kind in ("text/html", "application/json"):
        return failure_of("protocol", f"it answers with {kind}, not with an event stream")
    if status == 200:
        return None
    cause = {401: "unauthorized", 403: "unauthorized", 503: "unavailable", 429: "unavailable"}.get(status, "http")
    said = short(text)
    return failure_of(cause, f"HTTP status {status}{f': {said}' if said else ''}")


def short(text: str, limit: int = 200) -> str:
    """Return a text on one line, truncated to `limit` characters."""
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def _outcome(request: ChatRequest, stream: ChatStream, guards: Guards, failure: Failure | None) -> Outcome:
    trip = next((each.trip for each in guards if each.trip), None)

    def clean(text: str) -> str:
        # A server may echo the key that it refuses.
        return text.replace(request.api_key, "********") if request.api_key else text

    message = f"{request.name} ({request.url}): {str(failure).rstrip('.')}." if failure else ""
    return Outcome(
        name=request.name,
        url=request.url,
        hosts=request.hosts,
        status="failed" if failure else "ok",
        cause=failure.cause if failure else None,
        message=clean(message),
        remedy=failure.remedy if failure else "",
        model=stream.model or request.model,
        ttft_s=stream.ttft_s,
        tokens=stream.tokens,
        tokens_are_counted=stream.tokens_are_counted,
        tokens_per_s=stream.tokens_per_s,
        finish_reason=stream.finish_reason,
        has_content=bool(stream.content.strip()),
        has_reasoning=bool(stream.reasoning.strip()),
        guard=trip.guard if trip else None,
        text=clean(short(stream.content or stream.reasoning)),
    )


# --- HTTP -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Target:
    tls: bool
    host: str
    port: int
    path: str


def target_of(request: ChatRequest) -> _Target:
    """Parse the server's address. Raises CollectionError for an invalid URL or pattern."""
    try:
        parts = urlsplit(request.url)
        port = parts.port
    except ValueError as exc:
        raise CollectionError(f"{request.name}: {request.url!r} is not a URL: {exc}.") from exc
    if parts.username or parts.password:
        raise CollectionError(
            f"{request.name}: the URL contains a user name or password. Leave them out; a key goes into api_key."
        )
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
        raise CollectionError(
            f"{request.name}: {request.url!r} is not a URL of a server, such as http://10.0.0.1:30000/v1."
        )
    if request.expect:
        try:
            re.compile(request.expect)
        except re.error as exc:
            raise CollectionError(
                f"{request.name}: expect: {request.expect!r} is not a regular expression: {exc}."
            ) from exc
    tls = parts.scheme == "https"
    return _Target(tls, parts.hostname, port or (443 if tls else 80), parts.path.rstrip("/"))


def model_named(text: bytes, path: str) -> str:
    """Return the first model of a server's list. Raises Failure if it lists none."""
    try:
        return str(json.loads(text)["data"][0]["id"])
    except (ValueError, LookupError, TypeError, RecursionError):
        said = short(text[:1000].decode(errors="replace"), 80)
        raise failure_of("protocol", f"it lists no model at {path}: {said!r}") from None


def tls_of(request: ChatRequest) -> ssl.SSLContext | None:
    """Return the TLS context of a request; None for a plain connection. Raises Failure if its CA file cannot be read."""
    if not target_of(request).tls:
        return None
    try:
        context = ssl.create_default_context(cafile=request.ca_path)
    except (OSError, ssl.SSLError) as exc:
        raise failure_of("tls", f"the CA file {request.ca_path} cannot be read: {exc}") from None
    if not request.validate_certs:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@contextlib.contextmanager
def named(request: ChatRequest, stream: ChatStream | None = None) -> t.Iterator[None]:
    """Map the errors of an exchange to their causes."""
    try:
        yield
    except (TimeoutError, asyncio.TimeoutError):  # noqa: UP041 - two in Python 3.10
        late, words = ("hang", "no answer") if stream is None or stream.reached else ("unreachable", "no connection")
        raise failure_of(late, f"{words} within {request.timeout:g} s") from None
    except Cut:
        raise failure_of("truncated", "the connection ended in the middle") from None
    except HttpError as exc:
        raise failure_of("protocol", f"it does not speak HTTP: {exc}") from None
    except (OSError, UnicodeError) as exc:
        cause, words = unconnected(exc)
        raise failure_of(cause, words) from None


def unconnected(exc: BaseException) -> tuple[str, str]:
    """Return cause and message of a failed connection, from the errors beneath it."""
    beneath: BaseException | None = exc
    seen: list[BaseException] = []
    while beneath is not None and beneath not in seen:
        seen += [beneath, *getattr(beneath, "exceptions", ())]
        beneath = beneath.__cause__ or beneath.__context__
    if any(isinstance(each, ssl.SSLError) for each in seen):
        return "tls", f"TLS fails: {exc}"
    if any(isinstance(each, ConnectionRefusedError) for each in seen):
        return "refused", "the connection is refused"
    if any(isinstance(each, ConnectionError) for each in seen):
        return "truncated", "the connection ended in the middle"
    return "unreachable", f"it cannot be reached: {exc}"
