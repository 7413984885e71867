# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Start-up patches: exact edits of an engine's installed files, made in its container before the engine starts.

    python3 patches.py [--check] [--root SITE_PACKAGES] PATCHES.json

PATCHES.json is the list `patches` of a launch plan. The container needs only this file: Python 3.10 or newer and its
standard library. An edit replaces a text that occurs in the file exactly once. Each edit is judged separately: one that the
image already has, in any layout and with any comments, counts as done, and the others are still made. Nothing is written,
to any file, unless every edit of the list is settled: to be applied, applied before, or made unnecessary by upstream. A file is
replaced as a whole, and only by one that compiles, so a killed run leaves each file old or new and a second run finishes the work.

Exit status: 0 all settled; 1 at least one refused, the cause on standard error; 2 wrong usage.
"""

from __future__ import annotations

import argparse
import ast
import functools
import importlib.metadata
import importlib.util
import io
import json
import os
import pathlib
import shutil
import sys
import tempfile
import textwrap
import tokenize
import typing as t
from dataclasses import dataclass

State = t.Literal["applied", "applied before", "not needed"]
# A token of code, and whether it is the first on its line.
Word = tuple[str, bool]
_SILENT = frozenset([tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, tokenize.ENDMARKER])
_BRACKETS = {")": "(", "]": "[", "}": "{"}
_LAYOUT = {tokenize.NEWLINE: "\n", tokenize.INDENT: "\t", tokenize.DEDENT: "\b"}


class PatchError(Exception):
    """A patch that is not applied: the text says which, where, why and what to do."""


@dataclass(frozen=True)
class Edit:
    """Replace `expect` by `replace`. fixed: code showing that upstream, or the image, has fixed it differently."""

    expect: str
    replace: str
    fixed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Patch:
    """The edits of one file. file: path below site-packages. versions: of `package`, for which the edits were written.

    moved: paths below site-packages. If one of them exists, code missing from the file is gone for good, and
    its edits are not needed; the file may be gone as well.
    """

    id: str
    package: str
    versions: str
    file: str
    edits: tuple[Edit, ...]
    moved: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """The outcome of one patch; path is None if its file is gone for good. edits: the outcome of each."""

    id: str
    state: State
    path: pathlib.Path | None
    edits: tuple[State, ...] = ()


def _text(entry: t.Any, key: str, where: str) -> str:
    value = entry.get(key) if isinstance(entry, dict) else None
    if not isinstance(value, str) or not value:
        raise PatchError(f"{where}: {key}: a text is needed. Give the list `patches` of a launch plan, as it is.")
    return value


def _inside(path: str, where: str) -> str:
    pure = pathlib.PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or len(pure.parts) < 2:
        raise PatchError(f"{where}: {path!r} is not a path of a package below site-packages.")
    return path


def from_plain(entries: t.Any) -> list[Patch]:
    """Read the plan's `patches`. PatchError names the entry and key that is missing or wrong."""
    if not isinstance(entries, list):
        raise PatchError(f"patches: a list is needed, not {type(entries).__name__}.")
    found = []
    for number, entry in enumerate(entries):
        where = f"patches: entry {number}"
        name = _text(entry, "id", where)
        where = f"patch {name}"
        package = entry.get("package")
        edits = entry.get("edits")
        if not isinstance(edits, list) or not edits:
            raise PatchError(f"{where}: edits: a list with at least one edit is needed.")
        found.append(
            Patch(
                id=name,
                package=_text(package, "name", f"{where}: package"),
                versions=_text(package, "versions", f"{where}: package"),
                file=_inside(_text(entry, "file", where), f"{where}: file"),
                edits=tuple(
                    Edit(_text(e, "expect", where), _text(e, "replace", where), tuple(e.get("fixed", ())))
                    for e in edits
                ),
                moved=tuple(_inside(path, f"{where}: moved") for path in entry.get("moved", ())),
            )
        )
    return found


@functools.lru_cache(maxsize=64)
def words(code: str) -> tuple[Word, ...]:
    """Return the tokens of code, or of a piece of it, without comments and layout, as far as it can be tokenized."""
    found: list[Word] = []
    row = 0
    try:
        for token in tokenize.generate_tokens(io.StringIO(textwrap.dedent(code)).readline):
            if token.type in _SILENT:
                continue
            text = _LAYOUT.get(token.type, token.string)
            if token.type == tokenize.STRING and not token.string.startswith(("f", "F")):
                text = repr(ast.literal_eval(token.string))
            found.append((text, token.start[0] != row))
            row = row if token.type in _LAYOUT else token.end[0]
    except (tokenize.TokenError, SyntaxError, ValueError):
        pass  # a piece may end within brackets
    return tuple(found)


def _opened(piece: str) -> str:
    """Return the brackets that a piece closes but does not open: it was cut out of them."""
    opened, missing = [], ""
    for text, _first in words(piece):
        if text in _BRACKETS.values():
            opened.append(text)
        elif text in _BRACKETS and not (opened and opened.pop()):
            missing = _BRACKETS[text] + missing
    return missing


def _bare(piece: str) -> tuple[str, ...]:
    """Return the tokens of a piece of code, without layout tokens at its ends."""
    opened = _opened(piece)
    found = [text for text, _first in words(opened + piece)][len(opened) :]
    while found and found[0] in _LAYOUT.values():
        found.pop(0)
    while found and found[-1] in _LAYOUT.values():
        found.pop()
    return tuple(found)


def _places(piece: tuple[str, ...], code: t.Sequence[Word], whole_lines: bool = True) -> list[int]:
    """Return where a piece of code begins in other code. whole_lines: it must begin and end at line boundaries."""
    texts = [text for text, _first in code]
    size = len(piece)
    return [
        at
        for at in range(len(texts) - size + 1)
        if size
        and texts[at] == piece[0]
        and tuple(texts[at : at + size]) == piece
        and (not whole_lines or (code[at][1] and (at + size == len(code) or texts[at + size] == "\n" or code[at + size][1])))
    ]  # fmt: skip


def _is_done(text: str, edit: Edit) -> bool:
    """Whether code has the edit's result, in any layout, and nothing left of what it replaces."""
    code, result, before = words(text), _bare(edit.replace), _bare(edit.expect)
    found = _places(result, code)
    if len(found) != 1:
        return False
    # The result may contain what it replaced: that does not count.
    rest = [*code[: found[0]], ("\0", True), *code[found[0] + len(result) :]]
    return not _places(before, rest)


def _edited(text: str, edit: Edit, moved: bool) -> tuple[str, State] | str:
    """Return the text with an edit and its state; or, if it has neither the code before nor after the edit, what was found."""
    results, times = text.count(edit.replace), text.replace(edit.replace, "\0").count(edit.expect)
    if (results, times) == (1, 0) or (results <= 1 and _is_done(text, edit)):
        return text, "applied before"
    # Check this first: a fix may have left the code to replace in place, and must not be made twice.
    if not results and any(_places(_bare(form), words(text), whole_lines=False) for form in edit.fixed):
        return text, "not needed"
    if (results, times) == (0, 1):
        return text.replace(edit.expect, edit.replace), "applied"
    if moved and not results and not times and not _places(_bare(edit.expect), words(text)):
        return text, "not needed"
    return f"occurs {times} times and its replacement {results} times"


def settled(text: str, patch: Patch, moved: bool = False) -> tuple[str, tuple[State, ...]]:
    """Return the text with all edits of a patch, and the state of each. Raises PatchError if an edit finds neither form.

    moved: one of the places to which later versions moved the code exists.
    """
    states: list[State] = []
    for number, edit in enumerate(patch.edits, 1):
        found = _edited(text, edit, moved)
        if isinstance(found, str):
            first = next(line.strip() for line in edit.expect.splitlines() if line.strip())
            raise PatchError(
                f"edit {number} of {len(patch.edits)}: the code that it replaces ({first!r} …) {found}, which is neither "
                "before nor after, nor a known fix: the code has drifted"
            )
        text = found[0]
        states.append(found[1])
    if "applied" in states:
        try:
            compile(text, patch.file, "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as exc:
            raise PatchError(f"the file with its edits does not compile: {exc}") from exc
    return text, tuple(states)


def summed(states: t.Sequence[State]) -> State:
    """Return a patch's state from the states of its edits."""
    order: tuple[State, ...] = ("applied", "applied before", "not needed")
    return next(state for state in order if state in states)


def edited(text: str, patch: Patch) -> tuple[str, State]:
    """Return the text with all edits of a patch, and the patch's state. Raises PatchError if an edit finds neither form."""
    new, states = settled(text, patch)
    return new, summed(states)


def installed(package: str) -> str:
    """Return the version of an installed package for display; 'not installed' if it is missing."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def locate(file: str, root: pathlib.Path | None = None) -> pathlib.Path | None:
    """Return where Python would import a file from, without importing anything; None if it does not exist.

    root: look below this folder instead.
    """
    top, _slash, rest = file.partition("/")
    if root is not None:
        places = [str(root / top)]
    else:
        spec = importlib.util.find_spec(top)
        places = list(spec.submodule_search_locations or ()) if spec else []
    paths = (pathlib.Path(place, rest) for place in places)
    return next((path for path in paths if path.exists()), None)


def prepare(
    patches: t.Sequence[Patch], root: pathlib.Path | None = None
) -> tuple[list[Outcome], dict[pathlib.Path, str]]:
    """Return each patch's outcome, and the new text of each file to write. Writes nothing.

    PatchError lists all patches that are refused, each with its cause and remedy.
    """
    outcomes, texts, new, refused = [], {}, {}, []
    for patch in patches:
        path = locate(patch.file, root)
        moved = any(locate(place, root) for place in patch.moved)
        try:
            if path is None:
                if moved:
                    outcomes.append(Outcome(patch.id, "not needed", None))
                    continue
                raise PatchError("there is no such file")
            if path not in texts:
                # Read bytes, since text mode would turn CRLF into LF.
                texts[path] = path.read_bytes().decode("utf-8")
            text, states = settled(texts[path], patch, moved)
        except (OSError, UnicodeDecodeError) as exc:
            refused.append(f"patch {patch.id}: {path}: cannot be read: {exc}. Nothing was changed.")
        except PatchError as exc:
            refused.append(
                f"patch {patch.id}: {path or patch.file}: {exc}. {patch.package} is {installed(patch.package)}, the patch "
                f"was written for {patch.versions}. Nothing was changed. Take an image with such a version; or, where "
                "this image does not need the patch, name the feature that it has in an images entry of your knowledge."
            )
        else:
            outcomes.append(Outcome(patch.id, summed(states), path, states))
            if "applied" in states:
                texts[path] = new[path] = text
    if refused:
        raise PatchError("\n".join(refused))
    return outcomes, new


def write(path: pathlib.Path, text: str) -> None:
    """Replace a file atomically, keeping mode and owner, and delete its compiled form. PatchError says why it cannot."""
    part = None
    try:
        before = path.stat()
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        part = pathlib.Path(name)
        with os.fdopen(handle, "wb") as out:
            out.write(text.encode("utf-8"))
            out.flush()
            os.fsync(out.fileno())
        shutil.copymode(path, part)
        if os.geteuid() == 0:
            os.chown(part, before.st_uid, before.st_gid)
        # A compiled form that is not checked against its source would hide the new one.
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
            compiled.unlink(missing_ok=True)
        part.replace(path)
    except OSError as exc:
        if part is not None:
            part.unlink(missing_ok=True)
        raise PatchError(
            f"{path}: cannot be written: {exc}. The file was left as it is. Run as a user who may write there, on a root file "
            "system that is not read-only."
        ) from exc


def apply(patches: t.Sequence[Patch], root: pathlib.Path | None = None, check: bool = False) -> list[Outcome]:
    """Apply all patches, or none if one is refused. check: report what would be done, and write nothing."""
    outcomes, new = prepare(patches, root)
    if not check:
        for path, text in new.items():
            write(path, text)
    return outcomes


def main(arguments: t.Sequence[str] | None = None) -> int:
    """Run as a command; return the exit status."""
    parser = argparse.ArgumentParser(prog="patches.py", description="Apply an engine's start-up patches.")
    parser.add_argument("--check", action="store_true", help="say what would be done")
    parser.add_argument("--root", type=pathlib.Path, help="site-packages, instead of where Python would look")
    parser.add_argument("patches", type=pathlib.Path, help="the plan's patches, as JSON")
    given = parser.parse_args(arguments)
    try:
        try:
            entries = json.loads(given.patches.read_text(encoding="utf-8"))
        except (OSError, ValueError) as exc:
            raise PatchError(f"{given.patches}: cannot be read as JSON: {exc}") from exc
        outcomes = apply(from_plain(entries), given.root, given.check)
    except PatchError as exc:
        sys.stderr.write(f"start-up patches refused:\n{exc}\n")
        return 1
    for outcome in outcomes:
        told = f"would be {outcome.state}" if given.check and outcome.state == "applied" else outcome.state
        made, of = outcome.edits.count("applied"), len(outcome.edits)
        partly = f" ({made} of its {of} edits; the others are there or not needed)" if 0 < made < of else ""
        sys.stdout.write(f"patch {outcome.id}: {told}" + (f": {outcome.path}{partly}\n" if outcome.path else "\n"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
