# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Download to a file: resumes where it broke off, and keeps only bytes that match their checksum."""

from __future__ import annotations

import hashlib
import pathlib
import time
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import http_client

if t.TYPE_CHECKING:
    import httpx

TRIES = 4
PAUSE_S = 2.0
_CHUNK = 2**20


def mirrored(url: str, mirrors: t.Mapping[str, str]) -> str:
    """Return a URL's mirror: replaces the longest of the owner's prefixes that matches."""
    fit = [prefix for prefix in mirrors if url.startswith(prefix)]
    longest = max(fit, key=len, default="")
    return mirrors[longest] + url[len(longest) :] if longest else url


def download(
    asked: httpx.Client,
    url: str,
    target: pathlib.Path,
    sha256: str | None = None,
    headers: t.Mapping[str, str] | None = None,
) -> str:
    """Download a URL to a file; return its SHA-256.

    Resumes an interrupted download. A file with another SHA-256 than the given one is deleted, and the error names both.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.part")
    for number in range(1, TRIES + 1):
        try:
            seen = _rest(asked, url, part, headers or {})
            break
        except CollectionError as exc:
            if http_client.refused(exc) or number == TRIES:
                raise
            time.sleep(PAUSE_S * number)
    if sha256 is not None and seen != sha256:
        part.unlink()
        raise CollectionError(
            f"{target}: the file from {url.partition('?')[0]} has SHA-256 {seen}, but {sha256} is expected. It was discarded. A mirror "
            "or proxy may have a broken copy; if the publisher has changed the file, check it before you accept it."
        )
    part.replace(target)
    return seen


def _rest(asked: httpx.Client, url: str, part: pathlib.Path, headers: t.Mapping[str, str]) -> str:
    digest, there = hashlib.sha256(), 0
    if part.is_file():
        with part.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
                there += len(chunk)
    # Request the bytes unencoded, or a resumed part would not fit.
    own = {"Accept-Encoding": "identity", **headers} | ({"Range": f"bytes={there}-"} if there else {})
    with http_client.named(url), asked.stream("GET", url, headers=own) as answer:
        if answer.status_code == 416:
            return _again(asked, url, part, headers)
        answer.raise_for_status()
        goes_on = answer.status_code == 206 and answer.headers.get("content-range", "").startswith(f"bytes {there}-")
        if answer.status_code == 206 and not goes_on:
            return _again(asked, url, part, headers)
        digest = digest if goes_on else hashlib.sha256()
        with part.open("ab" if goes_on else "wb") as file:
            # As they arrive: buffered bytes would be lost if the connection breaks.
            for chunk in answer.iter_raw():
                file.write(chunk)
                digest.update(chunk)
    return digest.hexdigest()


def _again(asked: httpx.Client, url: str, part: pathlib.Path, headers: t.Mapping[str, str]) -> str:
    part.unlink()
    return _rest(asked, url, part, headers)
