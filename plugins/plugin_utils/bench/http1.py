# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One HTTP/1.1 request whose answer is taken with the time at which its bytes came: a socket, asyncio's loop, and nothing between.

For streams of one event a token. httpx goes through four layers and several tasks for each piece (75 of its 125 microseconds a
token), so that it, and not the server, is what a level with many streams measures; it asks for everything that is no stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
import typing as t
from http import client as http_client
from io import BytesIO

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.arrivals import Arrivals

# Takes bytes of the body and when they came; True: no more is needed.
Take = t.Callable[[bytes, float], bool]
Send = t.Callable[[bytes], t.Awaitable[None]]
_MOST_HEAD = 1 << 16
_MOST_REFUSAL = 2000  # bytes of a refusal that are kept


class HttpError(Exception):
    """What came is no HTTP/1.1."""


class Cut(Exception):
    """The connection ended in the middle."""


class Exchange(asyncio.Protocol):
    """One request and its answer. status, kind and refusal (how its body begins) are of the answer."""

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
        """Take what came now; the time is taken before anything looks at it."""
        self.came(data, time.monotonic())

    def came(self, data: bytes, now: float) -> None:
        """Take what came then."""
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
        """The end, which is a whole one only where nothing said how long the answer is."""
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
        """Read the head once it is whole; return what follows it."""
        head, ended, rest = self._buffer.partition(b"\r\n\r\n")
        if not ended:
            if len(head) > _MOST_HEAD or not b"HTTP/1."[: len(head)] == head[:7]:
                raise HttpError
            return b""
        line, _newline, fields = head.partition(b"\r\n")
        parts = line.split(None, 2)
        if len(parts) < 2 or not parts[0].startswith(b"HTTP/1.") or not parts[1].isdigit() or len(parts[1]) != 3:
            raise HttpError
        if parts[1] in (b"100", b"102", b"103"):
            self._buffer = rest
            return self._head()
        headers = http_client.parse_headers(BytesIO(fields + b"\r\n\r\n"))
        self.status, self.kind, self._buffer = int(parts[1]), headers.get_content_type(), b""
        if "content-type" not in headers:
            self.kind = ""
        if headers.get("transfer-encoding", "").lower() == "chunked":
            self._body = self._chunks
        elif headers.get("content-length", "").strip().isdigit():
            self._left, self._body = int(headers["content-length"]), self._counted
        return rest

    def _until_close(self, data: bytes) -> tuple[bytes, bool]:
        return data, False

    def _counted(self, data: bytes) -> tuple[bytes, bool]:
        self._left -= len(data)
        return data, self._left <= 0

    def _chunks(self, data: bytes) -> tuple[bytes, bool]:
        """Take the chunked coding off (RFC 9112, section 7.1). _left: bytes of the chunk to come, with its CR LF."""
        at, found = 0, []
        if not self._left and not self._buffer:
            end = data.find(b"\r\n")
            # One whole chunk, as nearly all pieces are.
            if 0 < end <= 8 and data[:end].isalnum() and data.endswith(b"\r\n"):
                with contextlib.suppress(ValueError):
                    if 0 < int(data[:end], 16) == len(data) - end - 4:
                        return data[end + 2 : -2], False
        if self._buffer:
            data, self._buffer = self._buffer + data, b""
        while at < len(data):
            if self._left:
                piece = data[at : at + self._left]
                at += len(piece)
                # The last two bytes of a chunk are its CR LF, of which either may be in the next piece.
                keep = max(0, min(len(piece), self._left - 2))
                self._left -= len(piece)
                found.append(piece[:keep])
                continue
            end = data.find(b"\r\n", at)
            if end < 0:
                if len(data) - at > 100:
                    raise HttpError
                self._buffer = data[at:]
                break
            try:
                size = int(data[at:end].partition(b";")[0], 16)
            except ValueError:
                raise HttpError from None
            at = end + 2
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
    """Send the request and take its answer to the end. begun: told when it was sent, after the connection was there.

    read_by: what a connection by TLS is made with, or who reads a plain one.

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
            with contextlib.suppress(ConnectionError):  # who refuses a request may close before all of it is there
                await asyncio.get_running_loop().sock_sendall(connection, request)
            reading.enter_context(arrivals.reading(connection, made.came, made.connection_lost))

        yield send


async def _connected(host: str, port: int) -> socket.socket:
    """Connect to the first of the host's addresses that takes a connection. Raises OSError, the last one's."""
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
