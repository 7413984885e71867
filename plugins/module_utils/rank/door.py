# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run an engine behind a door: the API port requires the key for each request, and the engine listens on loopback only.

`python3 door.py PORT INNER COMMAND …`, with the key in the file that DGXSPARK_API_KEY_FILE names. Not the engines' own keys:
vLLM (0.17.0 to 0.33.0) protects only paths below /v1, and leaves /invocations, /tokenize and others open; SGLang (0.5.10 to 0.5.23)
writes all its arguments into its log, including the key.

Each connection carries one request, of any path: a second one would pass unchecked. The key goes no further than this program,
which ends as the engine ends, with its status or by its signal.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import os
import pathlib
import signal
import sys
import typing as t

KEY_FILE = "DGXSPARK_API_KEY_FILE"
HEAD = 65536  # the maximum size of a request's head in bytes
HEAD_S = 30.0  # seconds that a head may take
FIRST_TO_GO = 1000  # the highest OOM score: no process's size includes CUDA's memory
REASONS = {400: "Bad Request", 401: "Unauthorized", 431: "Request Header Fields Too Large", 503: "Service Unavailable"}
# Headers that would keep the connection open behind the door, or show the engine the key.
DROPPED = (b"authorization", b"connection", b"keep-alive", b"proxy-connection", b"upgrade")


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
    kept = [line for name, line in headers if name not in DROPPED]
    return b"\r\n".join([request, *kept, b"Connection: close", b"", b""])


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
    head = f"HTTP/1.1 {why.status} {REASONS[why.status]}\r\nContent-Type: application/json\r\n{more}"
    writer.write(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
    await writer.drain()
    writer.write_eof()
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(_emptied(reader), 2)  # otherwise the kernel's reset would discard the answer


async def _emptied(reader: asyncio.StreamReader) -> None:
    while await reader.read(HEAD):
        pass


async def _exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, inner: int, key: bytes) -> None:
    """Serve one connection: check the key, then forward the request and its answer."""
    try:
        head = passed(await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HEAD_S), key)
        try:
            theirs, to_engine = await asyncio.open_connection("127.0.0.1", inner)
        except OSError as exc:
            raise Refused(503, "The engine does not answer yet.") from exc
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


async def _run(port: int, inner: int, key: bytes, command: t.Sequence[str]) -> int:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A client that disconnects is no error.
        with contextlib.suppress(OSError, EOFError, asyncio.TimeoutError):
            await _exchange(reader, writer, inner, key)
        writer.close()

    # Open the door first: the engine's own port is reachable only within this pod.
    server = await asyncio.start_server(accept, "0.0.0.0", port, limit=HEAD, backlog=2048)
    async with server:
        # No Ansible here: this runs in the pod.
        engine = await asyncio.create_subprocess_exec(*command)
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
    """Open the door and run the command behind it."""
    port, inner, *command = arguments
    # The group stops as one: requests in progress may end, and the engine ends first.
    signal.signal(signal.SIGTERM, lambda _number, _frame: None)
    try:
        key = read_key(os.environ.get(KEY_FILE))
        return asyncio.run(_run(int(port), int(inner), key, command))
    except (OSError, ValueError) as exc:
        raise SystemExit(f"door: the API stays closed, and the engine is not started: {exc}") from exc


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
