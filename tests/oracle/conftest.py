"""The oracle lane: argument lists of this collection, judged by the engines' own parsers.

A test that takes `answer` is parametrized with `asked`: all questions of the selected tests to one engine version are put
in one process. Packages come from pip (kept in .cache/oracle); if one cannot be downloaded, the test is *not run*.
"""

from __future__ import annotations

import pathlib
import sys
import typing as t

import pytest

HERE = pathlib.Path(__file__).resolve().parent
for _place in (HERE, HERE.parents[1] / "tools"):
    if str(_place) not in sys.path:
        sys.path.insert(0, str(_place))

from engine_parsers import oracle  # noqa: E402
from engine_parsers.sources import NotAvailable  # noqa: E402


class Asked(t.Protocol):
    """One question to one engine version."""

    engine: str
    version: str

    def case(self) -> oracle.Case: ...


_answers: dict[tuple[str, str], dict[t.Any, oracle.Answer] | NotAvailable] = {}


def _questions(session: pytest.Session, engine: str, version: str) -> list[Asked]:
    found = []
    for item in session.items:
        asked = getattr(item, "callspec", None) and item.callspec.params.get("asked")
        if asked is not None and (asked.engine, asked.version) == (engine, version) and asked not in found:
            found.append(asked)
    return found


@pytest.fixture
def answer(asked: Asked, request: pytest.FixtureRequest) -> oracle.Answer:
    """Return what the engine said to the question `asked`."""
    key = (asked.engine, asked.version)
    if key not in _answers:
        questions = _questions(request.session, *key)
        try:
            said = oracle.ask(*key, [question.case() for question in questions])
            _answers[key] = {id(question): one for question, one in zip(questions, said, strict=True)}
        except NotAvailable as exc:
            _answers[key] = exc
    held = _answers[key]
    if isinstance(held, NotAvailable):
        pytest.skip(f"not run: {held}")
    return held[id(asked)] if id(asked) in held else oracle.ask(*key, [asked.case()])[0]
