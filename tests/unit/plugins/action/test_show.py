"""The action plugin show: lines in, the same lines on the terminal, nothing changed."""

from __future__ import annotations

import types
import typing as t

import pytest
from ansible import constants
from ansible.errors import AnsibleError
from ansible.playbook.task import Task

from ansible_collections.dgxspark.cluster.plugins.action.show import ActionModule


def run(**arguments: t.Any) -> dict[str, t.Any]:
    task = Task()
    task.args = arguments
    connection = types.SimpleNamespace(_shell=types.SimpleNamespace(tmpdir=None))
    return dict(ActionModule(task, connection, None, None, None, None).run(task_vars={}))


def test_lines_stand_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    result = run(lines=["a   'b'", "", "  - c: \\n"])
    assert capsys.readouterr().out == "a   'b'\n\n  - c: \\n\n"
    assert (result["changed"], result["count"]) == (False, 3)


@pytest.mark.parametrize("callback", ["json", "ansible.posix.json", "ansible.posix.jsonl"])
def test_what_a_program_reads_is_not_spoilt(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, callback: str
) -> None:
    monkeypatch.setattr(constants, "DEFAULT_STDOUT_CALLBACK", callback)
    result = run(lines=["a", "b"])
    out, err = capsys.readouterr()
    assert (out, result["lines"]) == ("", ["a", "b"])
    assert "a\nb" in err


@pytest.mark.parametrize("arguments", [{}, {"lines": ["a"], "colour": "red"}])
def test_wrong_arguments_are_refused(arguments: dict[str, t.Any]) -> None:
    with pytest.raises(AnsibleError, match=r"lines|colour"):
        run(**arguments)
