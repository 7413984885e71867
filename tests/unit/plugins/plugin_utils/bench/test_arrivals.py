"""What arrives on many connections: complete, and with its time of arrival, however late it is read."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import sys
import time

import pytest

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.arrivals import Arrivals

STAMPS = 35  # Linux: SO_TIMESTAMPNS
Pieces = list[tuple[bytes, float]]


def pair() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a connection on loopback."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        here = socket.create_connection(server.getsockname())
        here.setblocking(False)
        return here, server.accept()[0]


async def stamped() -> None:
    """Wait until the kernel records when a packet came: it begins some time after it was first asked to, on a busy machine later."""
    until = time.monotonic() + 10
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        probe.setsockopt(socket.SOL_SOCKET, STAMPS, 1)
        while time.monotonic() < until:
            probe.sendto(b".", probe.getsockname())
            await asyncio.sleep(0.05)
            _data, notes, _flags, _from = probe.recvmsg(1, 128)
            seconds, nanoseconds = struct.unpack("@ll", notes[0][2]) if notes else (time.time(), 0)
            if time.time() - seconds - nanoseconds / 1e9 > 0.04:
                return


async def read(count: int, sent: bytes, busy_s: float = 0.0) -> tuple[list[Pieces], list[bool], float]:
    """Send to `count` connections byte by byte, keep the loop busy, and close; return what was read, and when the last byte was sent."""
    pairs = [pair() for _number in range(count)]
    pieces, ended = [Pieces() for _pair in pairs], [False] * count

    def at_end(number: int, exc: Exception | None) -> None:
        ended[number] = exc is None

    arrivals = Arrivals()
    with contextlib.ExitStack() as stack:
        stack.callback(arrivals.close)
        for number, (here, there) in enumerate(pairs):
            stack.enter_context(here)
            stack.enter_context(there)
            took = pieces[number]
            stack.enter_context(
                arrivals.reading(
                    here,
                    lambda data, now, took=took: took.append((data, now)),
                    lambda exc, number=number: at_end(number, exc),
                )
            )
        for _here, there in pairs:
            there.sendall(b".")
        await (stamped() if sys.platform == "linux" else asyncio.sleep(0.2))
        for place in range(len(sent)):
            for _here, there in pairs:
                there.sendall(sent[place : place + 1])
        last = time.monotonic()
        time.sleep(busy_s)
        await asyncio.sleep(0.1)
        for _here, there in pairs:
            there.close()
        until = time.monotonic() + 10
        while not all(ended) and time.monotonic() < until:
            await asyncio.sleep(0.01)
    return pieces, ended, last


@pytest.mark.parametrize("count", [1, 40])
def test_all_that_comes_is_taken_and_its_end_is_told(count: int) -> None:
    pieces, ended, _last = asyncio.run(read(count, b"abcdef"))
    assert [b"".join(data for data, _now in each) for each in pieces] == [b".abcdef"] * count
    assert all(ended)
    assert all([now for _data, now in each] == sorted(now for _data, now in each) for each in pieces)


@pytest.mark.skipif(sys.platform != "linux", reason="not run: the kernel of another system notes no times")
def test_the_time_is_when_it_came_and_not_when_it_was_read() -> None:
    pieces, _ended, last = asyncio.run(read(40, b"x", busy_s=0.5))
    late = [each[-1][1] - last for each in pieces]
    assert max(late) < 0.1


def test_a_connection_that_is_reset_is_lost_by_an_error() -> None:
    async def run() -> Exception | None:
        here, there = pair()
        lost = asyncio.get_running_loop().create_future()
        there.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        arrivals = Arrivals()
        with here, arrivals.reading(here, lambda _data, _now: None, lambda exc: lost.done() or lost.set_result(exc)):
            there.close()
            error = await asyncio.wait_for(lost, 10)
        arrivals.close()
        return error

    assert isinstance(asyncio.run(run()), ConnectionResetError)
