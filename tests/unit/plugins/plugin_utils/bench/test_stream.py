"""Server-sent events of chat completions: however the bytes are cut, the same text comes out."""

from __future__ import annotations

import itertools
import json
import time
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.stream import (
    ChatStream,
    EventReader,
    StreamError,
)
from ansible_collections.dgxspark.cluster.tests.unit.chat_server import delta, event


def read(data: bytes, *cuts: int) -> list[str]:
    reader, found = EventReader(), []
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for begin, end in itertools.pairwise(places):
        found += list(reader.feed(data[begin:end]))
    return found + list(reader.feed(b"", True))


@pytest.mark.parametrize(
    ("data", "events"),
    [
        (b"data: a\n\ndata: b\n\n", ["a", "b"]),
        (b"data:a\r\n\r\ndata:b\r\r", ["a", "b"]),
        (b": ping\n\nevent: x\ndata: a\nid: 1\n\n", ["a"]),
        (b"data: a\ndata: b\n\n", ["a\nb"]),
        (b"data: a\n\ndata: never ended", ["a"]),
        ("data: 灯塔 ü\n\n".encode(), ["灯塔 ü"]),
        (b"", []),
        (b"\n\n\n", []),
    ],
)
def test_events_are_read_as_the_standard_says(data: bytes, events: list[str]) -> None:
    assert read(data) == events
    assert read(data, *range(len(data))) == events


LINE = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=20)


@given(st.lists(LINE, max_size=6), st.sampled_from(["\n", "\r\n", "\r"]), st.lists(st.integers(0, 500), max_size=20))
def test_cuts_do_not_matter(values: list[str], end: str, cuts: list[int]) -> None:
    data = "".join(f"data: {value}{end}{end}" for value in values).encode()
    assert read(data, *cuts) == values


TEXT = st.text(max_size=6) | st.sampled_from(['"', "\\", "\n", "\u2028", "\x00", 'a","content":"b', "🙂", "\ud83d"])
SAID = st.just({}) | st.fixed_dictionaries(
    {}, optional={"content": TEXT | st.none(), "reasoning": TEXT, "reasoning_content": TEXT, "note": TEXT}
)
EVENT = st.builds(
    lambda said, more, finish, extra: {**more, "choices": [{"delta": said, "finish_reason": finish, **extra}]},
    SAID,
    st.fixed_dictionaries(
        {},
        optional={
            "model": st.sampled_from(["m", "n"]),
            "usage": st.builds(lambda n: {"completion_tokens": n}, st.integers(0, 9)),
        },
    ),
    st.sampled_from([None] * 9 + ["stop", "length"]),
    st.fixed_dictionaries({}, optional={"logprobs": st.builds(lambda text: {"content": text}, TEXT)}),
)


@given(
    st.lists(
        st.tuples(EVENT, st.sampled_from(["content", "reasoning", "reasoning_content"]), st.lists(TEXT, max_size=4)),
        max_size=6,
    ),
    st.booleans(),
    st.sampled_from([(",", ":"), (", ", ": ")]),
    st.sampled_from(["\n", "\r\n"]),
    st.lists(st.integers(0, 5000), max_size=3),
)
def test_events_that_are_alike_are_read_as_any_other(
    shapes: list[tuple[dict[str, t.Any], str, list[str]]],
    plain: bool,
    marks: tuple[str, str],
    end: str,
    cuts: list[int],
) -> None:
    """Events that arrive whole may take a fast path; byte by byte they never do."""
    whole, bytewise = ChatStream(0.0), ChatStream(0.0)
    events = list[dict[str, t.Any]]()
    for shape, key, texts in shapes:
        events.append(shape)
        for text in texts:
            events.append(json.loads(json.dumps(shape)))
            events[-1]["choices"][0]["delta"][key] = text
    data, ends = b"", [0]
    for each in events:
        data += f"data: {json.dumps(each, ensure_ascii=plain, separators=marks)}{end}{end}".encode("utf-8", "replace")
        ends.append(len(data))
    for begin, until in itertools.pairwise(sorted({*ends, *(cut % (len(data) + 1) for cut in cuts)})):
        whole.feed(data[begin:until], 1.0)
    for at in range(len(data)):
        bytewise.feed(data[at : at + 1], 1.0)
    for name in (
        "content",
        "reasoning",
        "pieces",
        "times",
        "counts",
        "first",
        "model",
        "finish_reason",
        "tokens",
        "token_marks",
    ):
        assert getattr(whole, name) == getattr(bytewise, name), name


def test_what_looks_alike_in_the_middle_of_a_line_is_no_event() -> None:
    stream = ChatStream(0.0)
    for text in ("one", "two"):
        stream.feed(delta(text) + b": a comment ", 1.0)
    assert stream.content == "one"


def test_an_event_of_several_lines_is_read_as_one() -> None:
    stream = ChatStream(0.0)
    for text in ("one", "two"):
        stream.feed(b'data: {"choices":\n', 1.0)
        stream.feed(b'data: [{"delta": {"content": "%s"}}]}\n\n' % text.encode(), 1.0)
    assert stream.content == "onetwo"


def test_figures_come_of_times_and_counted_tokens() -> None:
    stream = ChatStream(10.0)
    stream.feed(delta(role="assistant"), 10.2)
    stream.feed(delta(None, reasoning_content="Hm."), 10.5)
    stream.feed(delta("One"), 11.0)
    stream.feed(delta(" two", "stop"), 12.5)
    stream.feed(event({"choices": [], "usage": {"completion_tokens": 11}}) + event("[DONE]"), 12.6)
    assert (stream.content, stream.reasoning) == ("One two", "Hm.")
    assert stream.ttft_s == pytest.approx(0.5)
    assert stream.tokens_per_s == pytest.approx(10 / 2.0)
    assert (stream.tokens, stream.tokens_are_counted, stream.finish_reason, stream.done) == (11, True, "stop", True)


def test_without_counted_tokens_pieces_are_counted_and_said_to_be() -> None:
    stream = ChatStream(0.0)
    stream.feed(delta("a") + delta("b", "length"), 1.0)
    assert (stream.tokens, stream.tokens_are_counted, stream.tokens_per_s) == (2, False, None)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"data: {not json\n\n", "is not JSON"),
        (b"data: [1]\n\n", "is not an object"),
        (event({"error": {"message": "CUDA error: an illegal instruction"}}), "an illegal instruction"),
        (event({"error": "overloaded"}), "overloaded"),
        (b"data: " + b"x" * (1 << 21), "never ends"),
        (
            b'event: error\ndata: {"message": "EngineCore died"}\n\n',
            "aborted in the middle of the answer: EngineCore died",
        ),
        (
            b'event: error\r\ndata: {"error": {"message": "no room"}}\r\n\r\n',
            "aborted in the middle of the answer: no room",
        ),
        (b"event:error\ndata: out of memory\n\n", "aborted in the middle of the answer: out of memory"),
        (delta("a", "abort"), "aborted in the middle of the answer: it ended with finish_reason 'abort'"),
        (delta("", "error"), "aborted in the middle of the answer: it ended with finish_reason 'error'"),
    ],
)
def test_what_is_no_completion_is_an_error(data: bytes, words: str) -> None:
    with pytest.raises(StreamError, match=words):
        ChatStream(0.0).feed(data, 0.0)


def test_an_error_event_in_two_pieces_is_one_and_the_next_event_is_none() -> None:
    stream = ChatStream(0.0)
    stream.feed(b"event: error\n", 0.0)
    with pytest.raises(StreamError, match="aborted in the middle of the answer: gone"):
        stream.feed(b"data: gone\n\n", 0.1)
    stream = ChatStream(0.0)
    stream.feed(b"event: error\n\n", 0.0)  # without data it is no event
    stream.feed(delta("Yes."), 0.1)
    assert stream.content == "Yes."


@pytest.mark.parametrize("name", ["content", "reasoning_content"])
def test_half_a_pair_of_surrogates_is_a_mark_and_no_traceback(name: str) -> None:
    """A token that ends within a character, from a server that escapes what it has so far."""
    stream = ChatStream(0.0)
    stream.feed(
        b'data: {"choices": [{"delta": {"' + name.encode() + b'": "so \\ud83d"}}], "model": "m\\udc00"}\n\n', 0.0
    )
    whole = f"{stream.content}{stream.reasoning}{stream.model}"
    assert whole.encode().decode() == "so \ufffdm\ufffd"
    with pytest.raises(StreamError) as caught:
        stream.feed(b'data: {"error": "bad \\udead"}\n\n', 0.1)
    assert str(caught.value).encode()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["choices", "delta", "content", "usage", "model", "x"]), inner, max_size=3)
    ),
)


@given(JSON)
def test_any_json_is_text_or_an_error_and_no_traceback(value: object) -> None:
    stream = ChatStream(0.0)
    try:
        stream.feed(event(json.dumps(value)), 0.0)
    except StreamError:
        return
    assert stream.tokens >= 0


# --- what a hostile server sends --------------------------------------------------------------------------------------

DEEP = "[" * 100_000
HOSTILE = {
    "deep JSON": (f"data: {DEEP}\n\n", "is not JSON"),
    "deep JSON in an error": (f"event: error\ndata: {DEEP}\n\n", "aborted"),
    "a deep model": ('data: {"model": ' + "[" * 600 + "]" * 600 + ', "error": 1}\n\n', "aborted"),
    "a number of 5,000 digits": (f'data: {{"usage": {{"completion_tokens": {"9" * 5000}}}}}\n\n', "is not JSON"),
    "4 MiB of short lines of data": ("data:x\n" * 600_000, "one event that never ends"),
    "4 MiB of empty lines of data": ("data:\n" * 700_000, "one event that never ends"),
    "4 MiB without a line": ("x" * (1 << 22), "one event that never ends"),
}


@pytest.mark.parametrize("step", [4096, 24])
@pytest.mark.parametrize("name", HOSTILE)
def test_each_hostile_stream_is_one_error_soon(name: str, step: int) -> None:
    data, words = HOSTILE[name]
    stream, began = ChatStream(0.0), time.monotonic()
    raw = data.encode()
    with pytest.raises(StreamError, match=words):
        for at in range(0, len(raw), step):
            stream.feed(raw[at : at + step], 0.0)
    assert time.monotonic() - began < 10, "quadratic, it takes minutes"


def test_an_answer_without_end_ends() -> None:
    stream, piece = ChatStream(0.0), delta("x" * 60_000)
    with pytest.raises(StreamError, match="an answer that never ends"):
        for _n in range(400):
            stream.feed(piece, 0.0)


@pytest.mark.parametrize("count", [10**400, 1_000_000, 65, 40])
def test_tokens_that_cannot_be_do_not_count(count: int) -> None:
    """More than max_tokens, or than bytes of text with a few that have none."""
    stream = ChatStream(0.0, most_tokens=64)
    for now in range(1, 4):
        stream.feed(delta("one "), float(now))
    stream.feed(delta("", "stop") + event({"choices": [], "usage": {"completion_tokens": count}}), 3.5)
    assert (stream.tokens, stream.tokens_are_counted) == (3, False)
    assert stream.tokens_per_s == pytest.approx(1.0)


def test_tokens_without_text_of_an_end_and_of_reasoning_count() -> None:
    stream = ChatStream(0.0, most_tokens=64)
    stream.feed(delta("one"), 1.0)
    stream.feed(delta("", "stop") + event({"choices": [], "usage": {"completion_tokens": 4}}), 2.0)
    assert (stream.tokens, stream.tokens_are_counted, stream.miscounted) == (4, True, None)


JUNK = st.sampled_from([
    "data: ", "data:", "event: error\n", "\n\n", "\r", '{"choices": [{"delta": {"content": "a"}}]}', "[DONE]", "[" * 500, "9" * 400,
    '{"usage": {"completion_tokens": ', '{"model": ', '{"choices": ', "}", "]", "null", '"\\ud83d"', "1e999", "NaN",
])  # fmt: skip


@given(st.lists(JUNK, max_size=30), st.lists(st.integers(0, 5000), max_size=10))
def test_whatever_a_server_streams_is_read_or_refused_soon(parts: list[str], cuts: list[int]) -> None:
    data, stream, began = "".join(parts).encode(), ChatStream(0.0, 64), time.monotonic()
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    try:
        for now, (start, end) in enumerate(itertools.pairwise(places)):
            stream.feed(data[start:end], float(now))
        stream.feed(b"", 99.0, final=True)
    except StreamError as exc:
        assert str(exc)
    assert 0 <= stream.tokens <= 64
    assert stream.tokens_per_s is None or stream.tokens_per_s >= 0
    assert time.monotonic() - began < 5
