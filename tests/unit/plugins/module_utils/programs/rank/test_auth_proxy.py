"""The proxy in front of an engine, by real processes and sockets: who passes, what the engine sees, and how both end."""

from __future__ import annotations

import os
import pathlib
import signal
import socket
import sys
import time
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.rank import auth_proxy, supervisor
from ansible_collections.dgxspark.cluster.tests.support.auth_proxy import KEY, AuthProxy
from ansible_collections.dgxspark.cluster.tests.support.ports import free_port
from ansible_collections.dgxspark.cluster.tests.unit import leaks
from ansible_collections.dgxspark.cluster.tests.unit.kube_ranks import PATIENCE, Group, alive


@pytest.fixture
def made(tmp_path: pathlib.Path) -> t.Iterator[AuthProxy]:
    each = AuthProxy(tmp_path)
    yield each
    each.close()


def test_every_path_wants_the_key_and_the_engine_never_sees_it(made: AuthProxy) -> None:
    made.up()
    for path in ("/v1/chat/completions", "/invocations", "/health", "/metrics", "/", "*"):
        for method in ("GET", "POST", "OPTIONS"):
            for shown in ("", "Authorization: Bearer wrong\n", f"Authorization: Basic {KEY}\n", f"X-Api-Key: {KEY}\n"):
                answer = made.ask(f"{method} {path} HTTP/1.1\nHost: a\n{shown}\n")
                assert answer.startswith("HTTP/1.1 401 "), (path, shown)
                assert "Authorization: Bearer KEY" in answer
    assert made.seen() == ""
    answer = made.ask(
        f"POST /v1/x HTTP/1.1\nHost: a\nauthorization:  bearer {KEY}\nConnection: keep-alive\nX-More: 1\n\n"
    )
    assert answer.startswith("HTTP/1.1 200 ")
    assert answer.endswith("data: 0\n\ndata: 1\n\ndata: 2\n\n")
    assert made.seen() == "POST /v1/x HTTP/1.1\r\nHost: a\r\nX-More: 1\r\nConnection: close\r\n\r\n".replace(
        "\r\n", "\n"
    )


def test_a_stream_comes_as_it_is_made_and_ends_with_its_reader(made: AuthProxy) -> None:
    made.up()
    with (
        made.say(f"GET /v1/x HTTP/1.1\nAuthorization: Bearer {KEY}\n\n") as connection,
        connection.makefile("rb") as stream,
    ):
        while stream.readline().strip():
            pass
        for number in range(3):
            assert stream.readline() == b"data: %d\n" % number
            stream.readline()
            (made.folder / f"go-{number}").touch()
        assert stream.read() == b""
    made.say(f"GET /endless HTTP/1.1\nAuthorization: Bearer {KEY}\n\n").close()
    made.until("left")


def test_an_engine_that_loads_and_a_head_that_is_none_are_told(made: AuthProxy) -> None:
    made.start("sleep", "60")
    until = time.monotonic() + PATIENCE
    while True:
        try:
            answer = made.ask(f"GET / HTTP/1.1\nAuthorization: Bearer {KEY}\n\n")
            break
        except ConnectionRefusedError:
            assert time.monotonic() < until
            time.sleep(0.05)
    assert answer.startswith("HTTP/1.1 503 ")
    assert made.ask(f"GET / HTTP/1.1\nA: b\n  Authorization: Bearer {KEY}\n\n").startswith("HTTP/1.1 400 ")
    assert made.ask(f"GET / HTTP/1.1\nA: {'b' * 100_000}\n\n").startswith("HTTP/1.1 431 ")


def test_without_a_key_nothing_is_opened_and_nothing_started(made: AuthProxy) -> None:
    (made.folder / "empty").touch()
    for place in ("empty", "none"):
        process = made.start("touch", str(made.folder / "started"), key=str(made.folder / place))
        _out, said = process.communicate(timeout=PATIENCE)
        assert process.returncode == 1
        assert "the API stays closed, and the engine is not started" in said
        assert "Traceback" not in said
        assert place in said
    assert not (made.folder / "started").exists()


def test_it_ends_as_the_engine_ends(made: AuthProxy) -> None:
    assert made.start("sh", "-c", "exit 7").wait(PATIENCE) == 7
    assert made.start("sh", "-c", "kill -SEGV $$").wait(PATIENCE) == -signal.SIGSEGV
    assert made.start("sh", "-c", "kill -KILL $$").wait(PATIENCE) == -signal.SIGKILL
    with made.start("/no/such/engine") as process:
        assert process.wait(PATIENCE) == 1
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", made.port))
        taken.listen()
        process = made.start("touch", str(made.folder / "started"))
        _out, said = process.communicate(timeout=PATIENCE)
    assert str(made.port) in said
    assert not (made.folder / "started").exists()


@given(
    st.lists(st.sampled_from([
        b"Authorization: Bearer " + KEY[:-1].encode(), b"Authorization: Bearer", b"Authorization: " + KEY.encode(), b"A: b",
        b"Authorization: Bearer x" + KEY.encode(), b"Proxy-Authorization: Bearer " + KEY.encode(), b"\tx: y", b"a\nb: c",
        b"X: y\nAuthorization: Bearer " + KEY.encode(), b"Authorization : Basic x",
    ]), max_size=5)
)  # fmt: skip
def test_nothing_but_the_key_passes(lines: list[bytes]) -> None:
    head = b"\r\n".join([b"GET / HTTP/1.1", *lines, b"", b""])
    with pytest.raises(auth_proxy.Refused):
        auth_proxy.passed(head, KEY.encode())
    # Nor the key given twice.
    twice = [b"Authorization: Bearer " + KEY.encode()] * 2
    with pytest.raises(auth_proxy.Refused):
        auth_proxy.passed(b"\r\n".join([b"GET / HTTP/1.1", *lines, *twice, b"", b""]), KEY.encode())


# --- in a rank ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def group(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[Group]:
    made = Group(tmp_path, 2)
    (tmp_path / "key").write_text(KEY)
    (tmp_path / "key").chmod(0o400)
    monkeypatch.setenv(auth_proxy.KEY_FILE, str(tmp_path / "key"))
    inner = str(free_port())
    engine = [sys.executable, str(tmp_path / "engine.py"), inner, str(tmp_path), "0"]
    made.configure(0, argv=[sys.executable, str(tmp_path / "auth_proxy.py"), str(made.api), inner, *engine])
    yield made
    made.close()


def test_a_rank_with_a_key_serves_and_ends_with_its_door(group: Group) -> None:
    with leaks.Watch() as watch:
        group.start()
        group.wait()
    assert "serving; the first tokens: ' 6 7'" in group.log(0)
    with socket.create_connection(("127.0.0.1", group.api), timeout=PATIENCE) as connection:
        connection.sendall(b"GET /v1/models HTTP/1.1\r\nHost: a\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 401 ")
    (engine,) = group.engines(0)
    assert pathlib.Path(f"/proc/{engine}/oom_score_adj").read_text().strip() == "1000"
    assert watch.texts
    assert not watch.holding(KEY)
    parent = int(pathlib.Path(f"/proc/{engine}/stat").read_text().rsplit(")", 1)[1].split()[1])
    os.kill(parent, signal.SIGKILL)
    assert group.ended() == [128 + signal.SIGKILL, supervisor.STATUS["lost"]]
    assert not alive(engine)
    assert not leaks.lines(group.log(0) + group.last_word(0), KEY)


def test_an_engine_s_own_end_is_told_through_the_door(group: Group) -> None:
    group.start()
    group.wait()
    os.kill(group.engines(0)[0], signal.SIGSEGV)
    assert group.ended(0) == [128 + signal.SIGSEGV]
    assert "SIGSEGV" in group.last_word(0)
