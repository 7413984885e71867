# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's wire: one learning layer-2 switch, to which each function of each node connects by a unix socket.

QEMU's `stream` netdev prefixes each frame with its length (4 bytes, big endian). Frames leave this process only
through these sockets. Run as `switch.py SOCKET CABLES PLUG,…`: it listens on SOCKET-PLUG for each plug, and serves until
killed. If the file CABLES, a list of pairs of plugs, exists, it acts as these cables instead; SIGHUP rereads it.
"""

from __future__ import annotations

import contextlib
import json
import select
import signal
import socket
import struct
import sys
from collections import deque
from pathlib import Path

MAX_FRAME = 9216
"""Longest frame that passes: 9018 bytes and some tags."""
QUEUE_BYTES = 8 << 20
"""What waits for a port that does not read; more is dropped, as a switch drops it."""
MAX_ADDRESSES = 4096
READ_BYTES = 1 << 18
LENGTH = struct.Struct(">I")


class Table:
    """Which port each address was last seen on."""

    def __init__(self, limit: int = MAX_ADDRESSES) -> None:
        self.limit = limit
        self.ports: dict[bytes, int] = {}

    def learn(self, source: bytes, port: int) -> None:
        """Record the sender. Group addresses do not count; a full table forgets its oldest entry."""
        if self.ports.get(source) == port or source[0] & 1:
            return
        self.ports.pop(source, None)
        if len(self.ports) >= self.limit:
            del self.ports[next(iter(self.ports))]
        self.ports[source] = port

    def targets(self, destination: bytes, port: int, everyone: list[int]) -> list[int]:
        """Return the ports for a frame: the one known for the address, or all others; never the one it came from."""
        known = None if destination[0] & 1 else self.ports.get(destination)
        if known is not None and known in everyone:  # else unknown, or last seen on another cable
            return [] if known == port else [known]
        return [other for other in everyone if other != port]

    def forget(self, port: int) -> None:
        """Forget an unplugged port."""
        self.ports = {address: seen for address, seen in self.ports.items() if seen != port}


def split(buffer: bytearray) -> list[bytes]:
    """Remove the complete frames, each with its length prefix, from the buffer, and return them.

    Raises ValueError if the data cannot be a frame: the stream is then beyond repair.
    """
    frames: list[bytes] = []
    start, end = 0, len(buffer)
    while end - start >= LENGTH.size:
        (length,) = LENGTH.unpack_from(buffer, start)
        if not 0 < length <= 1 << 17:
            raise ValueError(f"a frame of {length} bytes")
        after = start + LENGTH.size + length
        if after > end:
            break
        if 14 <= length <= MAX_FRAME:
            frames.append(bytes(buffer[start:after]))
        start = after
    del buffer[:start]
    return frames


class Port:
    """One plugged function."""

    def __init__(self, sock: socket.socket, plug: str = "") -> None:
        self.sock = sock
        self.plug = plug
        self.received = bytearray()
        self.waiting: deque[bytes] = deque()
        self.waiting_bytes = 0
        self.blocked = False

    def put(self, frame: bytes) -> None:
        """Queue a frame, or drop it if the port has not read for too long."""
        if self.waiting_bytes + len(frame) <= QUEUE_BYTES:
            self.waiting.append(frame)
            self.waiting_bytes += len(frame)

    def flush(self) -> None:
        """Send the queue, as far as the socket accepts it.

        Raises OSError if the other end is gone.
        """
        self.blocked = False
        while self.waiting:
            chunk = b"".join(self.waiting) if len(self.waiting) > 1 else self.waiting[0]
            self.waiting.clear()
            self.waiting_bytes = 0
            try:
                sent = self.sock.send(chunk)
            except BlockingIOError:
                sent = 0
            if sent < len(chunk):
                # Keep the rest as one piece: a frame once started must be finished.
                self.waiting.append(chunk[sent:])
                self.waiting_bytes = len(chunk) - sent
                self.blocked = True
                return


class Switch:
    """Ports by file descriptor, and the loop that forwards frames between them. listeners: by plug."""

    def __init__(self, listeners: dict[str, socket.socket]) -> None:
        self.listeners = {listener.fileno(): (plug, listener) for plug, listener in listeners.items()}
        self.poll = select.epoll()
        for number in self.listeners:
            self.poll.register(number, select.EPOLLIN)
        self.ports: dict[int, Port] = {}
        self.table = Table()
        self.segments: dict[str, int] | None = None

    def lay(self, cables: list[list[str]] | None) -> None:
        """Join plugs only by these cables; None: join all of them by one switch."""
        self.segments = None if cables is None else {plug: n for n, cable in enumerate(cables) for plug in cable}
        self.table = Table()

    def beside(self, number: int) -> list[int]:
        """Return the ports of a port's segment, itself included; none if it has no cable."""
        if self.segments is None:
            return list(self.ports)
        segment = self.segments.get(self.ports[number].plug)
        return [n for n, port in self.ports.items() if segment is not None and self.segments.get(port.plug) == segment]

    def plug(self, listening: int) -> None:
        """Accept a function's connection."""
        plug, listener = self.listeners[listening]
        sock, _peer = listener.accept()
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        self.ports[sock.fileno()] = Port(sock, plug)
        self.poll.register(sock, select.EPOLLIN)

    def unplug(self, number: int) -> None:
        """Forget a function whose socket was closed."""
        port = self.ports.pop(number)
        self.poll.unregister(number)
        self.table.forget(number)
        port.sock.close()

    def receive(self, number: int) -> set[int]:
        """Read one port and queue its frames; return the ports that now have something to send.

        Raises OSError or ValueError if the port is no longer usable.
        """
        port = self.ports[number]
        data = port.sock.recv(READ_BYTES)
        if not data:
            raise ConnectionResetError
        port.received += data
        table, everyone = self.table, self.beside(number)
        touched: set[int] = set()
        for frame in split(port.received):
            table.learn(frame[10:16], number)
            for target in table.targets(frame[4:10], number, everyone):
                self.ports[target].put(frame)
                touched.add(target)
        return touched

    def send(self, numbers: set[int]) -> None:
        """Flush ports; wait for room only if a socket is full."""
        for number in numbers & self.ports.keys():
            port, was = self.ports[number], self.ports[number].blocked
            try:
                port.flush()
            except OSError:
                self.unplug(number)
                continue
            if port.blocked != was:
                self.poll.modify(number, select.EPOLLIN | (select.EPOLLOUT if port.blocked else 0))

    def serve(self) -> None:
        """Forward frames forever."""
        while True:
            for number, event in self.poll.poll():
                if number in self.listeners:
                    self.plug(number)
                elif number in self.ports:
                    try:
                        touched = self.receive(number) if event & ~select.EPOLLOUT else set()
                    except BlockingIOError:
                        touched = set()
                    except (OSError, ValueError):
                        self.unplug(number)
                        continue
                    # Leave a full port alone until epoll reports room.
                    ready = {target for target in touched if not self.ports[target].blocked}
                    self.send(ready | {number} if event & select.EPOLLOUT else ready)


def main() -> int:
    """Serve on one unix socket per plug."""
    path, cables, plugs = sys.argv[1:4]
    listeners = {plug: socket.socket(socket.AF_UNIX) for plug in plugs.split(",")}
    for plug, listener in listeners.items():
        listener.bind(f"{path}-{plug}")
        listener.listen(4)
    switch = Switch(listeners)

    def lay(*_signal: object) -> None:
        try:
            switch.lay(json.loads(Path(cables).read_text(encoding="utf-8")))
        except FileNotFoundError:
            switch.lay(None)

    signal.signal(signal.SIGHUP, lay)
    lay()
    print("ready", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        switch.serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
