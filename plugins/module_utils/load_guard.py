# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""While a model is loaded, keep memory free for the GPU: drop the page cache and compact memory below a floor.

Laid on nodes as it is, and run there by a unit that starts when the folder of marks is not empty. A rank lays a mark there
before it loads (`/run/dgxspark/loading/NAME`) and takes it away when it is ready. Standard library alone.
"""

from __future__ import annotations

import json
import pathlib
import re
import sys
import time
import typing as t

CONFIG = "/etc/dgxspark/load-guard.json"
MARKS = "/run/dgxspark/loading"
KIB_PER_MIB = 1024


class Settings(t.TypedDict):
    """The figures of a hardware class: the floor in MiB of MemFree, the interval and the longest load in seconds."""

    floor_mib: int
    interval_s: float
    max_s: int


def free_kib(meminfo: str) -> int:
    """Return MemFree in KiB. Not MemAvailable: the GPU's driver cannot wait for page cache to be given back."""
    match = re.search(r"^MemFree:\s+(\d+) kB", meminfo, re.MULTILINE)
    return int(match[1]) if match else 0


def is_due(meminfo: str, settings: Settings) -> bool:
    """Whether memory is below the floor."""
    return free_kib(meminfo) < settings["floor_mib"] * KIB_PER_MIB


def stale(marks: t.Mapping[str, float], now: float, settings: Settings) -> list[str]:
    """Return the marks (name -> time of laying, s) that are older than any load takes: their rank died without a word."""
    return sorted(name for name, laid in marks.items() if now - laid > settings["max_s"])


def say(text: str) -> None:
    """Say a line in the unit's journal."""
    sys.stderr.write(f"{text}\n")


class Guard:
    """The loop. proc: where procfs is; marks: the folder of marks."""

    def __init__(self, settings: Settings, proc: str = "/proc", marks: str = MARKS) -> None:
        self.settings, self.proc, self.marks = settings, pathlib.Path(proc), pathlib.Path(marks)
        self.dropped = 0

    def read_marks(self) -> dict[str, float]:
        """Return the marks with the time they were laid."""
        found = {}
        for path in self.marks.iterdir() if self.marks.is_dir() else ():
            try:
                found[path.name] = path.stat().st_mtime
            except OSError:
                continue  # taken away just now
        return found

    def step(self, now: float) -> bool:
        """Do what is due; return whether a load is still going on."""
        marks = self.read_marks()
        for name in stale(marks, now, self.settings):
            say(f"{name} has not become ready within {self.settings['max_s']} s: it is no longer guarded.")
            (self.marks / name).unlink(missing_ok=True)
            del marks[name]
        if marks and is_due((self.proc / "meminfo").read_text(encoding="ascii"), self.settings):
            for knob in ("drop_caches", "compact_memory"):
                (self.proc / "sys/vm" / knob).write_text("1\n", encoding="ascii")
            self.dropped += 1
        return bool(marks)

    def run(self) -> None:
        """Guard until no load is left."""
        while self.step(time.time()):
            time.sleep(self.settings["interval_s"])
        say(f"All loads are over; the page cache was dropped {self.dropped} times.")


def main() -> int:
    """Run as a unit."""
    try:
        settings: Settings = json.loads(pathlib.Path(CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        say(f"{CONFIG} cannot be used ({exc}). The role memory_guard writes it.")
        return 1
    Guard(settings).run()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
