# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was probably meant by a name that is not known."""

from __future__ import annotations

import difflib
import typing as t

MOST = 3


def nearest(name: str, known: t.Iterable[str], most: int = MOST, likeness: float = 0.6) -> list[str]:
    """Return the known names that are most like `name`, the nearest first; none if it is like none of them.

    likeness: how alike two names have to be, from 0 to 1 (the same).
    """
    by_fold: dict[str, str] = {}
    for each in known:
        by_fold.setdefault(each.casefold(), each)
    wanted = str(name).casefold()[:200]
    close = difflib.get_close_matches(wanted, by_fold, most, likeness)
    # A beginning is what people type of a long name: qwen3.5 of qwen3.5-122b-a10b-nvfp4.
    begun = [each for each in by_fold if len(wanted) > 2 and each.startswith(wanted) and each not in close]
    return [by_fold[each] for each in [*close, *sorted(begun)][:most]]


def meant(name: str, known: t.Iterable[str], most: int = MOST) -> str:
    """Return "Did you mean a, b or c?", or "" if nothing is near."""
    near = nearest(name, known, most)
    return f"Did you mean {either(near)}?" if near else ""


def either(names: t.Sequence[str]) -> str:
    """Return "a", "a or b", "a, b or c"."""
    return " or ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
