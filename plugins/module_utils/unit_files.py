# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A set of files with systemd units among them: installed on a node, kept as planned, and removed again as a whole.

A record on the node lists our files, so that those of an earlier plan are removed, and no others.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import re
import typing as t
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils import node_files
from ansible_collections.dgxspark.cluster.plugins.module_utils.commands import Run
from ansible_collections.dgxspark.cluster.plugins.module_utils.node_files import NodeFile, Undo
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import Change, CollectionError

# The arguments of a module that installs such a set.
ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "files": {"type": "list", "elements": "dict", "default": []},
    "enable": {"type": "list", "elements": "str", "default": []},
    "restart": {"type": "list", "elements": "str", "default": []},
}


@dataclass(frozen=True, slots=True)
class UnitSpec:
    """The wanted set. adjust: OOM score by unit, set on its running main process as well."""

    files: tuple[NodeFile, ...] = ()
    enable: tuple[str, ...] = ()
    restart: tuple[str, ...] = ()
    adjust: dict[str, int] = field(default_factory=dict)


def wanted(given: t.Mapping[str, t.Any], adjust: t.Mapping[str, t.Any] | None = None) -> UnitSpec:
    """Return the wanted set from a module's ARGUMENTS. adjust: as in UnitSpec, if the module has it."""
    files = tuple(NodeFile(file["path"], file["content"], int(file["mode"], 8)) for file in given["files"])
    scores = {str(unit): int(score) for unit, score in (adjust or {}).items()}
    return UnitSpec(files, tuple(given["enable"]), tuple(given["restart"]), scores)


class UnitFiles:
    """The set of one role on a node. record: the path of its record. proc: the root of procfs, for tests."""

    def __init__(self, run: Run, record: str, proc: str = "/proc") -> None:
        self.run, self.record, self.proc = run, record, proc
        self.ours: dict[str, t.Any] = node_files.recorded(record) or {}

    def settle(
        self,
        wanted: UnitSpec | None,
        check: bool,
        note: t.Mapping[str, t.Any] | None = None,
        keep_running: t.Collection[str] = (),
    ) -> list[Change]:
        """Bring the node to the wanted state, and return what differed.

        wanted: None removes everything; see `remove` for keep_running. check: change nothing. note: further content of the record; if
        only that differs, the record is rewritten without a reported change.
        """
        changes = self.removal() if wanted is None else self.changes(wanted)
        if check:
            return changes
        if wanted is None and self.ours:
            self.remove(keep_running)
        elif wanted is not None:
            noted = {key: value for key, value in (note or {}).items() if value or self.ours.get(key)}
            if changes or any(self.ours.get(key) != value for key, value in noted.items()):
                self.apply(wanted, changes, **(note or {}))
        return changes

    def changes(self, wanted: UnitSpec) -> list[Change]:
        """Return the differences."""
        found = [change for file in wanted.files if (change := node_files.difference(file))]
        keep = {file.path for file in wanted.files}
        found += [Change(path, "file", "there", None) for path in self._old(keep)]
        states = self._show((*wanted.enable, *self.ours.get("enable", ())))
        for unit in wanted.enable:
            enabled, active = states[unit]
            # A unit that is not installed is not our concern: `missing` tells the caller.
            if enabled in ("disabled", "indirect"):
                found.append(Change(unit, "unit", enabled, "enabled"))
            if enabled != "" and active not in ("active", "activating"):
                found.append(Change(unit, "state", active, "active"))
        found += [
            Change(unit, "unit", states[unit][0], None)
            for unit in self.ours.get("enable", ())
            if unit not in wanted.enable and states[unit][0] == "enabled"
        ]
        for unit, score in wanted.adjust.items():
            seen = self._score(unit)
            if seen is not None and seen != score:
                found.append(Change(unit, "OOM score", seen, score))
        return found

    def apply(self, wanted: UnitSpec, found: t.Sequence[Change], **note: t.Any) -> None:
        """Apply the changes; of the files all or none."""
        undo = Undo(f"{self.record}.before")
        keep = {file.path for file in wanted.files}
        try:
            for file in wanted.files:
                undo.keep(file.path)
                if node_files.difference(file):
                    node_files.write(file.path, file.content.encode(), file.mode)
            record = {"files": sorted(keep), "enable": list(wanted.enable), **note}
            node_files.write(self.record, (json.dumps(record, indent=1, sort_keys=True) + "\n").encode(), 0o644)
        except CollectionError:
            undo.restore()
            raise
        undo.forget()
        gone = [unit for unit in self.ours.get("enable", ()) if unit not in wanted.enable]
        for path in self._old(keep):
            _remove(path)
        self._systemctl("daemon-reload")
        for unit in gone:
            self.run(["systemctl", "disable", "--now", unit])
        files = any(change.what in ("file", "mode") for change in found)
        for unit in wanted.enable:
            if self._show([unit])[unit][0] != "":
                self._systemctl("enable", unit)
                self._systemctl("restart" if files and unit in wanted.restart else "start", unit)
        for unit, score in wanted.adjust.items():
            pid = self._main_pid(unit)
            if pid and self._score(unit) != score:
                pathlib.Path(self.proc, pid, "oom_score_adj").write_text(f"{score}\n", encoding="ascii")

    def removal(self) -> list[Change]:
        """Return what removal would delete."""
        return [Change(path, "file", "there", None) for path in self._old(set())]

    def remove(self, keep_running: t.Collection[str] = ()) -> None:
        """Remove everything. keep_running: units of a package that stays, which continue with the package's settings."""
        for unit in self.ours.get("enable", ()):
            if unit not in keep_running:
                self.run(["systemctl", "disable", "--now", unit])
        for path in self._old(set()):
            _remove(path)
        self._systemctl("daemon-reload")
        for unit in keep_running:
            self.run(["systemctl", "try-restart", unit])
        node_files.remove(self.record)
        with contextlib.suppress(OSError):
            pathlib.Path(self.record).parent.rmdir()

    def installed(self, program: str) -> bool:
        """Whether a program exists."""
        return pathlib.Path(program).is_file()

    def _old(self, keep: t.Collection[str]) -> list[str]:
        listed = self.ours.get("files", ())
        return [path for path in listed if path not in keep and pathlib.Path(path).exists()]

    def _show(self, units: t.Sequence[str]) -> dict[str, tuple[str, str]]:
        """Return UnitFileState ("" for a missing unit) and ActiveState of units, with one command."""
        names = list(dict.fromkeys(units))
        if not names:
            return {}
        _rc, out, _err = self.run(["systemctl", "show", "--property=UnitFileState,ActiveState", "--", *names])
        blocks = [dict(re.findall(r"^(\w+)=(.*)$", block, re.MULTILINE)) for block in out.strip("\n").split("\n\n")]
        blocks += [{}] * (len(names) - len(blocks))
        return {
            name: (block.get("UnitFileState", ""), block.get("ActiveState", "unknown"))
            for name, block in zip(names, blocks, strict=False)
        }

    def _main_pid(self, unit: str) -> str | None:
        _rc, out, _err = self.run(["systemctl", "show", "--property=MainPID", "--value", "--", unit])
        return out.strip() if out.strip() not in ("", "0") else None

    def _score(self, unit: str) -> int | None:
        pid = self._main_pid(unit)
        try:
            return int(pathlib.Path(self.proc, pid, "oom_score_adj").read_text(encoding="ascii")) if pid else None
        except (OSError, ValueError):
            return None

    def _systemctl(self, *words: str) -> None:
        rc, out, err = self.run(["systemctl", *words])
        if rc:
            raise CollectionError(f"systemctl {' '.join(words)} failed: {(err or out).strip()} See systemctl status.")


def _remove(path: str) -> None:
    node_files.remove(path)
    folder, *above = pathlib.Path(path).parents
    with contextlib.suppress(OSError):  # the folder of a drop-in, and the collection's own, if they are empty
        for each in (folder, *(each for each in above if each.name == "dgxspark")):
            each.rmdir()
