# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read log files line by line: never a whole file in memory, and never more than a piece of an endless line."""

from __future__ import annotations

import glob
import io
import pathlib
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import unpacked
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError

LONGEST = 64 * 1024  # bytes; a longer line is read in pieces


def expand(patterns: t.Sequence[str]) -> list[str]:
    """Return the files of paths and globs, each once; CollectionError names an entry without files."""
    found: dict[str, str] = {}
    for pattern in patterns:
        magic = glob.has_magic(pattern)
        names = sorted(glob.iglob(pattern, recursive=True)) if magic else [pattern]  # noqa: PTH207
        files = [name for name in names if pathlib.Path(name).is_file()]
        if not files:
            raise CollectionError(f"{pattern}: there is no such file on this host. Correct the path.")
        for name in files:
            found.setdefault(str(pathlib.Path(name).resolve()), name)
    return list(found.values())


def read_lines(name: str) -> t.Iterator[str]:
    """Yield a log's lines, with invalid UTF-8 replaced. CollectionError if it is empty, binary or not readable."""
    try:
        with pathlib.Path(name).open("rb") as raw, unpacked(raw, name) as file:
            start = file.read(8192)
            if not start.strip():
                raise CollectionError(
                    f"{name}: the file is empty. Give the log of a rank that ran with NCCL_DEBUG=INFO."
                )
            if b"\0" in start:
                raise CollectionError(f"{name}: this is not text but a binary file. Give NCCL's log as text (UTF-8).")
            begun = io.BytesIO(start)
            for source in (begun, file):
                while piece := source.readline(LONGEST):
                    if source is begun and begun.tell() == len(start):
                        piece += file.readline(LONGEST - len(piece)) if not piece.endswith(b"\n") else b""
                    yield piece.decode("utf-8", "replace")
    except (OSError, EOFError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
        raise CollectionError(f"{name}: cannot be read: {reason}. Check the file and its permissions.") from exc


def text_lines(text: str) -> t.Iterator[str]:
    """Yield a text's lines like those of a file, one at a time: a log given as text is not held in memory twice."""
    start = 0
    while start < len(text):
        end = text.find("\n", start, start + LONGEST)
        end = min(start + LONGEST, len(text)) if end < 0 else end + 1
        yield text[start:end]
        start = end
