"""Waiting for a group of ranks."""

from __future__ import annotations

import types
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import ask, group


def test_a_wait_in_vain_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    pod = {"metadata": {"name": "serve-x-rank0-0", "namespace": "x"}, "spec": {}, "status": {"phase": "Running"}}
    monkeypatch.setattr(ask, "of_instance", lambda *_asked: [pod])
    monkeypatch.setattr(ask, "objects", lambda *_asked: [])
    action = t.cast(ask.Action, types.SimpleNamespace(_task=types.SimpleNamespace(check_mode=False)))
    asked = {"namespace": "x", "instance": "x", "state": "gone", "timeout": 0, "interval": 0}
    made = group.wait(action, asked, {})
    assert made["failed"] and made["timed_out"] is True
