# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run an engine behind a proxy: the API port requires the key for each request, and the engine listens on loopback only.

`python3 auth_proxy.py PORT INNER COMMAND …`, with the key in the file that DGXSPARK_API_KEY_FILE names. Not the engines' own keys:
vLLM (0.17.0 to 0.33.0) protects only paths below /v1, and leaves /invocations, /tokenize and others open; SGLang (0.5.10 to 0.5.23)
writes all its arguments into its log, including the key.

Each connection carries one request, of any path: a second one would pass unchecked. The key goes no further than this program,
which ends as the engine ends, with its status or by its signal. Clients that have not shown the key share a limited number of places,
and the one that has waited longest loses its own to the next: who has the key shows it at once, and always gets in.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hmac
import json
import os
import pathlib
import resource
import signal
import socket
import sys
import time
import typing as t
import urllib.parse

KEY_FILE = "DGXSPARK_API_KEY_FILE"
HEAD = 65536  # the maximum size of a request's head in bytes
HEAD_S = 30.0  # seconds that a head may take
STRANGERS = 128  # connections at a time that have not shown the key
WAITING = 2048  # connections that the kernel keeps until they are accepted
OWN = 64  # descriptors that this program needs itself, at most
# When a client has vanished without a word (its power, its network): after a minute without an acknowledgement.
ALIVE = {
    "SO_KEEPALIVE": (socket.SOL_SOCKET, 1),
    "TCP_KEEPIDLE": (socket.IPPROTO_TCP, 30),
    "TCP_KEEPINTVL": (socket.IPPROTO_TCP, 10),
    "TCP_KEEPCNT": (socket.IPPROTO_TCP, 3),
    "TCP_USER_TIMEOUT": (socket.IPPROTO_TCP, 60_000),
}
FIRST_TO_GO = 1000  # the highest OOM score: no process's size includes CUDA's memory
REASONS = {400: "Bad Request", 401: "Unauthorized", 431: "Request Header Fields Too Large", 503: "Service Unavailable"}
# Headers that would keep the connection open behind the proxy, or show the engine the key.
DROPPED = (
    *(b"authorization", b"proxy-authorization", b"x-api-key", b"api-key"),
    *(b"connection", b"keep-alive", b"proxy-connection", b"upgrade"),
)
# A browser asks, without the key, whether it may ask with it.
PREFLIGHT = b"""HTTP/1.1 204 No Content
Access-Control-Allow-Origin: *
Access-Control-Allow-Methods: GET, POST, PUT, PATCH, DELETE, OPTIONS
Access-Control-Allow-Headers: Authorization, Content-Type, Accept, *
Access-Control-Max-Age: 600
Content-Length: 0
Connection: close

""".replace(b"\n", b"\r\n")


class Refused(Exception):
    """A request that is not forwarded, with its status and the reason."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def read_key(place: str | None) -> bytes:
    """Return the key. Raises OSError or ValueError if there is none: without a key nothing is opened."""
    if not place:
        raise ValueError(f"{KEY_FILE} names no file")
    key = pathlib.Path(place).read_bytes().strip()
    if not key:
        raise ValueError(f"{place} is empty")
    return key


def passed(head: bytes, key: bytes) -> bytes:
    """Return the request's head for the engine; Refused if it does not have the key."""
    request, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    if any(line[:1] in (b" ", b"\t") or b":" not in line or b"\n" in line for line in lines) or b"\n" in request:
        raise Refused(400, "The request has a malformed header.")
    headers = [(line.split(b":", 1)[0].strip().lower(), line) for line in lines]
    shown = [line.split(b":", 1)[1].strip() for name, line in headers if name == b"authorization"]
    scheme, _space, given = (shown[0] if len(shown) == 1 else b"").partition(b" ")
    if scheme.lower() != b"bearer" or not hmac.compare_digest(given.strip(), key):
        raise Refused(401, "This API requires its key in the header Authorization: Bearer KEY.")
    if key in urllib.parse.unquote_to_bytes(request):
        raise Refused(
            400, "The key belongs in the header Authorization, not in the address, which engines write into their logs."
        )
    kept = [line for name, line in headers if name not in DROPPED and key not in line]
    return b"\r\n".join([request, *kept, b"Connection: close", b"", b""])


def preflight(head: bytes) -> bool:
    """Whether this is a browser's question before a request to another origin."""
    names = {line.split(b":", 1)[0].strip().lower() for line in head.split(b"\r\n")[1:]}
    return head.startswith(b"OPTIONS ") and {b"origin", b"access-control-request-method"} <= names


async def _pump(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(HEAD):
            to.write(data)
            await to.drain()
    finally:
        # Lets the engine abort what no client waits for.
        with contextlib.suppress(OSError, RuntimeError):
            to.write_eof()


async def _refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, why: Refused) -> None:
    body = json.dumps({"error": {"message": str(why), "type": REASONS[why.status], "code": why.status}}).encode()
    more = "WWW-Authenticate: Bearer\r\n" if why.status == 401 else ""
    more += "Access-Control-Allow-Origin: *\r\n"  # else a browser hides the reason from its page
    head = f"HTTP/1.1 {why.status} {REASONS[why.status]}\r\nContent-Type: application/json\r\n{more}"
    await _last(reader, writer, f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)


async def _last(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: bytes) -> None:
    writer.write(answer)
    await writer.drain()
    writer.write_eof()
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(_emptied(reader), 2)  # otherwise the kernel's reset would discard the answer


async def _emptied(reader: asyncio.StreamReader) -> None:
    while await reader.read(HEAD):
        pass


def keep_alive(client: t.Any) -> None:
    """Let the kernel notice that a client has vanished."""
    for name, (level, value) in ALIVE.items():
        with contextlib.suppress(OSError, AttributeError):
            client.setsockopt(level, getattr(socket, name), value)


class AuthProxy:
    """The connections of one proxy. room: how many may be open at a time."""

    def __init__(self, inner: int, key: bytes, room: int) -> None:
        self.inner, self.key, self.room = inner, key, room
        # Strong references: the event loop's own are weak.
        self.tasks: set[asyncio.Task[None]] = set()
        self.strangers: dict[asyncio.Task[None], asyncio.StreamWriter] = {}  # in the order in which they came

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take a connection, in a task of its own."""
        if len(self.strangers) >= min(STRANGERS, max(1, self.room // 2)):
            longest = next(iter(self.strangers))
            self.strangers.pop(longest).transport.abort()  # a task that has not begun would not close it
            longest.cancel()
        task = asyncio.ensure_future(self._serve(reader, writer))
        self.tasks.add(task)
        self.strangers[task] = writer
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        self.strangers.pop(task, None)
        if not task.cancelled() and task.exception():
            _tell(f"auth_proxy: a connection ended with {type(task.exception()).__name__}")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        keep_alive(writer.get_extra_info("socket"))
        try:
            # A client that disconnects is no error.
            with contextlib.suppress(OSError, EOFError, asyncio.TimeoutError):
                await self._exchange(reader, writer)
        finally:
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection: check the key, then forward the request and its answer."""
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HEAD_S)
            if preflight(head):
                return await _last(reader, writer, PREFLIGHT)
            head = passed(head, self.key)
            self.strangers.pop(t.cast("asyncio.Task[None]", asyncio.current_task()), None)
            theirs, to_engine = await self._engine()
        except asyncio.LimitOverrunError:
            return await _refuse(reader, writer, Refused(431, "The head of the request is too long."))
        except Refused as exc:
            return await _refuse(reader, writer, exc)
        to_engine.write(head)
        up = asyncio.ensure_future(_pump(reader, to_engine))
        try:
            await _pump(theirs, writer)
        finally:
            up.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await up
            to_engine.close()
        return None

    async def _engine(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if len(self.tasks) - len(self.strangers) > self.room:
            raise Refused(503, f"Too many requests at the same time: {self.room} are in progress. Try again later.")
        try:
            return await asyncio.open_connection("127.0.0.1", self.inner)
        except OSError as exc:
            if exc.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL):
                _tell(f"auth_proxy: no connection to the engine: {exc.strerror}")
                raise Refused(503, f"Too many requests at the same time: {exc.strerror}. Try again later.") from exc
            raise Refused(503, "The engine does not answer yet.") from exc


_told = [0.0]


def _tell(text: str) -> None:
    """Write one line to the log, at most one a second: what comes from outside must not fill it."""
    if time.monotonic() - _told[0] >= 1:
        _told[0] = time.monotonic()
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def _faults(_loop: asyncio.AbstractEventLoop, context: dict[str, t.Any]) -> None:
    said = context.get("exception")
    _tell(f"auth_proxy: {context.get('message', 'a fault')}{f' ({type(said).__name__}: {said})' if said else ''}"[:500])


def _room() -> tuple[int, tuple[int, int]]:
    """Raise the limit of descriptors to what is allowed; return how many connections fit, and the limits before."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = before[1] if before[1] != resource.RLIM_INFINITY else 65536
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, before[1]))
    # Two for each request: the client's and the engine's. What strangers hold is left out.
    count = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(4, (count - min(OWN, count // 2)) // 3), before


async def _run(port: int, inner: int, key: bytes, command: t.Sequence[str]) -> int:
    room, limits = _room()
    asyncio.get_running_loop().set_exception_handler(_faults)
    proxy = AuthProxy(inner, key, room)
    # Listen first: the engine's own port is reachable only within this pod.
    listening = socket.create_server(("0.0.0.0", port), backlog=WAITING)
    # The loop accepts `backlog` connections before it serves any of them: with many, strangers would take all descriptors.
    server = await asyncio.start_server(proxy.accept, sock=listening, limit=HEAD, backlog=4)
    listening.listen(WAITING)
    async with server:
        # No Ansible here: this runs in the pod. The engine gets the limits that its container has.
        engine = await asyncio.create_subprocess_exec(
            *command, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        )
        with contextlib.suppress(OSError):
            pathlib.Path(f"/proc/{engine.pid}/oom_score_adj").write_text(f"{FIRST_TO_GO}\n", encoding="ascii")
        status = await engine.wait()
        # Do not wait for the clients: the rank ends.
        os._exit(status) if status >= 0 else _die(-status)
    return status


def _die(number: int) -> None:
    with contextlib.suppress(OSError, ValueError):  # two signals cannot be handled at all
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def main(arguments: t.Sequence[str]) -> int:
    """Listen, and run the command behind the proxy."""
    port, inner, *command = arguments
    # The group stops as one: requests in progress may end, and the engine ends first.
    signal.signal(signal.SIGTERM, lambda _number, _frame: None)
    try:
        key = read_key(os.environ.get(KEY_FILE))
        return asyncio.run(_run(int(port), int(inner), key, command))
    except (OSError, ValueError) as exc:
        raise SystemExit(f"auth_proxy: the API stays closed, and the engine is not started: {exc}") from exc


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
