"""Two runs at the same moment, with real files, real locks and real guards: one after the other, and nothing is lost."""

from __future__ import annotations

import base64
import dataclasses
import pathlib
import threading
import time
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric import netplan, netplan_change
from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.netplan_change import Outcome, Request
from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.fabric import rollback
from ansible_collections.dgxspark.cluster.plugins.module_utils.sysfs import Sysfs
from ansible_collections.dgxspark.cluster.tests.unit.fakes import FakeNode

TEXT = netplan.HEADER + "network:\n  version: 2\n  ethernets:\n    x: {match: {name: enp9s0}, mtu: %d}\n"


class Node(rollback.Host):
    """Threads that run the guard stand in for systemd; `netplan apply` is a program that succeeds."""

    def __init__(self, fake: FakeNode) -> None:
        super().__init__(str(fake.root))
        self.fake = fake
        self.guards: dict[str, threading.Thread] = {}
        self.befores: dict[str, bytes | None] = {}

    def command(self, argv: t.Sequence[str], timeout: float = 60) -> tuple[int, str, str]:
        words = list(argv)
        if words[0] == "systemd-run":
            before = self.document("journal.json")["files"][netplan.PATH]["before"]["data"]
            self.befores[words[-1]] = base64.b64decode(before) if before else None
            guard = threading.Thread(target=rollback.main, args=(words[-2:], self), daemon=True)
            self.guards[rollback.guard_unit(words[-1])] = guard
            guard.start()
            return 0, "", ""
        if words[:2] == ["systemctl", "is-active"]:
            guard = self.guards.get(words[-1])
            return (0 if guard and guard.is_alive() else 3), "", ""
        if words[0] in ("systemctl", "netplan"):
            return (0, "", "") if words[:2] != ["systemctl", "show"] else self.fake.run(words)
        return self.fake.run(words)

    def start(self, argv: t.Sequence[str], log: str) -> t.Any:
        return super().start(["true"], log)


@pytest.fixture
def node(tmp_path: pathlib.Path) -> Node:
    return Node(FakeNode(tmp_path / "node"))


class Run(threading.Thread):
    """One run: begin, then confirm until it has ended; `confirms` False is a controller that dies after begin."""

    def __init__(self, node: Node, name: str, mtu: int, confirms: bool = True, timeout: float = 20) -> None:
        super().__init__(daemon=True)
        self.node, self.confirms = node, confirms
        self.asked = Request(netplan.PATH, TEXT % mtu, name, timeout=timeout, by=f"the run of {name}")
        self.outcome = Outcome()
        self.ended = ""

    def run(self) -> None:
        scratch = self.node.path(f"/tmp/{self.asked.transaction}")
        scratch.mkdir(parents=True)
        sysfs = Sysfs(self.node.fake.sysfs)
        while True:  # as the action does
            self.outcome = netplan_change.begin(
                self.node, self.node.command, sysfs, self.asked, str(scratch), check_mode=False
            )
            if self.outcome.state != "queued":
                break
            self.asked = dataclasses.replace(self.asked, waited=self.outcome.waiting)
        until = time.monotonic() + 20
        while self.confirms and self.ended not in ("confirmed", "unknown", "rolled_back") and time.monotonic() < until:
            self.ended = netplan_change.confirm(self.node, self.asked).state
            time.sleep(0.05)


def play(node: Node, *runs: Run) -> None:
    for run in runs:
        run.start()
    for run in runs:
        run.join(40)
        assert not run.is_alive()
    for guard in node.guards.values():
        guard.join(40)


def test_two_runs_are_confirmed_one_after_the_other(node: Node) -> None:
    alice, bob = Run(node, "alice", 8000), Run(node, "bob", 9000)
    play(node, alice, bob)
    assert (alice.ended, bob.ended) == ("confirmed", "confirmed")
    first, second = (alice, bob) if node.befores["alice"] is None else (bob, alice)
    assert node.befores[second.asked.transaction] == str(first.asked.content).encode()
    assert node.path(netplan.PATH).read_text() == second.asked.content
    assert first.asked.by is not None
    assert any(first.asked.by in warning for warning in second.outcome.warnings)


def test_of_a_run_that_dies_the_next_one_sees_nothing_but_the_way_back(node: Node) -> None:
    dead = Run(node, "alice", 8000, confirms=False, timeout=2)
    dead.start()
    while node.text("started") is None:
        time.sleep(0.02)
    bob = Run(node, "bob", 9000, confirms=False, timeout=2)
    play(node, bob)
    dead.join(10)
    assert node.befores == {"alice": None, "bob": None}
    assert not node.path(netplan.PATH).exists(), "the files before both runs are back"
    assert "the run of alice" in bob.outcome.warnings[0] and "rolled back" in bob.outcome.warnings[0]
