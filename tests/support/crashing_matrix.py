"""A matrix of two cases, none of which comes up, and what is asked of its run."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
import yaml

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
