# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One streamed chat request to an OpenAI-compatible server, with one deadline for the whole request, and its outcome.

Uses Python's own HTTP client. Each read may take what is left of the request's time, so a server that hangs or trickles
costs no more. Ignores proxies and redirects: the server is in the owner's cluster.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import ssl
import time
import typing as t
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.guards import Limits, TextGuard
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.stream import ChatStream, StreamError

Clock = t.Callable[[], float]


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
    "tls": "Check the certificate's names and its CA (ca_path), or the scheme in the URL.",
    "unauthorized": "Give the server's API key in api_key (verify.yml: k8s_dgx_api_key or dgxspark_verify_api_key).",
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


def ask(request: ChatRequest, limits: Limits, clock: Clock = time.monotonic) -> Outcome:
    """Send the request and judge the answer. Raises CollectionError for an invalid URL or pattern, and nothing else."""
    target = target_of(request)
    deadline = clock() + request.timeout
    stream = ChatStream(clock())
    guard = {"content": TextGuard(limits), "reasoning": TextGuard(limits)}
    try:
        model = request.model or _first_model(request, target, deadline, clock)
        body = {
            "model": model,
            "messages": [{"role": "user", "content": request.prompt}],
            "max_tokens": request.max_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        with _Exchange(request, target, "POST", "/chat/completions", deadline, clock, body) as exchange:
            stream.began = exchange.began
            for piece, final in exchange.pieces():
                for delta in stream.feed(piece, clock(), final):
                    trip = guard["content"].feed(delta.content) or guard["reasoning"].feed(delta.reasoning)
                    if trip:
                        raise failure_of("garbage", f"the answer is garbage: {trip.message} (guard {trip.guard})")
                if stream.done:
                    break
        _judge(request, stream, guard)
    except StreamError as exc:
        return _outcome(request, stream, guard, failure_of(exc.cause, str(exc)))
    except Failure as exc:
        return _outcome(request, stream, guard, exc)
    return _outcome(request, stream, guard, None)


def _judge(request: ChatRequest, stream: ChatStream, guard: t.Mapping[str, TextGuard]) -> None:
    if not stream.ended:
        raise failure_of("truncated", f"the stream ended after {stream.pieces} pieces of text, without saying why")
    for each in guard.values():
        trip = each.close()
        if trip:
            raise failure_of("garbage", f"the answer is garbage: {trip.message} (guard {trip.guard})")
    if not stream.content.strip():
        if stream.reasoning.strip():
            raise failure_of("reasoning-only", f"only reasoning came back, and no answer ({stream.finish_reason})")
        raise failure_of("empty", f"the answer is empty ({stream.finish_reason})")
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


def _outcome(
    request: ChatRequest, stream: ChatStream, guard: t.Mapping[str, TextGuard], failure: Failure | None
) -> Outcome:
    trip = next((each.trip for each in guard.values() if each.trip), None)

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


def _first_model(request: ChatRequest, target: _Target, deadline: float, clock: Clock) -> str:
    with _Exchange(request, target, "GET", "/models", deadline, clock) as exchange:
        text = b"".join(piece for piece, _final in exchange.pieces())
    return model_named(text, target.path)


def model_named(text: bytes, path: str) -> str:
    """Return the first model of a server's list. Raises Failure if it lists none."""
    try:
        return str(json.loads(text)["data"][0]["id"])
    except (ValueError, LookupError, TypeError):
        said = short(text.decode(errors="replace"), 80)
        raise failure_of("protocol", f"it lists no model at {path}/models: {said!r}") from None


class _Exchange:
    """One request with its answer. Raises Failure for anything that goes wrong between client and server."""

    def __init__(
        self,
        request: ChatRequest,
        target: _Target,
        method: str,
        path: str,
        deadline: float,
        clock: Clock,
        body: t.Any = None,
    ) -> None:
        self._deadline, self._clock, self._request = deadline, clock, request
        self._connection = self._connect(target)
        self._streams = body is not None
        headers = {"Accept": "text/event-stream" if body else "application/json", "Connection": "close"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if request.api_key:
            headers["Authorization"] = f"Bearer {request.api_key}"
        try:
            with _named(request, "unreachable"):
                self._connection.connect()
            # Keep the socket: the connection drops it once the answer begins.
            self._socket = t.cast(socket.socket, self._connection.sock)
            self.began = clock()
            with _named(request, "hang"):
                self._left()
                self._connection.request(
                    method, target.path + path, None if body is None else json.dumps(body).encode(), headers
                )
                self._left()
                self._answer = self._connection.getresponse()
                self._refuse()
        except BaseException:
            self._connection.close()
            raise

    def _connect(self, target: _Target) -> http.client.HTTPConnection:
        left = max(0.01, self._deadline - self._clock())
        if not target.tls:
            return http.client.HTTPConnection(target.host, target.port, timeout=left)
        try:
            context = ssl.create_default_context(cafile=self._request.ca_path)
        except (OSError, ssl.SSLError) as exc:
            raise failure_of("tls", f"the CA file {self._request.ca_path} cannot be read: {exc}") from None
        if not self._request.validate_certs:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return http.client.HTTPSConnection(target.host, target.port, timeout=left, context=context)

    def __enter__(self) -> _Exchange:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._answer.close()
        self._connection.close()

    def _left(self) -> None:
        left = self._deadline - self._clock()
        if left <= 0:
            raise TimeoutError
        self._socket.settimeout(left)

    def _refuse(self) -> None:
        status, kind = self._answer.status, self._answer.headers.get_content_type()
        text = "" if status == 200 else self._answer.read(2000).decode(errors="replace")
        refused = refusal(status, kind if self._streams else "", text)
        if refused:
            raise refused

    def pieces(self) -> t.Iterator[tuple[bytes, bool]]:
        """Yield the answer's bytes as they arrive, and whether they are the last."""
        with _named(self._request, "hang"):
            while True:
                self._left()
                piece = self._answer.read1(65536)
                yield piece, not piece
                if not piece:
                    return


@contextlib.contextmanager
def _named(request: ChatRequest, late: str) -> t.Iterator[None]:
    """Map errors to their causes. late: the cause of a timeout."""
    try:
        yield
    except TimeoutError:
        words = "no answer" if late == "hang" else "no connection"
        raise failure_of(late, f"{words} within {request.timeout:g} s") from None
    except ssl.SSLError as exc:
        raise failure_of("tls", f"TLS fails: {exc.reason or exc}") from None
    except ConnectionRefusedError:
        raise failure_of("refused", "the connection is refused") from None
    except (http.client.IncompleteRead, ConnectionError):
        raise failure_of("truncated", "the connection ended in the middle") from None
    except http.client.HTTPException as exc:
        raise failure_of("protocol", f"it does not speak HTTP: {type(exc).__name__}") from None
    except OSError as exc:
        raise failure_of("unreachable", f"it cannot be reached: {exc.strerror or exc}") from None
