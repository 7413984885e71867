"""TCP ports for what a test starts: nobody else gets one while the test's process lives."""

from __future__ import annotations

import errno
import pathlib
import random
import socket
import typing as t

# Held until this process ends: an abstract socket is, like a port, one per network namespace, and leaves no file behind.
_HELD: list[socket.socket] = []


def outside_ephemeral() -> list[int]:
    """Return the ports that the kernel gives to no outgoing connection and to no program that asks for port 0."""
    low, high = map(int, pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split())
    return [port for port in range(20000, 60000) if not low <= port <= high]


def free_port(count: int = 1, among: t.Sequence[int] | None = None) -> int:
    """Return the first of `count` consecutive ports on which nothing listens, and which no other process of tests gets.

    among: where to look, in this order; by default outside the kernel's own range, from a random place on.
    """
    if among is None:
        ports = outside_ephemeral()
        begin = random.randrange(len(ports))
        among = [*ports[begin:], *ports[:begin]]
    for first in among:
        wanted = range(first, first + count)
        if not set(wanted) <= set(among):
            continue
        held: list[socket.socket] = []
        for port in wanted:
            claim = _claimed(port)
            if claim is None:
                break
            held.append(claim)
        if len(held) == count:
            _HELD.extend(held)
            return first
        for claim in held:
            claim.close()
    raise RuntimeError(f"No {count} free ports in a row among {len(among)}: other tests hold them, or services listen")


def _claimed(port: int) -> socket.socket | None:
    """Return the socket that reserves a port; None if it is taken."""
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0dgxspark-test-port-{port}")
        with socket.socket() as probe:
            probe.bind(("0.0.0.0", port))
    except OSError as exc:
        claim.close()
        if exc.errno != errno.EADDRINUSE:
            raise
        return None
    return claim
