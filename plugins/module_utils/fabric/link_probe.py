# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find which interfaces share a wire: each node sends frames on its interfaces for a while, and notes the MACs received on each.

The frames are raw Ethernet broadcasts of a type that IEEE reserves for local experiments, so no interface needs an address, and
only this program reads them. Needs root (else PermissionError), and interfaces that are up. Times are in seconds.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.arp_ping import error_name, packet_socket

ETH_P_LOCAL = 0x88B5  # IEEE 802, local experimental Ethertype 1
_BROADCAST = b"\xff" * 6
_MAGIC = b"dgxspark.links/1:"
_LEAST = 60  # bytes of a frame, without its checksum
_OUTGOING = 4  # PACKET_OUTGOING: a frame that this node sent
INTERVAL = 0.2


@dataclass(frozen=True, slots=True)
class Heard:
    """The MACs received on an interface, in order; `error` says why none could be received."""

    netdev: str
    macs: tuple[str, ...] = ()
    error: str | None = None


def call_frame(mac: bytes, word: str) -> bytes:
    """Return the frame that an interface with this MAC sends in the run named by `word`."""
    frame = _BROADCAST + mac + ETH_P_LOCAL.to_bytes(2, "big") + _MAGIC + word.encode() + b"\0"
    return frame.ljust(_LEAST, b"\0")


def parse_call(frame: bytes, word: str) -> str | None:
    """Return the sender's MAC of a frame of this run; None for any other frame."""
    wanted = ETH_P_LOCAL.to_bytes(2, "big") + _MAGIC + word.encode() + b"\0"
    return frame[6:12].hex(":") if frame[12 : 12 + len(wanted)] == wanted else None


def listen(netdevs: t.Sequence[str], word: str, window: float) -> list[Heard]:
    """Send on all interfaces repeatedly, and listen on them during the whole window.

    All nodes do so at the same time: a late starter is heard as long as the windows overlap.
    """
    heard: dict[str, list[str]] = {name: [] for name in netdevs}
    errors: dict[str, str] = {}
    sockets: dict[str, socket.socket] = {}
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as stack:
        for name in heard:
            try:
                sockets[name] = stack.enter_context(packet_socket(name, ETH_P_LOCAL))
                selector.register(sockets[name], selectors.EVENT_READ, name)
            except PermissionError:
                raise
            except OSError as exc:
                errors[name] = error_name(exc)
        end = time.monotonic() + (window if sockets else 0)
        while (now := time.monotonic()) < end:
            for name, opened in sockets.items():
                try:
                    opened.send(call_frame(opened.getsockname()[4], word))
                except OSError as exc:
                    errors[name] = error_name(exc)
            turn = min(end, now + INTERVAL)
            while (left := turn - time.monotonic()) > 0:
                for key, _events in selector.select(left):
                    _receive(t.cast(socket.socket, key.fileobj), word, heard[key.data])
    return [Heard(name, tuple(sorted(macs)), None if macs else errors.get(name)) for name, macs in heard.items()]


def _receive(opened: socket.socket, word: str, macs: list[str]) -> None:
    try:
        frame, address = opened.recvfrom(2048)
    except OSError:  # such as ENETDOWN: the missing MACs show it
        return
    mac = parse_call(frame, word) if address[2] != _OUTGOING else None
    if mac and mac not in macs:
        macs.append(mac)
