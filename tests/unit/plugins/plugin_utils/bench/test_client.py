"""The canary's request against a scripted stand-in server: every failure has its cause, and none takes for ever."""

from __future__ import annotations

import dataclasses
import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.client import ChatRequest, Outcome, ask
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.guards import limits_of
from ansible_collections.dgxspark.cluster.tests.support.ports import free_port
from ansible_collections.dgxspark.cluster.tests.unit.chat_server import (
    CLOSE,
    Answer,
    ChatServer,
    chunk,
    delta,
    event,
    head,
    sse,
)

LIMITS = limits_of(knowledge.load("guards"))
KEY = "sk-not-to-be-seen"
OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with ChatServer() as made:
        yield made


def send(server: ChatServer | None, *answers: Answer, **more: Any) -> Outcome:
    if server:
        server.answer(*answers)
        more = {"url": server.url, **more}
    asked = {"name": "default", "prompt": "Say it.", "max_tokens": 64, "timeout": 20.0, "model": "m", **more}
    return ask(ChatRequest(**asked), LIMITS)


def test_a_good_answer_passes_with_its_figures(server: ChatServer) -> None:
    outcome = send(server, sse("One, ", "two, ", "three.", tokens=9, pause=0.01), model=None, api_key=KEY)
    assert (outcome.status, outcome.cause, outcome.text) == ("ok", None, "One, two, three.")
    assert (outcome.tokens, outcome.tokens_are_counted, outcome.finish_reason) == (9, True, "stop")
    assert outcome.ttft_s is not None
    assert outcome.tokens_per_s
    assert outcome.model == "stand-in"
    models, chat = server.requests
    assert (models.method, models.path) == ("GET", "/v1/models")
    assert (chat.method, chat.path, chat.body["model"]) == ("POST", "/v1/chat/completions", "stand-in")
    assert chat.body["stream"] is True
    assert chat.body["messages"] == [{"role": "user", "content": "Say it."}]
    assert {request.headers["authorization"] for request in server.requests} == {f"Bearer {KEY}"}
    assert KEY not in json.dumps(dataclasses.asdict(outcome))


def test_without_a_key_none_is_sent(server: ChatServer) -> None:
    send(server, sse("Yes."))
    assert "authorization" not in server.requests[0].headers


def test_an_answer_that_is_not_chunked_is_read_to_its_end(server: ChatServer) -> None:
    answer: Answer = [head(chunked=False), delta("Good"), delta(" day.", "stop"), event("[DONE]")]
    assert send(server, answer).status == "ok"


def test_reasoning_before_the_answer_is_well(server: ChatServer) -> None:
    answer: Answer = [head(), chunk(delta(None, reasoning_content="Hm.")), chunk(delta("Well.", "stop")), chunk(b"")]
    outcome = send(server, answer)
    assert (outcome.status, outcome.text, outcome.has_reasoning) == ("ok", "Well.", True)


BEGUN: Answer = [head(), chunk(delta("Once upon"))]
FAILURES: list[tuple[str, Answer, str, str]] = [
    ("503", [head("503 Service Unavailable", chunked=False), b"loading"], "unavailable", "HTTP status 503: loading"),
    ("500", [head("500 Internal Server Error", chunked=False)], "http", "HTTP status 500"),
    ("404", [head("404 Not Found", chunked=False), b'{"detail":"no"}'], "http", "HTTP status 404"),
    ("301", [head("301 Moved Permanently", chunked=False, Location="http://127.0.0.1:1/")], "http", "HTTP status 301"),
    (
        "401",
        [head("401 Unauthorized", chunked=False), b"bad key sk-not-to-be-seen"],
        "unauthorized",
        "bad key ********",
    ),
    ("closed at once", [CLOSE], "truncated", "ended in the middle"),
    ("closed in the middle", [*BEGUN, CLOSE], "truncated", "ended in the middle"),
    ("half a chunk", [*BEGUN, b"400\r\ndata: {", CLOSE], "truncated", "ended in the middle"),
    ("no reason at the end", sse("Once upon", reason=None), "truncated", "without saying why"),
    ("only a role", [head(), chunk(delta(role="assistant")), chunk(b"")], "truncated", "after 0 pieces"),
    ("no HTTP", [b"SSH-2.0-OpenSSH_9.2\r\n\r\n", CLOSE], "protocol", "does not speak HTTP"),
    ("a web page", [head(kind="text/html"), chunk(b"<html>hello</html>"), chunk(b"")], "protocol", "text/html, not"),
    ("no stream", [head(kind="application/json"), chunk(b"{}"), chunk(b"")], "protocol", "application/json, not"),
    ("no JSON", [head(), chunk(b"data: {oops\n\n"), chunk(b"")], "protocol", "is not JSON"),
    ("an error", [*BEGUN, chunk(event({"error": {"message": "NCCL timeout"}})), chunk(b"")], "server-error", "NCCL"),
    ("nothing", sse("", "  \n"), "empty", "the answer is empty (stop)"),
    ("a few tokens of nothing", sse(*[" "] * 3, reason="length", tokens=3), "empty", "the answer is empty (length)"),
    ("line ends for ever", sse(*["\n"] * 60, reason="length", tokens=60), "garbage", "60 tokens, and not one visible"),
    ("marks that are left out", sse("", reason="length", tokens=16), "garbage", "16 tokens, and not one visible"),
    (
        "reasoning alone",
        [head(), chunk(delta(None, reasoning_content="Let me see.")), chunk(delta("", "length")), chunk(b"")],
        "reasoning-only",
        "only reasoning came back, and no answer (length)",
    ),
    ("one mark", sse(*["!"] * 60, reason="length"), "garbage", "guard single"),
    ("one mark for ever", sse(*["!!!!"] * 400, reason="length"), "garbage", "guard loop"),
    ("two words", sse(*["of", " the "] * 60, reason="length"), "garbage", "guard flood"),
    (
        "reasoning that is garbage",
        [
            head(),
            *[chunk(delta(None, reasoning="! ! ! !")) for _n in range(200)],
            chunk(delta("", "length")),
            chunk(b""),
        ],
        "garbage",
        "guard loop",
    ),
]


@pytest.mark.parametrize(("answer", "cause", "words"), [row[1:] for row in FAILURES], ids=[row[0] for row in FAILURES])
def test_each_failure_has_its_cause(server: ChatServer, answer: Answer, cause: str, words: str) -> None:
    outcome = send(server, list(answer), api_key=KEY)
    assert (outcome.status, outcome.cause) == ("failed", f"tokens.{cause}")
    assert words in outcome.message
    assert outcome.message.startswith(f"default ({server.url}): ")
    assert outcome.remedy
    assert KEY not in json.dumps(dataclasses.asdict(outcome))


def test_garbage_is_cut_short(server: ChatServer) -> None:
    """The server would go on for a minute; the guard does not wait for it."""
    outcome = send(server, [head(), *[chunk(delta("!" * 100)) for _n in range(10)], 60.0, CLOSE], timeout=50.0)
    assert outcome.cause == "tokens.garbage"


def test_a_server_that_is_not_there_refuses() -> None:
    outcome = send(None, url=f"http://127.0.0.1:{free_port()}/v1")
    assert outcome.cause == "tokens.refused"
    assert "Nothing listens there" in outcome.remedy


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param([600.0], id="no head"),
        pytest.param([head(), 600.0], id="head alone"),
        pytest.param([*BEGUN, 600.0], id="in the middle"),
        pytest.param([head(), *[step for _n in range(200) for step in (chunk(b": ping\n\n"), 0.05)]], id="drips"),
    ],
)
def test_a_server_that_hangs_costs_no_more_than_the_deadline(server: ChatServer, answer: Answer) -> None:
    began = time.monotonic()
    outcome = send(server, answer, timeout=1.0)
    assert outcome.cause == "tokens.hang"
    assert "no answer within 1 s" in outcome.message
    # Not a timing test: without a deadline it would take ten minutes, or ten seconds of drips and end as `truncated`.
    assert time.monotonic() - began < 300


def test_a_server_that_never_takes_the_connection_is_bounded_too() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        others = []
        for _number in range(4):  # fill the queue of connections that nobody accepts
            other = socket.socket()
            other.setblocking(False)
            other.connect_ex(full.getsockname())
            others.append(other)
        outcome = send(None, url=f"http://127.0.0.1:{full.getsockname()[1]}/v1", timeout=0.5)
        for other in others:
            other.close()
    assert outcome.cause in ("tokens.unreachable", "tokens.hang")


def test_a_wrong_answer_is_unexpected(server: ChatServer) -> None:
    outcome = send(server, sse("Purple elephants dream."), sse("Eighteen, NINETEEN, twenty."), expect="nineteen")
    assert outcome.cause == "tokens.unexpected"
    assert send(server, expect="nineteen").status == "ok"


def test_a_server_that_names_no_model_is_no_chat_server(server: ChatServer) -> None:
    server.models = {"data": []}
    outcome = send(server, model=None)
    assert outcome.cause == "tokens.protocol"
    assert "lists no model at /v1/models" in outcome.message


def test_tls_where_none_is_spoken_is_named(server: ChatServer) -> None:
    server.answer([b"not TLS", CLOSE])
    outcome = send(None, url=server.url.replace("http:", "https:"), timeout=5.0)
    assert outcome.cause in ("tokens.tls", "tokens.truncated")
    missing = send(None, url="https://127.0.0.1:1/v1", ca_path="/nonexistent/ca.pem")
    assert missing.cause == "tokens.tls"
    assert "/nonexistent/ca.pem" in missing.message


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"url": "10.0.0.1:30000"}, "is not a URL of a server"),
        ({"url": "ftp://10.0.0.1/v1"}, "is not a URL of a server"),
        ({"url": "http://user:pass@10.0.0.1/v1"}, "the URL contains a user name or password"),
        ({"url": "http://10.0.0.1:99999/v1"}, "is not a URL"),
        ({"url": "http://10.0.0.1/v1", "expect": "("}, "is not a regular expression"),
    ],
)
def test_a_wrong_argument_is_one_clear_error(more: dict[str, Any], words: str) -> None:
    with pytest.raises(CollectionError, match=words) as told:
        send(None, **more)
    assert "pass@" not in str(told.value)


CHUNKED = OK + b"Transfer-Encoding: chunked\r\n"
HOSTILE: list[tuple[str, Answer, str, str]] = [
    ("a chunk of -5", [CHUNKED + b"\r\n-5\r\nhello\r\n", 600.0], "protocol", "the size of a chunk is '-5'"),
    ("101 headers", [CHUNKED + b"X: 1\r\n" * 101 + b"\r\n", 600.0], "protocol", "more than 100 headers"),
    ("a long length", [OK + b"Content-Length: " + b"1" * 5000 + b"\r\n\r\n", 600.0], "protocol", "Content-Length is"),
    ("deep JSON", [head(), chunk(b"data: " + b"[" * 99_999 + b"\n\n"), 600.0], "protocol", "is not JSON"),
    ("lines of data", [head(), *[chunk(b"data:x\n" * 9000)] * 70, 600.0], "protocol", "one event that never ends"),
    ("headers in drips", [CHUNKED, *[s for _n in range(200) for s in (b"X: 1\r\n", 0.05)]], "hang", "no answer within"),
]


@pytest.mark.parametrize(("answer", "cause", "words"), [row[1:] for row in HOSTILE], ids=[row[0] for row in HOSTILE])
def test_a_hostile_answer_is_one_error_within_the_deadline(
    server: ChatServer, answer: Answer, cause: str, words: str
) -> None:
    began = time.monotonic()
    outcome = send(server, answer, timeout=1.0 if cause == "hang" else 60.0)
    assert (outcome.status, outcome.cause) == ("failed", f"tokens.{cause}")
    assert words in outcome.message
    assert outcome.remedy
    assert time.monotonic() - began < 30


def test_a_number_of_tokens_that_no_float_holds_is_no_speed(server: ChatServer) -> None:
    outcome = send(server, sse("One, ", "two, ", "three.", tokens=10**400, pause=0.01))
    assert (outcome.status, outcome.tokens, outcome.tokens_are_counted) == ("ok", 3, False)


@pytest.mark.parametrize(
    ("models", "words"),
    [("[" * 99_999, "lists no model"), (" " * (2 << 20), "larger than 1 MiB"), ('{"data": [{"id": 9e999}]}', "")],
)
def test_a_hostile_list_of_models_is_one_error(server: ChatServer, models: str, words: str) -> None:
    server.listing = models.encode()
    outcome = send(server, sse("Yes.") if not words else [CLOSE], model=None)
    assert words in outcome.message
    assert outcome.cause == ("tokens.protocol" if words else None)
