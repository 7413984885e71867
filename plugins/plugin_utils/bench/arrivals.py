# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads many connections together, with the arrival time of each piece.

An engine sends every stream a token within a few milliseconds of the others. A wake-up per token would cost more than all its
processing, so with many streams, everything that arrives within a moment is read at once. The Linux kernel timestamps
arrivals, so a busy client that reads late does not make a token look late.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import select
import socket
import struct
import time
import typing as t

Came = t.Callable[[bytes, float], None]
Lost = t.Callable[[Exception | None], None]

_FEW = 4  # up to this many streams are read immediately: the fewer there are, the faster each may be
_MOMENT_S = 0.002
_READ = 1 << 14  # asyncio's own transport reads 256 KiB, a buffer that the allocator maps and unmaps for each token
# Linux, include/uapi/asm-generic/socket.h; Python does not define it. The control message is a wall-clock timespec.
_SO_TIMESTAMPNS = 35
_NOTE = struct.Struct("@ll")


class Arrivals:
    """Reads plain connections on the running loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._reads: dict[int, t.Callable[[], None]] = {}
        self._waits: asyncio.TimerHandle | None = None
        # Outside Linux, the loop reads each connection separately.
        self._poll = select.epoll() if hasattr(select, "epoll") else None
        if self._poll:
            self._loop.add_reader(self._poll.fileno(), self._some)

    def close(self) -> None:
        """Release its own resources; the connections belong to their owners."""
        if self._waits:
            self._waits.cancel()
        if self._poll:
            self._loop.remove_reader(self._poll.fileno())
            self._poll.close()

    @contextlib.contextmanager
    def reading(self, connection: socket.socket, came: Came, lost: Lost) -> t.Iterator[None]:
        """Read a connection: `came` gets each piece and its arrival time (time.monotonic()), `lost` its end, with or without an error."""
        read, number = functools.partial(_read, connection, came, lost), connection.fileno()
        if self._poll:
            with contextlib.suppress(OSError):  # without kernel support, the time of the read counts
                connection.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
            self._reads[number] = read
            self._poll.register(number, select.EPOLLIN)
        else:
            self._loop.add_reader(connection, read)
        try:
            yield
        finally:
            if not self._poll:
                self._loop.remove_reader(connection)
            elif not self._poll.closed:
                self._poll.unregister(number)
                del self._reads[number]

    def _some(self) -> None:
        if len(self._reads) <= _FEW:
            self._all()
        else:
            self._loop.remove_reader(t.cast(select.epoll, self._poll).fileno())
            self._waits = self._loop.call_later(_MOMENT_S, self._after)

    def _after(self) -> None:
        self._waits = None
        self._loop.add_reader(t.cast(select.epoll, self._poll).fileno(), self._some)
        self._all()

    def _all(self) -> None:
        for number, _events in t.cast(select.epoll, self._poll).poll(0):
            self._reads[number]()


def _read(connection: socket.socket, came: Came, lost: Lost) -> None:
    try:
        data, notes, _flags, _sender = connection.recvmsg(_READ, 64)
    except (BlockingIOError, InterruptedError):
        return
    except OSError as exc:
        lost(exc)
        return
    if not data:
        lost(None)
        return
    now = time.monotonic()
    for _level, kind, note in notes:
        if kind == _SO_TIMESTAMPNS and len(note) == _NOTE.size:
            seconds, nanoseconds = _NOTE.unpack(note)
            ago = time.time() - (seconds + nanoseconds / 1e9)
            came(data, now - max(0.0, ago))
            return
    came(data, now)
