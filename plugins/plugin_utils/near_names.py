# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was probably meant by a name that is not known."""

from __future__ import annotations

import difflib
import typing as t

MOST = 3


def alike(name: t.Any, known: t.Iterable[str], most: int = MOST, likeness: float = 0.6) -> list[str]:
    """Return the known names that are spelled most like `name`, the nearest first, whatever their case.

    likeness: how alike two names have to be, from 0 to 1 (the same).
    """
    by_fold = _by_fold(known)
    return [by_fold[each] for each in difflib.get_close_matches(_folded(name), by_fold, most, likeness)]


def nearest(name: t.Any, known: t.Iterable[str], most: int = MOST, likeness: float = 0.6) -> list[str]:
    """Return the names that begin with `name`, then those of `alike`; none if there are neither."""
    by_fold, wanted = _by_fold(known), _folded(name)
    # A beginning is what people type of a long name: qwen3.5 of qwen3.5-122b-a10b-nvfp4. Among many, the likest.
    begun = {by_fold[each] for each in by_fold if len(wanted) > 2 and each.startswith(wanted)}
    first = alike(name, sorted(begun), most, 0.0)
    return [*first, *(each for each in alike(name, by_fold.values(), most, likeness) if each not in begun)][:most]


def _folded(name: t.Any) -> str:
    return str(name).casefold()[:200]


def _by_fold(known: t.Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in known:
        found.setdefault(each.casefold(), each)
    return found


def meant(name: str, known: t.Iterable[str], most: int = MOST) -> str:
    """Return "Did you mean a, b or c?", or "" if nothing is near."""
    near = nearest(name, known, most)
    return f"Did you mean {either(near)}?" if near else ""


def either(names: t.Sequence[str]) -> str:
    """Return "a", "a or b", "a, b or c"."""
    return " or ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
