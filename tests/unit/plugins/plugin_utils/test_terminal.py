"""What is printed for people does not break output that a program reads, whichever action prints it."""

from __future__ import annotations

import os
import pathlib
import sys

import pytest
from ansible import constants

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import terminal
from ansible_collections.dgxspark.cluster.tests.support.tty import Tty

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


def test_progress_is_a_line_when_it_is_new_and_not_too_often(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(terminal, "say", said.append)
    clock = [100.0]
    progress = terminal.Progress(lambda: clock[0], pause=15.0)
    for clock[0], state in (
        (102.0, "1 of 20 GiB"),
        (110.0, "2 of 20 GiB"),  # too soon
        (120.0, "2 of 20 GiB"),
        (140.0, "2 of 20 GiB"),  # nothing new
        (150.0, ""),
        (400.0, "20 of 20 GiB"),
    ):
        progress.tell(state)
    assert said == ["…        1 of 20 GiB (2 s)", "…        2 of 20 GiB (20 s)", "…        20 of 20 GiB (5 min 0 s)"]


WHICH = (
    "from ansible_collections.dgxspark.cluster.plugins.plugin_utils import terminal; print(f'[{terminal.TERMINAL}]')"
)


@pytest.mark.parametrize(
    ("command", "term", "drawn"),
    [
        ('exec "$0" -c "$1"', "xterm", True),
        ('exec "$0" -c "$1"', "dumb", False),
        ('set -m; "$0" -c "$1" & wait', "xterm", False),  # in the background: the terminal is the shell's
        ('"$0" -c "$1" | cat', "xterm", False),
        ('exec "$0" -c "$1" </dev/null', "xterm", True),
    ],
)
def test_the_terminal_is_drawn_on_only_if_it_is_one_and_ours(
    tmp_path: pathlib.Path, command: str, term: str, drawn: bool
) -> None:
    run = f"export TERM={term}; {command}"
    # The environment may name no place of the collection.
    found_at = {"PYTHONPATH": os.pathsep.join(sys.path)}
    tty = Tty(["/bin/bash", "-c", run, sys.executable, WHICH], tmp_path, {**os.environ, **found_at})
    said = tty.until(lambda text: "]" in text)
    tty.end()
    assert ("[/dev/" in said) == drawn and ("[]" in said) != drawn, said
