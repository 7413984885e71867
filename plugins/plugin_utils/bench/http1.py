# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One HTTP/1.1 request whose answer carries the arrival time of its bytes: a socket, asyncio's loop, and nothing between.

For streams of one event per token. httpx passes each piece through four layers and several tasks (75 of its 125 microseconds per
token), so with many streams it would measure itself instead of the server. aiohttp takes twice this file's time for the same bytes,
and no library hands on when the kernel got them (arrivals.py), which a busy client reads milliseconds later: figures in
benchmarks/results/client_share.md. What a server sends is bounded, and read in linear time.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import ssl
import time
import typing as t
from http import client as http_client
from io import BytesIO

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.arrivals import Arrivals

# Takes bytes of the body and their arrival time; True: no more is needed.
Take = t.Callable[[bytes, float], bool]
Send = t.Callable[[bytes], t.Awaitable[None]]
_MOST_HEAD = 1 << 16
_MOST_REFUSAL = 2000  # bytes kept of an error's body
_CHUNK = re.compile(rb"[0-9A-Fa-f]{1,15}(?=\r\n|[ \t]*;|[ \t]+\r\n)")  # the size of a chunk, before its extensions
_STATUS = re.compile(rb"HTTP/1\.[0-9] +([1-9][0-9]{2})(?: |$)")
_LENGTH = re.compile(r"[0-9]{1,18}")


class HttpError(Exception):
    """The answer is not HTTP/1.1; says what in it is not."""


class Cut(Exception):
    """The connection was cut in the middle."""


class Exchange(asyncio.Protocol):
    """One request and its answer. status, kind (media type) and refusal (beginning of an error's body) are the answer's."""

    def __init__(self, take: Take) -> None:
        self.status = 0
        self.kind = ""
        self.refusal = b""
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._take = take
        self._buffer = b""
        self._body: t.Callable[[bytes], tuple[bytes, bool]] = self._until_close
        self._left = 0

    def data_received(self, data: bytes) -> None:
        """Take bytes that arrive now; take the time before anything else."""
        self.came(data, time.monotonic())

    def came(self, data: bytes, now: float) -> None:
        """Take bytes that arrived at `now`."""
        if self.over.done():
            return
        try:
            if not self.status:
                self._buffer += data
                data = self._head()
                if not self.status:
                    return
            body, ended = self._body(data)
            if self.status != 200:
                self.refusal = (self.refusal + body)[:_MOST_REFUSAL]
            elif body and self._take(body, now):
                ended = True
        except Exception as exc:
            self._end(exc)
        else:
            if ended:
                self._end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection ended: a complete answer only if nothing declared its length."""
        whole = exc is None and self.status and self._body == self._until_close
        self._end(None if whole else Cut())

    def _end(self, exc: Exception | None) -> None:
        if self.over.done():
            return
        if exc is None:
            self.over.set_result(None)
        else:
            self.over.set_exception(exc)

    def _head(self) -> bytes:
        """Parse the head once it is complete; return what follows it."""
        while True:
            head, ended, rest = self._buffer.partition(b"\r\n\r\n")
            if not b"HTTP/1."[: len(head)] == head[:7]:
                raise HttpError("its answer does not begin with HTTP/1")
            if len(head) > _MOST_HEAD:
                raise HttpError(f"the head of its answer is larger than {_MOST_HEAD >> 10} KiB")
            if not ended:
                return b""
            line, _newline, fields = head.partition(b"\r\n")
            status = _STATUS.match(line)
            if not status:
                raise HttpError("its answer has no status")
            if status[1] not in (b"100", b"102", b"103"):
                break
            self._buffer = rest
        try:
            headers = http_client.parse_headers(BytesIO(fields + b"\r\n\r\n"))
        except http_client.HTTPException as exc:
            raise HttpError(str(exc)) from None
        self.status, self.kind, self._buffer = int(status[1]), headers.get_content_type(), b""
        if "content-type" not in headers:
            self.kind = ""
        length = headers.get("content-length", "").strip()
        if headers.get("transfer-encoding", "").strip().lower() == "chunked":
            self._body = self._chunks
        elif length:
            if not _LENGTH.fullmatch(length):
                raise HttpError(f"its Content-Length is {length[:40]!r}")
            self._left, self._body = int(length), self._counted
        return rest

    def _until_close(self, data: bytes) -> tuple[bytes, bool]:
        return data, False

    def _counted(self, data: bytes) -> tuple[bytes, bool]:
        self._left -= len(data)
        return data, self._left <= 0

    def _chunks(self, data: bytes) -> tuple[bytes, bool]:
        """Decode the chunked coding (RFC 9112, section 7.1). _left: bytes left of the current chunk, with its CR LF."""
        at, found = 0, []
        if not self._left and not self._buffer:
            # Fast path: one whole chunk, as nearly all pieces are.
            whole = _CHUNK.match(data)
            if whole and data.endswith(b"\r\n"):
                end = whole.end()
                if 0 < int(whole[0], 16) == len(data) - end - 4 and data.startswith(b"\r\n", end):
                    return data[end + 2 : -2], False
        if self._buffer:
            data, self._buffer = self._buffer + data, b""
        while at < len(data):
            if self._left:
                piece = data[at : at + self._left]
                at += len(piece)
                # A chunk's last two bytes are its CR LF; either may be in the next piece.
                keep = max(0, min(len(piece), self._left - 2))
                self._left -= len(piece)
                found.append(piece[:keep])
                continue
            end = data.find(b"\r\n", at)
            if end < 0:
                if len(data) - at > 100:
                    raise HttpError("a chunk has no size")
                self._buffer = data[at:]
                break
            coded = _CHUNK.match(data, at)
            if not coded:
                raise HttpError(f"the size of a chunk is {data[at : min(end, at + 40)].decode('ascii', 'replace')!r}")
            size, at = int(coded[0], 16), end + 2
            if not size:
                return b"".join(found), True
            self._left = size + 2
        return b"".join(found), False


async def exchange(
    host: str,
    port: int,
    read_by: ssl.SSLContext | Arrivals,
    request: bytes,
    take: Take,
    begun: t.Callable[[float], None],
) -> Exchange:
    """Send the request and read its answer to the end. begun: called with the send time, after connecting.

    read_by: the SSL context for a TLS connection, or the reader of plain ones.

    Raises Cut, HttpError, OSError and ssl.SSLError, and what `take` raises.
    """
    made = Exchange(take)
    args = made, host, port
    async with _plain(*args, read_by) if isinstance(read_by, Arrivals) else _secure(*args, read_by) as send:
        begun(time.monotonic())
        await send(request)
        await made.over
    return made


@contextlib.asynccontextmanager
async def _secure(made: Exchange, host: str, port: int, tls: ssl.SSLContext) -> t.AsyncIterator[Send]:
    transport, _made = await asyncio.get_running_loop().create_connection(lambda: made, host, port, ssl=tls)

    async def send(request: bytes) -> None:
        transport.write(request)

    try:
        yield send
    finally:
        transport.abort()


@contextlib.asynccontextmanager
async def _plain(made: Exchange, host: str, port: int, arrivals: Arrivals) -> t.AsyncIterator[Send]:
    with await _connected(host, port) as connection, contextlib.ExitStack() as reading:

        async def send(request: bytes) -> None:
            with contextlib.suppress(ConnectionError):  # a server that refuses may close before all is sent
                await asyncio.get_running_loop().sock_sendall(connection, request)
            reading.enter_context(arrivals.reading(connection, made.came, made.connection_lost))

        yield send


async def _connected(host: str, port: int) -> socket.socket:
    """Connect to the first of the host's addresses that accepts. Raises the last address's OSError."""
    loop = asyncio.get_running_loop()
    failed = OSError(f"{host} has no address")
    for family, kind, protocol, _name, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        tried = socket.socket(family, kind, protocol)
        try:
            tried.setblocking(False)
            tried.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(tried, address)
        except OSError as exc:
            tried.close()
            failed = exc
        except BaseException:
            tried.close()
            raise
        else:
            return tried
    raise failed
