# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find secrets by the name above them: the column of a table whose head has a name of secret_names, or the value beside one.

Tables are rows of as many fields as their head, separated by commas, semicolons, tabs or bars, or by blanks under a head in capitals as
kubectl writes it; lines may be escaped, as in JSON. Time is linear in the text: each line belongs to one table at most.
"""

from __future__ import annotations

import bisect
import re
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils import secret_names

STARS = "***"
_CORE = re.compile(r"(?i)pass|secret|token|key|cred|auth|psk|pwd|cookie|value")
_END = re.compile(r"\r?\n|(?:\\{1,8}r)?\\{1,8}n")
_SEPARATORS = "\t|;,"
_LONGEST, _MOST = 4096, 64  # characters of a head, its fields
_NAME = re.compile(r"[A-Za-z_#][\w.-]{0,60}(?: [\w.()/-]{1,30}){0,3}")
_LAST = re.compile(r"[\w.-]{1,60}\Z")  # the first name may follow other text in its line
_HEAD = re.compile(r"[A-Z][A-Z0-9_()/-]{0,60}(?: [A-Z0-9_()/-]{1,30}){0,2}(?:[ \t]{2,200}|\Z)")
_CELL = re.compile(r"\S{1,4096}(?: \S{1,4096}){0,20}")
_RULE = re.compile(r"[\s|:+-]{3,}")
_AROUND = " \t\"'`*\\"
_QUOTED = re.compile(r"[ \t]{0,20}\"(?:[^\"]|\"\"){0,4096}\"[ \t]{0,20}")
_NAMES, _VALUES = frozenset(["name", "key", "variable", "setting", "option"]), frozenset(["value", "values"])
_NOTHING = frozenset(["", "-", "null", "none", "nil", "<none>", "<unset>", "true", "false", "yes", "no", "n/a", STARS])


@dataclass(frozen=True)
class _Table:
    """A head: what separates fields ("" for blanks, then the fields begin at `starts`), how many, which are secret, and a pair."""

    separator: str
    count: int
    secret: t.Mapping[int, str]
    pair: tuple[int, int] | None = None
    starts: tuple[int, ...] = ()


def mask(text: str) -> str:
    """Replace with asterisks what is below a secret name in a table, or beside one if its columns are name and value."""
    if not _CORE.search(text):
        return text
    starts, ends = [0], list[int]()
    for found in _END.finditer(text):
        ends.append(found.start())
        starts.append(found.end())
    ends.append(len(text))
    made, done, line = list[str](), 0, -1
    for core in _CORE.finditer(text):
        at = bisect.bisect_right(starts, core.start()) - 1
        if at <= line:
            continue
        line = at
        table = _table(text[starts[at] : ends[at]]) if ends[at] - starts[at] <= _LONGEST else None
        while table and line + 1 < len(starts):
            begin, past = starts[line + 1], ends[line + 1]
            if _RULE.fullmatch(text, begin, past):
                line += 1
                continue
            cells, past = _row(text, begin, past, table)
            hidden = _hidden(text, cells, table)
            if hidden is None:
                break
            for first, last in hidden:
                made += [text[done:first], STARS]
                done = last
            line = bisect.bisect_right(starts, past) - 1
    return "".join([*made, text[done:]]) if made else text


def _table(line: str) -> _Table | None:
    for separator in _SEPARATORS:
        if separator in line:
            return _separated(line, separator)
    names, starts, at = list[str](), list[int](), len(line) - len(line.lstrip())
    while at < len(line):
        found = _HEAD.match(line, at)
        if found is None or len(names) == _MOST:
            return None
        names.append(found[0].strip())
        starts.append(at)
        at = found.end()
    return _of("", names, tuple(starts)) if len(names) > 1 else None


def _separated(line: str, separator: str) -> _Table | None:
    fields = line.split(separator)
    if len(fields) > _MOST:
        return None
    names = [field.strip(_AROUND) for field in fields]
    last = _LAST.search(names[0])
    names[0] = last[0] if last else names[0]
    outer = separator == "|"  # a bar may be at both ends
    inner = names[1 if outer and not names[0] else 0 : -1 if outer and not names[-1] else None]
    return _of(separator, names) if inner and all(map(_NAME.fullmatch, inner)) else None


def _of(separator: str, names: t.Sequence[str], starts: tuple[int, ...] = ()) -> _Table | None:
    secret = {at: kind for at, name in enumerate(names) if (kind := secret_names.kind(name.replace(" ", "_")))}
    lower = [name.lower() for name in names]
    name = next((at for at, each in enumerate(lower) if each in _NAMES), None)
    value = next((at for at, each in enumerate(lower) if each in _VALUES), None)
    pair = None if name is None or value is None else (name, value)
    return _Table(separator, len(names), secret, pair, starts) if secret or pair else None


def _row(text: str, begin: int, past: int, table: _Table) -> tuple[list[tuple[int, int]], int]:
    """Return where the fields of the row are that begins at a place, and where it ends: a quoted field may have several lines."""
    if not table.separator:
        following = [*table.starts[1:], 1 << 30]
        return [
            (found.start(), found.end())
            for start, after in zip(table.starts, following, strict=True)
            if (found := _CELL.search(text, begin + start, min(past, begin + after)))
        ], past
    cells, at = list[tuple[int, int]](), begin
    while len(cells) <= _MOST:
        quoted = _QUOTED.match(text, at)
        if quoted and text[quoted.end() : quoted.end() + 1] in (table.separator, "\n", "\r", ""):
            end = quoted.end()
            if end > past:
                ended = _END.search(text, end)
                past = ended.start() if ended else len(text)
        else:
            separator = text.find(table.separator, at, past)
            end = past if separator < 0 else separator
        cells.append((at, end))
        if end >= past:
            break
        at = end + 1
    return cells, past


def _hidden(text: str, cells: t.Sequence[tuple[int, int]], table: _Table) -> list[tuple[int, int]] | None:
    """Return the fields of a row that are secret; None if it is no row of this table."""
    if len(cells) != table.count or not any(text[begin:end].strip() for begin, end in cells):
        return None
    values = [text[begin:end].strip(_AROUND) for begin, end in cells]
    if any(secret_names.kind(values[at]) for at in table.secret):
        return None  # a list of names
    columns = dict(table.secret)
    if table.pair and (kind := secret_names.kind(values[table.pair[0]])):
        columns[table.pair[1]] = kind
    return [
        (cells[at][0] + text[slice(*cells[at])].index(values[at]), _last(text, cells[at], values[at]))
        for at, kind in sorted(columns.items())
        if values[at].lower() not in _NOTHING and (kind == secret_names.ALWAYS or _coded(values[at]))
    ]


def _last(text: str, cell: tuple[int, int], value: str) -> int:
    """Return where a value ends: before the brackets that close what the table is written in."""
    begin = cell[0] + text[slice(*cell)].index(value)
    end = begin + len(value)
    while end > begin + 1 and text[end - 1] in "]}\"'":
        end -= 1
    return end


def _coded(value: str) -> bool:
    return len(value) >= 8 and " " not in value and any(map(str.isalpha, value)) and not value.islower()
