"""The action plugin netplan_vf, with a node that answers, loses its connection, or does not come back."""

from __future__ import annotations

import getpass
import os
import platform
import types
import typing as t

import pytest
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.playbook.task import Task

from ansible_collections.dgxspark.cluster.plugins.action import netplan_vf

PENDING = {"changed": True, "outcome": "pending", "diff": [{"before": "", "after": "x"}]}
Answer = dict[str, t.Any] | Exception


class Node(netplan_vf.ActionModule):  # type: ignore[misc]
    """Answers come from a list, the last one for ever."""

    def __init__(self, answers: list[Answer], **arguments: t.Any) -> None:
        task = Task()
        task.args = {"content": "network: {}", **arguments}
        self.resets = 0
        connection = types.SimpleNamespace(reset=self._count, _shell=types.SimpleNamespace(tmpdir=None))
        super().__init__(task, connection, None, None, None, None)
        self.answers = answers
        self.asked: list[dict[str, t.Any]] = []
        self.resets_before: list[int] = []

    def _count(self) -> None:
        self.resets += 1

    def _execute_module(self, module_name: str, module_args: dict[str, t.Any], task_vars: t.Any) -> dict[str, t.Any]:
        self.asked.append(module_args)
        self.resets_before.append(self.resets)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    """Time that passes only during sleep."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    fake = types.SimpleNamespace(monotonic=lambda: now[0], sleep=sleep)
    monkeypatch.setattr(netplan_vf, "time", fake)
    return fake


def run(node: Node) -> dict[str, t.Any]:
    return dict(node.run(task_vars={}))


def test_nothing_to_do_is_one_execution() -> None:
    node = Node([{"changed": False, "outcome": "unchanged"}])
    assert run(node)["changed"] is False
    assert len(node.asked) == 1


def test_check_mode_is_one_execution_and_says_changed() -> None:
    node = Node([{"changed": True, "outcome": "unchanged"}])
    assert run(node)["changed"] is True
    assert len(node.asked) == 1


def test_a_change_is_confirmed_over_a_connection_that_is_remade() -> None:
    node = Node([PENDING, {"changed": True, "outcome": "confirmed"}])
    result = run(node)
    assert result["changed"] is True
    assert result["outcome"] == "confirmed"
    assert result["diff"] == PENDING["diff"]
    assert [asked["phase"] for asked in node.asked] == ["begin", "confirm"]
    assert node.asked[0]["transaction"] == node.asked[1]["transaction"]
    assert node.resets_before == [0, 1]


def test_two_runs_are_two_changes() -> None:
    first, second = (Node([{"changed": False, "outcome": "unchanged"}]) for _run in range(2))
    run(first)
    run(second)
    assert first.asked[0]["transaction"] != second.asked[0]["transaction"]


@pytest.mark.parametrize(
    "trouble", [AnsibleConnectionFailure("timed out"), {"outcome": "waiting"}, {"outcome": "stale"}]
)
def test_it_tries_again_until_the_node_confirms(trouble: Answer) -> None:
    node = Node([PENDING, trouble, trouble, {"outcome": "confirmed"}])
    assert run(node)["outcome"] == "confirmed"
    assert node.resets_before == [0, 1, 2, 3]


def test_a_connection_that_breaks_while_netplan_is_at_work_is_no_failure_yet() -> None:
    node = Node([AnsibleConnectionFailure("broken pipe"), {"outcome": "confirmed"}])
    assert run(node)["changed"] is True


def test_what_the_node_warned_of_is_told_once() -> None:
    """Also where the connection broke before its first answer, in which it says so."""
    confirmed = {"outcome": "confirmed", "warnings": ["netplan takes wlan0 down"]}
    for begun in (AnsibleConnectionFailure("broken pipe"), {**PENDING, "warnings": ["netplan takes wlan0 down"]}):
        assert run(Node([begun, confirmed]))["warnings"] == ["netplan takes wlan0 down"]


def test_a_node_that_went_back_fails_with_what_was_changed() -> None:
    node = Node([PENDING, AnsibleConnectionFailure("x"), {"outcome": "rolled_back", "message": "/etc/netplan/9: file"}])
    result = run(node)
    assert result["failed"] is True
    assert result["changed"] is False
    wanted = ("within 60 s", "by itself", "Either the change cut this node off", "Or netplan", "/etc/netplan/9: file")
    for words in (*wanted, "netplan_vf_rollback_timeout"):
        assert words in result["msg"]


@pytest.mark.parametrize(
    ("begun", "words"),
    [({**PENDING, "rollback_timeout": 120.0}, "within 120 s"), (AnsibleConnectionFailure("broken pipe"), "in time")],
)
@pytest.mark.parametrize("outcome", ["rolled_back", "too_slow"])
def test_the_time_that_is_told_is_the_node_s(begun: Answer, words: str, outcome: str) -> None:
    """It gives itself more where netplan takes the management down; a node that was lost at once could not say so."""
    said = run(Node([begun, {"outcome": outcome, "message": "/etc/netplan/9: file"}]))["msg"]
    assert words in said
    assert "60" not in said


def test_a_node_that_stays_away_fails_in_the_end() -> None:
    result = run(Node([PENDING, AnsibleConnectionFailure("No route to host")]))
    assert result["failed"] is True
    assert "console" in result["msg"]
    assert "No route to host" in result["msg"]


def test_a_change_that_never_began_is_told() -> None:
    result = run(Node([AnsibleConnectionFailure("x"), {"outcome": "unknown", "message": "Never begun."}]))
    assert result["failed"] is True
    assert "nothing was changed" in result["msg"]


def test_a_change_that_was_begun_is_never_called_one_that_was_not() -> None:
    """The node forgot it in a reboot; the change that was begun may be in effect or not."""
    result = run(Node([PENDING, {"outcome": "unknown", "message": "The node knows nothing of it."}]))
    assert result["failed"] is True
    assert "nothing was changed" not in result["msg"] and "before the change began" not in result["msg"]
    assert "run again" in result["msg"]


def test_a_node_that_restarted_in_between_is_said_to_have() -> None:
    result = run(Node([PENDING, {"outcome": "restarted", "message": "/etc/netplan/9: file"}]))
    assert result["failed"] is True and "The node restarted" in result["msg"] and "netplan did not" not in result["msg"]


def test_a_run_that_waits_says_for_whom_and_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr(netplan_vf.display, "display", lambda text, **_how: shown.append(text))
    waiting = {"outcome": "queued", "changed": False, "waiting": {"id": "t0", "who": "the run of Alice", "since": 1.0}}
    node = Node([waiting, waiting, {"changed": False, "outcome": "unchanged"}])
    assert run(node)["outcome"] == "unchanged"
    assert len(shown) == 1 and "the run of Alice" in shown[0]
    assert [asked.get("waited") for asked in node.asked] == [None, waiting["waiting"], waiting["waiting"]]


def test_the_node_is_told_whose_run_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node([{"changed": False, "outcome": "unchanged"}])
    run(node)
    assert node.asked[0]["run"]["by"] == f"the run of {getpass.getuser()} on {platform.node()} (process {os.getppid()})"

    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 4711")

    monkeypatch.setattr(getpass, "getuser", nameless)
    node = Node([{"changed": False, "outcome": "unchanged"}])
    run(node)
    assert f"user {os.getuid()}" in node.asked[0]["run"]["by"]


def test_the_module_s_own_failure_is_passed_on() -> None:
    failure = {"failed": True, "msg": "two stanzas"}
    assert run(Node([failure]))["msg"] == "two stanzas"
    assert run(Node([PENDING, failure]))["msg"] == "two stanzas"


@pytest.mark.parametrize(
    ("arguments", "word"),
    [({"contents": "x"}, "contents"), ({"rollback_timeout": 3}, "rollback_timeout"), ({"state": "gone"}, "gone")],
)
def test_bad_arguments_never_reach_the_node(arguments: dict[str, t.Any], word: str) -> None:
    node = Node([PENDING], **arguments)
    with pytest.raises(AnsibleActionFail, match=word):
        run(node)
    assert node.asked == []


def test_a_netplan_that_takes_too_long_is_not_called_a_cut() -> None:
    result = run(Node([PENDING, {"outcome": "too_slow", "message": "x"}]))
    assert result["failed"] is True
    assert "(rollback_timeout; in the role, netplan_vf_rollback_timeout)" in result["msg"]
    assert "cut" not in result["msg"]
