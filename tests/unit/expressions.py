"""Regular expressions taken apart: whether repeats are nested, and how many steps a backtracking search takes.

`steps` walks an expression as Python's engine does (the parts that signatures use), and counts instead of taking time.
"""

from __future__ import annotations

import sys
import typing as t
from re import _constants as c  # type: ignore[attr-defined,unused-ignore]
from re import _parser  # type: ignore[attr-defined,unused-ignore]

REPEATS = (c.MAX_REPEAT, c.MIN_REPEAT, c.POSSESSIVE_REPEAT)
SINGLE = (c.LITERAL, c.NOT_LITERAL, c.ANY, c.IN)
Then = t.Callable[[int], bool]


def walk(parsed: t.Iterable[t.Any]) -> t.Iterator[tuple[t.Any, t.Any]]:
    """Yield all parts of a parsed expression, from the outside in."""
    for operation, argument in parsed:
        yield operation, argument
        for inner in _inners(argument):
            yield from walk(inner)


def _inners(argument: t.Any) -> t.Iterator[t.Any]:
    if isinstance(argument, _parser.SubPattern):
        yield argument
    elif isinstance(argument, (tuple, list)):
        for item in argument:
            yield from _inners(item)


def nested(pattern: str) -> bool:
    """Whether a repeat is inside another repeat (`?` is no repeat)."""
    return any(
        inner in REPEATS and int(value[1]) > 1
        for operation, argument in walk(_parser.parse(pattern))
        if operation in REPEATS and int(argument[1]) > 1
        for inner, value in walk(argument[2])
    )


def free_repeats(pattern: str) -> int:
    """How many repeats there are."""
    return sum(op in REPEATS and int(argument[1]) > 1 for op, argument in walk(_parser.parse(pattern)))


def worst_lines(example: str, length: int) -> list[str]:
    """Return lines that nearly match: an example, or its beginning, repeated, and beginnings with a long tail."""
    flat = " ".join(example.split())
    cuts = sorted({max(1, len(flat) * part // 6) for part in range(1, 7)})
    starts = [flat[:cut] for cut in cuts]
    again = [(start * length)[:length] for start in starts]
    tails = [(start + start[-1] * length)[: max(length, len(start) + length // 2)] for start in starts]
    return [*again, *tails]


def steps(pattern: str, text: str) -> int:
    """Count the steps of a search of `text` for `pattern`."""
    parsed = _parser.parse(pattern)
    search = _Search(text)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20000)
    try:
        for start in range(len(text) + 1):
            if search.match(list(parsed), 0, start, lambda _end: True):
                break
    finally:
        sys.setrecursionlimit(limit)
    return search.count


class _Search:
    def __init__(self, text: str) -> None:
        self.text = text
        self.count = 0

    def match(self, items: list[tuple[t.Any, t.Any]], at: int, pos: int, then: Then) -> bool:
        if at == len(items):
            return then(pos)
        operation, argument = items[at]
        self.count += 1

        def rest(end: int) -> bool:
            return self.match(items, at + 1, end, then)

        if operation in SINGLE:
            return pos < len(self.text) and self.one(operation, argument, self.text[pos]) and rest(pos + 1)
        if operation in REPEATS:
            return self.repeat(operation, argument, pos, rest)
        if operation is c.BRANCH:
            return any(self.match(list(branch), 0, pos, rest) for branch in argument[1])
        if operation is c.SUBPATTERN:
            return self.match(list(argument[3]), 0, pos, rest)
        if operation in (c.ASSERT, c.ASSERT_NOT):
            direction, body = argument
            starts = [pos] if direction > 0 else range(pos + 1)
            found = any(self.match(list(body), 0, s, lambda end: direction > 0 or end == pos) for s in starts)
            return found == (operation is c.ASSERT) and rest(pos)
        if operation is c.AT:
            return self.anchor(argument, pos) and rest(pos)
        raise AssertionError(f"{operation} is not known here: add it")

    def repeat(self, operation: t.Any, argument: t.Any, pos: int, rest: Then) -> bool:
        least, most, body = int(argument[0]), int(argument[1]), list(argument[2])
        if len(body) == 1 and body[0][0] in SINGLE:
            end = pos
            while end < len(self.text) and end - pos < most and self.one(*body[0], self.text[end]):
                self.count += 1
                end += 1
            ends = range(pos + least, end + 1)
            return any(rest(e) for e in (ends if operation is c.MIN_REPEAT else reversed(ends)))

        def more(done: int, here: int) -> bool:
            def again(end: int) -> bool:
                return end > here and more(done + 1, end)

            enough = done >= least
            if operation is c.MIN_REPEAT and enough and rest(here):
                return True
            if done < most and self.match(body, 0, here, again):
                return True
            return operation is not c.MIN_REPEAT and enough and rest(here)

        return more(0, pos)

    def one(self, operation: t.Any, argument: t.Any, char: str) -> bool:
        if operation is c.LITERAL:
            return ord(char) == argument
        if operation is c.NOT_LITERAL:
            return ord(char) != argument
        return char != "\n" if operation is c.ANY else self.member(argument, char)

    def member(self, members: t.Any, char: str) -> bool:
        negate = members[0][0] is c.NEGATE
        found = False
        for kind, value in members:
            if kind is c.LITERAL:
                found = found or ord(char) == value
            elif kind is c.RANGE:
                found = found or value[0] <= ord(char) <= value[1]
            elif kind is c.CATEGORY:
                found = found or _category(value, char)
        return found != negate

    def anchor(self, where: t.Any, pos: int) -> bool:
        if where in (c.AT_BEGINNING, c.AT_BEGINNING_STRING):
            return pos == 0
        if where in (c.AT_END, c.AT_END_STRING):
            return pos == len(self.text)
        inside = [0 < p <= len(self.text) and _category(c.CATEGORY_WORD, self.text[p - 1]) for p in (pos, pos + 1)]
        return (inside[0] != inside[1]) == (where is c.AT_BOUNDARY)


def _category(kind: t.Any, char: str) -> bool:
    names = {
        c.CATEGORY_DIGIT: char.isdigit(),
        c.CATEGORY_SPACE: char.isspace(),
        c.CATEGORY_WORD: char.isalnum() or char == "_",
    }
    if kind in names:
        return names[kind]
    opposite = {
        c.CATEGORY_NOT_DIGIT: c.CATEGORY_DIGIT,
        c.CATEGORY_NOT_SPACE: c.CATEGORY_SPACE,
        c.CATEGORY_NOT_WORD: c.CATEGORY_WORD,
    }
    return not names[opposite[kind]]
