# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When certificates end. Nodes need no library for it: of a certificate only its validity is read (RFC 5280, 4.1.2.5)."""

from __future__ import annotations

import base64
import binascii
import calendar
import pathlib
import re
import time
import typing as t

LARGEST = 256 * 1024  # bytes of a file that is read
MOST = 64  # files of a folder
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]{1,262144}?)-----END CERTIFICATE-----")
_TIME = rb"(?:\x17\x0d(\d{12})Z|\x18\x0f(\d{14})Z)"
# Validity ::= SEQUENCE { notBefore Time, notAfter Time }: a UTCTime has 15 bytes, a GeneralizedTime 17.
_VALIDITY = re.compile(rb"\x30[\x1e\x20\x22]" + _TIME + _TIME)


def not_after(text: bytes) -> float | None:
    """Return when the first certificate of a PEM file, or a certificate as DER, ends, in seconds since 1970. None: there is none."""
    pem = _PEM.search(text)
    try:
        found = _VALIDITY.search(base64.b64decode(pem[1]) if pem else text)
    except binascii.Error:
        return None
    short, long = (found[3], found[4]) if found else (None, None)
    if short:  # RFC 5280: 50 and more are of the last century
        long = (b"19" if short >= b"50" else b"20") + short
    if not long:
        return None
    try:
        return float(calendar.timegm(time.strptime(long.decode(), "%Y%m%d%H%M%S")))
    except (ValueError, OverflowError):
        return None


def read_certificates(folders: t.Iterable[str], root: str = "") -> dict[str, float]:
    """Return when the certificates in these folders end, by path. CAs live for years, are renewed otherwise, and are left out."""
    found = {}
    for folder in folders:
        for path in sorted(pathlib.Path(f"{root}{folder}").glob("*.crt"))[:MOST]:
            if path.name.endswith("ca.crt") or not path.is_file() or path.is_symlink() or path.stat().st_size > LARGEST:
                continue
            ends = not_after(path.read_bytes())
            if ends is not None:
                found[f"{folder.rstrip('/')}/{path.name}"] = ends
    return found
