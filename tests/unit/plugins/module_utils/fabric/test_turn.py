"""Runs that are cut off, and newer ones after them: the last one to be started is the one whose state stands."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import pathlib
import random
import socket
import threading
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric import netplan, netplan_change, turn
from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.netplan_change import Outcome, Request
from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.turn import Turn
from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.fabric import rollback
from ansible_collections.dgxspark.cluster.plugins.module_utils.sysfs import Sysfs
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.tests.support.properties import examples
from ansible_collections.dgxspark.cluster.tests.unit.fakes import FakeNode

# --- who is newer, and who still listens ----------------------------------------------------------------------------------


def run(name: str, *, controller: str = "", started: float = 0.0, age: float = 0.0) -> dict[str, t.Any]:
    return {"id": name, "controller": controller or name, "started": started, "age": age, "by": f"the run of {name}"}


def at(root: pathlib.Path, given: dict[str, t.Any] | None, *, now: float = 1000.0, listening: bool = True) -> Turn:
    return Turn(given, lambda: now, str(root), lambda: listening)


def test_a_newer_run_takes_precedence_and_is_named(tmp_path: pathlib.Path) -> None:
    alice, bob = at(tmp_path, run("Alice", age=60)), at(tmp_path, run("Bob", age=5))
    for each in (bob, alice):
        each.enter()
    bob.check()
    with pytest.raises(CollectionError, match=r"the run of Bob.*changes nothing"):
        alice.check()


def test_runs_of_one_controller_are_ordered_by_its_own_clock(tmp_path: pathlib.Path) -> None:
    """The module of the first one may take longer to get to the node than the second one's."""
    first = at(tmp_path, run("first", controller="laptop", started=1.0, age=3.0), now=1020.0)
    second = at(tmp_path, run("second", controller="laptop", started=4.0, age=1.0), now=1005.0)
    for each in (second, first):
        each.enter()
    second.check()
    with pytest.raises(CollectionError):
        first.check()


def test_a_controller_s_wrong_clock_does_not_matter_to_others(tmp_path: pathlib.Path) -> None:
    """Its clock is a year ahead: only how long ago its run began counts."""
    ahead, usual = at(tmp_path, run("ahead", started=3e7, age=60)), at(tmp_path, run("usual", started=5.0, age=1))
    for each in (ahead, usual):
        each.enter()
    usual.check()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"id": 1}', "null", '{"id": "a", "controller": 1, "started": "x", "seen": "y", "by": ""}']
)
def test_a_record_that_a_dying_run_left_is_written_again(tmp_path: pathlib.Path, text: str) -> None:
    path = tmp_path / turn.RUNS.lstrip("/")
    path.parent.mkdir()
    path.write_text(text)
    own = at(tmp_path, run("Alice"))
    own.enter()
    own.check()
    assert "Alice" in path.read_text()


def test_nobody_who_listens_means_that_nothing_changes(tmp_path: pathlib.Path) -> None:
    for given in (None, run("Alice")):
        with pytest.raises(CollectionError, match="controller is gone"):
            at(tmp_path, given, listening=False).check()


@pytest.mark.parametrize("kind", ["pipe", "socket", "terminal"])
def test_whether_somebody_reads_is_seen_in_what_ssh_and_ansible_give_a_module(kind: str) -> None:
    if kind == "socket":
        ours, other = (end.detach() for end in socket.socketpair())
    else:
        other, ours = os.pipe() if kind == "pipe" else os.openpty()
    assert turn.attended(ours)
    os.close(other)
    assert not turn.attended(ours)
    os.close(ours)


def test_a_file_is_read_by_somebody_later(tmp_path: pathlib.Path) -> None:
    with (tmp_path / "out").open("w") as file:
        assert turn.attended(file.fileno())


@pytest.mark.parametrize("path", turn.LOCKS)
def test_a_run_at_work_is_seen_in_the_facts_and_one_that_died_is_not(tmp_path: pathlib.Path, path: str) -> None:
    assert turn.at_work(str(tmp_path)) is None
    lock = tmp_path / path.lstrip("/")
    lock.parent.mkdir()
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write("the run of Alice")
        file.flush()
        assert turn.at_work(str(tmp_path)) == "the run of Alice"
    assert turn.at_work(str(tmp_path)) is None


def test_the_locks_are_those_that_the_modules_hold(tmp_path: pathlib.Path) -> None:
    assert rollback.LOCK in turn.LOCKS
    with rollback.Host(str(tmp_path)).lock("the run of Alice"):
        assert turn.at_work(str(tmp_path)) == "the run of Alice"


# --- a hundred interleavings ----------------------------------------------------------------------------------------------


class Ended(BaseException):
    """The simulation is over."""


class Play:
    """Threads of which one runs at a time: at each pause, chance says which goes on; time passes when all of them wait."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.now = 0.0
        self.wakes: dict[threading.Thread, float] = {}
        self.turns: dict[threading.Thread, threading.Semaphore] = {}
        self.over = False
        self.main = threading.Semaphore(0)
        self.errors: list[BaseException] = []

    def start(self, work: t.Callable[[], t.Any], after: float = 0.0) -> threading.Thread:
        def body() -> None:
            self.turns[thread].acquire()
            try:
                if not self.over:
                    work()
            except Ended:
                pass
            except BaseException as exc:
                self.errors.append(exc)
            del self.wakes[thread]
            self.main.release()

        thread = threading.Thread(target=body, daemon=True)
        self.turns[thread], self.wakes[thread] = threading.Semaphore(0), self.now + after
        thread.start()
        return thread

    def alive(self, thread: threading.Thread) -> bool:
        return thread in self.wakes

    def pause(self, seconds: float = 0.0) -> None:
        thread = threading.current_thread()
        self.wakes[thread] = self.now + seconds
        self.main.release()
        self.turns[thread].acquire()
        if self.over:
            raise Ended

    def run(self) -> None:
        """Until no thread is left, or one has failed."""
        while self.wakes and not self.errors:
            ready = [thread for thread, wake in self.wakes.items() if wake <= self.now]
            if not ready:
                self.now = min(self.wakes.values())
                continue
            self.turns[self.chance.choice(ready)].release()
            self.main.acquire()
        self.over = True
        for thread in list(self.wakes):
            self.turns[thread].release()
            self.main.acquire()
        if self.errors:
            raise self.errors[0]


TEXT = netplan.HEADER + "network:\n  version: 2\n  ethernets:\n    x: {match: {name: enp9s0}, mtu: %d}\n"


class Node(rollback.Host):
    """Files and locks are real; time and systemd are the play's. A command, a lock and a file written are where others may go on."""

    def __init__(self, fake: FakeNode, play: Play) -> None:
        super().__init__(str(fake.root))
        self.fake, self.play = fake, play
        self.guards: dict[str, threading.Thread] = {}
        self.live: list[tuple[float, bytes | None]] = []  # when our file was applied, and what it was

    def clock(self) -> float:
        return self.play.now

    def sleep(self, seconds: float) -> None:
        self.play.pause(seconds)

    def apply(self) -> None:
        self.live.append((self.play.now, self.image(netplan.PATH).data))

    def command(self, argv: t.Sequence[str], timeout: float = 60) -> tuple[int, str, str]:
        words = list(argv)
        if words[:2] == ["systemctl", "is-active"]:
            guard = self.guards.get(words[-1])
            return (0 if guard and self.play.alive(guard) else 3), "", ""
        if words[0] == "systemd-run":
            unit = rollback.guard_unit(words[-1])
            self.guards[unit] = self.play.start(lambda: rollback.main(words[-2:], self), self.play.chance.random())
            return 0, "", ""
        if words[0] in ("systemctl", "netplan") and words[:2] != ["systemctl", "show"]:
            self.play.pause(self.play.chance.choice([0.0, 0.5, 3.0]))
            if words == ["netplan", "apply"]:
                self.apply()
            return 0, "", ""
        if words[:2] == ["/usr/bin/python3", "-c"]:  # what netplan's files say does not matter here
            return 0, json.dumps([{"renderer": "networkd", "stanzas": [], "error": None} for _path in words[3:]]), ""
        return self.fake.run(words)

    def start(self, argv: t.Sequence[str], log: str) -> t.Any:
        until = self.play.now + self.play.chance.choice([0.5, 2.0, 6.0])

        class Applying:
            pid = 0

            poll = staticmethod(lambda: 0 if self.play.now >= until else None)

        self.apply()
        return Applying()

    def put(self, path: str, image: rollback.FileImage) -> None:
        super().put(path, image)
        if path.startswith(rollback.BASE):
            self.play.pause()


class Controller:
    """One run from its controller's side. It may be killed; the module that it has started then goes on."""

    def __init__(self, node: Node, number: int, mtu: int | None, kill_after: float | None, noticed: bool) -> None:
        self.node, self.play = node, node.play
        self.mtu, self.kill_after, self.noticed = mtu, kill_after, noticed
        self.name = f"run{number}"
        self.text = None if mtu is None else TEXT % mtu
        self.gone = False
        self.ended = ""
        self.ended_at = 0.0

    def __call__(self) -> None:
        self.began = self.play.now
        if self.kill_after is not None:
            self.play.start(self.kill, self.kill_after)
        self.place().enter()  # as roce_info does, which then reads the node
        changing = turn.at_work(self.node.root)
        self.play.pause()
        pending = rollback.pending(self.node)
        self.play.pause()
        if self.node.image(netplan.PATH).data == (self.text and self.text.encode()) and not (pending or changing):
            self.end("unchanged")  # the facts say that there is nothing to do
            return
        asked = Request(netplan.PATH, self.text, self.name, timeout=60, by=f"the run of {self.name}")
        while True:
            outcome = self.module(asked, self.begin)
            if outcome.state != "queued":
                break
            asked = dataclasses.replace(asked, waited=outcome.waiting)
        while outcome.state in ("pending", "waiting", "stale"):
            outcome = self.module(asked, lambda request: netplan_change.confirm(self.node, request))
        self.end(outcome.state)

    def place(self) -> Turn:
        given = run(self.name, controller="laptop", started=self.began, age=self.play.now - self.began)
        return Turn(given, self.node.clock, self.node.root, lambda: not (self.gone and self.noticed))

    def begin(self, asked: Request) -> Outcome:
        scratch = self.node.path(f"/tmp/{self.name}-{self.play.now}")
        scratch.mkdir(parents=True, exist_ok=True)
        sysfs = Sysfs(self.node.fake.sysfs)
        try:
            return netplan_change.begin(
                self.node, self.node.command, sysfs, asked, str(scratch), check_mode=False, turn=self.place()
            )
        except CollectionError as exc:
            assert "changes nothing" in str(exc) or "nothing was changed" in str(exc), exc
            return Outcome(state="unknown")

    def module(self, asked: Request, step: t.Callable[[Request], Outcome]) -> Outcome:
        """Start a module and wait for it; a killed controller goes no further."""
        answers: list[Outcome] = []
        delay = self.play.chance.choice([0.1, 1.0, 4.0, 15.0])  # ssh, and Python on a busy node
        self.play.start(lambda: answers.append(step(asked)), delay)
        while not answers:
            self.play.pause(0.3)
            if self.gone:
                raise Ended
        return answers[0]

    def kill(self) -> None:
        self.gone = True

    def end(self, how: str) -> None:
        self.ended, self.ended_at = how, self.play.now


@pytest.mark.parametrize("noticed", [True, False], ids=["ssh-tells", "ssh-does-not-tell"])
@pytest.mark.parametrize("seed", range(examples(50)))
def test_the_last_run_to_be_started_is_the_one_whose_state_stands(
    tmp_path: pathlib.Path, seed: int, noticed: bool
) -> None:
    """Up to four runs are cut off at any moment, some after the last one has started. After that has ended, nothing changes."""
    play = Play(seed)
    node = Node(FakeNode(tmp_path / "node"), play)
    chance = play.chance
    runs = [
        Controller(node, number, chance.choice([8000, 8500, None]), chance.uniform(0.0, 20.0), noticed)
        for number in range(chance.randint(1, 4))
    ]
    last = Controller(node, 9, chance.choice([9000, 8000, None]), None, noticed)
    started = 0.0
    for each in runs:
        play.start(each, started)
        started += chance.uniform(0.0, 8.0)
    play.start(last, started)
    play.run()
    assert last.ended in ("confirmed", "unchanged", "removed"), last.ended
    assert node.image(netplan.PATH).data == (last.text and last.text.encode())
    assert [what for when, what in node.live if when > last.ended_at] == []
    if node.live:
        assert node.live[-1][1] == (last.text and last.text.encode()), "what netplan applied last"
    assert rollback.pending(node) is None
