# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Test the fabric itself: who answers ARP for an address, and which packet sizes reach a peer unfragmented.

Both use raw sockets bound to the VF's own netdev, so that nothing can leave through another interface, and all targets are
probed at once. Needs root (else PermissionError). Times are in seconds, sizes in bytes.
"""

from __future__ import annotations

import errno
import os
import selectors
import socket
import struct
import time
import typing as t
from dataclasses import dataclass, field

ETH_P_ARP = 0x0806
ETH_P_IP = 0x0800
_BROADCAST = b"\xff" * 6
_ARP = struct.Struct("!HHBBH6s4s6s4s")
_ICMP = struct.Struct("!BBHHH")
_ECHO, _ECHO_REPLY = 8, 0
ICMP_OVERHEAD = 28  # IPv4 header without options, and ICMP header
SMALL = 56  # the payload of an ordinary ping
# Pings in flight from one VF: the replies to that many large pings fit the receive buffer below.
_BATCH = 16
_RECEIVE_BUFFER = 1 << 20
# linux/in.h; the socket module lacks these names. PROBE sets "don't fragment" and ignores the kernel's cached path MTU, so that
# each ping is an independent test.
_IP_MTU_DISCOVER, _IP_PMTUDISC_PROBE = 10, 3


@dataclass(frozen=True, slots=True)
class ArpTest:
    """Ask on `netdev` who has `address`."""

    netdev: str
    source: str
    address: str


@dataclass(frozen=True, slots=True)
class ArpAnswer:
    """All MACs that answered within the window, in order of arrival; `error` says why the request could not be sent."""

    netdev: str
    address: str
    macs: tuple[str, ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True)
class PingTest:
    """Ping `address` out of `netdev` with a small packet and with one of `mtu` bytes, never fragmented."""

    netdev: str
    source: str
    address: str
    mtu: int


@dataclass(slots=True)
class PingAnswer:
    """`ok`, `no reply`, `not sent`, or an error's short name (`too large`, `no address`, `no route`, `down` …)."""

    netdev: str
    address: str
    small: str = "not sent"
    large: str = "not sent"
    rtt_ms: float | None = None


_ERRORS = {
    errno.EMSGSIZE: "too large",
    errno.EADDRNOTAVAIL: "no address",
    errno.ENODEV: "no device",
    errno.ENXIO: "no device",
    errno.ENETUNREACH: "no route",
    errno.EHOSTUNREACH: "no route",
    errno.ENETDOWN: "down",
    errno.EPERM: "not permitted",
    errno.EACCES: "not permitted",
}


def error_name(exc: OSError) -> str:
    """Return the short name of a socket error, else the system's message."""
    return _ERRORS.get(exc.errno or 0) or f"{exc.strerror or exc}".lower()


# --- ARP ------------------------------------------------------------------------------------------------------------


def arp_request(mac: bytes, source: str, address: str) -> bytes:
    """Return an Ethernet broadcast frame that asks who has `address`."""
    body = _ARP.pack(1, ETH_P_IP, 6, 4, 1, mac, socket.inet_aton(source), b"\0" * 6, socket.inet_aton(address))
    return _BROADCAST + mac + struct.pack("!H", ETH_P_ARP) + body


def parse_arp_reply(frame: bytes) -> tuple[str, str] | None:
    """Return (sender's IPv4, sender's MAC) of an ARP reply over Ethernet and IPv4, None for anything else."""
    if len(frame) < 14 + _ARP.size or frame[12:14] != struct.pack("!H", ETH_P_ARP):
        return None
    hardware, protocol, hlen, plen, operation, mac, source, _to, _target = _ARP.unpack_from(frame, 14)
    if (hardware, protocol, hlen, plen, operation) != (1, ETH_P_IP, 6, 4, 2):
        return None
    return socket.inet_ntoa(source), mac.hex(":")


def ask_arp(tests: t.Sequence[ArpTest], window: float) -> list[ArpAnswer]:
    """Ask for all addresses at once and collect every answer during the whole window.

    A first answer does not end the window early: a twin that answers too may be slower. Addresses without an answer are
    requested again halfway through the window.
    """
    found: dict[tuple[str, str], list[str]] = {(test.netdev, test.address): [] for test in tests}
    errors: dict[str, str] = {}
    with selectors.DefaultSelector() as selector:
        sockets: dict[str, socket.socket] = {}
        try:
            for name in dict.fromkeys(test.netdev for test in tests):
                try:
                    sockets[name] = packet_socket(name, ETH_P_ARP)
                    selector.register(sockets[name], selectors.EVENT_READ, name)
                except PermissionError:
                    raise
                except OSError as exc:
                    errors[name] = error_name(exc)
            start = time.monotonic()
            for deadline in (start + window / 2, start + window):
                for test in tests:
                    if test.netdev in sockets and not found[test.netdev, test.address]:
                        _send_arp(sockets[test.netdev], test, errors)
                while (left := deadline - time.monotonic()) > 0:
                    for key, _events in selector.select(left):
                        _receive_arp(t.cast(socket.socket, key.fileobj), key.data, found)
        finally:
            for opened in sockets.values():
                opened.close()
    return [
        ArpAnswer(test.netdev, test.address, macs, None if macs else errors.get(test.netdev))
        for test in tests
        for macs in [tuple(found[test.netdev, test.address])]
    ]


def packet_socket(name: str, protocol: int) -> socket.socket:
    """Return a non-blocking socket for an interface's frames of one type. Raises OSError if it cannot be opened.

    Its protocol is set only by bind(): set earlier, it would receive from all interfaces until then (packet(7)).
    """
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
    try:
        opened.bind((name, protocol))
    except OSError:
        opened.close()
        raise
    return opened


def _send_arp(opened: socket.socket, test: ArpTest, errors: dict[str, str]) -> None:
    try:
        opened.send(arp_request(opened.getsockname()[4], test.source, test.address))
    except OSError as exc:
        errors[test.netdev] = error_name(exc)


def _receive_arp(opened: socket.socket, name: str, found: dict[tuple[str, str], list[str]]) -> None:
    try:
        reply = parse_arp_reply(opened.recv(2048))
    except OSError:  # such as ENETDOWN: the missing answer shows it
        return
    if reply is None:
        return
    address, mac = reply
    answers = found.get((name, address))
    if answers is not None and mac not in answers:
        answers.append(mac)


# --- ping -----------------------------------------------------------------------------------------------------------


def checksum(data: bytes) -> int:
    """Return the Internet checksum (RFC 1071)."""
    if len(data) % 2:
        data += b"\0"
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def echo_request(identifier: int, sequence: int, size: int) -> bytes:
    """Return an ICMP echo request with `size` bytes of payload."""
    payload = bytes(number & 0xFF for number in range(size))
    head = _ICMP.pack(_ECHO, 0, 0, identifier, sequence)
    return _ICMP.pack(_ECHO, 0, checksum(head + payload), identifier, sequence) + payload


def parse_echo_reply(packet: bytes) -> tuple[int, int] | None:
    """Return (identifier, sequence) of an echo reply in an IPv4 packet, None for anything else."""
    if len(packet) < 20 or packet[0] >> 4 != 4 or packet[9] != socket.IPPROTO_ICMP:
        return None
    start = (packet[0] & 0xF) * 4
    if len(packet) < start + _ICMP.size:
        return None
    kind, _code, _sum, identifier, sequence = _ICMP.unpack_from(packet, start)
    return (identifier, sequence) if kind == _ECHO_REPLY else None


@dataclass(slots=True)
class _Pinger:
    """One socket for each netdev and source, and the pings in flight."""

    selector: selectors.BaseSelector
    identifier: int = field(default_factory=lambda: os.getpid() & 0xFFFF)
    sequence: int = 0
    sockets: dict[tuple[str, str], socket.socket | str] = field(default_factory=dict)

    def open(self, test: PingTest) -> socket.socket | str:
        key = (test.netdev, test.source)
        if key not in self.sockets:
            try:
                self.sockets[key] = _icmp_socket(*key)
                self.selector.register(t.cast(socket.socket, self.sockets[key]), selectors.EVENT_READ)
            except PermissionError:
                raise
            except OSError as exc:
                self.sockets[key] = error_name(exc)
        return self.sockets[key]

    def close(self) -> None:
        for opened in self.sockets.values():
            if isinstance(opened, socket.socket):
                opened.close()

    def round(self, tests: t.Sequence[tuple[PingTest, int]], timeout: float) -> list[tuple[str, float | None]]:
        """Send one ping for each (test, payload) and wait; return (outcome, round trip in ms) in the same order."""
        outcomes: list[tuple[str, float | None]] = [("no reply", None)] * len(tests)
        waiting: dict[int, tuple[int, float]] = {}
        for position, (test, payload) in enumerate(tests):
            opened = self.open(test)
            if isinstance(opened, str):
                outcomes[position] = (opened, None)
                continue
            self.sequence = (self.sequence + 1) & 0xFFFF
            try:
                opened.sendto(echo_request(self.identifier, self.sequence, payload), (test.address, 0))
                waiting[self.sequence] = (position, time.monotonic())
            except OSError as exc:
                outcomes[position] = (error_name(exc), None)
        deadline = time.monotonic() + timeout
        while waiting and (left := deadline - time.monotonic()) > 0:
            for key, _events in self.selector.select(left):
                try:
                    packet = t.cast(socket.socket, key.fileobj).recv(65535)
                except OSError:
                    continue
                reply = parse_echo_reply(packet)
                if reply and reply[0] == self.identifier and reply[1] in waiting:
                    position, sent = waiting.pop(reply[1])
                    outcomes[position] = ("ok", round((time.monotonic() - sent) * 1000, 3))
        return outcomes


def _icmp_socket(netdev: str, source: str) -> socket.socket:
    opened = socket.socket(socket.AF_INET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.IPPROTO_ICMP)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, netdev.encode() + b"\0")
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
        opened.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_PROBE)
        opened.bind((source, 0))
    except OSError:
        opened.close()
        raise
    return opened


def ping(tests: t.Sequence[PingTest], timeout: float, tries: int = 2) -> list[PingAnswer]:
    """Ping every peer with a small packet, then those that answered with one of the full MTU.

    Each size is tried `tries` times: the first packet may be lost to ARP, and the first large one after a change of MTU.
    """
    answers = [PingAnswer(test.netdev, test.address) for test in tests]
    with selectors.DefaultSelector() as selector:
        pinger = _Pinger(selector)
        try:
            for field_name in ("small", "large"):
                _one_size(pinger, tests, answers, field_name, timeout, tries)
        finally:
            pinger.close()
    return answers


def _one_size(
    pinger: _Pinger,
    tests: t.Sequence[PingTest],
    answers: t.Sequence[PingAnswer],
    size: str,
    timeout: float,
    tries: int,
) -> None:
    large = size == "large"
    left = [n for n, answer in enumerate(answers) if not large or answer.small == "ok"]
    for _attempt in range(tries):
        for start in range(0, len(left), _BATCH):
            batch = left[start : start + _BATCH]
            packets = [(tests[n], tests[n].mtu - ICMP_OVERHEAD if large else SMALL) for n in batch]
            for n, (outcome, rtt) in zip(batch, pinger.round(packets, timeout), strict=True):
                setattr(answers[n], size, outcome)
                if not large and rtt is not None:
                    answers[n].rtt_ms = rtt
        left = [n for n in left if getattr(answers[n], size) == "no reply"]
