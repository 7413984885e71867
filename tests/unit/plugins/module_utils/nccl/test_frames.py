"""What runtimes and collectors wrap around a line, and lines that they split: the same log comes out."""

from __future__ import annotations

import json
import random
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl import frames
from ansible_collections.dgxspark.cluster.tests.unit import nccl_logs as made
from ansible_collections.dgxspark.cluster.tests.unit.nccl_read import first_cause, judged

TIME = "2026-11-21T16:05:25.123456789Z"


def bare(raw: t.Iterable[str]) -> list[str]:
    return [line.rstrip("\n") for line in frames.unwrapped(raw)]


@pytest.mark.parametrize("frame", made.FRAMES, ids=lambda frame: frame.__name__)
def test_a_framed_log_is_the_log(frame: t.Callable[[list[str], random.Random], list[str]]) -> None:
    lines = made.build(made.GOOD["groups-2.28.9"])[0]
    assert bare(frame(lines, random.Random(1))) == lines


@pytest.mark.parametrize("frame", made.FRAMES, ids=lambda frame: frame.__name__)
def test_framed_logs_are_judged_as_the_bare_ones(frame: t.Callable[[list[str], random.Random], list[str]]) -> None:
    chance = random.Random(2)
    good = made.build(made.Job(hcas=made.RAILS))
    assert judged([frame(log, chance) for log in good], 2)["verdict"] == "ib"
    bad = made.bad()["gid-empty-2.28.9"]
    report = judged([frame(log, chance) for log in bad.logs], 2)
    assert (report["verdict"], first_cause(report)) == (bad.verdict, bad.cause)


def test_partial_lines_of_the_two_streams_are_kept_apart() -> None:
    raw = [
        f"{TIME} stdout P spark1:1:1 [0] NCCL INFO Using ",
        f"{TIME} stderr F an engine's own line",
        f"{TIME} stdout F network IB",
    ]
    assert bare(raw) == ["an engine's own line", "spark1:1:1 [0] NCCL INFO Using network IB"]


def test_a_partial_line_at_the_end_of_a_log_is_not_lost() -> None:
    assert bare([f"{TIME} stdout P spark1:1:1 [0] NCCL INFO Using network IB"]) == [
        "spark1:1:1 [0] NCCL INFO Using network IB"
    ]


def test_a_line_that_never_ends_is_handed_on_in_pieces() -> None:
    piece = "x" * 16_000
    found = bare(f"{TIME} stdout P {piece}" for _turn in range(50))
    assert max(map(len, found)) <= frames.LONGEST + len(piece)
    assert "".join(found) == piece * 50


@pytest.mark.parametrize(
    "record",
    [
        {"message": "TEXT", "level": "info"},
        {"msg": "TEXT"},
        {"MESSAGE": "TEXT", "_PID": "1"},
        {"line": "TEXT", "labels": {"pod": "sglang-0"}},
        {"_source": {"kubernetes": {"pod": "sglang-0"}, "log": "TEXT"}},
        {"date": 1, "log": "TEXT", "stream": "stdout"},  # a collector strips the newline
        {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"stringValue": "NCCL TEXT"}}]}]}]},
    ],
)
def test_records_of_collectors_are_read(record: dict[str, t.Any]) -> None:
    texts = ["spark1:1:1 [0] NCCL INFO Using network IB", "an engine's own line"]
    named = "NCCL TEXT" in json.dumps(record)  # only its text tells which field is the log line
    if named:
        texts = [f"NCCL {text}" for text in texts]
    raw = [json.dumps(record).replace("NCCL TEXT" if named else "TEXT", text) for text in texts]
    assert bare(raw) == texts
    assert bare([f"{TIME} stdout F {line}" for line in raw]) == texts
    # `kubectl logs --timestamps`, `--prefix`, and a JSON list over several lines.
    assert bare([f"{TIME} {line}" for line in raw]) == texts
    assert bare([f"[pod/serve-default-rank0-0/rank] {line}" for line in raw]) == texts
    assert bare([f"[{raw[0]},", f"  {raw[1]}]"]) == texts


def test_journald_s_bytes_are_text() -> None:
    text = "\x1b[1mspark1:1:1 [0] NCCL INFO Using network IB"
    assert bare([json.dumps({"MESSAGE": list(text.encode()), "_PID": "1"})]) == [text]


def test_a_record_of_several_lines_is_several() -> None:
    text = "\nspark1:1:1 [0] x.cc:1 NCCL WARN Bad\nspark1:1:1 [0] NCCL INFO group.cc:1 -> 2\n"
    assert [line for line in bare([json.dumps({"log": text, "stream": "stdout", "time": TIME})]) if line] == (
        text.strip().split("\n")
    )


@pytest.mark.parametrize("raw", ["{", "{}", "[1]", '{"log": 3}', '{"log": "x"', '{"a": {"b": [null]}}', "{" * 3000])
def test_what_is_no_record_stays_as_it_is(raw: str) -> None:
    assert bare([raw]) == [raw]


@given(st.lists(st.text(max_size=60)))
def test_no_text_breaks_it(raw: list[str]) -> None:
    bare([*raw, *(f"{TIME} stdout P {each}" for each in raw), *(json.dumps({"log": each}) for each in raw)])
