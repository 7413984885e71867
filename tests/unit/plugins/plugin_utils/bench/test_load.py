"""Requests at once against a scripted server on loopback: what is sent, what is seen, and what ends it."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench import load
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.client import ChatRequest
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.guards import limits_of
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.load import Planned, Turn, server_of, turns
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.workloads import Question, Workload
from ansible_collections.dgxspark.cluster.tests.unit.chat_server import (
    CLOSE,
    Answer,
    ManyServer,
    Request,
    chunk,
    delta,
    event,
    head,
    sse,
)

LIMITS = limits_of(knowledge.load("guards"))
WORK = Workload("w", max_tokens=64, temperature=0.2, seed=7, timeout_s=10.0, prompts=({"ask": "x"},))
KEY = "sk-not-to-be-seen"


@pytest.fixture
def server() -> Iterator[ManyServer]:
    with ManyServer() as made:
        yield made


def asked(count: int) -> list[Question]:
    return [Question(index, index, f"Question {index}?", 7 + index) for index in range(count)]


def ask(server: ManyServer, n: int, count: int, seconds: float = 60.0, **more: Any) -> Turn:
    base = ChatRequest(
        name="default", url=server.url, prompt="", max_tokens=1, **({"timeout": 10.0, "model": "m"} | more)
    )
    (turn,) = turns(base, [Planned(n, WORK, asked(count), seconds)], LIMITS)
    return turn


def slow(words: int, pause: float) -> Callable[[Request], Answer]:
    return lambda _request: sse(*(f"w{n} " for n in range(words)), tokens=words, pause=pause)


def test_n_run_at_once_and_each_is_sent_as_the_workload_says(server: ManyServer) -> None:
    server.answering = slow(5, 0.03)
    turn = ask(server, 4, 8, api_key=KEY)
    assert server.most == 4
    assert [record.index for record in turn.records] == list(range(8))
    assert {record.status for record in turn.records} == {"ok"}
    assert {record.tokens for record in turn.records} == {5}
    bodies = sorted((request.body for request in server.requests), key=lambda body: body["seed"])
    assert [body["messages"][0]["content"] for body in bodies] == [f"Question {n}?" for n in range(8)]
    assert [body["seed"] for body in bodies] == list(range(7, 15))
    assert {(body["temperature"], body["max_tokens"], body["model"], body["stream"]) for body in bodies} == {
        (0.2, 64, "m", True)
    }
    assert {str(body["stream_options"]["include_usage"]) for body in bodies} == {"True"}
    assert {request.headers["authorization"] for request in server.requests} == {f"Bearer {KEY}"}


def test_times_are_of_the_text_and_not_of_the_role(server: ManyServer) -> None:
    def late(_request: Request) -> Answer:
        role, *rest = sse("a", "b", "c", tokens=3, pause=0.1)[1:]
        return [head(), role, 0.3, *rest]

    server.answering = late
    (record,) = ask(server, 1, 1).records
    assert record.times[0] - record.began >= 0.3
    assert len(record.times) == 3  # the gaps depend on the machine's other load, too
    assert record.content == "abc"


def test_time_is_a_bound_after_which_nothing_more_is_asked(server: ManyServer) -> None:
    server.answering = slow(4, 0.05)
    began = time.monotonic()
    turn = ask(server, 2, 400, seconds=0.5)
    assert time.monotonic() - began < 5
    assert 2 <= len(turn.records) < 40
    assert turn.not_asked == 400 - len(turn.records)
    assert {record.status for record in turn.records} == {"ok"}


def test_the_client_s_own_share_is_measured(server: ManyServer) -> None:
    server.answering = slow(20, 0.02)
    turn = ask(server, 8, 8)
    assert 0 < turn.client_share < 0.9
    assert turn.wall_s > 0.3


def failing(kind: str) -> Answer:
    good = sse("Once ", "upon ", "a time.", tokens=5)
    return {
        "error event": [*good[:4], chunk(event({"error": {"message": f"EngineCore died, key {KEY}"}})), *good[-2:]],
        "cut": [*good[:4], CLOSE],
        "no end": [*good[:4], chunk(b"")],
        "503": [head("503 Service Unavailable", "text/plain", chunked=False, Content_Length="4") + b"busy"],
        "401": [head("401 Unauthorized", "text/plain", chunked=False, Content_Length="2") + b"no"],
        "page": [head("200 OK", "text/html", chunked=False, Content_Length="2") + b"hi"],
        "hang": [*good[:4], 5.0],
        "nothing": sse("", tokens=1),
        "line ends for ever": sse(*["\n"] * 60, reason="length", tokens=60),
    }[kind]


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        ("error event", "tokens.server-error"),
        ("cut", "tokens.truncated"),
        ("no end", "tokens.truncated"),
        ("503", "tokens.unavailable"),
        ("401", "tokens.unauthorized"),
        ("page", "tokens.protocol"),
        ("hang", "tokens.hang"),
        ("nothing", "tokens.empty"),
        ("line ends for ever", "tokens.garbage"),
    ],
)
def test_a_failed_request_is_counted_with_its_cause_and_ends_no_other(
    server: ManyServer, kind: str, cause: str
) -> None:
    good = sse("Yes, ", "that is so.", tokens=4, pause=0.02)
    server.answering = lambda request: failing(kind) if "3?" in request.body["messages"][0]["content"] else good
    turn = ask(server, 4, 8, timeout=1.0, api_key=KEY)
    bad = [record for record in turn.records if record.status != "ok"]
    status = "garbage" if cause == "tokens.garbage" else "failed"
    assert [(record.index, record.status, record.cause) for record in bad] == [(3, status, cause)]
    assert len(turn.records) == 8
    assert KEY not in repr(turn)


def test_a_server_that_is_not_there_fails_each_request(server: ManyServer) -> None:
    base = ChatRequest(name="default", url="http://127.0.0.1:1/v1", prompt="", max_tokens=4, timeout=5.0, model="m")
    (turn,) = turns(base, [Planned(2, WORK, asked(2), 10.0)], LIMITS)
    assert {record.cause for record in turn.records} == {"tokens.refused"}
    assert turn.records[0].message.startswith("default (http://127.0.0.1:1/v1): the connection is refused")


@pytest.mark.parametrize("n", [1, 8, 64])
def test_streams_of_one_token_are_caught_while_they_run(server: ManyServer, n: int) -> None:
    """The seed's blind spot: all race to max_tokens at once, each faster than a check over all of them."""
    server.answering = lambda _request: sse(*["! "] * 400, reason="length", tokens=400)
    turn = ask(server, n, n)
    assert [(record.status, record.cause) for record in turn.records] == [("garbage", "tokens.garbage")] * n
    assert {record.guard for record in turn.records} == {"loop"}
    # They were aborted long before their end.
    assert all(len(record.content) < 800 for record in turn.records)


def test_one_stream_s_garbage_is_its_own(server: ManyServer) -> None:
    def half(request: Request) -> Answer:
        number = int(request.body["messages"][0]["content"].split()[1].rstrip("?"))
        return sse(*["the "] * 400, tokens=400) if number % 2 else sse(*(f"word{n} " for n in range(80)), tokens=80)

    server.answering = half
    assert [record.status for record in ask(server, 8, 8).records] == ["ok", "garbage"] * 4


def test_levels_share_one_loop_and_the_model_s_name_is_asked_once(server: ManyServer) -> None:
    base = ChatRequest(name="default", url=server.url, prompt="", max_tokens=4, timeout=5.0)
    found = turns(base, [Planned(1, WORK, asked(1), 9.0), Planned(2, WORK, asked(4), 9.0)], LIMITS)
    assert [(turn.n, len(turn.records)) for turn in found] == [(1, 1), (2, 4)]
    assert [request.path for request in server.requests].count("/v1/models") == 1
    assert {request.body["model"] for request in server.requests if request.body} == {"stand-in"}


def test_a_url_that_is_none_is_refused_before_anything_is_sent() -> None:
    base = ChatRequest(name="default", url="spark1:30000", prompt="", max_tokens=4, timeout=5.0)
    with pytest.raises(CollectionError, match="is not a URL of a server"):
        turns(base, [Planned(1, WORK, asked(1), 1.0)], LIMITS)


def test_one_delta_of_a_choice_is_read_like_the_canary_s(server: ManyServer) -> None:
    server.answering = lambda _request: [
        head(),
        chunk(delta(None, reasoning_content="Hm. ")),
        chunk(delta("Yes.", "stop")),
        chunk(event("[DONE]")),
        chunk(b""),
    ]
    (record,) = ask(server, 1, 1).records
    assert (record.reasoning, record.content, record.finish_reason) == ("Hm. ", "Yes.", "stop")


def test_a_server_that_takes_the_first_request_and_never_answers_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "FIRST_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        base = ChatRequest(name="bench", url=url, prompt="", max_tokens=1, timeout=86400.0)
        began = time.monotonic()
        with pytest.raises(
            CollectionError,
            match=r"no answer within 0\.3 s to the request for its list of models.*See the logs of all ranks",
        ):
            server_of(base)
        with pytest.raises(CollectionError, match="no answer within"):
            turns(base, [Planned(1, WORK, asked(1), 1.0)], LIMITS)
    assert time.monotonic() - began < 20
