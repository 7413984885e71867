"""The action plugin serving_canary against a stand-in server: one request a group, one verdict, no key anywhere."""

from __future__ import annotations

import json
import types
import typing as t

import pytest
from ansible.errors import AnsibleError
from ansible.playbook.task import Task

from ansible_collections.dgxspark.cluster.plugins.action.serving_canary import ActionModule
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.tests.unit.chat_server import ChatServer, sse

KEY = "sk-not-to-be-seen"
BAD = sse(*["! "] * 60, reason="length")


def run(check: bool = False, **arguments: t.Any) -> dict[str, t.Any]:
    task = Task()
    task.args = {"timeout": 20, **arguments}
    task.check_mode = check
    connection = types.SimpleNamespace(_shell=types.SimpleNamespace(tmpdir=None))
    return dict(ActionModule(task, connection, None, None, None, None).run(task_vars={}))


def groups(server: ChatServer, *names: str) -> list[dict[str, t.Any]]:
    return [{"name": name, "url": server.url} for name in names]


@pytest.mark.parametrize("check", [False, True])
def test_a_server_that_answers_passes_and_nothing_is_changed(check: bool) -> None:
    with ChatServer() as server:
        server.answer(sse("One, ", "two.", tokens=4))
        result = run(check, groups=groups(server, "default"), api_key=KEY)
    assert not result.get("failed"), result
    assert result["changed"] is False
    (group,) = result["groups"]
    assert (group["status"], group["tokens"], group["text"]) == ("ok", 4, "One, two.")
    assert server.requests[-1].headers["authorization"] == f"Bearer {KEY}"
    assert KEY not in json.dumps(result)
    assert json.loads(json.dumps(result)) == result


def test_each_group_is_asked_and_the_bad_one_is_named() -> None:
    with ChatServer() as server:
        server.answer(sse("Good day."), BAD)
        result = run(groups=groups(server, "left", "right"))
    assert result["failed"]
    assert [group["status"] for group in result["groups"]] == ["ok", "failed"]
    assert result["msg"].startswith(f"right ({server.url}): the answer is garbage")
    assert "left" not in result["msg"]


def test_what_all_requests_have_in_common_is_told() -> None:
    with ChatServer() as server:
        server.answer(sse("Good day", reason="length"), sse("Good night", reason="length"))
        result = run(groups=groups(server, "left", "right"))
    assert not result.get("failed")
    assert [(sign["id"], sign["severity"]) for sign in result["signs"]] == [("tokens.all-length", "warning")]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"timeout": 0}, "max_tokens and timeout must be more than 0"),
        ({"max_tokens": 0}, "max_tokens and timeout must be more than 0"),
        ({"groups": [{"name": "x", "url": "nowhere"}]}, "x: 'nowhere' is not a URL"),
        ({"knowledge_dirs": ["/nonexistent"]}, "/nonexistent: there is no such folder"),
    ],
)
def test_a_wrong_argument_is_one_clear_error(more: dict[str, t.Any], words: str) -> None:
    result = run(**{"groups": [{"name": "x", "url": "http://127.0.0.1:1/v1"}], **more})
    assert result["failed"]
    assert result["msg"].startswith("dgxspark.cluster.serving_canary: ")
    assert words in result["msg"]


def test_an_unknown_argument_is_refused() -> None:
    with pytest.raises((AnsibleError, CollectionError), match="promt"):
        run(groups=[], promt="?")
