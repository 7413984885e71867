# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the document by which a node's fabric functions are restored (see restore.py), whole or not at all.

It is in the program on the node, too: standard library only.
"""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import typing as t

    Document = t.Mapping[str, t.Any]

MOST = 2**20  # characters; the document of a full node has 20,000
# Of an entry's values; the others are text.
KINDS = {
    "vf_count": int,
    "mtu": int,
    "index": int,
    "up": bool,
    "trust": bool,
    "spoof_check": bool,
    "arp": dict,
    "vfs": list,
}


def document_of(text: str) -> Document:
    """Return the document in a text. Raises ValueError that says what is damaged: by half a document nothing is changed."""
    if len(text) > MOST:
        raise ValueError(f"it has more than {MOST} characters")
    try:
        found = json.loads(text)
    except RecursionError as exc:
        raise ValueError("it is nested too deeply") from exc
    if not isinstance(found, dict) or found.get("version") != 1 or not isinstance(found.get("functions"), list):
        raise ValueError('it is not {"version": 1, "functions": [...]}')
    for function in found["functions"]:
        _check(function, ("slot", "pci"), "functions")
        for vf in function.get("vfs") or ():
            _check(vf, ("index",), f"{function['slot']} vfs")
    return found


def _check(entry: t.Any, needed: t.Iterable[str], where: str) -> None:
    if not isinstance(entry, dict) or any(entry.get(key) is None for key in needed):
        raise ValueError(f"{where}: {str(entry)[:40]!r} has no {' or no '.join(needed)}")
    held = [(key, KINDS.get(key, str), value) for key, value in entry.items()]
    arp = entry.get("arp")
    held += [(key, int, value) for key, value in arp.items()] if isinstance(arp, dict) else []
    for key, kind, value in held:
        bad = (isinstance(value, int) and not 0 <= value < 2**31) or (
            isinstance(value, str) and not value.isprintable()
        )
        if isinstance(value, bool) is not (kind is bool) or not isinstance(value, kind):
            bad = value is not None
        if value is not None and (bad or "/" in key or "/" in str(value)):
            raise ValueError(f"{where}: {key[:40]!r} is damaged")
