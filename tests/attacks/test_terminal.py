"""What is said on the terminal has no control characters, whoever wrote it: a recipe, a model, a server, a node."""

from __future__ import annotations

import pytest
from ansible.utils.display import Display

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.terminal import say
from ansible_collections.dgxspark.cluster.tests.unit.actions import run

ESCAPES = "model\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\r"


def test_lines_of_a_plan_or_a_bench_are_printed_without_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(Display, "display", lambda _self, text, **_more: said.append(text))
    run("show", lines=[ESCAPES, "\ta table"])
    say(f"{ESCAPES}\nnext")
    assert said and all(not set(text) & set("\x1b\x07\x9b\u202e\r") for text in said)
    assert "\n\ta table" in said[0] and said[1].endswith("\nnext")


def test_an_error_of_an_action_is_plain() -> None:
    made = run("nccl_transport", {}, text="", expect="any", parts=[{"\x1b[2J": ESCAPES}])
    assert made["failed"] and "\x1b" not in made["msg"]
