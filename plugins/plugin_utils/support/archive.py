# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From the nodes' output to one archive for a bug report: all texts redacted, in a deterministic order."""

from __future__ import annotations

import gzip
import io
import json
import re
import tarfile
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.support.redact import Private, Redactor

MEANINGS = {
    "secret": "secrets, tokens and keys",
    "spark": "names of the cluster's nodes",
    "host": "names of other hosts",
    "domain": "domains",
    "user": "names of users",
    "mail": "mail addresses",
    "addr": "IPv4 and IPv6 addresses",
    "mac": "MAC addresses, and what is derived from them",
    "guid": "GUIDs",
    "serial": "serial numbers",
    "id": "UUIDs and other long identifiers",
}
LOOK = (
    "Look through it before you send it: names of models, of images from a registry of your own, of profiles and",
    "namespaces, sizes and dates are still in it, and so is what ranks wrote into their logs about prompts.",
)
_CUT = "[cut: the beginning is left out]\n"


@dataclass(frozen=True, slots=True)
class Piece:
    """A file of the archive. path: in the archive, before redaction."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Made:
    """The archive, its description for people, and the number of replacements by kind."""

    content: bytes
    lines: tuple[str, ...]
    replaced: dict[str, int]
    files: tuple[str, ...]


def pieces_of(host: str, seen: t.Mapping[str, t.Any] | None, most: int) -> tuple[list[Piece], str | None]:
    """Return a node's files, each cut to its newest `most` bytes, and the reason if there are none.

    seen: `read`, the results of its commands, each with `item` (its `name`), `cmd`, `stdout`, `rc` or `msg`; or `error`.
    """
    if not seen or not seen.get("read"):
        return [], str((seen or {}).get("error") or "nothing was read: an earlier part of this run failed on it")
    found = []
    for read in seen["read"]:
        name = str(read.get("item", {}).get("name", "unnamed"))
        text = str(read.get("stdout") or "")
        if not text.strip():
            why = read.get("msg") or read.get("stderr") or "no output"
            text = f"[nothing: {str(why).strip()}]"
        found.append(Piece(f"{host}/{name}.txt", _newest(text, most)))
    return found, None


def identities(host: str, seen: t.Mapping[str, t.Any] | None, spark: bool = True) -> list[Private]:
    """Return a node's identifiers, from lines `kind: words`. They are used for redaction only."""
    found = []
    for line in str((seen or {}).get("identity") or "").splitlines():
        kind, _colon, words = line.partition(":")
        for word in words.split():
            if kind == "host":
                # A node's names share one pseudonym; what follows the first dot is the domain.
                short, _dot, domain = word.partition(".")
                found.append(Private("spark" if spark else "host", short, host))
                found += [Private("domain", domain)] if domain else []
            elif kind == "serial":
                # Boards without a serial number have placeholders.
                found += [Private(kind, word)] if len(word) >= 5 and any(c.isdigit() for c in word) else []
            elif kind == "user":
                found += [Private(kind, word)] if len(word) > 2 else []
            elif kind in ("domain", "addr"):
                found.append(Private(kind, word))
    return found


def build(
    name: str,
    private: t.Sequence[Private],
    pieces: t.Sequence[Piece],
    missing: t.Mapping[str, str],
    about: t.Mapping[str, t.Any],
) -> Made:
    """Return the archive, `name` its folder.

    private: what it must not contain. missing: nodes without output, with the reason. about: versions and limits, for the manifest.
    CollectionError if something private would remain in it.
    """
    redactor = Redactor(private)
    absent = [Piece(f"{host}/NOT-READ.txt", f"{host} returned nothing: {why}\n") for host, why in missing.items()]
    told = Piece("about.json", json.dumps(about, indent=1, sort_keys=True, default=str) + "\n")
    given = sorted([*pieces, *absent, told], key=lambda piece: piece.path)
    redactor.learn(text for piece in given for text in (piece.path, piece.text))
    clean = {_path(redactor.redact(piece.path)): redactor.redact(piece.text) for piece in given}
    replaced = {kind: redactor.counts[kind] for kind in MEANINGS if redactor.counts[kind]}
    said = [f"not read: {redactor.redact(f'{host}: {why}')}" for host, why in sorted(missing.items())]
    counted = [f"  {count:6}  {MEANINGS[kind]}" for kind, count in replaced.items()]
    lines = (f"{len(clean)} files", *said, "replaced:", *(counted or ["  nothing"]), "", *LOOK)
    clean["README.txt"] = "\n".join(
        (
            "What a bug report for dgxspark.cluster needs, made by dgxspark.cluster.support. Names, addresses and secrets were",
            "replaced: the same thing has the same pseudonym in all files. mapped(addr-1) is the GID of the IPv4 address",
            "addr-1, link-local(mac-1) the one made from mac-1, guid(mac-1) a GUID of it; *** was a secret.",
            "",
            *lines,
            "",
        )
    )
    for path, text in clean.items():
        held = redactor.held(path) or redactor.held(text)
        if held:
            raise CollectionError(
                f"{path} would still contain {MEANINGS[held[0]]} that this run knows of: nothing was written. Please report that, with "
                "the file's name and none of its content."
            )
    return Made(_packed(name, clean), lines, replaced, tuple(sorted(clean)))


def _newest(text: str, most: int) -> str:
    data = text.encode("utf-8", "replace")
    if len(data) <= most:
        return text if text.endswith("\n") else f"{text}\n"
    # Start at the next whole line: half a token no longer looks like one.
    kept = data[-most:].partition(b"\n")[2].decode("utf-8", "replace")
    return f"{_CUT}{kept}\n"


def _path(path: str) -> str:
    return "/".join(re.sub(r"[^A-Za-z0-9._()@+-]", "_", part).strip(".") or "_" for part in path.split("/"))


def _packed(name: str, files: t.Mapping[str, str]) -> bytes:
    out = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=out, mode="wb", mtime=0, filename="") as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for path in sorted(files):
            data = files[path].encode("utf-8", "replace")
            entry = tarfile.TarInfo(f"{name}/{path}")
            entry.size, entry.mode = len(data), 0o600
            tar.addfile(entry, io.BytesIO(data))
    return out.getvalue()
