# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""JMESPath conditions over a plan's document, with a third answer where the document does not know a fact.

`jmespath` evaluates. A fact that is unknown is tried with every value that could change the answer: the literals of the
condition, what lies beside its numbers, and a value that it does not name. The answers differ: nobody knows.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import typing as t
from dataclasses import dataclass

try:
    import jmespath
    import jmespath.visitor
except ImportError as exc:
    jmespath = None
    JMESPATH_ERROR: ImportError | None = exc
else:
    JMESPATH_ERROR = None

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import FabricError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge

Node = t.Mapping[str, t.Any]
Document = t.Mapping[str, t.Any]
# What nobody knows: a path of the document → all that it may be, empty where that is open. A path above others stands for
# all of them that the document has no value of.
Unknown = t.Mapping[tuple[str, ...], t.Sequence[t.Any]]
MOST = 512  # trials of one condition; the shipped ones need a few dozen
_OTHER = "\x00other"  # a text that no condition names


def true(value: t.Any) -> bool:
    """Whether JMESPath takes a value for true: empty is false, 0 is not."""
    return not (value is None or value is False or value in ("", [], {})) or (value == 0 and value is not False)


def _walk(node: Node) -> t.Iterator[Node]:
    yield node
    for child in node.get("children", ()):
        if isinstance(child, dict):
            yield from _walk(child)


def _path(node: Node) -> tuple[str, ...] | None:
    """Return the names of a.b.c; None for any other expression."""
    if node["type"] == "field":
        return (node["value"],)
    if node["type"] != "subexpression":
        return None
    parts = [_path(child) for child in node["children"]]
    return None if None in parts else tuple(name for part in parts for name in part or ())


def _paths(node: Node) -> t.Iterator[tuple[str, ...]]:
    path = _path(node)
    if path:
        yield path
        return
    for child in node.get("children", ()):
        if isinstance(child, dict):
            yield from _paths(child)


def _candidates(parsed: Node) -> tuple[t.Any, ...]:
    """Return values that may turn the condition's answer, wherever they stand."""
    found: list[t.Any] = [True, False, _OTHER]
    for node in _walk(parsed):
        if node["type"] != "literal":
            continue
        value = node["value"]
        found += (
            [value - 1, value, value + 1]
            if isinstance(value, (int, float)) and not isinstance(value, bool)
            else [value]
        )
    kept: list[t.Any] = []
    for value in found:
        if (
            value != ""
            and value is not None
            and not any(value is k or (value == k and type(value) is type(k)) for k in kept)
        ):
            kept.append(value)
    return tuple(kept)


@dataclass(frozen=True, eq=False)
class Condition:
    """One condition. reads: the dotted paths that it asks for; candidates: values that may turn its answer."""

    text: str
    parsed: Node
    visit: t.Callable[[Node, t.Any], t.Any]
    reads: frozenset[tuple[str, ...]]
    candidates: tuple[t.Any, ...]

    def value(self, document: Document) -> t.Any:
        """Return what the expression is of this document."""
        return self.visit(self.parsed, document)

    def holds(self, document: Document, unknown: Unknown | None = None) -> bool | None:
        """Whether the condition holds; None where that hangs on an unknown fact."""
        asked: dict[tuple[str, ...], t.Sequence[t.Any]] = {}
        for path in self.reads if unknown else ():
            for above, among in (unknown or {}).items():
                if path == above:
                    asked[path] = among or self.candidates
                elif path[: len(above)] == above and _at(document, path) is None:
                    asked[path] = self.candidates
        if not asked:
            return true(self.value(document))
        answers: set[bool] = set()
        for values in itertools.islice(itertools.product(*asked.values()), MOST):
            try:
                answers.add(true(self.value(_with(document, dict(zip(asked, values, strict=True))))))
            except (jmespath.exceptions.JMESPathError, TypeError):
                continue  # a value that the condition cannot even compare is none that the fact can have
            if len(answers) == 2:
                return None
        return answers.pop() if answers else None


def _at(document: Document, path: tuple[str, ...]) -> t.Any:
    place: t.Any = document
    for name in path:
        place = place.get(name) if isinstance(place, t.Mapping) else None
    return place


def _with(document: Document, values: t.Mapping[tuple[str, ...], t.Any]) -> dict[str, t.Any]:
    """Return the document with values at paths; nothing in it is changed."""
    out = dict(document)
    for path, value in values.items():
        place = out
        for name in path[:-1]:
            inner = place.get(name)
            place[name] = dict(inner) if isinstance(inner, t.Mapping) else {}
            place = place[name]
        place[path[-1]] = value
    return out


def _slips(node: t.Any) -> bool:
    """Whether a parsed condition has `!a.b`, which JMESPath for Python reads as `(!a).b`: never what is meant."""
    if not isinstance(node, dict):
        return False
    children = node.get("children", [])
    if node.get("type") == "subexpression" and children[0].get("type") == "not_expression":
        return True
    return any(_slips(child) for child in children)


@contextlib.contextmanager
def failures(where: str) -> t.Iterator[None]:
    """Turn what jmespath raises on facts that it cannot compare into a FabricError that begins with `where`."""
    try:
        yield
    except (jmespath.exceptions.JMESPathError, TypeError) as exc:  # TypeError: jmespath compares 'a' < 1
        raise FabricError(f"{where}: when: {' '.join(str(exc).split())}") from exc


@functools.cache
def _interpreter() -> t.Any:
    return jmespath.visitor.TreeInterpreter()


@functools.lru_cache(maxsize=1024)
def compiled(text: str, where: str) -> Condition:
    """Compile a condition; KnowledgeError begins with `where` and says what is wrong with it."""
    if jmespath is None:
        raise FabricError(
            f"The Python package jmespath is missing on the controller ({JMESPATH_ERROR}). "
            "Install it: pip install 'jmespath>=1.0'"
        )
    try:
        expression = jmespath.compile(text)
    except jmespath.exceptions.JMESPathError as exc:
        said = " ".join(str(exc).split())
        raise knowledge.KnowledgeError(f"{where}: when: {text!r} is no JMESPath expression: {said}") from exc
    if _slips(expression.parsed):
        raise knowledge.KnowledgeError(f"{where}: when: {text!r}: `!` binds to the first name alone; write !(a.b).")
    parsed = expression.parsed
    # One interpreter for all: `search` makes one for each call, which takes longer than most conditions.
    return Condition(text, parsed, _interpreter().visit, frozenset(_paths(parsed)), _candidates(parsed))
