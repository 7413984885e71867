# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Versions as owners write them, compared with the `packaging` library; the only place that does so."""

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

_NEWEST = "99999999"
_OF_IMAGE = re.compile(r"[+.]image\.[0-9a-f]{12}$")
_LEADING = re.compile(r"v?(\d+(?:\.\d+)*(?:\.post\d+)?)")


def exact(version: str) -> Version:
    """Return a whole version, including a release candidate (`1.36.0rc2`) or build (`1.36.4+1`)."""
    if PACKAGING_ERROR is not None:
        raise CollectionError(
            f"The Python package packaging is missing on the controller ({PACKAGING_ERROR}). "
            "Install it: pip install 'packaging>=22'"
        )
    return Version(version)


def _release(version: str) -> Version | None:
    match = _LEADING.match(version)
    return exact(match.group(1)) if match else None


@functools.cache
def release(version: str) -> Version:
    """Return the release of a version: `v0.5.13`, `0.5.13-dev`, `0.5.13rc1` and `0.5.13+cu130` all belong to 0.5.13.

    A post-release is a release of its own, newer than its base: `0.5.13.post1`. A kernel version likewise counts up to its first dash.
    Raises CollectionError if the text does not begin with a number.
    """
    found = _release(version)
    if found is None:
        raise CollectionError(f"version: {version!r} does not begin with a number. Write a release such as 0.5.12.")
    return found


@functools.cache
def counted(version: str) -> Version:
    """Return the release that an engine's version counts as: its own, or one newer than all if it names none.

    Images may be named `latest`, `nightly`, `v0`, or by build date: they count as the newest.
    """
    return (_release(version) if "." in version else None) or Version(_NEWEST)


def names_release(version: str) -> bool:
    """Whether a version names a release, not a word or a date (`latest`, `nightly`)."""
    return counted(version) != Version(_NEWEST)


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
    """Whether a version is in a range: terms such as `>=0.5.12`, joined by commas. Empty: all versions. See `counted`."""
    return _specifiers(wanted).contains(counted(version))


def of_image(version: str, digest: str) -> str:
    """Return a version for an image's own flag table: it belongs to no release, so no other image uses the table."""
    return f"{version}{'.' if '+' in version else '+'}image.{digest.removeprefix('sha256:')[:12]}"


def is_of_image(version: str) -> bool:
    """Whether a version belongs to a single image."""
    return _OF_IMAGE.search(version) is not None


def same_release(first: str, second: str) -> bool:
    """Whether two versions belong to one release."""
    return counted(first) == counted(second)
