# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's wire: one learning layer-2 switch, to which each function of each node connects by a unix socket.

QEMU's `stream` netdev prefixes each frame with its length (4 bytes, big endian). Frames leave this process only
through these sockets. Run as `switch.py SOCKET CABLES PORTS PLUG,…`: it listens on SOCKET-PLUG for each plug, and serves until
killed. If the file CABLES, a list of pairs of plugs, exists, it acts as these cables instead. The file PORTS says what is wrong
with which plug's port (`Fault`). SIGHUP rereads both.
"""

from __future__ import annotations

import contextlib
import heapq
import json
import random
import select
import signal
import socket
import struct
import sys
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

MAX_FRAME = 9216
"""Longest frame that passes: 9018 bytes and some tags."""
QUEUE_BYTES = 8 << 20
"""What waits for a port that does not read; more is dropped, as a switch drops it."""
MAX_ADDRESSES = 4096
READ_BYTES = 1 << 18
LENGTH = struct.Struct(">I")
ETHERNET = 14 + 4
"""Header and one tag: what a frame may have beyond its MTU."""


@dataclass(frozen=True)
class Fault:
    """What is wrong with a port, for frames in both directions.

    mtu: longer packets are dropped (bytes). delay: of each frame (ms). loss, reorder: percent of frames; those that are reordered are
    not delayed, as with Linux' netem.
    """

    mtu: int = MAX_FRAME
    delay: float = 0.0
    loss: float = 0.0
    reorder: float = 0.0

    def drops(self, frame: bytes) -> bool:
        """Whether this frame, with its length prefix, is lost here."""
        return len(frame) - LENGTH.size > self.mtu + ETHERNET or random.uniform(0, 100) < self.loss

    def seconds(self) -> float:
        """Return how long the next frame takes."""
        return 0.0 if random.uniform(0, 100) < self.reorder else self.delay / 1000


NO_FAULT = Fault()


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
        self.faults: dict[str, Fault] = {}
        self.late: list[tuple[float, int, int, bytes]] = []
        self.count = 0

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
                if self.faults and not self.passes(frame, number, target):
                    continue
                self.ports[target].put(frame)
                touched.add(target)
        return touched

    def passes(self, frame: bytes, number: int, target: int) -> bool:
        """Whether a frame goes on at once: one that a faulty port drops does not, and one that it delays is kept until its time."""
        faults = [self.faults.get(self.ports[end].plug, NO_FAULT) for end in (number, target)]
        if any(fault.drops(frame) for fault in faults):
            return False
        wait = sum(fault.seconds() for fault in faults)
        if wait:
            self.count += 1  # of two that are due at the same time, the first goes first
            heapq.heappush(self.late, (time.monotonic() + wait, self.count, target, frame))
        return not wait

    def due(self) -> set[int]:
        """Queue the delayed frames whose time has come; return their ports."""
        touched: set[int] = set()
        while self.late and self.late[0][0] <= time.monotonic():
            *_when, target, frame = heapq.heappop(self.late)
            if target in self.ports:
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
            wait = max(0.0, self.late[0][0] - time.monotonic()) if self.late else None
            events = self.poll.poll(wait)
            self.send({number for number in self.due() if not self.ports[number].blocked})
            for number, event in events:
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
    path, cables, ports, plugs = sys.argv[1:5]
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
        switch.faults = {}
        with contextlib.suppress(FileNotFoundError):
            found = json.loads(Path(ports).read_text(encoding="utf-8"))
            switch.faults = {plug: Fault(**settings) for plug, settings in found.items()}

    signal.signal(signal.SIGHUP, lay)
    lay()
    print("ready", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        switch.serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
