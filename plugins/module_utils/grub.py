# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GRUB's menu, and the trial of a kernel: it boots once, and the kernel that ran before stays the default until it is proven.

So a restart, or power that is cut and given again, leads back from a kernel that does not come up.
"""

from __future__ import annotations

import pathlib
import re
import shlex
import typing as t
from dataclasses import dataclass, replace

from ansible_collections.dgxspark.cluster.plugins.module_utils import node_files
from ansible_collections.dgxspark.cluster.plugins.module_utils.commands import Run
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import Change, CollectionError

MENU = "/boot/grub/grub.cfg"
# The last that grub-mkconfig reads of its folder.
TRIAL = "/etc/default/grub.d/zz-dgxspark-update.cfg"
# Where GRUB itself can write, as it must to boot an entry once; on LVM, RAID or an encrypted disk it cannot.
_WRITABLE = ("ext2", "xfs", "fat")

_OPENS = re.compile(r"(menuentry|submenu)\s+('(?:[^']|'\\'')*'|\"[^\"]*\")")
_ID = re.compile(r"\$menuentry_id_option\s+('(?:[^']|'\\'')*'|\"[^\"]*\")")
_LINUX = re.compile(r"linux(?:16|efi)?\s+\S*/vmlinu[xz]-(\S+)(.*)")
_DEFAULT = re.compile(r"^\s*set default=(\"[^\"]*\"|'[^']*'|\S+)\s*$", re.MULTILINE)
_NOTE = re.compile(r"^# trial of (\S+) after (\S+), then (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a menu. path: numbers, titles or ids that lead to it, as GRUB's `default` has them. kernel: None of a submenu."""

    title: str
    ident: str
    place: tuple[int, ...]
    path: str
    kernel: str | None = None
    recovery: bool = False


@dataclass(frozen=True, slots=True)
class Trial:
    """A kernel on trial. before: the kernel that is the default meanwhile, by this entry. then: the default that the owner has set."""

    kernel: str
    before: str
    entry: str
    then: str

    def text(self) -> str:
        """Return the file that makes it so."""
        return (
            "# Written by the role dgxspark.cluster.spark_update, which removes it once the update is proven.\n"
            f"# trial of {self.kernel} after {self.before}, then {self.then}\n"
            f"GRUB_DEFAULT={shlex.quote(self.entry)}\n"
        )


def entries(text: str) -> list[Entry]:
    """Return the entries of a grub.cfg, in its order."""
    found: list[Entry] = []
    open_: list[int | None] = []  # by brace: the entry that it opens
    counts: dict[tuple[int, ...], int] = {}
    for line in map(str.strip, text.splitlines()):
        if opens := _OPENS.match(line):
            above = next((found[index] for index in reversed(open_) if index is not None), None)
            title, ident = _bare(opens[2]), _ID.search(line)
            name = _bare(ident[1]) if ident else title
            at = above.place if above else ()
            place = (*at, counts.get(at, 0))
            counts[at] = place[-1] + 1
            path = f"{above.path}>{_escaped(name)}" if above else _escaped(name)
            open_.append(len(found))
            found.append(Entry(title, name, place, path))
        elif line.endswith("{"):
            open_.append(None)
        elif line == "}" and open_:
            open_.pop()
        elif open_ and open_[-1] is not None and (linux := _LINUX.match(line)):
            single = re.search(r"\s(single|recovery)(\s|$)", linux[2]) is not None
            found[open_[-1]] = replace(found[open_[-1]], kernel=linux[1], recovery=single)
    return found


def default(text: str) -> str | None:
    """Return the default entry as grub.cfg has it; None if it is none of its own, but what was last chosen or saved."""
    values = [_bare(value) for value in _DEFAULT.findall(text)]
    values = [value for value in values if value != "${next_entry}"]
    return values[-1] if values and values[-1] and "$" not in values[-1] else None


def kernel_of(menu: t.Sequence[Entry], wanted: str) -> str | None:
    """Return the kernel of the entry that a `default` names; None if it names none."""
    here: tuple[int, ...] = ()
    for part in re.split(r"(?<!>)>(?!>)", wanted):
        name = part.replace(">>", ">")
        level = [entry for entry in menu if entry.place[:-1] == here]
        number = int(name) if re.fullmatch(r"\d{1,3}", name) else None
        match = [
            entry
            for entry in level
            if (entry.place[-1] == number if number is not None else name in (entry.ident, entry.title))
        ]
        if not match:
            return None
        here = match[0].place
    return next((entry.kernel for entry in menu if entry.place == here), None)


def entry_of(menu: t.Sequence[Entry], kernel: str) -> str | None:
    """Return the entry of a kernel: its own, below a submenu or not, before one that is only its as long as it is the newest."""
    own = [entry for entry in menu if entry.kernel == kernel and not entry.recovery]
    own.sort(key=lambda entry: (kernel not in entry.ident, entry.place))
    return own[0].path if own else None


def noted(text: str) -> tuple[str, str, str] | None:
    """Return kernel, kernel before and the owner's default of a trial's file; None if it is none."""
    found = _NOTE.search(text)
    return (found[1], found[2], found[3]) if found else None


def trial(text: str, running: str, kernel: str | None, owner: str | None) -> Trial | str | None:
    """Return the trial that the next boot is to be; a reason why there can be none; None if there is nothing to try.

    text: grub.cfg. running: the running kernel. kernel: what is to boot; None: what the owner's default leads to. owner: that
    default, where a trial hides it.
    """
    menu, then = entries(text), owner or default(text)
    if then is None:
        return "GRUB boots what was chosen last (GRUB_DEFAULT=saved), and is left to it"
    target = kernel or kernel_of(menu, then)
    if target is None:
        return f"GRUB's default, {then}, leads to no kernel of its menu"
    if target == running and kernel is None:
        return None
    entry = entry_of(menu, running)
    if entry is None:
        return f"GRUB's menu has no entry of the running kernel {running}"
    if kernel and kernel != running:
        once = entry_of(menu, kernel)
        if once is None:
            return f"GRUB's menu has no entry of the kernel {kernel}"
    return Trial(target, running, entry, then)


def _bare(word: str) -> str:
    return word[1:-1].replace("'\\''", "'") if word[:1] in "'\"" else word


def _escaped(name: str) -> str:
    return name.replace(">", ">>")


class Boot:
    """GRUB of a node. root: prefix of its paths, for tests."""

    def __init__(self, run: Run, root: str = "") -> None:
        self.run = run
        self.root = root

    def _read(self, path: str) -> str | None:
        there = node_files.read(self.root + path)
        return there[0].decode("utf-8", "replace") if there else None

    def present(
        self, running: str, kernel: str | None, *, check: bool
    ) -> tuple[list[Change], dict[str, t.Any], str | None]:
        """Make the next boot a trial; return what differed, the trial that is under way, and why there is none."""
        text, file = self._read(MENU), self._read(TRIAL)
        under_way = noted(file or "")
        if text is None:
            return [], {}, f"it has no {MENU}"
        wanted = trial(text, running, kernel, under_way[2] if under_way else None)
        if isinstance(wanted, str):
            return [], {}, wanted
        if wanted is None:
            # The kernel on trial runs: what is the default meanwhile stays.
            if under_way and under_way[0] == running:
                return [], {"kernel": under_way[0], "before": under_way[1], "entry": default(text)}, None
            return [], {}, None
        if reason := self._cannot():
            return [], {}, reason
        changes = [Change(TRIAL, "file", file, wanted.text())] if file != wanted.text() else []
        once, upcoming = entry_of(entries(text), kernel) if kernel else wanted.then, self._next()
        if wanted.kernel != running and upcoming != once:
            changes.append(Change("GRUB", "next boot", upcoming, wanted.kernel))
        told = {"kernel": wanted.kernel, "before": wanted.before, "entry": wanted.entry}
        if not check:
            if file != wanted.text():
                node_files.write(self.root + TRIAL, wanted.text().encode(), 0o644)
                self._menu()
            if default(self._read(MENU) or "") != wanted.entry:
                self._remove()
                return [], {}, f"update-grub does not read {TRIAL}"
            if wanted.kernel != running and upcoming != once:
                self._do("grub-reboot", str(once))
        return changes, told, None

    def absent(self, *, check: bool) -> list[Change]:
        """End the trial: the default is the owner's again. Return what differed."""
        file = self._read(TRIAL)
        if file is None:
            return []
        if not check:
            self._remove()
        return [Change(TRIAL, "file", file, None)]

    def _cannot(self) -> str | None:
        """Return why GRUB cannot boot an entry once."""
        seen = [
            self.run(["grub-probe", f"--target={target}", self.root + "/boot/grub"]) for target in ("fs", "abstraction")
        ]
        if any(rc for rc, _out, _err in seen):
            return "grub-probe does not tell what /boot is on"
        kind, beneath = (out.strip() for _rc, out, _err in seen)
        if kind in _WRITABLE and not beneath:
            return None
        return f"GRUB cannot write to /boot ({' '.join(filter(None, (kind, beneath)))})"

    def _next(self) -> str | None:
        """Return the entry that boots once."""
        _rc, out, _err = self.run(["grub-editenv", "-", "list"])
        return (
            next((line.partition("=")[2] for line in out.splitlines() if line.startswith("next_entry=")), None) or None
        )

    def _remove(self) -> None:
        (pathlib.Path(self.root + TRIAL)).unlink(missing_ok=True)
        self._menu()
        self._do("grub-editenv", "-", "unset", "next_entry")

    def _menu(self) -> None:
        self._do("update-grub")

    def _do(self, *argv: str) -> None:
        rc, _out, err = self.run(argv)
        if rc:
            raise CollectionError(
                f"{argv[0]} failed ({rc}): {err.strip()[-300:]}. Run it on the node, and mend what it says."
            )
