# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds and ends the lab's processes without ever touching a foreign one.

Every process of a lab has the lab's run folder in its command line (the marker). To end a process, its command line is
checked again after its pidfd is opened, so that a reused pid cannot be hit.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path

AT_LEAST, AT_MOST = 600.0, 3600.0
IDLE_SECONDS, IDLE_SHARE = 120.0, 0.02


def marker(run: Path, part: str) -> str:
    """Return the argument that marks the command line of a part of a lab."""
    return f"dgxspark-lab:{run}:{part}"


def command_line(pid: int) -> list[str]:
    """Return a process's arguments; empty if it does not exist or is a zombie."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def find(run: Path) -> dict[str, int]:
    """Return the pids of a lab's running parts by name (`spark1`, `switch`)."""
    prefix = marker(run, "")
    found: dict[str, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            for argument in command_line(int(entry.name)):
                if argument.startswith(prefix):
                    found[argument.removeprefix(prefix)] = int(entry.name)
    return found


def end(run: Path, part: str, *, patience: float = 3.0) -> None:
    """End one part of a lab: SIGTERM, wait up to `patience` seconds (0: skip this), then SIGKILL.

    Returns when the process is gone, with all its threads.
    """
    pid = find(run).get(part)
    if pid is None:
        return
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if marker(run, part) not in command_line(pid):
            return
        for number, seconds in ((signal.SIGTERM, patience), (signal.SIGKILL, 30.0)):
            if seconds:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(handle, number)
                if select.select([handle], [], [], seconds)[0]:
                    return
    finally:
        os.close(handle)


def resident_mib(pid: int) -> int:
    """Return the process's proportional memory (PSS) in MiB (0 if it cannot be read)."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    fields = {line.split(":")[0]: line.split()[1] for line in lines[1:]}
    return int(fields.get("Pss", "0")) // 1024


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used (0 if it cannot be read)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Patience:
    """How long to wait for a node that starts: AT_LEAST seconds, longer while it works, AT_MOST in the end.

    Seconds say little on a machine that does much else; that the node's process gets on says more.
    worked: the processor time that the node has used so far.
    """

    def __init__(self, worked: Callable[[], float], clock: Callable[[], float] = time.monotonic) -> None:
        self._worked, self._clock = worked, clock
        self._begun = self._looked = clock()
        self._before, self._idle = worked(), False

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return self._clock() - self._begun

    def over(self) -> bool:
        """Whether to give up."""
        now, worked = self._clock(), self._worked()
        if (passed := now - self._looked) >= IDLE_SECONDS:
            self._idle = worked - self._before < IDLE_SHARE * passed
            self._looked, self._before = now, worked
        return self.seconds >= AT_MOST or (self.seconds >= AT_LEAST and self._idle)


def mentions(text: str) -> bool:
    """Whether any process has the text in its command line."""
    numbers = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return any(text in argument for number in numbers for argument in command_line(number))
