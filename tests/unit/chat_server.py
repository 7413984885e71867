"""A stand-in for a model server: an OpenAI-compatible chat API on loopback whose every answer a test writes beforehand.

    with ChatServer() as server:
        server.answer(sse("Hello", ", world"))             # what POST /v1/chat/completions gets, in turn
        ask(ChatRequest(url=server.url, …))
        server.requests[0].body, .headers                  # what was received

`ManyServer` answers any number of requests at once, each with what a function returns for it.

An answer is a list of steps: bytes to send, a number of seconds to wait, or `CLOSE`, to cut the connection.

Imitated: the frame alone, HTTP/1.1 with server-sent events (RFC 9112); what an engine of a given version sends is for the test to write,
from that version's source. It is no model, and refuses only pages that the test has not written.
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
import typing as t
from dataclasses import dataclass, field
from http.client import parse_headers

CLOSE = None
Answer = list[bytes | float | None]


def chunk(data: bytes) -> bytes:
    """One chunk of HTTP's chunked coding."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def head(status: str = "200 OK", kind: str = "text/event-stream", chunked: bool = True, **more: str) -> bytes:
    """The head of an HTTP answer."""
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", "Connection: close"]
    lines += ["Transfer-Encoding: chunked"] if chunked else []
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in more.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def event(value: t.Any) -> bytes:
    """One server-sent event."""
    return f"data: {value if isinstance(value, str) else json.dumps(value)}\n\n".encode()


def delta(content: str | None = None, reason: str | None = None, **more: t.Any) -> bytes:
    """An event with a piece of text, as SGLang and vLLM send it."""
    choice = {"index": 0, "delta": {"content": content, **more}, "finish_reason": reason}
    return event({"id": "x", "object": "chat.completion.chunk", "model": "stand-in", "choices": [choice]})


def sse(*pieces: str, reason: str | None = "stop", tokens: int | None = None, pause: float = 0.0) -> Answer:
    """A whole good answer, one event a piece; tokens: what the server says that it counted."""
    steps: Answer = [head(), chunk(delta(role="assistant"))]
    for piece in pieces:
        steps += [chunk(delta(piece)), pause]
    if reason:
        steps.append(chunk(delta("", reason)))
    if tokens is not None:
        steps.append(chunk(event({"choices": [], "usage": {"completion_tokens": tokens}})))
    return [*steps, chunk(event("[DONE]")), chunk(b"")]


@dataclass
class Request:
    """A request that was received."""

    method: str
    path: str
    headers: dict[str, str]
    body: t.Any


@dataclass
class ChatServer:
    """The stand-in. `models`: what GET /v1/models says. `pages`: what GET returns at other paths, unrecorded; else 404.

    tls: the server's TLS context; None: plain HTTP. listing: sent instead of `models`, as it is.
    """

    models: t.Any = field(default_factory=lambda: {"data": [{"id": "stand-in"}]})
    pages: dict[str, t.Callable[[], str]] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    tls: ssl.SSLContext | None = None
    listing: bytes | None = None

    def answer(self, *steps: Answer) -> None:
        """Add the answers of the next requests."""
        self.answers += steps

    def __enter__(self) -> ChatServer:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http{'s' if self.tls else ''}://127.0.0.1:{self.listening.getsockname()[1]}/v1"
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.over.set()
        with contextlib.suppress(OSError):
            self.listening.shutdown(socket.SHUT_RDWR)
        self.listening.close()
        self.thread.join(10)

    def _next(self, _request: Request) -> t.Iterable[bytes | float | None]:
        return self.answers.pop(0)

    def _serve(self) -> None:
        while not self.over.is_set():
            try:
                line, _peer = self.listening.accept()
            except OSError:
                return
            with line, contextlib.suppress(OSError, ValueError):  # ValueError: it was not HTTP
                self._spoken(line)

    def _spoken(self, line: socket.socket) -> None:
        if self.tls is None:
            self._one(line)
            return
        with self.tls.wrap_socket(line, server_side=True) as wrapped:
            self._one(wrapped)

    def _one(self, line: socket.socket) -> None:
        with line.makefile("rb") as source:
            method, path, _version = source.readline().decode().split()
            headers = {name.lower(): value for name, value in parse_headers(source).items()}
            body = source.read(int(headers.get("content-length", 0)))
        if method == "GET" and not path.endswith("/models"):
            text = self.pages[path]().encode() if path in self.pages else b""
            status = "200 OK" if path in self.pages else "404 Not Found"
            line.sendall(head(status, "text/plain", chunked=False, Content_Length=str(len(text))) + text)
            return
        request = Request(method, path, headers, json.loads(body) if body else None)
        self.requests.append(request)
        if path.endswith("/models"):
            text = json.dumps(self.models).encode() if self.listing is None else self.listing
            line.sendall(head(kind="application/json", chunked=False, Content_Length=str(len(text))) + text)
            return
        for step in self._next(request):
            if step is None:
                return
            if isinstance(step, bytes):
                line.sendall(step)
            else:
                self.over.wait(step)


@dataclass
class ManyServer(ChatServer):
    """The stand-in under load: one thread per request. most: the most requests it had at once."""

    answering: t.Callable[[Request], Answer] = field(default=lambda _request: sse("Yes.", tokens=1))
    under_way: int = 0
    most: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def _serve(self) -> None:
        threads = []
        while not self.over.is_set():
            try:
                line, _peer = self.listening.accept()
            except OSError:
                break
            threads.append(threading.Thread(target=self._guarded, args=(line,), daemon=True))
            threads[-1].start()
        for thread in threads:
            thread.join(10)

    def _guarded(self, line: socket.socket) -> None:
        with line, contextlib.suppress(OSError, ValueError):
            self._spoken(line)

    def _next(self, request: Request) -> t.Iterator[bytes | float | None]:
        with self.lock:
            self.under_way += 1
            self.most = max(self.most, self.under_way)
        steps = self.answering(request)
        # A client that has read the end may ask again before this thread goes on.
        end = next((n for n, step in enumerate(steps) if isinstance(step, bytes) and b"[DONE]" in step), len(steps) - 1)
        try:
            yield from steps[:end]
        finally:
            with self.lock:
                self.under_way -= 1
        yield from steps[end:]
