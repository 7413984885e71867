# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Draws the pages of `top` on a terminal, with rich, until it is quit: a program of its own.

A task of Ansible runs in a process without a terminal, and ends before the next reading. This process has the terminal, from the first
page to the last: it follows the window's size, reads the keys, and gives the terminal back however the playbook ends. It is started and
told what to show by `plugin_utils/live.py`: `top_screen.py FOLDER PID` with FOLDER's `page.json`, until FOLDER has `end` or the process
PID is gone. Of this collection it imports nothing, since it is started by its path.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import select
import shutil
import signal
import sys
import termios
import typing as t

try:
    from rich.console import Console, ConsoleDimensions, ConsoleOptions, Group, RenderResult
    from rich.live import Live
    from rich.segment import Segment
    from rich.table import Table
    from rich.text import Text
except ImportError:  # optional: `live.py` says so before it starts this
    Console = ConsoleDimensions = ConsoleOptions = Group = RenderResult = Live = Segment = Table = Text = None  # type: ignore[assignment,misc,unused-ignore]

PAGE, END = "page.json", "end"
STYLES = {"": "", "warn": "yellow", "bad": "bold red"}
GAP = 2  # between columns
LEAST = 8  # characters of a text that is cut
LOOK_S = 0.25  # the size and the page are looked at as often
AGAIN_S = 1.0  # drawn again, since Ansible's own lines may have come between
_QUIT = b"qQ\x03\x04"  # also Ctrl-C and Ctrl-D, which are no signals meanwhile
_SIGNALS = (signal.SIGTERM, signal.SIGHUP)

Block = t.Mapping[str, t.Any]


def least(block: Block, column: int) -> int:
    """Return the characters that a column needs: a number is never cut, a heading is broken between its words."""
    longest = max(len(row[column][0]) for row in block["rows"])
    if column < block["texts"]:
        return min(longest, LEAST)
    return max(longest, *(len(word) for word in block["head"][column].split()))


def columns(block: Block, width: int) -> dict[int, int]:
    """Return the columns of a table that fit into so many characters, with the width that each may have.

    The least important are left out first; texts share what the numbers leave.
    """
    kept = {column: least(block, column) for column in range(len(block["head"]))}
    for column in block["first_out"]:
        if sum(kept.values()) + GAP * (len(kept) - 1) <= width:
            break
        del kept[column]
    spare = width - sum(kept.values()) - GAP * (len(kept) - 1)
    for column in sorted(kept, key=lambda each: each >= block["texts"]):  # texts first, then headings on one line
        cells = [row[column][0] for row in block["rows"]]
        more = max(map(len, [*cells, block["head"][column]])) - kept[column]
        more = max(0, min(spare, more)) if column < block["texts"] or more <= spare else 0
        kept[column] += more
        spare -= more
    return kept


def table(block: Block, kept: t.Mapping[int, int]) -> Table:
    """Return these columns as rich's table. No text is taken for markup."""
    made = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False)
    for column, width in kept.items():
        number = column >= block["texts"]
        made.add_column(
            Text(block["head"][column], style="bold"),
            justify="right" if number else "left",
            width=width,
            no_wrap=not number,
            overflow="ellipsis",
        )
    for row in block["rows"]:
        made.add_row(*(Text(row[column][0], style=STYLES[row[column][1]]) for column in kept))
    return made


class Sheet:
    """A page for a screen of any size: what does not fit is left out, and the last line says so."""

    def __init__(self, page: t.Sequence[Block]) -> None:
        self._page = page

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the segments of as many lines as there is room for."""
        width, height = options.max_width, options.height or console.height
        parts: list[t.Any] = []
        out = 0
        for block in self._page:
            if "head" in block:
                kept = columns(block, width - GAP)  # rich counts the gap after the last one, too
                out += len(block["head"]) - len(kept)
                parts.append(table(block, kept))
            else:
                parts += [
                    Text(text, style=STYLES[grade], no_wrap=True, overflow="ellipsis") for text, grade in block["lines"]
                ]
        lines = console.render_lines(Group(*parts), options.update(height=None), pad=False)
        room = max(1, height - 2)
        told = [f"{out} columns" if out > 1 else "1 column"] if out else []
        told += [f"{len(lines) - room} lines"] if len(lines) > room else []
        foot = "q ends" + (f"   {' and '.join(told)} more in a larger window" if told else "")
        for line in [*lines[:room], [], *console.render_lines(Text(foot, style="dim", no_wrap=True), pad=False)]:
            yield from line
            yield Segment.line()


def quits(keys: bytes) -> bool:
    """Return whether these keys end the view. An escape sequence (an arrow, the mouse) has letters, but does not."""
    return b"\x03" in keys or (not keys.startswith(b"\x1b") and any(key in _QUIT for key in keys))


def draw(folder: pathlib.Path, parent: int) -> None:
    """Draw until a key, the file END or the parent's end. Standard input and output are the terminal."""
    console = Console(force_terminal=True, highlight=False, markup=False, emoji=False)
    ends = [os.pidfd_open(parent)] if hasattr(os, "pidfd_open") else []
    size: ConsoleDimensions | None = None
    page, waited = "", 0.0
    with Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live:
        while not (folder / END).exists():
            with contextlib.suppress(OSError, ValueError):
                text = (folder / PAGE).read_text(encoding="utf-8")
                if (text, console.size) != (page, size) or waited >= AGAIN_S:
                    live.update(Sheet(json.loads(text)), refresh=True)
                    page, size, waited = text, console.size, 0.0
            ready, _out, _odd = select.select([0, *ends], [], [], LOOK_S)
            waited += LOOK_S
            if 0 in ready and (not (keys := os.read(0, 1024)) or quits(keys)):
                return
            if set(ready) & set(ends) or not _lives(parent):
                return


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def main(folder: str, parent: str) -> None:
    """Take the terminal, draw, give it back."""
    place = pathlib.Path(folder)
    for each in _SIGNALS:
        signal.signal(each, lambda *_told: sys.exit(0))
    before = termios.tcgetattr(0)
    keys = termios.tcgetattr(0)
    keys[3] &= ~(termios.ECHO | termios.ICANON | termios.ISIG | termios.IEXTEN)
    sound = False
    try:
        termios.tcsetattr(0, termios.TCSADRAIN, keys)
        draw(place, int(parent))
        sound = True
    except (OSError, SystemExit):  # the window was closed; a signal
        sound = True
    finally:
        with contextlib.suppress(OSError, termios.error):
            termios.tcsetattr(0, termios.TCSAFLUSH, before)
        if sound:
            shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
