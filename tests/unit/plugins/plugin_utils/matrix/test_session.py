"""One run of a matrix with fake steps: journal, rows and page as an owner finds them, by the real planner."""

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.html_report import matrix_page
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix import session
from ansible_collections.dgxspark.cluster.tests.support.crashing_matrix import Crashing, asked_for
from ansible_collections.dgxspark.cluster.tests.unit import matrix_driven

__all__ = ["asked_for"]


def test_a_run_killed_after_its_last_case_ends_well_though_all_cases_crashed(
    asked_for: session.MatrixRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their rows block all of them in the plan."""
    folder = pathlib.Path(asked_for.folder)
    monkeypatch.setattr(Crashing, "killed", True)
    with pytest.raises(KeyboardInterrupt):
        session.measure(asked_for, [], print, matrix_page.page)
    assert (folder / "serving").read_text() != matrix_driven.BEFORE
    monkeypatch.setattr(Crashing, "killed", False)
    with pytest.raises(CollectionError, match="no case would run"):
        session.planned(asked_for)
    ended = session.measure(asked_for, [], print, matrix_page.page)
    assert (folder / "serving").read_text() == matrix_driven.BEFORE
    assert (ended["measured"], ended["left"], ended["ended"]) == (0, 0, "done")
    assert "start-up crash" in "\n".join(ended["table"])


def test_where_nothing_was_measured_and_nothing_would_run_it_is_refused(asked_for: session.MatrixRequest) -> None:
    refused = {"settings": {"tp_size": 3}, "parallel": {"nodes": 4, "tp": 3}}
    with pytest.raises(CollectionError, match="no case would run"):
        session.measure(
            session.MatrixRequest(**{k: getattr(asked_for, k) for k in asked_for.__slots__} | {"overrides": refused}),
            [],
            print,
            matrix_page.page,
        )
