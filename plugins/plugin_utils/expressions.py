# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Regular expressions of a model's files, matched in bounded time.

Python's own matcher goes back over a text in all possible ways: `(.+)+!` takes 2^n steps. Here all ways are followed at once, as a set of
places in the text, so that their number does not matter.
"""

from __future__ import annotations

import functools
import operator
import re
import typing as t
from re import _constants as c  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]

from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import Unreadable, line

STEPS = 200_000  # a match of a nested expression takes hundreds
LONGEST = 300  # characters of an expression, and of a name that it is compared with; real ones have 20 to 100
REPEATS = 300  # the highest count in an expression
_FREE = 2  # repeats without a bound that Python's own matcher may have: then it takes at most (length)^2 steps

Tree = t.Sequence[tuple[t.Any, t.Any]]
Places = int  # a bit for each place in the text


class Expression:
    """A regular expression as `re.match` takes it. Raises Unreadable if it is none, is too long, or refers back to its groups."""

    def __init__(self, text: str, where: str) -> None:
        self._where = f"{where}: {line(f're:{text}', 80)!r}"
        if len(text) > LONGEST:
            raise Unreadable(f"{self._where}: the expression has more than {LONGEST} characters.")
        try:
            self._own = re.compile(text)
            self._tree: Tree = list(parser.parse(text, self._own.flags & ~re.UNICODE))
        except (re.error, RecursionError, OverflowError, ValueError) as exc:
            raise Unreadable(f"{self._where}: it is not a regular expression: {line(str(exc), 100)}.") from exc
        free, nested = self._judge(self._tree, False)
        self._simple = free <= _FREE and not nested

    def match(self, text: str) -> bool:
        """Whether it matches at the beginning of a text. Unreadable if that is too long."""
        if len(text) > LONGEST:
            raise Unreadable(f"{self._where}: it is compared with a name of more than {LONGEST} characters.")
        if self._simple:
            return self._own.match(text) is not None
        return _Run(text, self._own.flags, self._where).of(self._tree, 1) != 0

    def _judge(self, tree: Tree, inside: bool) -> tuple[int, bool]:
        """Return how many repeats have no small bound, and whether one repeats more than a single character."""
        free, nested = 0, False
        for kind, value in tree:
            if kind in (c.MAX_REPEAT, c.MIN_REPEAT, c.POSSESSIVE_REPEAT):
                low, high, body = value
                if low > REPEATS or (high is not c.MAXREPEAT and high > REPEATS):
                    raise Unreadable(f"{self._where}: it repeats a part more than {REPEATS} times.")
                more, _deeper = self._judge(list(body), True)
                single = len(body) == 1 and body[0][0] in (c.LITERAL, c.NOT_LITERAL, c.ANY, c.IN)
                free, nested = free + 1 + more, nested or inside or not single
            elif kind is c.SUBPATTERN:
                nested = nested or bool(value[1] or value[2])
                more, deeper = self._judge(list(value[3]), inside)
                free, nested = free + more, nested or deeper
            elif kind is c.BRANCH:
                for each in value[1]:
                    more, deeper = self._judge(list(each), inside)
                    free, nested = free + more, nested or deeper
            elif kind in (c.ASSERT, c.ASSERT_NOT):
                more, deeper = self._judge(list(value[1]), inside)
                free, nested = free + more, nested or deeper
            elif kind is c.ATOMIC_GROUP:
                more, deeper = self._judge(list(value), inside)
                free, nested = free + more, nested or deeper
            elif kind in (c.GROUPREF, c.GROUPREF_EXISTS, c.GROUPREF_IGNORE):
                raise Unreadable(f"{self._where}: it refers back to a group, which no list of modules needs.")
        return free, nested


class _Run:
    """One text, compared: all ways through the expression at once, as a set of places that moves along."""

    def __init__(self, text: str, flags: int, where: str) -> None:
        self.text, self.flags, self.where, self.left = text, flags, where, STEPS
        self.takers: dict[int, Places] = {}

    def of(self, tree: Tree, places: Places) -> Places:
        """Return where a sequence of parts can end that begins at any of these places."""
        for part in tree:
            if places:
                places = self._part(part, places)
        return places

    def _part(self, part: tuple[t.Any, t.Any], places: Places) -> Places:
        kind, value = part
        self.left -= 1
        if self.left < 0:
            raise Unreadable(f"{self.where}: the expression takes more than {STEPS} steps.")
        if kind in (c.MAX_REPEAT, c.MIN_REPEAT, c.POSSESSIVE_REPEAT):
            return self._repeated(value[0], value[1], value[2], places)
        if kind is c.SUBPATTERN:
            return self.of(value[3], places)
        if kind is c.ATOMIC_GROUP:
            return self.of(value, places)
        if kind is c.BRANCH:
            return functools.reduce(operator.or_, (self.of(each, places) for each in value[1]), 0)
        if kind in (c.ASSERT, c.ASSERT_NOT):
            return self._only(places, lambda at: self._sees(value[0], value[1], at) is (kind is c.ASSERT))
        if kind is c.AT:
            return self._only(places, lambda at: self._stands(value, at))
        if id(part) not in self.takers:
            taken = (1 << at for at, letter in enumerate(self.text) if self._takes(kind, value, letter))
            self.takers[id(part)] = functools.reduce(operator.or_, taken, 0)
        return (places & self.takers[id(part)]) << 1

    def _only(self, places: Places, stays: t.Callable[[int], bool]) -> Places:
        every = (at for at in range(len(self.text) + 1) if places >> at & 1)
        return functools.reduce(operator.or_, (1 << at for at in every if stays(at)), 0)

    def _sees(self, ahead: int, body: Tree, at: int) -> bool:
        if ahead > 0:
            return self.of(body, 1 << at) != 0
        return any(self.of(body, 1 << begin) >> at & 1 for begin in range(at + 1))

    def _repeated(self, low: int, high: t.Any, body: Tree, places: Places) -> Places:
        reached, found = places, places if low == 0 else 0
        count = 0
        while reached and (high is c.MAXREPEAT or count < int(high)):
            after = self.of(body, reached)
            # Once nothing moves any more, the counts that are still missing change nothing.
            count = max(count + 1, low) if after == reached else count + 1
            reached = after
            if count >= low:
                reached &= ~found
                found |= reached
        return found

    def _stands(self, where: t.Any, at: int) -> bool:
        text = self.text
        if where in (c.AT_BEGINNING, c.AT_BEGINNING_STRING):
            return at == 0
        if where is c.AT_END_STRING:
            return at == len(text)
        if where is c.AT_END:
            return at == len(text) or (at == len(text) - 1 and text[at] == "\n")
        word = [0 <= place < len(text) and (text[place].isalnum() or text[place] == "_") for place in (at - 1, at)]
        return (word[0] != word[1]) is (where is c.AT_BOUNDARY)

    def _takes(self, kind: t.Any, value: t.Any, letter: str) -> bool:
        """Whether a part that stands for one character takes this one."""
        letters = {letter, letter.lower(), letter.upper()} if self.flags & re.IGNORECASE else {letter}
        if kind is c.LITERAL:
            return chr(value) in letters
        if kind is c.NOT_LITERAL:
            return chr(value) not in letters
        if kind is c.ANY:
            return letter != "\n" or bool(self.flags & re.DOTALL)
        if kind is c.IN:
            negated = bool(value) and value[0][0] is c.NEGATE
            found = any(self._within(each, one) for each in value[negated:] for one in letters)
            return bool(found is not negated)
        return False

    def _within(self, each: tuple[t.Any, t.Any], letter: str) -> bool:
        kind, value = each
        if kind is c.LITERAL:
            return bool(ord(letter) == value)
        if kind is c.RANGE:
            return bool(value[0] <= ord(letter) <= value[1])
        word = letter.isalnum() or letter == "_"
        meant = {"DIGIT": letter.isdecimal(), "SPACE": letter.isspace(), "WORD": word}
        name = str(value).removeprefix("CATEGORY_")
        return meant[name.removeprefix("NOT_")] is not name.startswith("NOT_")
