# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Known texts in a log, a report or a manifest, however they are spelled there.

Short ones in the spellings of `spellings`. Of longer ones only letters and digits count, in either case, so that quotes, separators
and line breaks do not matter; escapes are decoded first, in any order (`%5cx68`, `&amp;#104;`); and they are also recognised in
base64 and base32 at each offset, base85, hexadecimal, decimal, UTF-16, quoted-printable, reversed, and two of these in each other.
"""

from __future__ import annotations

import base64
import codecs
import html
import json
import quopri
import re
import shlex
import string
import typing as t
import unicodedata
import urllib.parse

LEAST = 4  # characters: redacting a shorter text would remove half of every log
_HEAD = 8  # letters and digits of the least text that is looked for in other forms than its spellings
_ROUNDS = 3  # escapes in escapes
_LONGEST = 400  # characters of a text whose other forms are looked for: a longer one is found by its beginning

_CODE = re.compile(
    rb"(?<!\\)\\{1,64}(?:x([0-9A-Fa-f]{2})|u\{?([0-9A-Fa-f]{2,6})\}?|([0-7]{3})|[nrtbfv])|%(?:u([0-9A-Fa-f]{4})|([0-9A-Fa-f]{2}))"
    rb"|&#(?:([0-9]{1,7})|[xX]([0-9A-Fa-f]{1,6}));?|&([A-Za-z]{2,8});"
)
_LOWER = bytes.maketrans(string.ascii_uppercase.encode(), string.ascii_lowercase.encode())
_DROPPED = bytes(set(range(128)) - set((string.ascii_letters + string.digits).encode()))
_RUN = frozenset(string.ascii_letters + string.digits + "+/=_-")


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
    found = set()
    for core in _cores(text.encode(), base64.b64encode, 3, 6, 8):
        if len(core) >= LEAST:
            found |= {core.decode(), core.decode().replace("+", "-").replace("/", "_")}
    return sorted(found, key=lambda each: (-len(each), each))


class Known:
    """Secrets that are known."""

    def __init__(self, secrets: t.Iterable[str]) -> None:
        self._forms: dict[bytes, bool] = {}  # letters and digits: whether the whole run around it is a secret, too
        for secret in secrets:
            for form, coded in _forms(secret[:_LONGEST]):
                # A short number is found as it is spelled: with spaces and dots, it would be any time of the day.
                if len(form) >= _HEAD and not (form.isdigit() and len(form) < 16):
                    self._forms.setdefault(form, coded)
        self._heads: dict[bytes, list[bytes]] = {}
        for form in self._forms:
            self._heads.setdefault(form[:_HEAD], []).append(form)

    def held(self, text: str) -> bool:
        """Whether one of them is in a text in some form."""
        return (
            bool(self._forms) and next(self._found(_kept(_decoded(text.encode("utf-8", "replace")))), None) is not None
        )

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return where they are in a text, in order and apart."""
        if not self.held(text):
            return []
        # The same as in held(), with the place that each byte comes from.
        units = [(byte, at, at + 1) for at, char in enumerate(text) for byte in char.encode("utf-8", "replace")]
        for _round in range(_ROUNDS):
            view = bytes(byte for byte, _start, _end in units)
            made: list[tuple[int, int, int]] = []
            done = 0
            for found in _CODE.finditer(view):
                first, past = found.span()
                whole = units[first][1], units[past - 1][2]
                made += units[done:first] + [(byte, *whole) for byte in _byte(found)]
                done = past
            units = made + units[done:]
        kept = [unit for unit in units if _kept(bytes((unit[0],)))]
        spans = []
        for first, past, coded in self._found(_kept(bytes(byte for byte, _start, _end in kept))):
            start, end = kept[first][1], kept[past - 1][2]
            while coded and start > 0 and text[start - 1] in _RUN:
                start -= 1
            while coded and end < len(text) and text[end] in _RUN:
                end += 1
            spans.append((start, end))
        return _apart(spans)

    def _found(self, view: bytes) -> t.Iterator[tuple[int, int, bool]]:
        heads = self._heads
        # In a long text, to look for each beginning takes less time than to look at each place.
        if 2 * len(heads) < len(view) and not any(head in view for head in heads):
            return
        for at in range(len(view) - _HEAD + 1):
            forms = heads.get(view[at : at + _HEAD])
            for form in forms or ():
                if view.startswith(form, at):
                    yield at, at + len(form), self._forms[form]


def _apart(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def _kept(view: bytes) -> bytes:
    return view.translate(_LOWER, _DROPPED)


def _decoded(view: bytes) -> bytes:
    for _round in range(_ROUNDS):
        before, view = view, _CODE.sub(_byte, view)
        if view == before:
            break
    return view


def _byte(found: re.Match[bytes]) -> bytes:
    two, code, octal, percent_u, percent, number, digits, name = found.groups()
    if name:
        char = html.unescape(f"&{name.decode()};")
        return found[0] if char.startswith("&") and len(char) > 1 else char.encode()
    if two or percent or octal:
        return bytes((int(octal, 8) & 255 if octal else int(two or percent, 16),))
    if code or percent_u or digits or number:
        point = int(number) if number else int(code or percent_u or digits, 16)
        return chr(point).encode("utf-8", "replace") if 0 < point < 0x110000 else found[0]
    return b" "  # \n, \t


def _cores(data: bytes, encode: t.Callable[[bytes], bytes], group: int, bits: int, unit: int = 8) -> t.Iterator[bytes]:
    """Yield data as encoded at each offset in groups of bytes, only characters of `bits` bits that depend on nothing else."""
    for before in range(group):
        coded = encode(bytes(before) + data).rstrip(b"=")
        yield coded[-(-before * unit // bits) : (before + len(data)) * unit // bits]


def _base85(data: bytes, encode: t.Callable[[bytes], bytes]) -> t.Iterator[bytes]:
    for before in range(4):
        whole = data[-before % 4 :]
        yield encode(whole[: len(whole) // 4 * 4])


def _in_ascii(data: bytes) -> t.Iterator[bytes]:
    """Yield bytes as text of letters and digits."""
    yield from _cores(data, base64.b64encode, 3, 6)
    yield from _cores(data, base64.b32encode, 5, 5)
    yield data.hex().encode()


def _forms(text: str) -> t.Iterator[tuple[bytes, bool]]:
    """Yield what is kept of a text in each form, and whether what surrounds it is part of the form."""
    data = text.encode("utf-8", "replace")
    wide = [text.encode(name, "replace") for name in ("utf-16-le", "utf-16-be")]
    other = {unicodedata.normalize("NFD", text).encode("utf-8", "replace"), data.decode("latin-1").encode()}
    turned = [text[::-1].encode("utf-8", "replace"), codecs.encode(text, "rot13").encode("utf-8", "replace")]
    other |= {text.upper().encode("utf-8", "replace"), text.encode("latin-1", "replace")}
    for plain in (data, _decoded(data), *sorted(other), *turned):
        yield _kept(plain), False
    yield _kept(quopri.encodestring(data).replace(b"=\n", b"")), False
    yield "".join(f"0x{byte:02x}" for byte in data).encode(), False
    yield "".join(f"u{ord(char):04x}" for char in text).encode(), False
    yield "".join(map(str, data)).encode(), False
    for plain in (data, *wide, *turned):
        for coded in _in_ascii(plain):
            yield _kept(coded), True
            if plain is data:
                for again in _in_ascii(coded):
                    yield _kept(again), True
    for encode in (base64.a85encode, base64.b85encode):
        for coded in _base85(data, encode):
            yield _kept(coded), True
