# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which file of the owner sets one of the fabric's sysctls otherwise: it does so again at each boot, and with `sysctl --system`."""

from __future__ import annotations

import pathlib
import re
import typing as t

_FOLDERS = ("/etc/sysctl.d", "/run/sysctl.d")
_FILE = "/etc/sysctl.conf"
_LINE = re.compile(r"^\s*-?\s*net[./]ipv4[./]conf[./](?P<name>[^\s=]+)[./](?P<key>\w+)\s*=\s*(?P<value>-?\d+)\s*$")
_MOST = 2**20  # characters of a file that are read


def setting(key: str, wanted: int, system_root: str = "") -> list[str]:
    """Return where `net.ipv4.conf.*.KEY` is set to another value than wanted, as "FILE (line N: TEXT)"."""
    files = [path for folder in _FOLDERS for path in sorted(pathlib.Path(system_root + folder).glob("*.conf"))]
    found = []
    for path in [*files, pathlib.Path(system_root + _FILE)]:
        for number, line in _lines(path):
            match = _LINE.match(line)
            if match and match["key"] == key and int(match["value"]) != wanted:
                shown = str(path)[len(system_root) :]
                found.append(f"{shown} (line {number}: net.ipv4.conf.{match['name']}.{key}={match['value']})")
    return found


def _lines(path: pathlib.Path) -> t.Iterator[tuple[int, str]]:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            yield from enumerate(file.read(_MOST).splitlines(), 1)
    except OSError:
        return
