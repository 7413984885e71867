# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""While a model is loaded, keep memory free for the GPU: drop the page cache and compact memory below a floor.

Installed on nodes unchanged, and run there by a unit that systemd starts when something connects to its socket. A rank connects
before it loads, sends its name, and closes the connection when it is ready; the kernel closes it for a rank that dies. So a rank
writes nothing on the node, and cannot act for another. Standard library only.
"""

from __future__ import annotations

import json
import pathlib
import re
import socket
import sys
import time
import typing as t

CONFIG = "/etc/dgxspark/load-guard.json"
FOLDER = "/run/dgxspark/load-guard"  # ranks have it read-only
SOCKET = "socket"
KIB_PER_MIB = 1024
MOST = 32  # simultaneous connections
NAME = 64  # bytes of a name
LINGER_S = 30.0  # after the last load: systemd refuses to start a unit that starts and stops too often
LARGE = 10  # order of the blocks that a load needs
FIRST = 3  # the descriptor of the socket from systemd (sd_listen_fds)


class Settings(t.TypedDict):
    """The figures of a hardware class: the floor in MiB of MemFree, the interval and the longest load in seconds."""

    floor_mib: int
    interval_s: float
    max_s: int


def free_kib(meminfo: str) -> int:
    """Return MemFree in KiB. Not MemAvailable: the GPU's driver cannot wait for the page cache to be reclaimed."""
    match = re.search(r"^MemFree:\s+(\d+) kB", meminfo, re.MULTILINE)
    return int(match[1]) if match else 0


def is_due(meminfo: str, settings: Settings) -> bool:
    """Whether memory is below the floor."""
    return free_kib(meminfo) < settings["floor_mib"] * KIB_PER_MIB


def is_fragmented(buddyinfo: str) -> bool:
    """Whether no zone has a free block of 4 MiB or more (at 4 KiB pages): the driver's contiguous allocations then fail."""
    zones = re.findall(r"^Node +\d+, zone +\S+((?: +\d+)+)", buddyinfo, re.MULTILINE)
    return bool(zones) and not any(int(count) for zone in zones for count in zone.split()[LARGE:])


def say(text: str) -> None:
    """Write a line to the unit's journal."""
    sys.stderr.write(f"{text}\n")


class Load:
    """A connection: its start (s, monotonic clock), and the name that it sent."""

    def __init__(self, connection: socket.socket, now: float) -> None:
        self.connection, self.since, self.name = connection, now, "somebody"
        connection.setblocking(False)

    def goes_on(self) -> bool:
        """Whether the other end is still connected."""
        try:
            said = self.connection.recv(NAME)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self.name = re.sub(r"[^A-Za-z0-9.-]", "", said.decode("ascii", "replace")) or self.name
        return bool(said)


class Guard:
    """The loop. listener: the socket; proc: the root of procfs."""

    def __init__(self, settings: Settings, listener: socket.socket, proc: str = "/proc") -> None:
        self.settings, self.listener, self.proc = settings, listener, pathlib.Path(proc)
        self.loads: list[Load] = []
        self.dropped = 0
        listener.setblocking(False)

    def look(self, now: float) -> list[str]:
        """Accept new connections, drop those that closed or load for too long; return the names of the others."""
        while True:
            try:
                connection = self.listener.accept()[0]
            except OSError:
                break
            if len(self.loads) < MOST:
                self.loads.append(Load(connection, now))
            else:
                connection.close()
        for load in list(self.loads):
            over = now - load.since > self.settings["max_s"]
            if load.goes_on() and not over:
                continue
            if over:
                say(f"{load.name} has not become ready within {self.settings['max_s']} s: it is no longer guarded.")
            load.connection.close()
            self.loads.remove(load)
        return sorted(load.name for load in self.loads)

    def step(self, now: float) -> bool:
        """Drop caches if due, or if a load begins on fragmented memory; return whether a load is still in progress."""
        loads = self.look(now)
        begins = any(load.since == now for load in self.loads)
        if loads and (
            is_due(self._read("meminfo"), self.settings) or (begins and is_fragmented(self._read("buddyinfo")))
        ):
            for knob in ("drop_caches", "compact_memory"):
                (self.proc / "sys/vm" / knob).write_text("1\n", encoding="ascii")
            self.dropped += 1
        return bool(loads)

    def _read(self, name: str) -> str:
        try:
            return (self.proc / name).read_text(encoding="ascii")
        except OSError:
            return ""

    def run(self, linger_s: float = LINGER_S) -> None:
        """Guard until there has been no load for a while."""
        last = time.monotonic()
        while time.monotonic() - last <= linger_s:
            if self.step(time.monotonic()):
                last = time.monotonic()
            time.sleep(self.settings["interval_s"])
        say(f"All loads have finished; the page cache was dropped {self.dropped} times.")


def main() -> int:
    """Run as a unit."""
    try:
        settings: Settings = json.loads(pathlib.Path(CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        say(f"{CONFIG} cannot be used ({exc}). The role memory_guard writes it.")
        return 1
    try:
        listener = socket.socket(fileno=FIRST)
    except OSError as exc:
        say(f"There is no socket ({exc.strerror}): systemd starts this through dgxspark-load-guard.socket.")
        return 1
    Guard(settings, listener).run()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
