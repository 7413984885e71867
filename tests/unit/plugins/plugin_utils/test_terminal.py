"""What is printed for people does not break output that a program reads, whichever action prints it."""

from __future__ import annotations

import pathlib

import pytest
from ansible import constants

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import terminal

ACTIONS = pathlib.Path(terminal.__file__).parents[1] / "action"


@pytest.mark.parametrize("callback", ["json", "ansible.posix.json", "ansible.posix.jsonl", "default"])
def test_a_line_is_for_people(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, callback: str
) -> None:
    monkeypatch.setattr(constants, "DEFAULT_STDOUT_CALLBACK", callback)
    terminal.say("kube_wait: going on")
    out, err = capsys.readouterr()
    people, programs = (out, err) if callback == "default" else (err, out)
    assert "kube_wait: going on" in people
    assert programs == ""


def test_no_action_prints_past_it() -> None:
    assert [path.name for path in ACTIONS.glob("*.py") if "display.display" in path.read_text(encoding="utf-8")] == []
