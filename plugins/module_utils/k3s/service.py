# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Start a unit, wait until it is ready, and name the cause if it does not come up."""

from __future__ import annotations

import re
import time
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.commands import Run
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError

_CRASHES = 3  # failed starts after which to stop waiting for a unit
_LINES = 400


@dataclass(frozen=True, slots=True)
class Sign:
    """A line of K3s's log and its meaning. `final`: K3s's own retries cannot cure it."""

    id: str
    pattern: str
    cause: str
    remedy: str
    final: bool


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a unit did not come up. `line` is from the log, without anything that looks like a token."""

    id: str
    cause: str
    remedy: str
    line: str

    def __str__(self) -> str:
        return f"{self.cause} {self.remedy} Its log says: {self.line}"


class Service:
    """One systemd unit. `now` and `sleep` (seconds) can be replaced in tests."""

    def __init__(
        self,
        run: Run,
        name: str,
        *,
        now: t.Callable[[], float] = time.time,
        sleep: t.Callable[[float], None] = time.sleep,
    ) -> None:
        self.run, self.name, self._now, self._sleep = run, name, now, sleep

    def systemctl(self, *words: str) -> None:
        """Run systemctl; CollectionError with its output if it fails."""
        rc, out, err = self.run(["systemctl", *words])
        if rc:
            raise CollectionError(f"systemctl {' '.join(words)} failed: {(err or out).strip()}")

    def start(self, timeout: float, signs: t.Sequence[Sign]) -> Trouble | None:
        """Restart the unit and wait, at most `timeout` seconds, until it is ready. Return the trouble if it is not."""
        began = self._now()
        self.run(["systemctl", "reset-failed", self.name])
        self.systemctl("restart", "--no-block", self.name)
        while True:
            said = self._show()
            if said.get("ActiveState") == "active" and said.get("SubState") in ("running", "exited"):
                return None
            crashes = int(said.get("NRestarts") or 0)
            ended = said.get("ActiveState") == "failed" or crashes >= _CRASHES
            late = self._now() - began > timeout
            trouble = self.trouble(began, signs, said, final=not (ended or late))
            if trouble:
                return trouble
            self._sleep(1)

    def trouble(
        self, began: float, signs: t.Sequence[Sign], said: t.Mapping[str, str], *, final: bool
    ) -> Trouble | None:
        """Look for a sign in the unit's log since the start. final: only for signs that waiting cannot cure."""
        log = self.log(began)
        for line in reversed(log):
            for sign in signs:
                if (sign.final or not final) and re.search(sign.pattern, line):
                    return Trouble(sign.id, sign.cause, sign.remedy, plain(line))
        if final:
            return None
        state = f"{self.name} is {said.get('ActiveState')} ({said.get('Result') or 'no result'})"
        last = plain(log[-1]) if log else "nothing"
        return Trouble("k3s.not-ready", f"{state} and not ready.", f"See journalctl -u {self.name}.", last)

    def log(self, began: float) -> list[str]:
        """Return the unit's log lines since a time (seconds since the epoch)."""
        words = ["journalctl", "--no-pager", "-o", "cat", "-n", str(_LINES), "-u", self.name]
        _rc, out, _err = self.run([*words, f"--since=@{int(began)}"])
        return out.splitlines()

    def _show(self) -> dict[str, str]:
        _rc, out, _err = self.run(
            ["systemctl", "show", "--property=ActiveState,SubState,Result,NRestarts", "--", self.name]
        )
        return dict(line.split("=", 1) for line in out.splitlines() if "=" in line)


def plain(line: str) -> str:
    """Return a log line without possible tokens (K10…, or 32 hexadecimal digits and more), cut to 300 characters."""
    line = re.sub(r"K10\S+", "K10…", line)
    return re.sub(r"\b[0-9a-f]{32,}\b", "…", line)[:300]
