# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Remove what container runtimes and collectors wrap around each line of a log, and rejoin lines that they cut.

CRI (containerd, CRI-O: `/var/log/pods`): time, stream and `P` or `F`; the pieces of a line above 16 KiB have P, the last one F.
Docker's json-file: only a line's last piece has the line end. Collectors write one JSON record per line, after a time or a name
or inside a list, with the text under a key of their own; journald writes text with colours as a list of byte values.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import from_json

LONGEST = 64 * 1024  # characters of a rejoined line; a longer one continues in pieces
DEEPEST = 6  # levels of nested records
MOST_AHEAD = 300  # characters of a time, a pod's name and the like before a record

_CRI = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]{8,20}(?:Z|[+-]\d\d:\d\d) (stdout|stderr) ([PF])(?::\S*)?(?: |$)")
_DOCKER = frozenset({"log", "stream", "time"})
_TEXTS = ("log", "message", "msg", "MESSAGE", "line", "text", "body", "event", "_source", "fields")


def unwrapped(raw_lines: t.Iterable[str]) -> t.Iterator[str]:
    """Yield a log's lines as the program wrote them."""
    waiting: dict[str, str] = {}  # stream -> the beginning of its current line
    for raw in raw_lines:
        framed = _CRI.match(raw) if raw.find(" std", 19, 40) >= 0 else None
        if framed is not None:
            text = raw[framed.end() :]
            yield from _records(_whole(waiting, framed[1], text, framed[2] == "F"))
        elif "{" in raw[:MOST_AHEAD]:
            yield from _records([raw], waiting)
        else:
            yield raw
    yield from (text for text in waiting.values() if text)


def _whole(waiting: dict[str, str], stream: str, text: str, ends: bool) -> list[str]:
    """Return the line that a piece completes, or the beginning of one that is too long to wait for."""
    before = waiting.pop(stream, "")
    text = before + (text if ends else text.rstrip("\r\n"))
    if ends or len(text) > LONGEST:
        return [text]
    waiting[stream] = text
    return []


def _records(texts: t.Iterable[str], waiting: dict[str, str] | None = None) -> t.Iterator[str]:
    """Yield the text of JSON records; other lines stay as they are."""
    for raw in texts:
        record = _record(raw)
        text = None if record is None else _text(record)
        if record is None or text is None:
            yield raw
        elif waiting is not None and _DOCKER <= record.keys() <= _DOCKER | {"attrs"}:
            for whole in _whole(waiting, str(record["stream"]), text, text.endswith("\n")):
                yield from whole.splitlines()
        else:
            yield from text.splitlines()


def _record(raw: str) -> dict[str, t.Any] | None:
    start, end = raw.find("{", 0, MOST_AHEAD), raw.rstrip(",] \t\r\n")
    if start < 0 or not end.endswith("}"):
        return None
    try:
        record = from_json(end[start:])
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _text(record: dict[str, t.Any], depth: int = 0) -> str | None:
    for name in _TEXTS:
        value = record.get(name)
        if isinstance(value, str):
            return value
        if isinstance(value, list) and value and all(isinstance(byte, int) and 0 <= byte < 256 for byte in value):
            return bytes(value).decode("utf-8", "replace")
        if isinstance(value, dict) and depth < DEEPEST and (inner := _text(value, depth + 1)) is not None:
            return inner
    return None if depth else "\n".join(_said(record)) or None


def _said(value: t.Any, depth: int = 0) -> t.Iterator[str]:
    """Yield NCCL's text from anywhere in a record with unknown keys."""
    if isinstance(value, str):
        yield from [value] if "NCCL " in value else []
    elif isinstance(value, (dict, list)) and depth <= 2 * DEEPEST:
        for each in value.values() if isinstance(value, dict) else value:
            yield from _said(each, depth + 1)
