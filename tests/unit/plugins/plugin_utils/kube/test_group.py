"""Waiting for a group of ranks."""

from __future__ import annotations

import types
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import ask, group, settings


@pytest.mark.parametrize(
    ("state", "mark", "other"), [("gone", "not_gone", "timed_out"), ("ready", "timed_out", "not_gone")]
)
def test_a_wait_in_vain_is_marked(monkeypatch: pytest.MonkeyPatch, state: str, mark: str, other: str) -> None:
    """Old ranks that stay say nothing of the new ones, which have not been started."""
    marks = {"annotations": {settings.PLAN: "p"}, "labels": {settings.RANK: "0"}}
    pod = {
        "metadata": {"name": "serve-x-rank0-0", "namespace": "x", **marks},
        "spec": {},
        "status": {"phase": "Running"},
    }
    monkeypatch.setattr(ask, "of_instance", lambda *_asked: [pod])
    monkeypatch.setattr(ask, "objects", lambda *_asked: [])
    action = t.cast(ask.Action, types.SimpleNamespace(_task=types.SimpleNamespace(check_mode=False)))
    asked = {"namespace": "x", "instance": "x", "state": state, "plan": "p", "ranks": 1, "timeout": 0, "interval": 0}
    made = group.wait(action, asked, {})
    assert made["failed"] and made[mark] is True and other not in made
