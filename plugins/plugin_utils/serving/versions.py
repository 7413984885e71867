# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Order of release versions, for ranges in data (`>=0.5.12,<0.5.16`)."""

from __future__ import annotations

import functools
import operator
import re
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import FabricError

_COMPARE: dict[str, t.Callable[[t.Any, t.Any], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}
_TERM = re.compile(r"^(<=|>=|==|!=|<|>)\s*(\d[\w.+-]*)$")


@functools.cache
def release(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: 0.5.13-dev, 0.5.13rc1 and 0.5.13 count as one release."""
    match = re.match(r"^v?(\d+(?:\.\d+)*)", version)
    if not match:
        raise FabricError(f"version: {version!r} does not begin with a number such as 0.5.12.")
    numbers = tuple(int(part) for part in match.group(1).split("."))
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers = numbers[:-1]
    return numbers


@functools.cache
def matches(version: str, wanted: str) -> bool:
    """Whether a version is in a range: terms such as `>=0.5.12`, joined by commas. An empty range is all versions."""
    own = release(version)
    for term in filter(None, (part.strip() for part in wanted.split(","))):
        match = _TERM.match(term)
        if not match:
            raise FabricError(f"version range: {term!r} is not a comparison such as >=0.5.12.")
        if not _COMPARE[match.group(1)](own, release(match.group(2))):
            return False
    return True
