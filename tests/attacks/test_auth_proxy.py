"""The proxy of the API, attacked by clients with and without the key: real processes and sockets."""

from __future__ import annotations

import asyncio
import errno
import gc
import pathlib
import socket
import sys
import time
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.rank import auth_proxy
from ansible_collections.dgxspark.cluster.tests.support.auth_proxy import KEY, AuthProxy

OWNER = f"GET /v1/models HTTP/1.1\nHost: a\nAuthorization: Bearer {KEY}\n"


@pytest.fixture
def made(tmp_path: pathlib.Path) -> t.Iterator[AuthProxy]:
    each = AuthProxy(tmp_path)
    yield each
    each.close()


def few_descriptors(made: AuthProxy, count: int) -> None:
    """Start the proxy with a hard limit of descriptors; its log goes to a file."""
    python = made.folder / "python"
    python.write_text(f'#!/bin/bash\nulimit -n {count}\nexec {sys.executable} "$@" 2>{made.folder}/log\n')
    python.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", str(python))
        made.start(*engine(made))
    made.until("up")


def engine(made: AuthProxy) -> tuple[str, ...]:
    return ("/usr/bin/env", "python3", str(made.folder / "engine.py"), str(made.inner), str(made.folder))


def test_who_has_the_key_gets_in_whoever_else_stands_at_the_door(made: AuthProxy) -> None:
    few_descriptors(made, 64)
    strangers: list[socket.socket] = []
    try:
        for number in range(300):
            strangers.append(made.say("" if number % 2 else "GET / HTTP/1.1\nX: "))
        began = time.monotonic()
        for _again in range(5):
            assert made.ask(f"{OWNER}\n").startswith("HTTP/1.1 200 ")
        assert time.monotonic() - began < 20
    finally:
        for each in strangers:
            each.close()
    assert (made.folder / "log").stat().st_size < 10_000


def test_more_requests_than_there_is_room_for_are_told_so_and_no_loading_engine_is_blamed(made: AuthProxy) -> None:
    few_descriptors(made, 64)
    held: list[socket.socket] = []
    try:
        answer = ""
        while not answer and len(held) < 60:
            held.append(made.say(f"{OWNER}\n".replace("/v1/models", "/endless")))
            said = held[-1].recv(4096).decode()
            answer = "" if said.startswith("HTTP/1.1 200 ") else said
        assert len(held) > 4 and answer.startswith("HTTP/1.1 503 ")
        assert "Too many requests at the same time" in answer and "does not answer yet" not in answer
    finally:
        for each in held:
            each.close()
    until = time.monotonic() + 20
    while not made.ask(f"{OWNER}\n").startswith("HTTP/1.1 200 "):
        assert time.monotonic() < until, "room comes back"


def test_the_key_goes_to_the_engine_in_no_header_and_in_no_address(made: AuthProxy) -> None:
    made.up()
    more = [
        f"X-Api-Key: {KEY}",
        f"api-key: {KEY}",
        f"Proxy-Authorization: Bearer {KEY}",
        f"Cookie: a=b; k={KEY}",
        f"X-Odd: {KEY}!",
    ]
    answer = made.ask(OWNER + "".join(f"{line}\n" for line in more) + "X-Kept: 1\n\n")
    assert answer.startswith("HTTP/1.1 200 ")
    assert KEY not in made.seen() and "X-Kept: 1" in made.seen()
    for shown in (KEY, KEY.replace("9", "%39")):
        answer = made.ask(OWNER.replace("/v1/models", f"/v1/models?api_key={shown}") + "\n")
        assert answer.startswith("HTTP/1.1 400 ") and KEY not in answer
    assert made.seen().count("HTTP/1.1") == 1


def test_a_browser_s_question_is_answered_and_its_page_may_read_a_refusal(made: AuthProxy) -> None:
    made.up()
    ask = "OPTIONS /v1/chat/completions HTTP/1.1\nHost: a\nOrigin: http://x\nAccess-Control-Request-Method: POST\n\n"
    answer = made.ask(ask)
    assert answer.startswith("HTTP/1.1 204 ") and "Access-Control-Allow-Headers: Authorization" in answer
    assert "Access-Control-Allow-Origin: *" in made.ask("GET / HTTP/1.1\nHost: a\nOrigin: http://x\n\n")
    assert made.seen() == "", "the engine is asked by no one without the key"


def test_a_client_that_vanishes_is_noticed_by_the_kernel() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as client:
        auth_proxy.keep_alive(client)
        for name, (level, value) in auth_proxy.ALIVE.items():
            assert client.getsockopt(level, getattr(socket, name)) == value, name
    assert auth_proxy.ALIVE["TCP_USER_TIMEOUT"][1] <= 60_000


def test_exchanges_are_held_and_no_fault_of_a_descriptor_is_an_engine_s(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing_left(*_arguments: t.Any) -> t.NoReturn:
        raise OSError(errno.EMFILE, "Too many open files")

    async def run() -> str:
        opened = asyncio.open_connection
        made = auth_proxy.AuthProxy(1, KEY.encode(), 8)
        server = await asyncio.start_server(made.accept, "127.0.0.1", 0)
        reader, writer = await opened("127.0.0.1", server.sockets[0].getsockname()[1])
        await asyncio.sleep(0.05)
        gc.collect()
        assert len(made.tasks) == 1 and len(made.strangers) == 1
        monkeypatch.setattr(asyncio, "open_connection", nothing_left)
        writer.write(f"{OWNER}\n".replace("\n", "\r\n").encode())
        answer = (await reader.read()).decode()
        writer.close()
        server.close()
        return answer

    answer = asyncio.run(run())
    assert answer.startswith("HTTP/1.1 503 ") and "Too many" in answer and "yet" not in answer


@pytest.mark.parametrize(
    "head",
    [b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 20_000, b"\r\n\r\n" * 5000, b"\x00" * 70_000, b"OPTIONS / HTTP/1.1\r\n\r\n"],
)
def test_no_head_is_a_traceback(head: bytes, tmp_path: pathlib.Path) -> None:
    async def run() -> bytes:
        made = auth_proxy.AuthProxy(1, KEY.encode(), 8)
        server = await asyncio.start_server(made.accept, "127.0.0.1", 0, limit=auth_proxy.HEAD)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
        writer.write(head)
        answer = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        server.close()
        return answer

    assert asyncio.run(run())[:12] in (b"HTTP/1.1 431", b"HTTP/1.1 401", b"HTTP/1.1 400")
