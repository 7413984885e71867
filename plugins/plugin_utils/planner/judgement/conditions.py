# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""JMESPath conditions over a plan's document, with a third result if the document does not know a fact.

`jmespath` evaluates. An unknown fact is tried with every value that could change the result: the literals of the
condition, the neighbors of its numbers, and a value it does not name. If the results differ, the answer is unknown.
"""

from __future__ import annotations

import functools
import itertools
import json
import typing as t
from collections.abc import Mapping
from dataclasses import dataclass

try:
    import jmespath
    import jmespath.visitor
except ImportError as exc:
    jmespath = None
    JMESPATH_ERROR: ImportError | None = exc
    ERRORS: tuple[type[Exception], ...] = (TypeError,)
else:
    JMESPATH_ERROR = None
    ERRORS = (jmespath.exceptions.JMESPathError, TypeError)  # TypeError: jmespath compares 'a' < 1

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge

Node = t.Mapping[str, t.Any]
Document = t.Mapping[str, t.Any]
Path = tuple[str, ...]  # keys of a document from the top
# Unknown facts: a path of the document → its possible values, empty if open. A parent path stands for all paths below it
# for which the document has no value.
Unknown = t.Mapping[Path, t.Sequence[t.Any]]
MOST = 512  # trials per condition; the shipped ones need a few dozen
_OTHER = "\x00other"  # a string that no condition names


def true(value: t.Any) -> bool:
    """Whether JMESPath treats a value as true: empty is false, 0 is not."""
    return not (value is None or value is False or value in ("", [], {})) or (value == 0 and value is not False)


def _walk(node: Node) -> t.Iterator[Node]:
    yield node
    for child in node.get("children", ()):
        if isinstance(child, dict):
            yield from _walk(child)


def _path(node: Node) -> Path | None:
    """Return the names of a.b.c; None for any other expression."""
    if node["type"] == "field":
        return (node["value"],)
    if node["type"] != "subexpression":
        return None
    parts = [_path(child) for child in node["children"]]
    return None if None in parts else tuple(name for part in parts for name in part or ())


def _paths(node: Node) -> t.Iterator[Path]:
    path = _path(node)
    if path:
        yield path
        return
    for child in node.get("children", ()):
        if isinstance(child, dict):
            yield from _paths(child)


def _candidates(parsed: Node) -> tuple[t.Any, ...]:
    """Return values that may change an expression's result, wherever they occur."""
    found: list[t.Any] = [True, False, _OTHER]
    for node in _walk(parsed):
        if node["type"] != "literal":
            continue
        value = node["value"]
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        found += [value - 1, value, value + 1] if number else [value]
    return _distinct([value for value in found if value != "" and value is not None])


def _distinct(values: t.Iterable[t.Any]) -> tuple[t.Any, ...]:
    """Return the values in order without duplicates; 1, 1.0 and true are distinct."""
    kept: list[t.Any] = []
    for value in values:
        if not any(value is other or (value == other and type(value) is type(other)) for other in kept):
            kept.append(value)
    return tuple(kept)


@dataclass(frozen=True, eq=False)
class Term:
    """One operand of a condition's `&&`. reads: the dotted paths it reads, tops: their first names;
    candidates: values that may change its result.

    Rules that share a term share the object, so a view evaluates it once.
    """

    parsed: Node
    reads: tuple[Path, ...]
    tops: frozenset[str]
    candidates: tuple[t.Any, ...]

    def holds(self, document: Document) -> bool:
        """Whether the term is true of this document."""
        return true(_interpreter().visit(self.parsed, document))


@dataclass(frozen=True, eq=False)
class Condition:
    """One condition: it holds if all its terms do, evaluated in the order in which they are written."""

    text: str
    parsed: Node
    terms: tuple[Term, ...]

    @functools.cached_property
    def reads(self) -> frozenset[Path]:
        """The dotted paths that the condition reads."""
        return frozenset(path for term in self.terms for path in term.reads)

    @functools.cached_property
    def projects(self) -> bool:
        """Whether a part of it is evaluated on the elements of a list, or on another part's result."""
        return any(
            "projection" in node["type"] or node["type"] in ("pipe", "expref", "flatten") for node in _walk(self.parsed)
        )

    def value(self, document: Document) -> t.Any:
        """Evaluate the expression on this document."""
        return _interpreter().visit(self.parsed, document)

    def holds(self, document: Document, unknown: Unknown | None = None) -> bool | None:
        """Whether the condition holds; None if that depends on an unknown fact."""
        return View(document, unknown).holds(self)


class View:
    """One document during the evaluation of conditions; it must not change meanwhile."""

    def __init__(self, document: Document, unknown: Unknown | None = None) -> None:
        self.document = document
        self.unknown = unknown or {}
        self._tops = {path[0] for path in self.unknown}
        self._answers: dict[Term, bool | None] = {}

    def holds(self, condition: Condition) -> bool | None:
        """Whether a condition holds; None if that depends on an unknown fact."""
        hanging: list[Term] = []
        for term in condition.terms:
            try:
                answer = self._term(term)
            except ERRORS:
                if not hanging:
                    raise
                answer = None  # an undecided term before it may be false, and then it is never evaluated
            if answer is False:
                return False
            if answer is None:
                hanging.append(term)
        return self._tried(hanging) if len(hanging) > 1 else None if hanging else True

    def hangs_on(self, condition: Condition) -> set[Path]:
        """Return the unknown paths that a condition without a result depends on."""
        hanging = [term for term in condition.terms if self._answers.get(term) is None]
        return {path for term in hanging for path in self._open(term)}

    def holding(self, condition: Condition, path: Path) -> list[str]:
        """Return the values of an unknown setting with which a condition may hold, as far as they have names."""
        candidates = self.unknown.get(path) or _distinct([v for term in condition.terms for v in term.candidates])
        others = {above: among for above, among in self.unknown.items() if above != path}
        found = []
        for value in candidates:
            if isinstance(value, str) and value != _OTHER:
                try:
                    holds = View(_with(self.document, {path: value}), others).holds(condition)
                except ERRORS:
                    continue
                found += [value] if holds is not False else []
        return found

    def _term(self, term: Term) -> bool | None:
        if term in self._answers:
            return self._answers[term]
        open_facts = not self._tops.isdisjoint(term.tops) and self._open(term)
        answer = self._tried((term,)) if open_facts else term.holds(self.document)
        self._answers[term] = answer
        return answer

    def _open(self, term: Term, candidates: tuple[t.Any, ...] = ()) -> dict[Path, t.Sequence[t.Any]]:
        """Return the unknown paths that a term reads, with the values to try."""
        asked: dict[Path, t.Sequence[t.Any]] = {}
        for path in term.reads:
            for above, among in self.unknown.items():
                if path == above:
                    asked[path] = among or candidates
                elif path[: len(above)] == above and _at(self.document, path) is None:
                    asked[path] = candidates
        return asked

    def _tried(self, terms: t.Sequence[Term]) -> bool | None:
        """Try all values of the unknown facts; None if the results differ or there are too many combinations."""
        candidates = _distinct([value for term in terms for value in term.candidates])
        asked = {path: among for term in terms for path, among in self._open(term, candidates).items()}
        answers: set[bool] = set()
        trials = itertools.product(*asked.values())
        for values in itertools.islice(trials, MOST):
            document = _with(self.document, dict(zip(asked, values, strict=True)))
            try:
                answers.add(all(term.holds(document) for term in terms))
            except ERRORS:
                continue  # a value that the condition cannot compare is not a possible one
            if len(answers) == 2:
                return None
        return answers.pop() if len(answers) == 1 and next(trials, None) is None else None


def _at(document: Document, path: Path) -> t.Any:
    place: t.Any = document
    for name in path:
        place = place.get(name) if isinstance(place, Mapping) else None
    return place


def _with(document: Document, values: t.Mapping[Path, t.Any]) -> dict[str, t.Any]:
    """Return a copy of the document with values at paths."""
    out = dict(document)
    for path, value in values.items():
        place = out
        for name in path[:-1]:
            inner = place.get(name)
            place[name] = dict(inner) if isinstance(inner, Mapping) else {}
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


def failure(where: str, exc: Exception) -> CollectionError:
    """Wrap an exception that jmespath raised on incomparable facts (one of ERRORS) in an error that begins with `where`."""
    return CollectionError(f"{where}: when: {' '.join(str(exc).split())}")


@functools.cache
def _interpreter() -> t.Any:
    # Shared: `search` creates one per call, which takes longer than evaluating most conditions.
    return jmespath.visitor.TreeInterpreter()


@functools.lru_cache(maxsize=4096)
def _term(parsed: str) -> Term:
    """Return the term of a parsed expression in JSON: one object for all conditions that contain it."""
    node = json.loads(parsed)
    reads = tuple(dict.fromkeys(_paths(node)))
    return Term(node, reads, frozenset(path[0] for path in reads), _candidates(node))


def _operands(node: Node) -> t.Iterator[Node]:
    """Yield the operands of the top-level `&&`."""
    if node["type"] == "and_expression":
        for child in node["children"]:
            yield from _operands(child)
    else:
        yield node


@functools.lru_cache(maxsize=1024)
def compiled(text: str, where: str) -> Condition:
    """Compile a condition. KnowledgeError begins with `where` and says what is wrong."""
    if jmespath is None:
        raise CollectionError(
            f"The Python package jmespath is missing on the controller ({JMESPATH_ERROR}). "
            "Install it: pip install 'jmespath>=1.0'"
        )
    try:
        expression = jmespath.compile(text)
    except jmespath.exceptions.JMESPathError as exc:
        said = " ".join(str(exc).split())
        raise knowledge.KnowledgeError(f"{where}: when: {text!r} is not a JMESPath expression: {said}") from exc
    if _slips(expression.parsed):
        raise knowledge.KnowledgeError(f"{where}: when: {text!r}: `!` binds to the first name alone; write !(a.b).")
    terms = [_term(json.dumps(node, sort_keys=True)) for node in _operands(expression.parsed)]
    return Condition(text, expression.parsed, tuple(terms))
