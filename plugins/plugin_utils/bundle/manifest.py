# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A bundle's manifest (bundle.json), and whether the bundle matches it."""

from __future__ import annotations

import hashlib
import json
import pathlib
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import from_json
from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.files import atomic_write
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import MIB, CollectionError, from_plain, to_plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bundle.reference import parse
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bundle.wanted import Artefact
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.image import DIGEST

NAME = "bundle.json"
FORMAT = 1
SMALL = 64 * MIB  # files up to this size are always read in full
REMEDY = (
    "Complete the bundle on a connected machine (ansible-playbook dgxspark.cluster.bundle), and copy it here again."
)


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest. artefacts: as stored, with the file's size and SHA-256, and an image's digest."""

    format: int
    artefacts: tuple[Artefact, ...] = ()


def read(folder: str) -> Manifest:
    """Return a bundle's manifest, or an empty one if it has none. CollectionError if it is malformed."""
    path = pathlib.Path(folder, NAME)
    try:
        given = from_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Manifest(FORMAT)
    except (OSError, ValueError) as exc:
        raise CollectionError(f"{path} cannot be read: {exc}. {REMEDY}") from exc
    made = from_plain(Manifest, given, str(path))
    if made.format != FORMAT:
        raise CollectionError(
            f"{path} has format {made.format}, but this version of the collection reads {FORMAT}. {REMEDY}"
        )
    for each in made.artefacts:
        parts = pathlib.PurePosixPath(each.path)
        if parts.is_absolute() or ".." in parts.parts or not each.path:
            raise CollectionError(f"{path}: {each.path!r} is not a path below the bundle's folder. {REMEDY}")
        if each.size is None or not DIGEST.match(f"sha256:{each.sha256}"):
            raise CollectionError(f"{path}: {each.path} has no size, or no SHA-256. {REMEDY}")
    return made


def write(folder: str, made: Manifest) -> None:
    """Write the manifest atomically, sorted by path."""
    path = pathlib.Path(folder, NAME)
    artefacts = sorted(made.artefacts, key=lambda each: each.path)
    text = json.dumps(to_plain(Manifest(made.format, tuple(artefacts))), indent=1) + "\n"
    atomic_write(str(path), text.encode(), 0o644)


def noted(folder: str, artefact: Artefact) -> Artefact | None:
    """Return the manifest's entry for an artefact, under any path, or None if it must be fetched."""
    known = _known_by(artefact)
    there = next((each for each in read(folder).artefacts if _known_by(each) == known), None)
    if there is None:
        return None
    same = artefact.digest in (None, there.digest) and artefact.sha256 in (None, there.sha256)
    return there if same else None


def _known_by(artefact: Artefact) -> tuple[t.Any, ...]:
    """Return an artefact's identity: for an image its full name, since older bundles name files differently."""
    if artefact.kind == "image":
        return artefact.kind, artefact.arch, parse(artefact.source)
    return artefact.kind, artefact.source, artefact.path


def note(folder: str, artefact: Artefact) -> None:
    """Record an intact artefact in the manifest."""
    kept = [each for each in read(folder).artefacts if each.path != artefact.path]
    write(folder, Manifest(FORMAT, (*kept, artefact)))


def sha256(path: pathlib.Path) -> str:
    """Return a file's SHA-256."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def wrong(folder: str, there: Artefact, *, whole: bool = True) -> str | None:
    """Return what is wrong with an artefact's file: its name, what was expected and what was found. None if it is intact.

    whole: read it in full; else compare only its size.
    """
    path = pathlib.Path(folder, there.path)
    try:
        if not path.is_file():
            return f"{path} is missing."
        size = path.stat().st_size
        if size != there.size:
            return f"{path} does not match {NAME}: {size} bytes were found, but {there.size} are expected."
        seen = sha256(path) if whole else there.sha256
    except OSError as exc:
        return f"{path} cannot be read: {exc}."
    if seen != there.sha256:
        return f"{path} does not match {NAME}: SHA-256 {seen} was found, but {there.sha256} is expected."
    return None


def checked(folder: str, wanted: t.Iterable[Artefact], *, whole: bool = False) -> list[Artefact]:
    """Return a bundle's entries for a list of artefacts. CollectionError names everything missing or wrong.

    whole: read large files too; otherwise the caller must check the SHA-256 of each one it uses.
    """
    if not pathlib.Path(folder, NAME).is_file():
        raise CollectionError(f"{folder} is not a bundle: {NAME} is missing (dgxspark_bundle). {REMEDY}")
    found, problems = [], []
    for artefact in wanted:
        there = noted(folder, artefact)
        if there is None:
            what = f"{artefact.name} {artefact.version}" + (f" for {artefact.arch}" if artefact.arch else "")
            problems.append(f"{what} ({artefact.path}, for {artefact.needed_by}) is not in the bundle.")
        elif problem := wrong(folder, there, whole=whole or (there.size or 0) <= SMALL):
            problems.append(problem)
        else:
            found.append(there)
    if problems:
        raise CollectionError(f"{' '.join(problems)} {REMEDY}")
    return found
