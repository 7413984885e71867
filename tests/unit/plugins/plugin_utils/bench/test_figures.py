"""Figures of one request and of one level, from times that a test invents: what each of them means, and what it leaves out."""

from __future__ import annotations

import pytest

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.figures import (
    Burst,
    Record,
    figures_of,
    level_of,
    quantile,
    record_of,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.stream import ChatStream, StreamError
from ansible_collections.dgxspark.cluster.tests.unit.chat_server import delta, event

BURST = Burst(min_tokens=8, min_token_s=0.0002)


def usage(completion: int, **more: object) -> bytes:
    return event({"choices": [], "usage": {"completion_tokens": completion, **more}})


def told(*events: tuple[float, bytes], began: float = 0.0) -> ChatStream:
    stream = ChatStream(began)
    for now, data in events:
        stream.feed(data, now)
    return stream


def even(count: int, gap: float, began: float = 0.0, first: float = 0.5, reason: str = "stop") -> Record:
    """Stream one word per token, `gap` seconds apart."""
    words = [(began + first + n * gap, delta(f"w{n} ")) for n in range(count)]
    end = began + first + (count - 1) * gap
    return record_of(0, 0, told(*words, (end, delta("", reason) + usage(count)), began=began), end)


def test_one_token_a_chunk() -> None:
    found = figures_of(even(11, 0.1), BURST)
    assert found.ttft_s == pytest.approx(0.5)
    assert found.tokens == 11
    assert found.tokens_per_s == pytest.approx(10)
    assert found.tpot_s == pytest.approx(0.1)
    assert found.itl_median_s == pytest.approx(0.1)
    assert found.itl_p99_s == pytest.approx(0.1)
    assert (found.burst, found.itl_is_spread) == (False, False)


def test_a_stop_token_that_is_counted_takes_its_time() -> None:
    """As vLLM sends it: six tokens, five of them text, and the end in a chunk of its own, one step later."""
    words = [(0.5 + n * 0.1, delta(f"w{n} ")) for n in range(5)]
    found = figures_of(record_of(0, 0, told(*words, (1.0, delta("", "stop")), (1.2, usage(6))), 1.2), BURST)
    assert (found.tokens_per_s, found.itl_median_s) == (pytest.approx(10), pytest.approx(0.1))
    assert not found.itl_is_spread


@pytest.mark.parametrize(("reason", "tokens"), [("length", 6), ("stop", 5)])
def test_an_end_without_a_token_takes_none(reason: str, tokens: int) -> None:
    words = [(0.5 + n * 0.1, delta(f"w{n} ")) for n in range(5)]
    stream = told(*words, (1.9, delta("", reason)), (2.0, usage(tokens)))
    assert figures_of(record_of(0, 0, stream, 2.0), BURST).tokens_per_s == pytest.approx((tokens - 1) / 0.4)


def test_a_chunk_that_names_the_role_alone_is_no_token() -> None:
    """Tools that take it for the first token report a better time to first token than any user sees."""
    stream = told(
        (0.1, delta(role="assistant")),
        (0.1, delta("", role="assistant")),
        (2.0, delta("a")),
        (3.0, delta("b", "stop") + usage(2)),
    )
    found = figures_of(record_of(0, 0, stream, 3.0), BURST)
    assert (found.ttft_s, found.tokens) == (2.0, 2)
    assert found.itl_median_s == pytest.approx(1.0)


def test_several_tokens_in_a_chunk_are_counted_by_usage_and_their_time_is_shared() -> None:
    """As with speculation: three chunks, nine tokens. The gap between chunks is not the time per token."""
    stream = told((1.0, delta("a b c")), (1.3, delta("d e f")), (1.6, delta("g h i", "stop") + usage(9)))
    found = figures_of(record_of(0, 0, stream, 1.6), BURST)
    assert (found.tokens, found.chunks) == (9, 3)
    assert found.tokens_per_s == pytest.approx(8 / 0.6)
    assert found.itl_median_s == pytest.approx(0.6 / 8)
    assert found.gap_median_s == pytest.approx(0.3)
    assert found.itl_is_spread


def test_counts_that_run_along_tell_each_chunk_s_share() -> None:
    def counted(text: str, count: int) -> bytes:
        choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
        return event({"choices": [choice], "usage": {"completion_tokens": count}})

    stream = told((1.0, counted("a b c", 3)), (1.4, counted("d", 4)), (1.8, counted("e f g h", 8) + delta("", "stop")))
    found = figures_of(record_of(0, 0, stream, 1.8), BURST)
    assert found.tokens == 8
    # The first chunk's tokens arrive at time zero: five arrive after them.
    assert found.tokens_per_s == pytest.approx(5 / 0.8)
    assert found.itl_median_s == pytest.approx(0.1)
    assert found.itl_p99_s == pytest.approx(0.4, rel=0.05)
    assert not found.itl_is_spread


@pytest.mark.parametrize("apart", [0.0, 0.00001])
@pytest.mark.parametrize("tells", [False, True])
def test_chunks_that_are_held_back_and_come_together_share_their_time(tells: bool, apart: float) -> None:
    """Four at a time every 0.4 s: a token takes 0.1 s, not 0 like most gaps, and the tokens of the first four have no time."""

    def counted(count: int) -> bytes:
        choice = {"index": 0, "delta": {"content": "a "}, "finish_reason": None}
        return event({"choices": [choice]} | ({"usage": {"completion_tokens": count}} if tells else {}))

    words = [(1.0 + 0.4 * (n // 4) + apart * (n % 4), counted(n + 1)) for n in range(16)]
    record = record_of(0, 0, told(*words, (2.3, delta("", "length") + usage(16))), 2.3)
    found = figures_of(record, BURST)
    assert found.itl_median_s == pytest.approx(0.1)
    assert found.itl_p99_s == pytest.approx(0.1)
    assert found.tokens_per_s == pytest.approx(12 / 1.2, rel=0.001)
    assert not found.burst
    assert level_of(1, [record], BURST).itl_median_s == pytest.approx(0.1)


def test_prompt_thinking_and_answer_tokens_are_the_server_s() -> None:
    stream = told(
        (1.0, delta(None, reasoning_content="Hm. " * 30)),
        (2.0, delta("One to ten.", "stop")),
        (2.0, usage(40, prompt_tokens=12, completion_tokens_details={"reasoning_tokens": 30})),
    )
    found = figures_of(record_of(0, 0, stream, 2.0), BURST)
    assert (found.prompt_tokens, found.reasoning_tokens, found.answer_tokens) == (12, 30, 10)
    sglang = told((1.0, delta("One. " * 20, "stop")), (1.0, usage(40, prompt_tokens=12, reasoning_tokens=30)))
    assert figures_of(record_of(0, 0, sglang, 1.0), BURST).reasoning_tokens == 30
    silent = told((1.0, delta("One", "stop")))
    assert figures_of(record_of(0, 0, silent, 1.0), BURST).answer_tokens is None


@pytest.mark.parametrize("gap", [0.0, 0.00001])
def test_an_answer_in_one_burst_has_no_speed_and_is_flagged(gap: float) -> None:
    found = figures_of(even(64, gap, first=2.0), BURST)
    assert found.burst
    assert (found.tokens, found.tokens_per_s, found.itl_median_s, found.tpot_s) == (64, None, None, None)
    assert found.ttft_s == pytest.approx(2.0)


def test_one_chunk_with_all_tokens_is_a_burst_and_a_short_answer_is_none() -> None:
    whole = told((2.0, delta("all of it " * 8, "stop") + usage(64)))
    assert figures_of(record_of(0, 0, whole, 2.0), BURST).burst
    short = told((2.0, delta("Yes.", "stop") + usage(2)))
    assert not figures_of(record_of(0, 0, short, 2.0), BURST).burst
    # A long prompt and few tokens: they take little of the request's time, and are no burst.
    assert not figures_of(even(8, 0.04, first=60.0), BURST).burst


def test_an_error_event_in_a_stream_that_began_well_is_a_failed_request() -> None:
    stream = ChatStream(0.0)
    stream.feed(delta("Once upon"), 1.0)
    with pytest.raises(StreamError) as caught:
        stream.feed(event({"error": {"message": "EngineCore encountered an issue"}}) + event("[DONE]"), 2.0)
    failed = record_of(0, 0, stream, 2.0, cause="tokens.server-error", message=str(caught.value))
    assert failed.status == "failed"
    level = level_of(2, [even(11, 0.1), failed], BURST)
    assert (level.ok, level.failed, level.garbage) == (1, 1, 0)
    assert level.causes == {"tokens.server-error": 1}
    # What a failed request returned counts neither as speed nor as tokens.
    assert level.peak_tokens_per_s == pytest.approx(10)
    assert level.tokens == 11


def test_both_sums_of_a_level() -> None:
    """Two requests at 10 tokens/s each, one of which waits 5 s for its first token: the total is not 20."""
    level = level_of(2, [even(21, 0.1, first=0.5), even(21, 0.1, first=5.0)], BURST)
    assert level.peak_tokens_per_s == pytest.approx(20)
    assert level.wall_s == pytest.approx(7.0)
    assert level.wall_tokens_per_s == pytest.approx(42 / 7.0)
    assert level.per_request_tokens_per_s == pytest.approx(10)
    assert level.ttft_median_s == pytest.approx(2.75)
    assert (level.ok, level.failed) == (2, 0)


def test_more_requests_than_run_at_once_do_not_add_up() -> None:
    """Eight requests, two at a time: the peak is that of two, or more rounds would look faster."""
    records = [even(11, 0.1, began=5.0 * turn) for turn in range(4) for _one in range(2)]
    assert level_of(2, records, BURST).peak_tokens_per_s == pytest.approx(20)


def test_garbage_is_fast_and_counts_for_nothing() -> None:
    bad = record_of(
        0, 0, told((0.1, delta("!")), (0.2, delta("!", "length"))), 0.2, "tokens.garbage", "it repeats", "loop"
    )
    level = level_of(2, [even(11, 0.1), bad], BURST)
    assert (bad.status, level.ok, level.failed, level.garbage) == ("garbage", 1, 0, 1)
    assert level.peak_tokens_per_s == pytest.approx(10)


def test_nothing_known_is_none_and_not_zero() -> None:
    level = level_of(1, [even(64, 0.0)], BURST)
    assert (level.peak_tokens_per_s, level.itl_median_s, level.bursts) == (None, None, 1)
    assert level.wall_tokens_per_s == pytest.approx(128)
    nothing = level_of(4, [], BURST)
    assert (nothing.ok, nothing.wall_tokens_per_s, nothing.ttft_median_s) == (0, None, None)


def test_quantiles_are_those_of_the_field_s_tools() -> None:
    """Linear between the two nearest, as numpy.percentile has it."""
    assert quantile([], 0.5) is None
    assert quantile([3.0], 0.99) == 3.0
    assert quantile([4.0, 1.0, 2.0, 3.0], 0.5) == pytest.approx(2.5)
    assert quantile([float(n) for n in range(101)], 0.99) == pytest.approx(99.0)
