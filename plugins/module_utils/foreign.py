# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text from elsewhere: what nodes report, servers answer, and recipes, models' files, logs and journals say.

Each reader has a limit of size, depth and time. What is shown or written somewhere is made plain first: `line`, `facts`, and `values.lines`.
"""

from __future__ import annotations

import codecs
import gzip
import io
import json
import math
import pathlib
import re
import typing as t
import zlib

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, from_plain, shown

T = t.TypeVar("T")

MIB = 2**20  # bytes
LONGEST = 4096  # characters of one text in a node's facts
DEPTH = 64  # levels of lists and dictionaries in a document; no format that is read here has more than a dozen
MOST_FACTS = 500_000  # values in one host's facts: a thousand times a Spark's
DIGITS = 20  # of a whole number: no figure that is read here needs more than 64 bits
UNPACKED = 2**30  # bytes of a gzipped log, unpacked: in any case,
FREELY, RATIO = 8 * MIB, 150  # and beyond these, in proportion to the packed bytes: real logs have a ratio of 10 to 50
_GZIP = b"\x1f\x8b"
_UTF8_MARK, _UTF16_MARKS = b"\xef\xbb\xbf", (b"\xff\xfe", b"\xfe\xff")  # as programs of Windows begin a text
# Looked at only if there is any: nearly all texts are ASCII without control characters.
_ORDINARY = re.compile(r"[ -~]*")
_TEMPLATED = re.compile(r"\{[{%#]")


class Unreadable(CollectionError, ValueError):
    """A text from elsewhere that is malformed, or beyond a limit; the message says where, and which."""


# --- made plain -----------------------------------------------------------------------------------------------------


def line(text: t.Any, most: int = LONGEST) -> str:
    """Return a text as one printable line of at most `most` characters; what ends a line becomes a blank, what is hidden `?`."""
    text = str(text) if isinstance(text, str) else repr(text)
    short = text if len(text) <= most else f"{text[: most - 3]}..."
    return short if _ORDINARY.fullmatch(short) else "".join(map(shown, short))


def printable(text: str, most: int = 400) -> str:
    """Return the end of a program's text as one printable line for a terminal."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[-most:]


def templated(text: t.Any) -> bool:
    """Whether Ansible would evaluate this text in a file that it reads."""
    return isinstance(text, str) and _TEMPLATED.search(text) is not None


def facts(value: t.Any, where: str, text: t.Callable[[str], str] = line) -> t.Any:
    """Return what a node reported as plain values: dictionaries, lists, finite numbers, and texts of one printable line.

    text: how texts are made plain; `lines` where they may be logs. Raises Unreadable if it is nested too deeply, has too many
    values, or a number that no node has.
    """
    return _Facts(where, text).plain(value, DEPTH)


class _Facts:
    """One report, being made plain."""

    def __init__(self, where: str, text: t.Callable[[str], str]) -> None:
        self._where, self._text, self._left = where, text, MOST_FACTS

    def plain(self, value: t.Any, depth: int) -> t.Any:
        self._left -= 1
        if self._left < 0:
            raise self._wrong(f"it reports more than {MOST_FACTS} values")
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, float):
            return value if math.isfinite(value) else None  # not a number: unknown
        if isinstance(value, int):
            if abs(value) >= 10**DIGITS:
                raise self._wrong("it reports a number that no node has")
            return value
        if depth == 0:
            raise self._wrong(f"its report is nested more than {DEPTH} levels deep")
        if isinstance(value, t.Mapping):
            return {line(key): self.plain(item, depth - 1) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.plain(item, depth - 1) for item in value]
        return line(value)

    def _wrong(self, what: str) -> Unreadable:
        return Unreadable(f"{self._where}: {what}. Look at what runs on that node.")


def read_in(cls: type[T], value: t.Any, where: str) -> T:
    """Build a value class from what a node reported, made plain. CollectionError if it has another form."""
    return from_plain(cls, facts(value, where), where)


# --- read within limits ---------------------------------------------------------------------------------------------


def whole(text: str, where: str) -> int:
    """Return a whole number in ASCII digits; Unreadable for anything else, or beyond 64 bits."""
    if not re.fullmatch(r"[+-]?[0-9]{1,40}", text) or len(text.lstrip("+-0")) > DIGITS:
        raise Unreadable(f"{where}: {line(text, 60)!r} is not a whole number of at most {DIGITS} digits.")
    return int(text)


def from_json(
    text: str | bytes, where: str = "", *, most: int = 64 * MIB, depth: int = DEPTH, of_python: bool = False
) -> t.Any:
    """Parse JSON. Unreadable names `where`, and the limit or the fault.

    most: bytes; depth: levels. Whole numbers beyond 64 bits, NaN and infinities are refused: no format that is read here has any, but
    for models' files as Python's json writes them (of_python): there an infinity, which is a bound, is read as null.
    """
    at = f"{where}: " if where else ""
    if len(text) > most:
        raise Unreadable(f"{at}it has more than {most} bytes.")
    try:
        found = json.loads(
            text, parse_int=_integer, parse_float=_fraction, parse_constant=_null if of_python else _constant
        )
    except RecursionError as exc:
        raise Unreadable(f"{at}it is nested more than {depth} levels deep.") from exc
    except ValueError as exc:
        raise Unreadable(f"{at}not valid JSON: {line(str(exc), 300)}.") from exc
    if _deeper(found, depth):
        raise Unreadable(f"{at}it is nested more than {depth} levels deep.")
    return found


def _integer(digits: str) -> int:
    if len(digits.lstrip("-")) > DIGITS:
        raise ValueError(f"the number {digits[:20]}... has more than {DIGITS} digits")
    return int(digits)


def _fraction(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:20]} is too large")
    return number


def _constant(name: str) -> t.NoReturn:
    raise ValueError(f"{name} is not a number in JSON")


def _null(name: str) -> None:
    if name == "NaN":
        _constant(name)


def _deeper(value: t.Any, depth: int) -> bool:
    level = [value]
    for _each in range(depth + 1):
        level = (
            [
                item
                for holder in level
                for item in (holder.values() if isinstance(holder, dict) else holder)
                if isinstance(item, (dict, list))
            ]
            if _each
            else [item for item in level if isinstance(item, (dict, list))]
        )
        if not level:
            return False
    return True


def read_text(path: pathlib.Path, where: str, most: int) -> str:
    """Read a file of UTF-8 text. Unreadable if it is missing, longer than `most` bytes, or not text."""
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
    except OSError as exc:
        raise Unreadable(
            f"{where}: cannot be read: {exc.strerror or exc}. Check the path and its permissions."
        ) from exc
    if len(data) > most:
        raise Unreadable(f"{where}: it has more than {most} bytes.")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise Unreadable(f"{where}: it is not text in UTF-8.") from exc


def read_json(path: pathlib.Path, where: str = "", *, most: int = 64 * MIB) -> t.Any:
    """Read a file of JSON, as `read_text` and `from_json` do."""
    where = where or str(path)
    return from_json(read_text(path, where, most), where, most=most)


class _Counted:
    """A file, and how much of it was read."""

    def __init__(self, file: t.BinaryIO) -> None:
        self._file, self.count = file, 0

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.count += len(data)
        return data


class _Unpacked(io.RawIOBase):
    """The content of a gzip file, within limits."""

    def __init__(self, file: t.BinaryIO, where: str) -> None:
        self._packed, self._where, self._count = _Counted(file), f"{where}: " if where else "", 0
        self._content = gzip.GzipFile(fileobj=t.cast(t.BinaryIO, self._packed))

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: t.Any) -> int:
        try:
            data = self._content.read1(len(buffer))
        except (EOFError, zlib.error, gzip.BadGzipFile) as exc:
            raise Unreadable(f"{self._where}it is not a complete gzip file.") from exc
        self._count += len(data)
        if self._count > min(UNPACKED, FREELY + RATIO * self._packed.count):
            raise Unreadable(
                f"{self._where}it unpacks to more than {self._count // MIB} MiB, which no log does that is packed so small. "
                "Unpack it yourself, and give the part that matters."
            )
        buffer[: len(data)] = data
        return len(data)


def unpacked(file: t.BinaryIO, where: str = "") -> t.BinaryIO:
    """Return the content of an open file, unpacked if it is gzip, and as UTF-8 without a mark if it begins with one.

    Reading raises Unreadable if gzip is incomplete or unpacks beyond the limits: a few kilobytes can hold gigabytes.
    """
    buffered = file if isinstance(file, io.BufferedReader) else io.BufferedReader(t.cast(io.RawIOBase, file))
    if buffered.peek(2)[:2] == _GZIP:
        buffered = io.BufferedReader(_Unpacked(t.cast(t.BinaryIO, buffered), where), 256 * 1024)
    begins = buffered.peek(3)[:3]
    if begins[:2] in _UTF16_MARKS:
        return t.cast(t.BinaryIO, codecs.EncodedFile(t.cast(t.BinaryIO, buffered), "utf-8", "utf-16", "replace"))
    if begins == _UTF8_MARK:
        buffered.read(3)
    return t.cast(t.BinaryIO, buffered)


def decoded(data: bytes) -> str:
    """Return a text file's content: UTF-8, or what its mark says. Unreadable if it is neither."""
    try:
        return data.decode("utf-16" if data[:2] in _UTF16_MARKS else "utf-8-sig")
    except UnicodeDecodeError as exc:
        raise Unreadable(f"it is not UTF-8 text: {exc.reason}.") from None
