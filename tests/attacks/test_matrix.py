"""Journals of a matrix that someone has edited: one error, and what served before serves again."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.html_report import matrix_page
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix import session
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix.journal import NAME
from ansible_collections.dgxspark.cluster.tests.support.crashing_matrix import Crashing, asked_for
from ansible_collections.dgxspark.cluster.tests.unit import matrix_driven

__all__ = ["asked_for"]


def edits(line: dict[str, t.Any]) -> t.Iterator[str]:
    """Yield a line without each of its keys, with each of another type, and damaged."""
    for key in ("case", "outcome", "runs", "finished", "seconds", "line"):
        if key in line:
            yield json.dumps({name: value for name, value in line.items() if name != key})
            yield json.dumps(line | {key: [3]})
    yield from ("[]", "{", '{"event": "case"}', "1" * 5000, "[" * 50_000)


def test_an_edited_journal_is_one_error_and_the_model_before_is_restored(
    asked_for: session.MatrixRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = pathlib.Path(asked_for.folder)
    monkeypatch.setattr(Crashing, "killed", True)
    with pytest.raises(KeyboardInterrupt):
        session.measure(asked_for, [], print, matrix_page.page)
    monkeypatch.setattr(Crashing, "killed", False)
    journal = folder / NAME
    lines = journal.read_text().splitlines()
    refused = 0
    for number in (len(lines) - 1,):
        for edit in edits(json.loads(lines[number])):
            journal.write_text("\n".join([*lines[:number], edit, *lines[number + 1 :]]) + "\n")
            (folder / "serving").write_text("a case of the matrix")
            (folder / "before").write_text(matrix_driven.BEFORE)
            try:
                session.measure(asked_for, [], print, matrix_page.page)
            except CollectionError as exc:
                refused += 1
                assert str(journal) in str(exc) and len(str(exc)) < 2000
            assert (folder / "serving").read_text() == matrix_driven.BEFORE
    assert refused > 8
