# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Turns an image's own report (module_utils/programs/engine_parser/reader.py, in a pod's log) into an owner's `images/` and `engines/` entries.

The image is untrusted: its log is bounded, its document may hold only known keys and types, none of its paths enters a file name,
and an entry is written only if it fits its schema and its text reads back as the same values.
"""

from __future__ import annotations

import hashlib
import pathlib
import re
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import from_json, printable
from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.engine_parser.reader import MARK
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, from_plain, to_plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.versions import of_image

from ..judgement.patches import Patch, concerned, load_patches
from ..vocabulary import images
from . import engine_table

Plain = dict[str, t.Any]

LARGEST = 2 * 1024 * 1024  # characters of a log; a flag table takes about a tenth of that
_VERSION = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+[0-9A-Za-z.+-]{0,60}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
HEADER = """\
---
# yamllint disable rule:indentation rule:line-length
# Read from the image itself by dgxspark.cluster.inspect_image: another run overwrites it. Features that you add to an image are kept.
"""


@dataclass(frozen=True)
class Action:
    """One flag or positional of the parser, as `run.flags` describes it."""

    options: tuple[str, ...]
    dest: str
    action: str
    type: t.Literal["str", "int", "float", "bool", "json"]
    default: t.Any
    choices: tuple[t.Any, ...] | None
    nargs: t.Any
    const: t.Any
    required: bool
    new_flag: str | None
    const_value: t.Any
    error_message: str | None
    deprecated: bool
    help: str | None


@dataclass(frozen=True)
class Parser:
    """The engine's parser and what was read with it."""

    flags: tuple[Action, ...]
    facts: dict[str, t.Any]
    environment: tuple[str, ...]


@dataclass(frozen=True)
class Seen:
    """The document. unread: what could not be read, and why."""

    engine: t.Literal["sglang", "vllm"]
    version: str
    requires: dict[str, str]
    packages: dict[str, str]
    cudnn_frontend: bool
    architectures: tuple[str, ...]
    libraries: dict[str, str]
    patches: dict[str, t.Literal["needed", "there", "not needed", "drifted"]]
    parser: Parser | None
    unread: tuple[str, ...]


@dataclass(frozen=True)
class File:
    """An entry as a file. path: below the owner's folder."""

    path: str
    text: str


@dataclass(frozen=True)
class Entries:
    """The entries made from an image. table: None if its parser could not be read."""

    image: Plain
    table: Plain | None
    files: tuple[File, ...]


def document(log: str) -> Seen:
    """Return the image's report from a log. Raises CollectionError if the log has no complete report of the known form."""
    if len(log) > LARGEST:
        raise CollectionError(
            f"the image's log has {len(log)} characters, more than {LARGEST}. That is not what was requested."
        )
    words = [line.split(" ", 2) for line in log.split("\n") if line.startswith(f"{MARK} ")]
    if not words or words[-1][1:2] != ["end"]:
        raise CollectionError(
            f"the image returned nothing. Its last output: {printable(log) or '(none)'}. Is it an image of SGLang or vLLM "
            "for these nodes, with python3?"
        )
    chunks = words[:-1]
    text = "".join(word[2] for word in chunks if len(word) == 3)
    whole = f"{len(chunks)} {hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()}"
    if [word[1] for word in chunks] != [str(number) for number in range(len(chunks))] or words[-1][2:] != [whole]:
        raise CollectionError("the image's report on itself is incomplete. Run again.")
    try:
        return from_plain(Seen, from_json(text), "the image's document")
    except (ValueError, RecursionError, CollectionError) as exc:
        raise CollectionError(
            f"the image's output has an unknown format: {printable(str(exc))} Nothing was written."
        ) from exc


def summary(made: Entries) -> Plain:
    """Return what was read from an image as plain data: `entry`, the `table`'s id or None, `files`."""
    return {
        "entry": made.image,
        "table": (made.table or {}).get("id"),
        "files": [{"path": file.path, "text": file.text} for file in made.files],
    }


def entries(seen: Seen, image: str, digest: str, folder: str, overlays: t.Sequence[str] = ()) -> Entries:
    """Return an image's entries, as files below an owner's folder.

    digest: of the image that the pod ran. overlays: all of the owner's existing folders.
    Raises CollectionError if an entry would not fit its schema, or if another of the owner's files already has this image.
    """
    if not _VERSION.fullmatch(seen.version):
        raise CollectionError(
            f"{image}: {printable(seen.version, 80)!r} is not a version of {seen.engine}. Nothing was written."
        )
    if not _DIGEST.fullmatch(digest):
        raise CollectionError(f"{image}: {printable(digest, 80)!r} is not a digest. Nothing was written.")
    version, table = seen.version, None
    if seen.parser is not None:
        version = of_image(version, digest)
        table = _table(seen, seen.parser, image, digest, version)
    path = f"images/{_slug(image)}.yml"
    before = _before(image, pathlib.Path(folder).expanduser() / path, overlays)
    own = _own(
        seen, image, digest, version, table, before, concerned(load_patches(overlays), seen.engine, seen.version)
    )
    checked = {key: value for key, value in own.items() if key != "replaces"}
    files = [_written(own, checked, "images", path)]
    if table is not None:
        files.append(_written(table, table, "engines", f"engines/{seen.engine}/{version}.yml"))
    return Entries(own, table, tuple(files))


def _table(seen: Seen, parser: Parser, image: str, digest: str, version: str) -> Plain:
    try:
        return engine_table.entry(seen.engine, version, f"{image} {digest}", seen.requires, to_plain(parser))
    except (LookupError, TypeError, ValueError, AttributeError) as exc:
        raise CollectionError(
            f"{image}: its parser's flags do not have a parser's form ({type(exc).__name__}: {printable(str(exc))}). Nothing was written."
        ) from exc


def _slug(image: str) -> str:
    return re.sub(r"[^a-z0-9_.]+", "-", image.lower()).strip("-._")[:120]


def _before(image: str, path: pathlib.Path, overlays: t.Sequence[str]) -> Plain:
    """Return the existing entry of an image, or an empty one. Raises CollectionError if it is in another of the owner's files."""
    shipped = {e["id"]: e for e in images.entries().values()}
    for entry in reversed([*images.entries(overlays).values()]):
        if entry["image"] != image:
            continue
        is_shipped = entry["id"] in shipped and shipped[entry["id"]]["origin"] == entry["origin"]
        if not is_shipped and pathlib.Path(entry["origin"]).resolve() != path.resolve():
            raise CollectionError(
                f"{image} is already the entry {entry['id']!r} of {entry['origin']}, and {path} would define it again. Move what you know about "
                "its features there, and delete the other."
            )
        return entry | ({"replaces": entry["id"]} if entry["id"] in shipped else {})
    return {}


def _features(seen: Seen, patches: t.Sequence[Patch]) -> dict[str, bool]:
    """Return the features found in an image: those that make start-up patches unnecessary, and FlashInfer's cuDNN."""
    states: dict[str, list[str | None]] = {}
    for patch in patches:
        if patch.unless:
            states.setdefault(patch.unless, []).append(seen.patches.get(patch.id))
    found = {}
    for feature, all_of in states.items():
        if "needed" in all_of:
            found[feature] = False
        elif set(all_of) <= {"there", "not needed"}:
            found[feature] = True
    # FlashInfer imports nvidia-cudnn-frontend: without it there is no cuDNN; with it, the library may be the system's.
    wheel = any(name.startswith("nvidia-cudnn-cu") for name in seen.packages)
    return found | ({"cudnn": False} if not seen.cudnn_frontend else {"cudnn": True} if wheel else {})


def _own(
    seen: Seen,
    image: str,
    digest: str,
    version: str,
    table: Plain | None,
    before: t.Mapping[str, t.Any],
    patches: t.Sequence[Patch],
) -> Plain:
    """Return the entry of an image. patches: those for its release; the entry records no others."""
    own: Plain = {"id": before.get("id", f"own-{_slug(image)}")}
    own |= {"replaces": before["replaces"]} if "replaces" in before else {}
    own |= {"image": image, "digest": digest, "engine": {"name": seen.engine, "version": version}}
    own |= {"table": table["id"]} if table is not None else {}
    own["features"] = dict(sorted({**before.get("features", {}), **_features(seen, patches)}.items()))
    read = {
        "packages": seen.packages,
        "libraries": seen.libraries,
        "architectures": list(seen.architectures),
        "patches": {patch.id: seen.patches[patch.id] for patch in patches if patch.id in seen.patches},
        "unread": [printable(text) for text in seen.unread],
    }
    own |= {key: value for key, value in read.items() if value}
    return {**own, "source": [f"Read from {image} {digest}"], "verified": "measured"}


def _written(entry: Plain, checked: Plain, kind: str, path: str) -> File:
    """Return an entry as a file whose text reads back as the entry. Raises KnowledgeError if it does not fit its schema."""
    try:
        knowledge.validate(kind, checked, f"what was read from the image ({path})")
    except knowledge.KnowledgeError as exc:
        raise knowledge.KnowledgeError(f"{printable(str(exc), 600)} Nothing was written.") from exc
    text = engine_table.text(entry, knowledge.for_editors(HEADER, kind))
    try:
        text.encode("utf-8")
        same = knowledge.parse_yaml(text, path) == entry
    except (UnicodeEncodeError, CollectionError):
        same = False
    if not same:
        raise CollectionError(f"{path}: the image's own texts cannot be written as YAML. Nothing was written.")
    return File(path, text)
