"""Protobuf by hand, for the few fields that tests read and write."""

from __future__ import annotations

import typing as t

Fields = dict[int, list[t.Any]]


def _number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return value, at


def read(data: bytes) -> Fields:
    """Return a message's varint and length-delimited fields by number."""
    found: Fields = {}
    at = 0
    while at < len(data):
        key, at = _number(data, at)
        value, at = _number(data, at)
        if key & 7 == 2:
            found.setdefault(key >> 3, []).append(data[at : at + value])
            at += value
        else:
            found.setdefault(key >> 3, []).append(value)
    return found


def written(number: int, data: bytes) -> bytes:
    """Return one length-delimited field of less than 16 KiB."""
    size = bytes([len(data)]) if len(data) < 128 else bytes([len(data) & 127 | 128, len(data) >> 7])
    return bytes([number << 3 | 2]) + size + data


def text(fields: Fields, number: int) -> str:
    return str(fields.get(number, [b""])[0].decode())


def pairs(entries: t.Iterable[bytes]) -> dict[str, str]:
    return {text(read(entry), 1): text(read(entry), 2) for entry in entries}
