# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's processes, found and ended without ever touching a foreign one.

Every process of a lab carries the lab's run folder in its command line (the marker). A process is ended through a
pidfd whose command line is read again after it was opened, so that a reused number cannot be hit.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from pathlib import Path


def marker(run: Path, part: str) -> str:
    """What the command line of a part of a lab contains as one argument."""
    return f"dgxspark-lab:{run}:{part}"


def command_line(pid: int) -> list[str]:
    """The arguments of a process; empty when there is none."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def find(run: Path) -> dict[str, int]:
    """Running parts of a lab, by name (`spark1`, `switch`), with their process numbers."""
    prefix = marker(run, "")
    found: dict[str, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            for argument in command_line(int(entry.name)):
                if argument.startswith(prefix) and _is_alive(int(entry.name)):
                    found[argument.removeprefix(prefix)] = int(entry.name)
    return found


def _is_alive(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] != "Z"


def end(run: Path, part: str, pid: int, *, patience: float = 5.0) -> None:
    """End one part of a lab: ask, then insist."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if marker(run, part) not in command_line(pid):
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, number)
            until = time.monotonic() + patience
            while time.monotonic() < until:
                if not _is_alive(pid):
                    return
                time.sleep(0.02)
    finally:
        os.close(handle)


def resident_mib(pid: int) -> int:
    """Memory that the process holds for itself alone, in MiB (0 when it cannot be read)."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    fields = {line.split(":")[0]: line.split()[1] for line in lines[1:]}
    return int(fields.get("Pss", "0")) // 1024


def kill(run: Path, part: str) -> None:
    """Kill one part of a lab at once, and wait until it is gone."""
    pid = find(run).get(part)
    if pid is None:
        return
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if marker(run, part) in command_line(pid):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            select.select([handle], [], [], 10)
    finally:
        os.close(handle)
