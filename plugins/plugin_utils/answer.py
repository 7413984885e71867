# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run says on the terminal: steps that take long, changes, and each error once. The answer itself is printed by `show`."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils import values
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import node_python, unreached

LONG = 5.0  # seconds from which a step's time is said
_FRAME = re.compile(
    r"^(?:Task failed: |Action failed: |Module failed: |dgxspark\.cluster\.\w+: |Finalization of task args for '[^']*' failed: "
    r"|Error while resolving value for '[^']*': |A '\w+' expression failed: |The (?:filter|lookup) plugin '[^']*' failed: )+"
)
# An exception that was raised for another one is followed by that one, and so is what the system said of it.
_CAUSES = re.compile(r"(?s)^(.{10,}?): (?=\1)")
_SYSTEM = re.compile(r": \[Errno \d+\] [^\n]*$")
_ROLE = re.compile(r"^[\w.]+ : ")
_OUTPUT = 10  # lines of a failed command's output

Plain = t.Mapping[str, t.Any]


def seconds(value: float) -> str:
    """Format a duration: 42 s, 3 min 20 s."""
    whole = round(value)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60} s"


def _natural(name: str) -> list[tuple[int, str]]:
    """Sort spark2 before spark10."""
    return [(int(part or 0), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)]


def _names(hosts: t.Iterable[str]) -> str:
    return ", ".join(sorted(set(hosts), key=_natural))


def reason(result: Plain) -> str:
    """Return why a task failed, without Ansible's frame around it."""
    if "censored" in result:
        return str(result["censored"])
    if told := node_python.fault(result):
        return values.lines(told)
    text = _FRAME.sub("", str(result.get("msg") or "").strip())
    while same := _CAUSES.match(text):
        text = _SYSTEM.sub("", text[same.end() :])
    output = str(result.get("stderr") or result.get("module_stderr") or result.get("stdout") or "").strip()
    if output and output not in text:
        text = "\n".join([text, *output.splitlines()[-_OUTPUT:]])
    return values.lines(text.strip()) or "it failed without a reason"


@dataclass
class Told:
    """What is known of the step that runs now. errors: hosts by reason; diffs, notes: by text; the rest: hosts.

    would: hosts that check mode leaves as they are; not_made: how many changes of the whole run these are.
    """

    step: str = ""
    began: float = 0.0
    changed: list[str] = field(default_factory=list)
    would: list[str] = field(default_factory=list)
    not_made: int = 0
    diffs: dict[str, list[str]] = field(default_factory=dict)
    notes: dict[str, list[str]] = field(default_factory=dict)
    errors: dict[str, list[str]] = field(default_factory=dict)
    gone: dict[str, list[str]] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)

    def start(self, step: str, now: float) -> list[str]:
        """Begin another step; return what there is to say about the last one."""
        said = self.flush(now)
        self.step, self.began = _ROLE.sub("", step), now
        return said

    def fail(self, host: str, result: Plain, item: str = "") -> None:
        """Note a failure."""
        why = reason(result)
        self.errors.setdefault(f"{item}: {why}" if item else why, []).append(host)

    def note(self, said: t.Any, host: str = "") -> None:
        """Note a sentence, or lines, that a step says, of a host if one is named."""
        lines = [said] if isinstance(said, str) else said
        if isinstance(lines, list) and lines and all(isinstance(line, str) for line in lines):
            self.notes.setdefault(values.lines("\n".join(lines).strip()), []).append(host)

    def differ(self, host: str, diff: str) -> None:
        """Note what a host's change is, as Ansible formats it: hosts that change alike share one text."""
        if diff:
            self.diffs.setdefault(diff, []).append(host)

    def lose(self, host: str, result: Plain) -> None:
        """Note a host that does not answer; each is said once in a run."""
        if host not in self.seen:
            self.seen.add(host)
            line, address = unreached.short(reason(result))
            host = f"{host} ({address})" if address not in ("", host) else host
            self.gone.setdefault(line, []).append(host)

    def flush(self, now: float) -> list[str]:
        """Return the lines about the step, and forget them."""
        lines = [f"not reached  {_names(hosts)}: {why}" for why, hosts in self.gone.items()]
        known = [found for why in self.gone if (found := unreached.why(why)) != unreached.UNKNOWN]
        lines += [f"  {found.remedy}" for found in dict.fromkeys(known)]
        took = f" ({seconds(now - self.began)})" if now - self.began >= LONG else ""
        for diff, hosts in self.diffs.items():
            lines += [f"{self.step}: {_names(hosts)}", diff]
        for text, hosts in self.notes.items():
            names = _names(filter(None, hosts))
            first, *more = text.splitlines() or [""]
            lines += [f"note     {names}{': ' if names else ''}{first}", *(f"         {line}" for line in more)]
        if self.changed:
            lines.append(f"changed  {self.step}: {_names(self.changed)}{took}")
        if self.would:
            lines.append(f"would    {self.step}: {_names(self.would)}{took}")
        if took and self.step and not (self.changed or self.would or self.errors):
            lines.append(f"done     {self.step}{took}")
        for why, hosts in self.errors.items():
            lines += [f"FAILED   {self.step}: {_names(hosts)}{took}"]
            lines += [f"  {line}" for line in why.splitlines()]
        self.not_made += len(self.would)
        self.changed, self.would, self.step = [], [], ""
        self.diffs, self.notes, self.errors, self.gone = {}, {}, {}, {}
        return lines


def ended(summary: t.Mapping[str, t.Mapping[str, int]], took: float, not_made: int = 0) -> str:
    """Return the run's last line. summary: Ansible's counts by host; not_made: how many of its changes check mode did not make."""
    failed = [host for host, counts in summary.items() if counts["failures"]]
    gone = [host for host, counts in summary.items() if counts["unreachable"]]
    changes = sum(counts["changed"] for counts in summary.values()) - not_made
    parts = [f"failed on {', '.join(failed)}"] if failed else []
    parts += [f"{', '.join(gone)} not reached"] if gone else []
    parts += [_changes(changes)] if changes or not not_made else []
    parts += [f"{_changes(not_made)} would be made"] if not_made else []
    return f"{'Failed' if failed or gone else 'Done'} in {seconds(took)}: {'; '.join(parts)}."


def _changes(count: int) -> str:
    return f"{count} change{'s' if count != 1 else ''}"
