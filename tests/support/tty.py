"""A program in a terminal of its own: a pty that is its controlling terminal, read by a terminal emulator (pyte)."""

from __future__ import annotations

import fcntl
import os
import pathlib
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
import typing as t

import pyte

SHOWN_S = 60.0
OWN_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


class Tty:
    """The terminal, and the program that runs in its foreground. What it shows is read by `until` and `end`."""

    def __init__(
        self,
        command: t.Sequence[str],
        cwd: pathlib.Path,
        env: t.Mapping[str, str],
        columns: int = 80,
        lines: int = 24,
    ) -> None:
        self.raw = b""
        self.screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self.screen)
        self._outside, inside = pty.openpty()
        self.modes = termios.tcgetattr(self._outside)
        self._size(columns, lines)
        # A process of its own makes it the controlling terminal: a fork of this one, which has threads, might not get so far.
        begun = [sys.executable, "-c", OWN_TERMINAL, *command]
        env = {**env, "TERM": "xterm-256color"}
        self._program = subprocess.Popen(
            begun, cwd=cwd, env=env, stdin=inside, stdout=inside, stderr=inside, start_new_session=True
        )
        self.pid = self._program.pid
        os.close(inside)

    def _size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._outside, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def resize(self, columns: int, lines: int) -> None:
        """Give the window another size."""
        self._size(columns, lines)
        self.screen.resize(lines, columns)

    def type(self, keys: bytes) -> None:
        """Press these keys."""
        os.write(self._outside, keys)

    def read(self, seconds: float = 0.2) -> bool:
        """Read what comes within so long; return whether the program may still write."""
        if select.select([self._outside], [], [], seconds)[0]:
            try:
                data = os.read(self._outside, 65536)
            except OSError:  # nobody has the other end any more
                return False
            self.raw += data
            self._stream.feed(data)
        return True

    def until(self, shown: t.Callable[[str], bool], seconds: float = SHOWN_S) -> str:
        """Return the screen's text once that is so."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.read()
            if shown(text := self.text()):
                return text
        raise AssertionError(f"not shown within {seconds:.0f} s:\n{self.text()}\n{self.raw[-2000:]!r}")

    def text(self) -> str:
        """Return what the screen shows."""
        return "\n".join(line.rstrip() for line in self.screen.display)

    def colours(self, line: str) -> set[str]:
        """Return the colours of the letters in the first line that has this text."""
        (row, *_others) = [number for number, each in enumerate(self.screen.display) if line in each]
        return {cell.fg for cell in self.screen.buffer[row].values() if cell.data != " "}

    def kill(self, number: signal.Signals) -> None:
        """Send the program itself a signal."""
        os.kill(self.pid, number)

    def end(self, seconds: float = SHOWN_S) -> int:
        """Wait for the program's end; return its exit status, negative for a signal."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.read()
            if (status := self._program.poll()) is not None:
                while self.read(1.0) and select.select([self._outside], [], [], 0)[0]:
                    pass
                return status
        self.kill(signal.SIGKILL)
        raise AssertionError(f"not ended within {seconds:.0f} s:\n{self.text()}")

    @property
    def restored(self) -> bool:
        """Whether the terminal is as it was: its modes, the main screen, the cursor."""
        raw = self.raw
        pairs = ((b"\x1b[?1049h", b"\x1b[?1049l"), (b"\x1b[?25l", b"\x1b[?25h"))
        return termios.tcgetattr(self._outside) == self.modes and all(
            raw.rfind(on) < raw.rfind(off) for on, off in pairs
        )

    def close(self) -> None:
        """Close the window, if it is open: its programs are hung up."""
        if self._outside >= 0:
            os.close(self._outside)
            self._outside = -1
