# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Derives each module's format and the checkpoint's size from tensor names.

The names come from `model.safetensors.index.json`, or from the safetensors files' headers, which add types and lengths.
"""

from __future__ import annotations

import collections
import re
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge

PLAIN = "bf16"
_OTHER_EXPERT = re.compile(r"\.experts\.[1-9]\d*\.")  # experts are stored alike: the first stands for all


def entries(overlays: t.Sequence[str] = ()) -> t.Collection[knowledge.Entry]:
    """Return how each method of quantization is named and stored. Treat the entries as read-only."""
    return knowledge.shared("quantization", tuple(overlays)).values()


def indexed(index: t.Mapping[str, t.Any], where: str) -> tuple[list[str], int | None]:
    """Return the tensors' names and the size in bytes from an index. Raises CollectionError if it is not an index."""
    names, metadata = index.get("weight_map"), index.get("metadata")
    if not isinstance(names, t.Mapping):
        raise CollectionError(
            f"{where}: weight_map: a dictionary keyed by tensor is needed. Give the file of the whole checkpoint."
        )
    size = metadata.get("total_size") if isinstance(metadata, t.Mapping) else None
    return [str(name) for name in names], int(size) if isinstance(size, (int, float)) and size > 0 else None


def of_headers(headers: t.Iterable[t.Mapping[str, t.Any]], where: str) -> tuple[list[str], int | None]:
    """Return the tensors' names and the size in bytes from the headers of all safetensors files."""
    names, size = [], 0
    for header in headers:
        for name, tensor in header.items():
            if name == "__metadata__":
                continue
            try:
                begin, end = tensor["data_offsets"]
                size += int(end) - int(begin)
            except (TypeError, KeyError, ValueError) as exc:
                raise CollectionError(
                    f"{where}: {name}: data_offsets is missing: it is not a safetensors header."
                ) from exc
            names.append(str(name))
    return names, size or None


def _any(forms: t.Sequence[str]) -> re.Pattern[str]:
    return re.compile("|".join(forms) if forms else "(?!)")


def formats(names: t.Iterable[str], overlays: t.Sequence[str] = ()) -> dict[str, str]:
    """Return the format of each module by its tensors; only the first expert is included."""
    parts: dict[str, set[str]] = collections.defaultdict(set)
    for name in names:
        if not _OTHER_EXPERT.search(name):
            module, _dot, part = name.rpartition(".")
            parts[module].add(part)
    marks = [
        (str(entry["id"]), _any(entry["stored"]["any"]), _any(entry["stored"].get("without", [])))
        for entry in entries(overlays)
        if "stored" in entry
    ]
    found = {}
    for module, last in parts.items():
        fit = (
            form
            for form, having, without in marks
            if any(map(having.fullmatch, last)) and not any(map(without.fullmatch, last))
        )
        found[module] = next(fit, PLAIN)
    return found
