"""The gateway's files in the real LiteLLM, in front of a real vLLM on the CPU: sixty-four streams, of which every word is known."""

from __future__ import annotations

import json
import pathlib
import signal
import threading
import time
import typing as t
import urllib.parse

import pytest

from ansible_collections.dgxspark.cluster.tests.engines import served
from ansible_collections.dgxspark.cluster.tests.engines.answers import ANSWERS, COUNTING, SUMS
from ansible_collections.dgxspark.cluster.tests.support.gateway_stack import KEY, NOT_RUN, PROGRAM, Stack
from ansible_collections.dgxspark.cluster.tests.support.streams import words

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not PROGRAM, reason=NOT_RUN),
]
STREAMS, PAIRS = 64, 60
ASKED: dict[str, t.Any] = {
    "messages": [{"role": "user", "content": COUNTING}], "max_tokens": 256, "temperature": 0, "stream": True,
}  # fmt: skip
SUM = "What is 7 + 8?"


def port_of(url: str) -> int:
    return int(urllib.parse.urlsplit(url).port or 0)


def test_streams_of_a_real_engine_outlive_a_new_key_and_another_model_that_ends(
    engine: pathlib.Path, model: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No stream of the one model loses a word; requests of the model that is gone are refused as the gateway says it."""
    first, second = Stack(tmp_path / "first"), Stack(tmp_path / "second")
    streams: list[tuple[int, str, float]] = []
    try:
        with served.served(engine, model, tmp_path / "a.log") as url:
            with served.served(engine, model, tmp_path / "b.log", "--served-model-name", "other") as other:
                first.ports = {"a": port_of(url), "b": port_of(other)}
                first.gateway(a=["tiny"], b=["other"])
                asked: dict[str, t.Any] = {
                    "messages": [{"role": "user", "content": SUM}],
                    "max_tokens": 16,
                    "temperature": 0,
                }
                for name in ("tiny", "other"):
                    status, text, _seconds = first.ask(name, **asked)
                    assert (status, json.loads(text)["choices"][0]["message"]["content"]) == (200, SUMS[SUM])
                threads = [
                    threading.Thread(target=lambda: streams.append(first.ask("tiny", **ASKED)))
                    for _number in range(STREAMS)
                ]
                for each in threads:
                    each.start()
                time.sleep(1)
            gone = [first.ask("other", **asked)[:2] for _number in range(4)]
            second.ports = first.ports
            second.gateway(key=KEY[::-1], a=["tiny"])
            after = [second.ask("tiny", key=KEY[::-1], **asked)[0] for _number in range(8)]
            first.running["gateway"].send_signal(signal.SIGTERM)
            for each in threads:
                each.join()
    finally:
        first.close()
        second.close()
    right = sum(status == 200 and words(text) == ANSWERS[COUNTING] for status, text, _seconds in streams)
    took = sorted(seconds for _status, _text, seconds in streams)
    with capsys.disabled():
        print(
            f"\n{right} of {STREAMS} streams right, {took[0]:.0f} to {took[-1]:.0f} s; {after.count(200)} of 8 by the new key"
        )
    assert {status for status, _text in gone} == {503}
    assert all("none of its groups can be reached" in text for _status, text in gone)
    assert (right, after) == (STREAMS, [200] * 8)


def test_what_it_adds_before_a_real_engine(
    engine: pathlib.Path, model: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A figure, not a bound: each request through the gateway has one without, beside it."""
    stack, direct = Stack(tmp_path / "gateway"), Stack(tmp_path / "direct")
    asked: dict[str, t.Any] = {"messages": [{"role": "user", "content": SUM}], "max_tokens": 16, "temperature": 0}
    try:
        with served.served(engine, model, tmp_path / "a.log") as url:
            stack.ports = {"a": port_of(url)}
            stack.gateway(a=["tiny"])
            direct.port = port_of(url)
            for _number in range(10):
                stack.ask("tiny", **asked)
            added = []
            for number in range(PAIRS):
                both = (stack, direct) if number % 2 else (direct, stack)
                took = {each.port: each.ask("tiny", **asked)[2] for each in both}
                added.append((took[direct.port], took[stack.port] - took[direct.port]))
    finally:
        stack.close()
    alone, more = (sorted(column) for column in zip(*added, strict=True))
    at = ", ".join(f"{more[int(PAIRS * share)] * 1000:.0f}" for share in (0.1, 0.5, 0.9))
    with capsys.disabled():
        print(
            f"\n{PAIRS} pairs: {alone[PAIRS // 2] * 1000:.0f} ms direct; the gateway adds {at} ms (tenth, half, nine tenths)"
        )
    assert more[PAIRS // 2] < 5
