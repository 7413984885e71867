# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a bundle says that it has (bundle.json), and whether it has it."""

from __future__ import annotations

import hashlib
import json
import pathlib
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import MIB, CollectionError, from_plain, to_plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bundle.reference import parse
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bundle.wanted import Artefact
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.image import DIGEST

NAME = "bundle.json"
FORMAT = 1
SMALL = 64 * MIB  # what is no larger is always read whole
REMEDY = (
    "Make the bundle whole on a connected machine (ansible-playbook dgxspark.cluster.bundle), and copy it here again."
)


@dataclass(frozen=True, slots=True)
class Manifest:
    """The file. artefacts: each as it is there, with size and SHA-256 of its file, and an image's digest."""

    format: int
    artefacts: tuple[Artefact, ...] = ()


def read(folder: str) -> Manifest:
    """Return a bundle's manifest; an empty one where there is none. CollectionError where it is not of the right shape."""
    path = pathlib.Path(folder, NAME)
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Manifest(FORMAT)
    except (OSError, ValueError) as exc:
        raise CollectionError(f"{path} cannot be read: {exc}. {REMEDY}") from exc
    made = from_plain(Manifest, given, str(path))
    if made.format != FORMAT:
        raise CollectionError(
            f"{path} has format {made.format}, and this version of the collection reads {FORMAT}. {REMEDY}"
        )
    for each in made.artefacts:
        parts = pathlib.PurePosixPath(each.path)
        if parts.is_absolute() or ".." in parts.parts or not each.path:
            raise CollectionError(f"{path}: {each.path!r} is not a path below the bundle's folder. {REMEDY}")
        if each.size is None or not DIGEST.match(f"sha256:{each.sha256}"):
            raise CollectionError(f"{path}: {each.path} has no size, or no SHA-256. {REMEDY}")
    return made


def write(folder: str, made: Manifest) -> None:
    """Write the manifest, whole or not at all, in the order of paths."""
    path = pathlib.Path(folder, NAME)
    artefacts = sorted(made.artefacts, key=lambda each: each.path)
    text = json.dumps(to_plain(Manifest(made.format, tuple(artefacts))), indent=1) + "\n"
    part = path.with_name(f".{NAME}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def noted(folder: str, artefact: Artefact) -> Artefact | None:
    """Return what the manifest has for an artefact, under whatever path; None where it must be fetched."""
    known = _known_by(artefact)
    there = next((each for each in read(folder).artefacts if _known_by(each) == known), None)
    if there is None:
        return None
    same = artefact.digest in (None, there.digest) and artefact.sha256 in (None, there.sha256)
    return there if same else None


def _known_by(artefact: Artefact) -> tuple[t.Any, ...]:
    """Return what makes two artefacts one: of an image its full name, since a bundle of before has other names of files."""
    if artefact.kind == "image":
        return artefact.kind, artefact.arch, parse(artefact.source)
    return artefact.kind, artefact.source, artefact.path


def note(folder: str, artefact: Artefact) -> None:
    """Put an artefact that is whole into the manifest."""
    kept = [each for each in read(folder).artefacts if each.path != artefact.path]
    write(folder, Manifest(FORMAT, (*kept, artefact)))


def sha256(path: pathlib.Path) -> str:
    """Return a file's SHA-256."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def wrong(folder: str, there: Artefact, *, whole: bool = True) -> str | None:
    """Say what is wrong with an artefact's file: its name, what was expected, what was found. None where nothing is.

    whole: read all of it; else its size alone is compared.
    """
    path = pathlib.Path(folder, there.path)
    try:
        if not path.is_file():
            return f"{path} is not there."
        size = path.stat().st_size
        if size != there.size:
            return f"{path} is not what {NAME} says: {size} bytes were found, and {there.size} are expected."
        seen = sha256(path) if whole else there.sha256
    except OSError as exc:
        return f"{path} cannot be read: {exc}."
    if seen != there.sha256:
        return f"{path} is not what {NAME} says: SHA-256 {seen} was found, and {there.sha256} is expected."
    return None


def checked(folder: str, wanted: t.Iterable[Artefact], *, whole: bool = False) -> list[Artefact]:
    """Return what a bundle has of a list. CollectionError naming everything that is missing or wrong.

    whole: read large files, too. Whoever takes one of those compares its SHA-256.
    """
    if not pathlib.Path(folder, NAME).is_file():
        raise CollectionError(f"{folder} is not a bundle: {NAME} is not there (dgxspark_bundle). {REMEDY}")
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
