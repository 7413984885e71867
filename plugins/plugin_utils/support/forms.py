# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Spellings of a known text in a log, a report or a manifest: quoted, escaped, in hexadecimal, or in base64."""

from __future__ import annotations

import base64
import html
import json
import shlex
import urllib.parse

LEAST = 4  # characters: redacting a shorter text would remove half of every log


def spellings(text: str) -> list[str]:
    """Return the text's spellings in URLs, JSON (also JSON in JSON), YAML, HTML, a shell, Python, and hexadecimal."""
    escaped = [json.dumps(text, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)]
    again = [json.dumps(each)[1:-1] for each in escaped]
    quoted = [urllib.parse.quote(text, safe=""), urllib.parse.quote(text), urllib.parse.quote_plus(text)]
    digits = text.encode().hex()
    found = [text, *escaped, *again, *quoted, *(each.lower() for each in quoted), html.escape(text)]
    found += [shlex.quote(text).strip("'"), text.replace("'", "''"), repr(text)[1:-1], digits, digits.upper()]
    return sorted({each for each in found if len(each) >= LEAST}, key=lambda each: (-len(each), each))


def base64_cores(text: str) -> list[str]:
    """Return the text's base64 forms at any offset, without the characters that also depend on its neighbours."""
    data = text.encode()
    found = set()
    for before in range(3):
        coded = base64.b64encode(bytes(before) + data).decode().rstrip("=")
        first = -(-before * 8 // 6)
        last = (before + len(data)) * 8 // 6
        core = coded[first:last]
        if len(core) >= LEAST:
            found |= {core, core.replace("+", "-").replace("/", "_")}
    return sorted(found, key=lambda each: (-len(each), each))
