"""One HTTP/1.1 answer, cut into pieces anywhere: the same bytes come out, and its end is known."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.arrivals import Arrivals
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.http1 import Cut, Exchange, HttpError, exchange

OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"


def taken(answer: bytes, cuts: list[int], lost: bool = True) -> tuple[Exchange, bytes]:
    """Feed an answer in pieces; return the exchange and the body that was read."""

    async def run() -> tuple[Exchange, bytes]:
        body: list[bytes] = []

        def take(piece: bytes, _now: float) -> bool:
            body.append(piece)
            return False

        made = Exchange(take)
        places = sorted({0, len(answer), *(cut % (len(answer) + 1) for cut in cuts)})
        for start, end in itertools.pairwise(places):
            made.data_received(answer[start:end])
        if lost:
            made.connection_lost(None)
        await made.over
        return made, b"".join(body)

    return asyncio.run(run())


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=6), st.lists(st.integers(0, 10_000), max_size=12))
def test_chunks_come_out_whole_wherever_they_are_cut(chunks: list[bytes], cuts: list[int]) -> None:
    coded = b"".join(b"%x;x=1\r\n%s\r\n" % (len(each), each) for each in chunks) + b"0\r\n\r\n"
    made, body = taken(OK + b"Transfer-Encoding: chunked\r\n\r\n" + coded, cuts, lost=False)
    assert (made.status, made.kind, body) == (200, "text/event-stream", b"".join(chunks))


@given(st.binary(max_size=60), st.lists(st.integers(0, 10_000), max_size=8))
def test_a_counted_and_an_open_body_end_where_they_should(body: bytes, cuts: list[int]) -> None:
    counted = OK + b"Content-Length: %d\r\n\r\n" % len(body) + body
    assert taken(counted, cuts, lost=not body)[1] == body if body else True
    assert taken(OK + b"\r\n" + body, cuts)[1] == body


def test_a_refusal_is_kept_and_not_taken() -> None:
    made, body = taken(b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy", [30])
    assert (made.status, made.refusal, body) == (503, b"busy", b"")


@pytest.mark.parametrize("rest", [b"", b"5\r\nab", b"5\r\nabcde\r\n"])
def test_an_end_in_the_middle_is_no_end(rest: bytes) -> None:
    with pytest.raises(Cut):
        taken(OK + b"Transfer-Encoding: chunked\r\n\r\n" + rest, [])


@pytest.mark.parametrize(
    "answer", [b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 abc\r\n\r\n", OK + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n"]
)
def test_what_is_no_http_is_told(answer: bytes) -> None:
    with pytest.raises(HttpError):
        taken(answer, [])


async def ask(host: str, port: int, request: bytes) -> Exchange:
    arrivals = Arrivals()
    try:
        return await exchange(host, port, arrivals, request, lambda _piece, _now: False, lambda _now: None)
    finally:
        arrivals.close()


def asked(host: str, request: bytes, answer: bytes, reads: int = 1) -> Exchange:
    """Ask a server on 127.0.0.1 alone, which reads so many bytes, answers and closes."""

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(reads)
        writer.write(answer)
        writer.close()

    async def run() -> Exchange:
        server = await asyncio.start_server(one, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            return await ask(host, port, request)

    return asyncio.run(asyncio.wait_for(run(), 30))


def test_of_a_host_s_addresses_the_one_that_answers_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    places = [("::1", 0, 0), ("127.0.0.1",)]

    async def addresses(_loop: object, _host: str, port: int, **_more: object) -> list[tuple[object, ...]]:
        kinds = (socket.AF_INET6, socket.AF_INET)
        return [(k, socket.SOCK_STREAM, 0, "", (p[0], port, *p[1:])) for k, p in zip(kinds, places, strict=True)]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", addresses)
    assert asked("spark1", b"GET", OK + b"Content-Length: 0\r\n\r\n").status == 200


def test_a_server_that_takes_no_connection_is_told_as_the_system_does() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        with pytest.raises(ConnectionRefusedError):
            asyncio.run(ask("127.0.0.1", port, b""))


def test_a_refusal_that_comes_before_all_was_sent_is_read() -> None:
    made = asked("127.0.0.1", b"x" * (1 << 20), b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig", 1 << 19)
    assert (made.status, made.refusal) == (413, b"big")


def test_a_connection_that_is_closed_without_a_word_is_cut() -> None:
    with pytest.raises(Cut):
        asked("127.0.0.1", b"GET", b"")


# --- what a hostile server sends --------------------------------------------------------------------------------------

CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
HOSTILE = {
    "a chunk of less than nothing": (CHUNKED + b"-5\r\nhello\r\n" * 9, r"the size of a chunk is '-5'"),
    "a chunk with a sign": (CHUNKED + b"+5\r\nhello\r\n", "the size of a chunk is"),
    "a chunk with a prefix": (CHUNKED + b"0x5\r\nhello\r\n", "the size of a chunk is"),
    "a chunk with a gap": (CHUNKED + b"1_0\r\n" + b"x" * 16 + b"\r\n", "the size of a chunk is"),
    "a chunk without end": (CHUNKED + b"f" * 200, "a chunk has no size"),
    "a chunk larger than any memory": (CHUNKED + b"f" * 40 + b"\r\n", "the size of a chunk is 'fff"),
    "101 headers": (OK + b"X: 1\r\n" * 101 + b"\r\n", "got more than 100 headers"),
    "a length of 5,000 digits": (OK + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n", "its Content-Length is '9999"),
    "a negative length": (OK + b"Content-Length: -1\r\n\r\n", "its Content-Length is '-1'"),
    "a length that is no number to Python": (OK + "Content-Length: ²\r\n\r\n".encode("latin-1"), "its Content-Length"),
    "a head without end": (OK + b"X: " + b"x" * (1 << 17), "the head of its answer is larger than 64 KiB"),
    "a status of words": (b"HTTP/1.1 two hundred\r\n\r\n", "its answer has no status"),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("step", [1 << 14, 7])
def test_each_hostile_answer_is_one_error_that_says_what_it_is(name: str, step: int) -> None:
    answer, words = HOSTILE[name]
    with pytest.raises(HttpError, match=words):
        taken(answer, list(range(0, len(answer), step)))


def test_any_number_of_interim_heads_is_read_without_recursion() -> None:
    many = b"HTTP/1.1 100 Continue\r\n\r\n" * 3000
    assert taken(many + OK + b"Content-Length: 2\r\n\r\nok", [])[1] == b"ok"


FRAGMENTS = st.sampled_from([
    b"Transfer-Encoding: chunked\r\n", b"Content-Length: ", b"9" * 30, b"\r\n", b"\r\n\r\n", b"-5\r\n", b"5\r\nhello\r\n",
    b"0\r\n\r\n", b"ffffffff\r\n", b";x=", b"X: 1\r\n" * 60, b"\x00\xff", b"HTTP/1.1 100\r\n\r\n", b"data: ",
])  # fmt: skip


@given(st.lists(FRAGMENTS | st.binary(max_size=12), max_size=30), st.lists(st.integers(0, 10_000), max_size=12))
def test_whatever_a_server_sends_ends_soon_and_in_words(parts: list[bytes], cuts: list[int]) -> None:
    began = time.monotonic()
    with contextlib.suppress(HttpError, Cut):
        taken(b"HTTP/1.1 200 OK\r\n" + b"".join(parts), cuts)
    assert time.monotonic() - began < 5
