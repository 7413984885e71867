"""A whole measurement against a scripted server: warm-up, one prompt alone and together, the load, and a verdict by level."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.across import load_limits_of
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.client import ChatRequest
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.guards import limits_of
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.measure import Bench, Result, measure
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.workloads import workload_of
from ansible_collections.dgxspark.cluster.tests.stand_ins.scripted_engine import answer_of
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
from ansible_collections.dgxspark.cluster.tests.unit.sound_server import sound, words

ENTRIES = knowledge.load("workloads")
LIMITS = limits_of(knowledge.load("guards"))
OVER = load_limits_of(knowledge.load("guards"))


@pytest.fixture
def server() -> Iterator[ManyServer]:
    with ManyServer(answering=sound) as made:
        yield made


def run(server: ManyServer, *levels: int, said: list[str] | None = None, **more: Any) -> dict[int, Result]:
    bench = Bench(
        request=ChatRequest(name="default", url=server.url, prompt="", max_tokens=1, timeout=10.0, model="m"),
        greedy=workload_of("greedy", ENTRIES),
        known=workload_of("known", ENTRIES),
        levels=levels,
        **({"workload": workload_of("chat", ENTRIES), "rounds": 1, "seconds": 30.0} | more),
    )
    found = measure(bench, LIMITS, OVER, (said if said is not None else []).append)
    return {result.level.n: result for result in found}


def test_sound_answers_at_every_level(server: ManyServer) -> None:
    said: list[str] = []
    found = run(server, 1, 4, 8, said=said)
    assert {n: (result.verdict, result.signs) for n, result in found.items()} == {
        1: ("good", ()),
        4: ("good", ()),
        8: ("good", ()),
    }
    assert {n: (result.level.ok, result.level.tokens) for n, result in found.items()} == {
        1: (1, 30),
        4: (4, 120),
        8: (8, 240),
    }
    peak, wall = found[8].level.peak_tokens_per_s, found[8].level.wall_tokens_per_s
    assert peak
    assert wall
    assert peak > wall
    assert len(found[8].requests) == 8
    assert 0 < found[8].client_share < 1
    assert any("8 at once" in text for text in said)


def test_each_level_is_warmed_up_and_no_figure_has_it(server: ManyServer) -> None:
    run(server, 4)
    short = [request for request in server.requests if request.body["max_tokens"] <= 16]
    assert len(short) == 1 + 4
    assert server.requests[0] == short[0]
    greedy = [request.body for request in server.requests if "one to forty" in request.body["messages"][0]["content"]]
    assert len(greedy) == 2 + 4
    assert {body["temperature"] for body in greedy} == {0}


@pytest.mark.more
@pytest.mark.parametrize("n", [1, 8, 64])
def test_streams_of_one_token_are_garbage_at_any_concurrency(server: ManyServer, n: int) -> None:
    server.answering = lambda _request: sse(*["! "] * 500, reason="length", tokens=500)
    result = run(server, n)[n]
    assert result.verdict == "garbage"
    assert (result.level.ok, result.level.garbage) == (0, n)
    assert result.level.peak_tokens_per_s is None
    assert result.message


def test_a_batch_that_is_computed_wrong_is_garbage_though_each_text_is_fine(server: ManyServer) -> None:
    def batched(request: Request) -> Answer:
        # As soon as several run, the greedy prompt gets fluent words about something else. (Of two, one may be ending.)
        if "one to forty" in request.body["messages"][0]["content"] and server.most > 2:
            return sse(*words(f"{request.body['seed']} {len(server.requests)}", 60), tokens=60, pause=0.002)
        return sound(request)

    server.answering = batched
    found = run(server, 1, 8)
    assert found[1].verdict == "good"
    assert (found[8].verdict, [sign.id for sign in found[8].signs]) == ("garbage", ["bench.parted"])


def test_garbage_to_the_greedy_prompt_is_the_level_s(server: ManyServer) -> None:
    server.answering = lambda request: (
        sse(*["! "] * 500, tokens=500) if "forty" in request.body["messages"][0]["content"] else sound(request)
    )
    result = run(server, 4)[4]
    assert (result.verdict, result.level.ok, result.level.garbage) == ("garbage", 4, 0)


def test_every_answer_that_is_known_is_held_against_its_own_question(server: ManyServer) -> None:
    """The second level continues where the first one ended: questions 1 to 4, each answer fluent and wrong."""
    found = run(server, 1, 4, workload=workload_of("reasoning", ENTRIES))
    assert [sign.id for sign in found[4].signs] == ["bench.wrong"]
    assert "4 of 4 answers with a known result are wrong" in found[4].message
    assert found[1].verdict == "good"


def test_one_text_for_all_questions_is_garbage(server: ManyServer) -> None:
    server.answering = lambda request: (
        sound(request) if "forty" in request.body["messages"][0]["content"] else sse(*words("same"), tokens=30)
    )
    result = run(server, 4)[4]
    assert (result.verdict, "bench.alike" in {sign.id for sign in result.signs}) == ("garbage", True)


def test_one_failed_request_does_not_spoil_the_others_and_all_failed_is_no_speed(server: ManyServer) -> None:
    broken = [*sse("Once ")[:3], chunk(event({"error": {"message": "gone"}}))]
    server.answering = lambda request: broken if "bread" in request.body["messages"][0]["content"] else sound(request)
    result = run(server, 4)[4]
    assert (result.verdict, result.level.ok, result.level.failed) == ("failed", 3, 1)
    assert "1 of 4 requests failed (tokens.server-error)" in result.message
    assert result.level.peak_tokens_per_s


def test_a_level_that_time_cut_short_says_so(server: ManyServer) -> None:
    result = run(server, 2, rounds=50, seconds=0.3)[2]
    assert result.verdict == "good"
    assert result.not_asked > 50
    assert result.level.ok == 100 - result.not_asked


def burst(make: Callable[[Request], Answer]) -> Callable[[Request], Answer]:
    def at_once(request: Request) -> Answer:
        steps = make(request)
        whole = b"".join(step for step in steps[1:] if isinstance(step, bytes))
        return [steps[0], whole] if isinstance(steps[0], bytes) else steps

    return at_once


def test_answers_in_one_burst_are_flagged(server: ManyServer) -> None:
    server.answering = burst(sound)
    result = run(server, 2)[2]
    assert (result.level.bursts, result.level.peak_tokens_per_s) == (2, None)
    assert {sign.id: sign.severity for sign in result.signs} == {"bench.burst": "warning"}
    assert result.verdict == "good"


@pytest.mark.parametrize("bad", [{"levels": ()}, {"levels": (0,)}, {"rounds": 0}, {"seconds": 0.0}])
def test_bounds_that_are_none_are_refused(server: ManyServer, bad: dict[str, Any]) -> None:
    levels = bad.pop("levels", (1,))
    with pytest.raises(CollectionError, match="must be"):
        run(server, *levels, **bad)
    assert not server.requests


def refused(request: Request) -> Answer:
    """Refuse only the greedy prompt."""
    if "one to forty" in request.body["messages"][0]["content"]:
        return [head("500 Internal Server Error", "text/plain", chunked=False, Content_Length="4") + b"boom"]
    return sound(request)


def test_failed_greedy_requests_are_counted_and_decide(server: ManyServer) -> None:
    server.answering = refused
    for n, result in run(server, 1, 4).items():
        assert (result.verdict, result.level.ok) == ("failed", n)
        assert f"{n} of {n} requests of the greedy prompt failed (tokens.http)" in result.message
        assert "2 of 2 requests of the greedy prompt alone failed" in result.message
        assert result.message.count("See the server's log for the request.") == 1
        assert result.level.causes == {"tokens.http": n + 2}
        assert [sign.id for sign in result.signs] == (["bench.not-judged"] if n > 1 else [])


def test_garbage_to_the_greedy_prompt_alone_is_garbage(server: ManyServer) -> None:
    server.answering = lambda request: (
        sse(*["! "] * 500, tokens=500)
        if "forty" in request.body["messages"][0]["content"] and len(server.requests) < 4
        else sound(request)
    )
    result = run(server, 1)[1]
    assert result.verdict == "garbage"
    assert "1 at once: the answers to 2 of 2 requests of the greedy prompt alone are garbage" in result.message


def test_two_at_once_are_asked_often_enough_to_be_judged(server: ManyServer) -> None:
    result = run(server, 2)[2]
    assert (result.verdict, result.signs) == ("good", ())
    assert sum("one to forty" in request.body["messages"][0]["content"] for request in server.requests) == 2 + 4


def test_after_a_level_whose_server_is_gone_no_more_is_tried(server: ManyServer) -> None:
    def dying(request: Request) -> Answer:
        many = server.most > 2 and "forty" not in request.body["messages"][0]["content"]
        return [CLOSE] if many else sound(request)

    server.answering = dying
    said: list[str] = []
    found = run(server, 1, 4, 8, 16, said=said)
    assert {n: result.verdict for n, result in found.items()} == {1: "good", 4: "failed"}
    assert found[4].message.endswith("So 8, 16 at once were not tried.")
    assert any("the server is gone, and nothing more is tried" in text for text in said)


def test_a_server_that_refuses_is_there_and_the_levels_go_on(server: ManyServer) -> None:
    busy = [head("503 Service Unavailable", "text/plain", chunked=False, Content_Length="4") + b"busy"]
    server.answering = lambda _request: busy
    assert {n: result.verdict for n, result in run(server, 1, 2).items()} == {1: "failed", 2: "failed"}


@pytest.mark.parametrize(
    "text", ["Hello! How can I help you today?", "house run seven blue along under the of a", "Простите, я не понимаю."]
)
def test_a_model_that_says_one_thing_to_everything_is_garbage_at_every_level(server: ManyServer, text: str) -> None:
    server.answering = lambda _request: sse(*(f"{word} " for word in text.split()), tokens=10, pause=0.002)
    for result in run(server, 1, 4, rounds=2).values():
        assert result.verdict == "garbage"
        assert "answers to the greedy prompt sent alone are wrong" in result.message


def test_words_at_random_are_garbage_though_no_two_answers_agree(server: ManyServer) -> None:
    server.answering = lambda request: sse(*words(f"{len(server.requests)} {id(request)}"), tokens=30, pause=0.002)
    assert {n: result.verdict for n, result in run(server, 1, 4).items()} == {1: "garbage", 4: "garbage"}


def test_a_level_whose_answers_cannot_be_judged_is_not_good(server: ManyServer) -> None:
    """Thoughts up to the limit, that begin differently each time and are not about the prompt."""

    def thinking(request: Request) -> Answer:
        if "forty" not in request.body["messages"][0]["content"]:
            return sound(request)
        said = [chunk(delta(None, reasoning_content=w)) for w in words(f"{len(server.requests)} {id(request)}")]
        return [head(), *said, chunk(delta("", "length")), chunk(event("[DONE]")), chunk(b"")]

    server.answering = thinking
    result = run(server, 4)[4]
    assert result.verdict == "failed"
    assert "is not judged" in result.message
    assert "raise max_tokens" in result.message


def asks(request: Request) -> str:
    return str(request.body["messages"][0]["content"])


def loaded_only(server: ManyServer, spoilt: Callable[[Request], Answer]) -> Callable[[Request], Answer]:
    """Sound to the greedy prompt and to each known question, unless requests of the load run beside it."""
    return lambda request: spoilt(request) if answer_of(asks(request)) and server.most > 1 else sound(request)


def test_garbage_that_only_the_load_brings_is_seen_by_wrong_answers_whatever_its_letters(
    server: ManyServer,
) -> None:
    text = "maison avec le sur dans une petite"
    server.answering = loaded_only(server, lambda request: sse(f"{text} {request.body['seed']}", tokens=8))
    found = run(server, 1, 4)
    assert found[1].verdict == "good"
    assert (found[4].verdict, [sign.id for sign in found[4].signs]) == ("garbage", ["bench.known"])
    assert f"4 of 4 answers to known questions, asked among the load's, are wrong, such as '{text} " in found[4].message


def test_known_questions_are_asked_among_the_load_s_and_no_figure_has_them(server: ManyServer) -> None:
    """Half of what runs at once are the load's own prompts, which are dropped with the last known answer."""
    chat = [prompt["ask"] for prompt in workload_of("chat", ENTRIES).prompts]
    server.answering = lambda request: (
        sse(*(f"{word} " for word in str(answer_of(asks(request))).split()), tokens=1, pause=0.02)
        if answer_of(asks(request))
        else sound(request)
    )
    result = run(server, 4, workload=workload_of("chat", ENTRIES))[4]
    asked = [asks(request) for request in server.requests]
    first = min(at for at, text in enumerate(asked) if answer_of(text))
    assert sum(answer_of(text) is not None for text in asked) == 4
    assert len([text for text in asked[:first] if text in chat[:4]]) >= 4
    assert len([text for text in asked if text in chat]) > 4
    assert server.most == 4
    assert (result.level.ok, result.level.tokens, len(result.requests)) == (4, 120, 4)
    assert result.verdict == "good"


def test_one_known_answer_of_four_may_be_missed_and_is_shown(server: ManyServer) -> None:
    server.answering = lambda request: sse("I do not know.", tokens=4) if "France" in asks(request) else sound(request)
    result = run(server, 4)[4]
    assert (result.verdict, [(s.id, s.severity) for s in result.signs]) == ("good", [("bench.known", "warning")])


def thought(text: str) -> Answer:
    said = [chunk(delta(None, reasoning_content=text))]
    return [head(), *said, chunk(delta("", "length")), chunk(event("[DONE]")), chunk(b"")]


def test_thoughts_that_are_cut_are_no_answer_and_their_sound_beginning_is_enough_for_a_quick_run_alone(
    server: ManyServer,
) -> None:
    server.answering = lambda request: (
        thought(f"The user asks: {asks(request)} So I have to") if answer_of(asks(request)) else sound(request)
    )
    result = run(server, 4)[4]
    assert (result.verdict, "0 of 4 known questions were answered" in result.message) == ("failed", True)
    quick = run(server, 4, begun=True)[4]
    assert (quick.verdict, [sign.id for sign in quick.signs]) == ("good", ["bench.only-begun"])
    server.answering = lambda request: (
        thought("".join(words(asks(request), 60))) if answer_of(asks(request)) else sound(request)
    )
    result = run(server, 4)[4]
    assert result.verdict == "failed"
    assert "0 of 4 known questions were answered" in result.message and "needs more max_tokens" in result.message
    assert run(server, 4, begun=True)[4].verdict == "failed"


@pytest.mark.parametrize(("more", "verdict"), [(0, "good"), (200, "failed")])
def test_a_right_answer_after_which_a_model_goes_on_and_on_is_not_judged(
    server: ManyServer, more: int, verdict: str
) -> None:
    """Thoughts that the server leaves in the answer do not count."""
    server.answering = lambda request: (
        sse("<think>", *words(asks(request), 200), f"</think>{known}. ", *words(asks(request), more), tokens=9)
        if (known := answer_of(asks(request)))
        else sound(request)
    )
    assert run(server, 4)[4].verdict == verdict


def test_failed_known_questions_decide(server: ManyServer) -> None:
    server.answering = lambda request: (
        [head("500 Internal Server Error", "text/plain", chunked=False, Content_Length="4") + b"boom"]
        if answer_of(asks(request))
        else sound(request)
    )
    result = run(server, 4)[4]
    assert (result.verdict, result.level.ok, result.level.causes) == ("failed", 4, {"tokens.http": 4})
    assert "4 of 4 known questions among the load's failed" in result.message
