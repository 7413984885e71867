"""One run of a matrix with fake steps: journal, rows and page as an owner finds them, by the real planner."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
import yaml

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix import session
from ansible_collections.dgxspark.cluster.tests.unit import matrix_driven

CLUSTER = {"hosts": ["spark1", "spark2", "spark3", "spark4"]}


class Crashing(matrix_driven.Scripted):
    """Steps in which no case comes up. killed: the run ends before it restores, as a killed run does."""

    killed = False

    def __init__(self, folder: pathlib.Path, *_more: t.Any) -> None:
        super().__init__(folder)

    def switch(self, case: t.Any, folder: pathlib.Path) -> matrix_driven.Step:
        self.serving.write_text(case.id)
        return matrix_driven.Step(False, "rank2 on spark3: it ended with exit status 1 (Error).")

    def collect(self, case: t.Any, folder: pathlib.Path) -> matrix_driven.Step:
        return matrix_driven.Step(True, data={"logs": {"rank2": matrix_driven.LINES["startup_crash"]}})

    def restore(self) -> matrix_driven.Step:
        if self.killed:
            raise KeyboardInterrupt
        return super().restore()


@pytest.fixture
def asked_for(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> session.MatrixRequest:
    entry = {**matrix_driven.ENTRY, "axes": {"chunked_prefill_size": [2048, 4096]}, "base": {"variant": "steps-6"}}
    (tmp_path / "mine.yml").write_text(yaml.safe_dump(entry))
    (tmp_path / "owner").mkdir()
    monkeypatch.setattr(session, "Playbooks", Crashing)
    monkeypatch.setattr(session, "Stopping", lambda: lambda: False)
    return session.MatrixRequest(
        matrix=str(tmp_path / "mine.yml"),
        folder=str(tmp_path / "mine"),
        cluster=CLUSTER,
        overrides={},
        knowledge_dirs=(str(tmp_path / "owner"),),
        rows_to=str(tmp_path / "owner"),
    )


def test_a_run_killed_after_its_last_case_ends_well_though_all_cases_crashed(
    asked_for: session.MatrixRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their rows block all of them in the plan."""
    folder = pathlib.Path(asked_for.folder)
    monkeypatch.setattr(Crashing, "killed", True)
    with pytest.raises(KeyboardInterrupt):
        session.measure(asked_for, [], print)
    assert (folder / "serving").read_text() != matrix_driven.BEFORE
    monkeypatch.setattr(Crashing, "killed", False)
    with pytest.raises(CollectionError, match="no case would run"):
        session.planned(asked_for)
    ended = session.measure(asked_for, [], print)
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
        )
