"""The supervisor, by real processes: a group meets, serves, loses a rank, ends as a whole, and comes back."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pathlib
import signal
import socket
import time
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.rank import preflight, supervisor
from ansible_collections.dgxspark.cluster.tests.unit.kube_ranks import BOUNDS, PATIENCE, Group, alive

LOST = supervisor.STATUS["lost"]


@pytest.fixture
def make(tmp_path: pathlib.Path) -> t.Iterator[t.Callable[..., Group]]:
    made: list[Group] = []

    def group(*args: t.Any, **more: t.Any) -> Group:
        made.append(Group(tmp_path, *args, **more))
        return made[-1]

    yield group
    for each in made:
        each.close()


def test_a_group_serves_loses_a_rank_and_comes_back(make: t.Callable[..., Group]) -> None:
    group = make(4, rails=True)
    group.start(0, 1, 2)
    # Three of four: no engine starts, no rank is ready, no rank is killed for it.
    group.wait(0, 1, 2, path="/live")
    assert group.probe(0, "/ready")[0] == 503
    assert not any(group.engines(rank) for rank in range(4))
    group.start(3)
    group.wait()
    assert "serving; the first tokens: ' 6 7'" in group.log(0)
    first = [group.engines(rank, 1)[0] for rank in range(4)]
    # One rank's supervisor is killed as a container is: the others exit by themselves, with a status and a cause.
    group.processes[2].kill()
    assert group.ended(0, 1, 3) == [LOST, LOST, LOST]
    assert "rank 2 (spark3) is lost" in group.last_word(0)
    assert "rank 2 (spark3) is lost" in group.last_word(3)
    assert not any(alive(first[rank]) for rank in (0, 1, 3))
    # The kubelet starts the containers again, in any order.
    group.start(2, 3, 1, 0)
    group.wait()
    assert all(len(group.engines(rank, 2)) == 2 for rank in range(4))


@pytest.mark.parametrize(
    ("rank", "status", "said"), [(0, 3, "ended with status 3"), (1, 0, "ended by itself with status 0")]
)
def test_an_engine_that_ends_takes_the_group_with_it(
    make: t.Callable[..., Group], rank: int, status: int, said: str
) -> None:
    group = make(2)
    group.start()
    group.wait()
    (group.folder / f"end-{rank}").write_text(str(status))
    codes = group.ended()
    assert codes[rank] == (status or supervisor.STATUS["ended"])
    assert codes[1 - rank] == LOST
    assert said in group.last_word(rank)
    # The other one reports whose fault it was.
    assert said in group.last_word(1 - rank)


def test_probes_and_ranks_know_of_an_end_before_what_is_left_of_the_engine_has_stopped(
    make: t.Callable[..., Group],
) -> None:
    """As with a real engine whose processes were slow to end after the first of them was killed."""
    group = make(2, bounds={**BOUNDS, "stop_s": PATIENCE})
    stubborn = f"trap '' TERM; python3 {group.folder / 'engine.py'} {group.api} {group.folder} $0"
    group.configure(0, argv=["sh", "-c", f"({stubborn}) & wait", "0"])
    group.start()
    group.wait()
    (shell,) = (
        pathlib.Path(f"/proc/{group.processes[0].pid}/task/{group.processes[0].pid}/children").read_text().split()
    )
    os.kill(int(shell), signal.SIGKILL)
    assert group.ended(1) == [LOST]
    assert "SIGKILL" in group.last_word(1)
    assert group.processes[0].poll() is None
    code, why = group.probe(0, "/ready")
    assert (code, "SIGKILL" in why) == (503, True)


def test_an_engine_killed_by_a_signal_is_told_so(make: t.Callable[..., Group]) -> None:
    group = make(1)
    group.start()
    group.wait()
    os.kill(group.engines(0)[0], signal.SIGSEGV)
    assert group.ended() == [128 + signal.SIGSEGV]
    assert "SIGSEGV" in group.last_word(0)


def test_a_stop_is_never_a_success(make: t.Callable[..., Group]) -> None:
    group = make(2)
    group.start()
    group.wait()
    engine = group.engines(1, 1)[0]
    group.processes[1].terminate()
    assert group.ended(1) == [128 + signal.SIGTERM]
    assert group.ended(0) == [LOST]
    assert "SIGTERM" in group.last_word(1)
    assert not alive(engine)


def test_a_stop_while_waiting_for_the_others_ends_at_once(make: t.Callable[..., Group]) -> None:
    group = make(2, rails=True)
    group.start(1)
    group.wait(1, path="/live")
    group.processes[1].terminate()
    assert group.ended(1) == [128 + signal.SIGTERM]


def test_a_silent_rank_is_missed(make: t.Callable[..., Group]) -> None:
    """As with a node that lost power: the connection is still open, but nothing arrives any more."""
    group = make(3)
    group.start()
    group.wait()
    group.processes[1].send_signal(signal.SIGSTOP)
    assert group.ended(0, 2) == [LOST, LOST]
    assert f"nothing heard for {BOUNDS['lost_s']:g} s" in group.last_word(0)


def test_a_rank_that_is_late_is_named(make: t.Callable[..., Group]) -> None:
    group = make(2, rails=True, bounds={**BOUNDS, "peers_s": 2})
    group.start(0)
    assert group.ended(0) == [preflight.STATUS["peer"]]
    assert "rank 1 (spark2, 127.0.1.2, p0f0v0)" in group.last_word(0)


def test_packets_are_sent_back_to_planned_peers_alone_and_never_for_ever(make: t.Callable[..., Group]) -> None:
    """Not to strangers, and no answer to an answer: two supervisors were kept busy by one forged packet."""
    group = make(2, rails=True)
    group.start(0)
    group.wait(0, path="/live")
    target, asked = (group.address(0), group.port), itertools.count()

    def bound(source: tuple[str, int]) -> socket.socket:
        peer = sockets.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        peer.bind(source)
        peer.settimeout(PATIENCE)
        return peer

    def answers(peer: socket.socket, *unanswered: bytes) -> list[bytes]:
        """Send packets, then a question; return everything received up to its answer. Packets are handled in order."""
        for data in unanswered:
            peer.sendto(data, target)
        number = b"%04d" % next(asked)
        peer.sendto(b"?p0f0v0 0 " + number, target)
        came: list[bytes] = []
        while not came or came[-1] != b"!p0f0v0 0 " + number:
            came += [
                data for data in [peer.recv(9000)] if not data.startswith(b"?")
            ]  # the preflight of rank 0 asks, too
        return came

    with contextlib.ExitStack() as sockets:
        peer, stranger = bound((group.address(1), 0)), bound(("127.0.0.1", 0))
        assert len(answers(peer)) == 1
        stranger.sendto(b"?p0f0v0 0 ....", target)
        assert len(answers(peer)) == 1  # by now the stranger's question has been handled
        stranger.setblocking(False)
        with pytest.raises(BlockingIOError):
            stranger.recv(9000)
        # From the port of the other rank's supervisor itself.
        assert len(answers(bound((group.address(1), group.port)), b"!p0f0v0 0 ....", b"")) == 1


def test_a_rank_of_another_plan_is_turned_away(make: t.Callable[..., Group]) -> None:
    group = make(3)
    group.configure(2, plan="other")
    group.start()
    assert group.ended(2) == [supervisor.STATUS["plan"]]
    assert "another plan (0123)" in group.last_word(2)
    assert group.processes[0].poll() is None


def test_no_token_is_not_ready(make: t.Callable[..., Group]) -> None:
    group = make(1, bounds={**BOUNDS, "load_s": 3})
    (group.folder / "silent").touch()
    group.start()
    assert group.ended() == [supervisor.STATUS["load"]]
    assert "no token" in group.last_word(0)


HANGS = {**BOUNDS, "hang_s": 2}
WORK = ["engine:tokens_total"]


def test_an_engine_that_hangs_behind_an_api_that_answers_ends(make: t.Callable[..., Group]) -> None:
    """As vLLM's whose engine or another rank's worker was stopped: /health went on saying 200 for as long as was waited."""
    group = make(2, bounds=HANGS, work=WORK)
    group.start()
    group.wait()
    (group.folder / "hung").touch()
    assert group.ended() == [supervisor.STATUS["hang"], LOST]
    assert "has not answered" in group.last_word(0)


def test_an_engine_that_hangs_is_not_waited_for_either(make: t.Callable[..., Group]) -> None:
    """As vLLM's, whose stopped core took no SIGTERM: 25 s until its group could start anew (benchmarks/results/engines)."""
    group = make(1, bounds={**HANGS, "stop_s": PATIENCE}, work=WORK)
    deaf = f"trap '' TERM; python3 {group.folder / 'engine.py'} {group.api} {group.folder} 0; sleep 60"
    group.configure(0, argv=["sh", "-c", deaf])
    group.start()
    group.wait()
    (group.folder / "hung").touch()
    begun = time.monotonic()
    assert group.ended() == [supervisor.STATUS["hang"]]
    assert time.monotonic() - begun < 4 * HANGS["hang_s"] + supervisor.BROKEN_STOP_S + 5


def test_one_that_has_nothing_to_do_is_asked_and_one_that_works_is_left_alone(make: t.Callable[..., Group]) -> None:
    group = make(1, bounds=HANGS, work=WORK)
    group.start()
    group.wait()

    def asked() -> int:
        return len((group.folder / "asked").read_text())

    begun, until = asked(), time.monotonic() + 4
    (group.folder / "hung").touch()  # all that it is asked waits, as behind a long prompt
    for done in itertools.count(1):
        (group.folder / "done").write_text(str(done))
        time.sleep(0.1)
        if time.monotonic() > until:
            break
    assert (group.processes[0].poll(), asked()) == (None, begun)
    (group.folder / "hung").unlink()
    until = time.monotonic() + PATIENCE
    while asked() < begun + 2:
        assert time.monotonic() < until
        time.sleep(0.1)
    assert group.processes[0].poll() is None


def test_an_engine_whose_metrics_cannot_be_read_is_not_asked(make: t.Callable[..., Group]) -> None:
    group = make(1, bounds=HANGS, work=["another:tokens_total"])
    group.start()
    group.wait()
    begun = (group.folder / "asked").read_text()
    time.sleep(3)
    assert (group.processes[0].poll(), (group.folder / "asked").read_text()) == (None, begun)


def test_an_engine_that_waits_for_a_lost_rank_is_not_waited_for(make: t.Callable[..., Group]) -> None:
    """As vLLM's, whose worker sits in a collective: 33 s until its group could start anew, 30 of them for nothing."""
    group = make(2, bounds={**BOUNDS, "stop_s": PATIENCE})
    group.configure(
        0,
        argv=["sh", "-c", f"trap '' TERM; python3 {group.folder / 'engine.py'} {group.api} {group.folder} 0; sleep 60"],
    )
    group.start()
    group.wait()
    group.processes[1].kill()
    begun = time.monotonic()
    assert group.ended(0) == [LOST]
    assert time.monotonic() - begun < supervisor.BROKEN_STOP_S + 5


# --- what the node's memory guard learns ---------------------------------------------------------------------------------


def score(pid: int) -> int:
    return int(pathlib.Path(f"/proc/{pid}/oom_score_adj").read_text())


def test_when_memory_ends_the_engine_goes_and_not_its_supervisor(make: t.Callable[..., Group]) -> None:
    group = make(1)
    group.start()
    group.wait()
    assert score(group.engines(0)[0]) == 1000
    assert score(group.processes[0].pid) == score(os.getpid())


def test_a_load_is_guarded_on_every_node_until_the_api_gives_tokens(make: t.Callable[..., Group]) -> None:
    group = make(2)
    (group.folder / "silent").touch()
    group.start(0)
    group.wait(0, path="/live")
    assert not group.guarded(0)  # nothing is loaded before the group is whole
    group.start(1)
    for rank in range(2):
        group.engines(rank, 1)
        assert group.guarded(rank) == [f"serve-default-rank{rank}"]
    (group.folder / "silent").unlink()
    group.wait()
    until = time.monotonic() + PATIENCE
    while any(group.guarded(rank) for rank in range(2)):
        assert time.monotonic() < until, group.log(1)
        time.sleep(0.05)
    assert group.processes[1].poll() is None


def test_a_load_that_ends_is_no_longer_guarded(make: t.Callable[..., Group]) -> None:
    group = make(2)
    (group.folder / "silent").touch()
    group.start()
    for rank in range(2):
        group.engines(rank, 1)
    assert len(group.guarded(0) + group.guarded(1)) == 2
    (group.folder / "end-1").write_text("5")
    assert group.ended() == [LOST, 5]
    assert not group.guarded(0) + group.guarded(1)


def test_a_node_without_a_memory_guard_serves_all_the_same(make: t.Callable[..., Group]) -> None:
    group = make(1)
    group.guards[0].listener.close()
    group.start()
    group.wait()
    assert "this load is not guarded" in group.log(0)
    assert score(group.engines(0)[0]) == 1000


def test_patches_run_first_and_must_work(make: t.Callable[..., Group]) -> None:
    group = make(1, before=[["sh", "-c", "echo the patch does not fit >&2; exit 4"]])
    group.start()
    assert group.ended() == [supervisor.STATUS["patches"]]
    assert "exit status 4: the patch does not fit" in group.last_word(0)
    assert not group.engines(0)


def test_a_taken_port_and_a_missing_program_are_named(make: t.Callable[..., Group]) -> None:
    group = make(1, argv=["/no/such/engine"])
    with socket.create_server((group.address(0), group.port)):
        group.start()
        assert group.ended() == [supervisor.STATUS["port"]]
    assert str(group.port) in group.last_word(0)
    group.start()
    assert group.ended() == [supervisor.STATUS["program"]]
    assert "/no/such/engine" in group.last_word(0)


def test_a_stranger_does_no_harm(make: t.Callable[..., Group]) -> None:
    group = make(2)
    group.start(0)
    group.wait(0, path="/live")
    for words in (
        b"hello\n",
        b'{"instance": "other", "rank": 1}\n',
        b'{"instance": "default", "rank": 9, "plan": "0123"}\n',
        b"\n",
        b"GET \n",
        b"[]\n",
        b"[" * 60000 + b"\n",
    ):
        with socket.create_connection((group.address(0), group.port)) as stranger:
            stranger.sendall(words)
            stranger.recv(1)
    assert group.probe(0, "/started")[0] == 503
    assert "Traceback" not in group.log(0)
    group.start(1)
    group.wait()


def test_strangers_hold_no_place_for_long_however_many_they_are_and_whatever_they_drip(
    make: t.Callable[..., Group],
) -> None:
    group = make(2)
    group.start(0)
    group.wait(0, path="/live")
    place = (group.address(0), group.port)

    def closed(connections: list[socket.socket]) -> None:
        for each in connections:
            each.settimeout(0)
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                assert each.recv(1) == b""

    with contextlib.ExitStack() as opened:
        strangers = [opened.enter_context(socket.create_connection(place)) for _each in range(200)]
        until = time.monotonic() + supervisor.STRANGER_S + 3
        while time.monotonic() < until:
            for each in strangers[::2]:  # the others send nothing
                with contextlib.suppress(OSError):
                    each.send(b"x")
            time.sleep(0.2)
            assert group.probe(0, "/live")[0] == 200  # the oldest are closed first: a probe finds room
            threads = len(list(pathlib.Path(f"/proc/{group.processes[0].pid}/task").iterdir()))
            assert threads < supervisor.STRANGERS + 20
        closed(strangers)
        # A rank's connection is kept, and is not taken for a stranger's later.
        group.start(1)
        group.wait()
        more = [opened.enter_context(socket.create_connection(place)) for _each in range(100)]
        time.sleep(supervisor.STRANGER_S + 1)
        closed(more)
        assert group.probe(0, "/ready")[0] == 200
        assert [group.processes[rank].poll() for rank in range(2)] == [None, None]
    assert "Traceback" not in group.log(0)


def test_causes_have_statuses_of_their_own() -> None:
    assert not set(preflight.CAUSES) & set(supervisor.CAUSES)
    assert all(0 < status < 128 for status in (*preflight.CAUSES, *supervisor.CAUSES))
    assert json.dumps(preflight.STATUS)
