"""The action plugin weights_wait against a node that answers as ansible.builtin.async_status does."""

from __future__ import annotations

import types
import typing as t

import pytest
from ansible.playbook.task import Task

from ansible_collections.dgxspark.cluster.plugins.action import weights_wait

Plain = dict[str, t.Any]
JOB = "j1.23"
ABSENT = {"failed": True, "msg": "could not find job", "ansible_job_id": JOB, "started": True, "finished": True}
DONE = {"finished": True, "manifest": {"files": []}}


class Node:
    """Its task's file appears after `late` seconds; each question to it takes half a second."""

    def __init__(self, late: float) -> None:
        self.late, self.now = late, 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def __call__(self, *, module_name: str, module_args: Plain, task_vars: t.Any) -> Plain:
        there = self.now >= self.late
        self.now += 0.5
        if module_name == "ansible.builtin.stat":
            assert module_args["path"] == f"/home/a/.ansible_async/{JOB}"
            return {"stat": {"exists": there}}
        assert (module_name, module_args["jid"]) == ("ansible.builtin.async_status", JOB)
        return dict(DONE if there else ABSENT)


def run(node: Node, monkeypatch: pytest.MonkeyPatch) -> Plain:
    monkeypatch.setattr(weights_wait, "time", types.SimpleNamespace(monotonic=lambda: node.now, sleep=node.sleep))
    arguments = {"jid": JOB, "what": "acme/model", "progress": "/p"}
    task = Task.load({"action": {"module": "dgxspark.cluster.weights_wait", **arguments}})
    connection = types.SimpleNamespace(_shell=types.SimpleNamespace(tmpdir="/nonexistent"))
    plugin = weights_wait.ActionModule(task, connection, None, None, None, None)
    monkeypatch.setattr(plugin, "_execute_module", node)
    monkeypatch.setattr(plugin, "_remote_expand_user", lambda path: path.replace("~", "/home/a"))
    monkeypatch.setattr(plugin, "get_shell_option", lambda _name, default: default)
    return dict(plugin.run(None, {"inventory_hostname": "spark1"}))


@pytest.mark.parametrize("late", [0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 20])
def test_a_busy_node_may_take_a_while_to_begin(late: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ansible says after 2.5 s that the task has started, whether its file is there or not; it may appear between two questions."""
    assert run(Node(late), monkeypatch)["manifest"] == DONE["manifest"]


def test_a_task_that_never_begins_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(late=10_000)
    seen = run(node, monkeypatch)
    assert seen["failed"] and node.now < 120
