# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Versions as owners write them, compared by the library `packaging`: the only place that does."""

from __future__ import annotations

import functools
import re

try:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import Version
except ImportError as exc:
    PACKAGING_ERROR: ImportError | None = exc
else:
    PACKAGING_ERROR = None

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError

_LEADING = re.compile(r"v?(\d+(?:\.\d+)*)")


@functools.cache
def release(version: str) -> Version:
    """Return the release of a version: `v0.5.13`, `0.5.13-dev`, `0.5.13rc1` and `0.5.13+cu130` are all of 0.5.13.

    A kernel's version counts up to its first dash as well. CollectionError for a text that begins with no number.
    """
    if PACKAGING_ERROR is not None:
        raise CollectionError(
            f"The Python package packaging is missing on the controller ({PACKAGING_ERROR}). "
            "Install it: pip install 'packaging>=22'"
        )
    match = _LEADING.match(version)
    if not match:
        raise CollectionError(f"version: {version!r} does not begin with a number. Write a release such as 0.5.12.")
    return Version(match.group(1))


@functools.cache
def _specifiers(wanted: str) -> SpecifierSet:
    try:
        return SpecifierSet(wanted)
    except InvalidSpecifier as exc:
        raise CollectionError(
            f"version range: {wanted!r} is not a list of comparisons. Write it such as >=0.5.12,<0.5.16."
        ) from exc


@functools.cache
def matches(version: str, wanted: str) -> bool:
    """Whether a version's release is in a range: terms such as `>=0.5.12`, joined by commas. Empty: all versions."""
    own = release(version)
    return _specifiers(wanted).contains(own)


def same_release(first: str, second: str) -> bool:
    """Whether two versions are of one release."""
    return release(first) == release(second)
