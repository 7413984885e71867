# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's side of taking turns on a node: what this run is, and asking again while another run is at work there."""

from __future__ import annotations

import getpass
import os
import pathlib
import platform
import time
import typing as t

Plain = dict[str, t.Any]
MOST_WAIT = 900.0  # seconds: another run's rollback time, and what its node may take for it
_IMPORTED = time.monotonic()


def this_run() -> Plain:
    """Return this run as the modules take it: `id`, `controller`, `started` and `age` (seconds), and `by`, in words."""
    process = os.getppid()  # tasks run in forks of the playbook's process
    age, boot = _age(process)
    controller = f"{platform.node()} {boot}"
    started = time.clock_gettime(time.CLOCK_BOOTTIME) - age if boot else time.time() - age
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container's user may have no name
        user = f"user {os.getuid()}"
    by = f"the run of {user} on {platform.node()} (process {process})"
    return {
        "id": f"{controller} {process}",
        "controller": controller,
        "started": round(started, 2),
        "age": round(age, 2),
        "by": by,
    }


def _age(process: int) -> tuple[float, str]:
    """Return a process's age in seconds, and the boot's id; without /proc the time since this file was loaded, and nothing."""
    try:
        # The command's name, in parentheses, may contain anything.
        fields = (
            pathlib.Path(f"/proc/{process}/stat")
            .read_text(encoding="utf-8", errors="replace")
            .rpartition(")")[2]
            .split()
        )
        boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        return max(0.0, now - int(fields[19]) / os.sysconf("SC_CLK_TCK")), boot
    except (OSError, ValueError, IndexError, AttributeError):
        return time.monotonic() - _IMPORTED, ""


def in_turn(
    call: t.Callable[[Plain | None], Plain],
    show: t.Callable[[str], t.Any],
    limit: float = MOST_WAIT,
    clock: t.Callable[[], float] = time.monotonic,
) -> Plain:
    """Call a module until it no longer waits for another run, and name that run. Returns its answer.

    call: gets what the module said it waits for (`waiting`) the last time.
    """
    until, waited, told = clock() + limit, None, ""
    while True:
        answer = call(waited)
        waited = answer.get("waiting")
        if not waited or answer.get("failed"):
            return answer
        who = str(waited.get("who"))
        if who != told:
            show(f"This run waits for another one: {who}.")
            told = who
        if clock() > until:
            text = f"Another run has been changing this node for {limit:g} s: {who}. Nothing was changed. "
            return {
                "failed": True,
                "changed": False,
                "msg": text + "Wait for it to finish, or stop it, then run again.",
            }
