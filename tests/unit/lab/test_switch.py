# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's switch: what it learns, what it drops, and frames over real sockets."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from labkit import switch

A, B, C = (bytes([2, 0, 0, 0, 0, number]) for number in (1, 2, 3))
EVERYONE = b"\xff" * 6


def frame(destination: bytes, source: bytes, size: int = 60) -> bytes:
    body = (destination + source + b"\x08\x00").ljust(size, b"\0")
    return switch.LENGTH.pack(len(body)) + body


def test_unknown_and_group_addresses_go_to_all_but_the_sender() -> None:
    table = switch.Table()
    assert table.targets(B, 1, [1, 2, 3]) == [2, 3]
    assert table.targets(EVERYONE, 2, [1, 2, 3]) == [1, 3]


def test_a_learned_address_gets_its_frames_alone() -> None:
    table = switch.Table()
    table.learn(A, 1)
    assert table.targets(A, 2, [1, 2, 3]) == [1]
    assert table.targets(A, 1, [1, 2, 3]) == [], "a frame never goes back where it came from"


def test_an_address_that_moves_is_followed() -> None:
    table = switch.Table()
    table.learn(A, 1)
    table.learn(A, 3)
    assert table.targets(A, 2, [1, 2, 3]) == [3]


def test_a_group_address_is_never_learned() -> None:
    table = switch.Table()
    table.learn(EVERYONE, 1)
    assert not table.ports


def test_an_unplugged_port_is_forgotten() -> None:
    table = switch.Table()
    table.learn(A, 1)
    table.learn(B, 2)
    table.forget(1)
    assert table.ports == {B: 2}


def test_a_full_table_forgets_its_oldest_entry() -> None:
    table = switch.Table(limit=2)
    for port, address in enumerate((A, B, C)):
        table.learn(address, port)
    assert set(table.ports) == {B, C}


@given(st.lists(st.integers(14, switch.MAX_FRAME), max_size=6), st.integers(1, 5000))
def test_frames_come_out_whole_however_the_stream_is_cut(sizes: list[int], piece: int) -> None:
    sent = [frame(A, B, size) for size in sizes]
    stream = b"".join(sent)
    buffer, received = bytearray(), []
    for start in range(0, len(stream), piece):
        buffer += stream[start : start + piece]
        received += switch.split(buffer)
    assert received == sent
    assert not buffer


def test_frames_too_short_or_too_long_are_dropped_and_the_stream_goes_on() -> None:
    good = frame(A, B)
    bad = [switch.LENGTH.pack(5) + b"short", switch.LENGTH.pack(switch.MAX_FRAME + 1) + bytes(switch.MAX_FRAME + 1)]
    assert switch.split(bytearray(bad[0] + good + bad[1] + good)) == [good, good]


@pytest.mark.parametrize("length", [0, (1 << 17) + 1, 0xFFFFFFFF])
def test_a_length_that_cannot_be_ends_the_stream(length: int) -> None:
    with pytest.raises(ValueError, match="frame"):
        switch.split(bytearray(switch.LENGTH.pack(length)))


def test_a_port_that_does_not_read_drops_instead_of_growing_without_bound() -> None:
    near, far = socket.socketpair()
    near.setblocking(False)
    port = switch.Port(near)
    big = frame(A, B, 9018)
    for _frame in range(3 * switch.QUEUE_BYTES // len(big)):
        port.put(big)
    assert port.waiting_bytes <= switch.QUEUE_BYTES
    port.flush()
    assert port.blocked
    near.close()
    far.close()


class Wire:
    """A running switch, and what is plugged into it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        listeners = {plug: socket.socket(socket.AF_UNIX) for plug in "abc"}
        for plug, listener in listeners.items():
            listener.bind(f"{path}-{plug}")
            listener.listen()
        self.switch = switch.Switch(listeners)
        threading.Thread(target=self.switch.serve, daemon=True).start()
        self.plugged: list[socket.socket] = []

    def plug(self, plug: str = "a") -> socket.socket:
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(60)
        sock.connect(f"{self.path}-{plug}")
        self.plugged.append(sock)
        self.wait(len(self.plugged))
        return sock

    def wait(self, count: int) -> None:
        """Wait until the switch has this many ports: connecting returns before the other side has accepted."""
        until = time.monotonic() + 60
        while len(self.switch.ports) != count:
            assert time.monotonic() < until
            time.sleep(0.01)


@pytest.fixture
def wire(tmp_path: Path) -> Iterator[Wire]:
    wire = Wire(tmp_path / "wire")
    yield wire
    for sock in wire.plugged:
        sock.close()


def read(sock: socket.socket) -> bytes:
    head = sock.recv(4, socket.MSG_WAITALL)
    return head + sock.recv(switch.LENGTH.unpack(head)[0], socket.MSG_WAITALL)


def test_three_functions_on_the_wire_talk_and_a_jumbo_frame_passes(wire: Wire) -> None:
    one, two, three = (wire.plug() for _port in range(3))
    for sock, address in ((two, B), (three, C), (one, A)):
        # When the other two have heard the hello, its sender is learned.
        sock.sendall(frame(EVERYONE, address))
        for other in {one, two, three} - {sock}:
            assert read(other) == frame(EVERYONE, address)
    jumbo = frame(A, B, 9018)
    two.sendall(jumbo)
    assert read(one) == jumbo
    three.sendall(frame(A, C))
    assert read(one) == frame(A, C)
    # `two` never saw the frame to `one`: the next one it gets is the one sent to it.
    one.sendall(frame(B, A, 77))
    assert read(two) == frame(B, A, 77)


def test_a_function_that_is_unplugged_does_not_stop_the_others(wire: Wire) -> None:
    one, two, three = (wire.plug() for _port in range(3))
    one.sendall(frame(EVERYONE, A))
    assert read(two) and read(three)
    one.close()
    wire.wait(2)
    two.sendall(frame(A, B))
    assert read(three) == frame(A, B), "an address that went with its port is unknown again"


def test_cables_join_their_two_ends_alone_and_a_switch_joins_all_again(wire: Wire) -> None:
    one, two, three = (wire.plug(plug) for plug in "abc")
    wire.switch.lay([["a", "b"]])
    three.sendall(frame(EVERYONE, C))  # without a cable: nobody hears it
    one.sendall(frame(EVERYONE, A))
    assert read(two) == frame(EVERYONE, A)
    two.sendall(frame(C, B))
    assert read(one) == frame(C, B)
    wire.switch.lay([["a", "c"]])
    three.sendall(frame(A, C))
    assert read(one) == frame(A, C)
    wire.switch.lay(None)
    one.sendall(frame(EVERYONE, A, 77))
    assert read(two) == frame(EVERYONE, A, 77), "nothing of what was sent on other cables has come here"
    assert read(three) == frame(EVERYONE, A, 77)


def test_a_port_with_a_smaller_mtu_drops_what_is_longer_both_ways(wire: Wire) -> None:
    one, two = wire.plug("a"), wire.plug("b")
    wire.switch.faults = {"b": switch.Fault(mtu=1500)}
    for sender, receiver, source, target in ((one, two, A, B), (two, one, B, A)):
        sender.sendall(frame(target, source, 9018) + frame(target, source, 1514))
        assert read(receiver) == frame(target, source, 1514)
    wire.switch.faults = {}
    one.sendall(frame(B, A, 9018))
    assert read(two) == frame(B, A, 9018)


def test_a_port_that_delays_does_so_and_keeps_the_order(wire: Wire) -> None:
    one, two = wire.plug("a"), wire.plug("b")
    wire.switch.faults = {"a": switch.Fault(delay=150), "b": switch.Fault(delay=50)}
    begun = time.monotonic()
    one.sendall(frame(B, A, 60) + frame(B, A, 61))
    assert [read(two), read(two)] == [frame(B, A, 60), frame(B, A, 61)]
    assert time.monotonic() - begun >= 0.2


def test_frames_that_are_reordered_overtake_the_delayed_ones(wire: Wire) -> None:
    one, two = wire.plug("a"), wire.plug("b")
    wire.switch.faults = {"a": switch.Fault(delay=30, reorder=50)}
    sent = [frame(B, A, size) for size in range(60, 160)]
    one.sendall(b"".join(sent))
    heard = [read(two) for _frame in sent]
    assert heard != sent and sorted(heard) == sorted(sent)


def test_a_port_that_loses_frames_loses_about_as_many_as_said() -> None:
    fault = switch.Fault(loss=25)
    lost = sum(fault.drops(frame(A, B)) for _frame in range(4000))
    assert 800 < lost < 1200
    assert not any(switch.Fault().drops(frame(A, B, switch.MAX_FRAME)) for _frame in range(100))
