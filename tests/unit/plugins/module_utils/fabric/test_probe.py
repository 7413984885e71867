"""Both ends of RDMA tests on loopback, with stand-ins for the programs that listen, connect, fail or hang as asked."""

from __future__ import annotations

import dataclasses
import fcntl
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric import probe
from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.perftest import RdmaTest
from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.probe import (
    Bounds,
    RdmaAnswer,
    programs,
    run_tests,
)
from ansible_collections.dgxspark.cluster.plugins.module_utils.sysfs import Sysfs
from ansible_collections.dgxspark.cluster.tests.support.ports import free_port
from ansible_collections.dgxspark.cluster.tests.unit.stand_in import install


@pytest.fixture
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    install(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


def ends(number: int = 0, **changes: object) -> tuple[RdmaTest, RdmaTest]:
    client = RdmaTest(
        id=f"write/{number}",
        role="client",
        program="ib_write_bw",
        hca="hca",
        hca_port=1,
        gid_index=1,
        address="127.0.0.1",
        peer="127.0.0.2",
        port=free_port(2),  # and the next one
        size=4096,
        iterations=20,
    )
    client = dataclasses.replace(client, **changes)  # type: ignore[arg-type]
    return client, dataclasses.replace(client, role="server", address=client.peer, peer=client.address)


def run_both(
    pairs: list[tuple[RdmaTest, RdmaTest]], bounds: Bounds, late: float = 0.0
) -> tuple[list[RdmaAnswer], list[RdmaAnswer]]:
    served: list[RdmaAnswer] = []
    thread = threading.Thread(target=lambda: served.extend(run_tests([server for _c, server in pairs], bounds)))
    if late >= 0:
        thread.start()
        time.sleep(late)
        called = run_tests([client for client, _s in pairs], bounds)
    else:
        timer = threading.Timer(-late, thread.start)
        timer.start()
        called = run_tests([client for client, _s in pairs], bounds)
        timer.join()
    thread.join()
    return called, served


def nothing_runs(folder: pathlib.Path) -> bool:
    """No stand-in is left; a killed one may take a moment to be gone."""
    for _try in range(50):
        left = [p for p in folder.glob("*.pid") if pathlib.Path("/proc", p.read_text(), "exe").exists()]
        if not left:
            return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize("late", [0.0, 0.7, -0.7])
def test_both_ends_meet_whoever_comes_first(folder: pathlib.Path, late: float) -> None:
    called, served = run_both([ends(0), ends(1)], Bounds(meet=10, test=10), late)
    assert [answer.status for answer in called + served] == ["ok"] * 4, called + served
    assert called[0].figures["gbps"] == pytest.approx(125 * 8 * 1.048576 / 1000)
    assert nothing_runs(folder)


def test_what_the_device_counted_as_lost_meanwhile_is_told(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    counters = tmp_path / "sys/class/infiniband/hca/ports/1/hw_counters"
    counters.mkdir(parents=True)
    (counters / "out_of_seq_request").write_text("5")
    for name in ("sent_pkts", "rcvd_pkts"):
        (counters / name).write_text("9")
    client, _server = ends()
    grow = threading.Timer(0.5, (counters / "out_of_seq_request").write_text, ["7"])
    grow.start()
    (answer,) = run_tests([client], Bounds(meet=2, test=2), Sysfs(str(tmp_path / "sys")))
    grow.join()
    assert (answer.status, answer.lost) == ("no peer", {"out_of_seq_request": 2})


def test_tests_that_belong_together_run_at_the_same_time(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [ends(number, together="both") for number in range(3)]
    assert [(a.status, b.status) for a, b in zip(*run_both(pairs, Bounds(20, 20)), strict=True)] == [("ok", "ok")] * 3
    waiting = threading.Barrier(3, timeout=60)
    order: list[str] = []

    def meet(test: RdmaTest, _bounds: Bounds) -> RdmaAnswer:
        if test.together:
            waiting.wait()  # breaks unless all three are here at once
        order.append(test.id)
        return RdmaAnswer(test.id, test.role, test.program, "ok")

    monkeypatch.setattr(probe, "_run", meet)
    alone = [ends(number)[0] for number in (7, 8)]
    answers = run_tests([alone[0], *(client for client, _server in pairs), alone[1]], Bounds(1, 1))
    assert [answer.id for answer in answers] == ["write/7", "write/0", "write/1", "write/2", "write/8"]
    assert (order[0], order[-1]) == ("write/7", "write/8")


def test_a_client_that_fails_ends_the_server_too(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_CLIENT", "fail")
    called, served = run_both([ends()], Bounds(meet=10, test=30, grace=0.5))
    assert called[0].status == "error"
    assert "Failed to modify QP 17 to RTR" in called[0].message
    assert served[0].status in ("hang", "error")
    assert nothing_runs(folder)


def test_a_server_that_cannot_start_is_told_to_the_client(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN_SERVER", "fail")
    called, served = run_both([ends()], Bounds(meet=10, test=10))
    assert (called[0].status, served[0].status) == ("peer", "error")
    assert "Failed to modify QP 17 to RTR" in called[0].message


# With the second bounds the second guard (`timeout`) acts first, as it does on a busy machine.
@pytest.mark.parametrize(("test", "grace"), [(4, 0.5), (6, -2)])
def test_a_hanging_program_is_ended_on_both_sides(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch, test: float, grace: float
) -> None:
    monkeypatch.setenv("STAND_IN_CLIENT", "hang")
    monkeypatch.setenv("STAND_IN_SERVER", "hang")
    called, served = run_both([ends()], Bounds(meet=10, test=test, grace=grace))
    assert (called[0].status, served[0].status) == ("hang", "hang")
    assert nothing_runs(folder)


def test_output_that_cannot_be_read_is_no_success(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_CLIENT", "mumble")
    called, _served = run_both([ends()], Bounds(meet=10, test=10))
    assert called[0].status == "error"
    assert "no table today" in called[0].message


def test_a_peer_that_never_comes(folder: pathlib.Path) -> None:
    client, server = ends()
    for end in (client, server):
        answer = run_tests([end], Bounds(meet=0.5, test=10))[0]
        assert answer.status == "no peer"
        assert str(end.port) in answer.message
    assert not list(folder.glob("*.pid"))


def test_an_address_that_the_node_does_not_have(folder: pathlib.Path) -> None:
    client, server = ends(address="192.0.2.1")
    assert run_tests([client], Bounds(meet=0.5, test=10))[0].status == "no peer"
    answer = run_tests([dataclasses.replace(server, address="192.0.2.1")], Bounds(meet=0.5, test=10))[0]
    assert answer.status == "no peer"
    assert "no address" in answer.message


def test_a_program_that_is_not_installed(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    called, served = run_both([ends()], Bounds(meet=2, test=10))
    assert (called[0].status, served[0].status) == ("missing", "missing")
    assert "apt install perftest" in called[0].message
    assert set(programs().values()) == {None}


def test_a_program_ends_even_when_its_runner_is_killed(folder: pathlib.Path) -> None:
    """`timeout` enforces its limit: nothing keeps running on a node whose ssh connection broke."""
    _client, server = ends()
    code = (
        "import sys\n"
        "from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.perftest import RdmaTest\n"
        "from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric import probe\n"
        f"probe.run_tests([RdmaTest(**{dataclasses.asdict(server)!r})], probe.Bounds(10, 1, 0.25))\n"
    )
    runner = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "STAND_IN_SERVER": "hang-early"},
    )
    with socket.socket() as line:
        line.bind((server.peer, 0))
        for _try in range(100):
            try:
                line.connect((server.address, server.port))
                line.sendall(b"\n")  # as the client of the same verify
                break
            except ConnectionRefusedError:
                time.sleep(0.1)
        for _try in range(100):
            if (folder / "server.pid").exists():
                break
            time.sleep(0.1)
        runner.kill()
        runner.wait()
    assert (folder / "server.pid").exists()
    assert nothing_runs(folder)


# --- two verifies at once -------------------------------------------------------------------------------------------------


@pytest.fixture
def locks(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "LOCK", str(tmp_path / "verify-{port}.lock"))


def test_two_verifies_at_once_take_turns_and_their_ends_do_not_mix(folder: pathlib.Path, locks: None) -> None:
    first = ends(0, run="the run of Alice")
    second = ends(1, run="the run of Bob", port=first[0].port)
    answers: list[RdmaAnswer] = []
    threads = [
        threading.Thread(target=lambda test=test: answers.extend(run_tests([test], Bounds(20, 20))))  # type: ignore[misc]
        for test in (first[1], second[1], second[0], first[0])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answer.status for answer in answers] == ["ok"] * 4, answers
    assert nothing_runs(folder)


def test_another_verify_that_goes_on_is_named(folder: pathlib.Path, locks: None) -> None:
    client, server = ends(0, run="the run of Bob")
    with pathlib.Path(probe.LOCK.format(port=server.port)).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write("the run of Alice")
        lock.flush()
        (answer,) = run_tests([server], Bounds(0.3, 1))
    assert answer.status == "busy" and "the run of Alice" in answer.message
    alice = dataclasses.replace(server, run="the run of Alice")
    thread = threading.Thread(target=lambda: run_tests([alice], Bounds(1.5, 1)))
    thread.start()
    (answer,) = run_tests([client], Bounds(1, 1))
    thread.join()
    assert answer.status == "busy" and "the run of Alice" in answer.message
