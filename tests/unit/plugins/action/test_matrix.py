"""How the action reads a task's arguments; tests of the loop itself are in plugin_utils/matrix and tests/api/test_matrix.py."""

from __future__ import annotations

import typing as t

import pytest
import yaml
from ansible._internal._datatag._tags import Origin

from ansible_collections.dgxspark.cluster.plugins.action import matrix
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix import session
from ansible_collections.dgxspark.cluster.tests.unit.actions import run


def test_what_an_owner_s_variables_say_can_be_written_as_yaml(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ansible tags strings with their origin, which YAML cannot dump: a matrix's rows contain the image's name."""
    seen: list[session.MatrixRequest] = []

    def measure(request: session.MatrixRequest, *_rest: t.Any) -> dict[str, t.Any]:
        seen.append(request)
        return {"ended": "whole", "measured": 0, "message": ""}

    monkeypatch.setattr(session, "measure", measure)
    monkeypatch.setattr(matrix, "options", list)
    image = Origin(description="inventory").tag("localhost/engine:lab")
    run("matrix", matrix="one", folder="/tmp/none", rows_to="/tmp/none", cluster={}, image=image)
    assert yaml.safe_dump([seen[0].image]) == "- localhost/engine:lab\n"
