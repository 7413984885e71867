"""Bandwidths from times: by nccl-tests' definitions, on invented numbers and on a real run's lines."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.nccl import bandwidth

GIB = 1024**3


def row(operation: str, size: int, times: list[float], ranks: int = 2) -> str:
    data = {"operation": operation, "bytes": size, "ranks": ranks, "calls": 5, "rounds_us": times}
    return f"[rank0]: NCCL_BENCH {json.dumps(data)}"


@pytest.mark.parametrize(
    ("operation", "ranks", "algbw", "busbw"),
    [
        ("all_reduce", 2, 10.0, 10.0),
        ("all_reduce", 4, 10.0, 15.0),
        ("all_gather", 2, 10.0, 5.0),
        ("all_gather", 4, 10.0, 7.5),
    ],
)
def test_bandwidths_by_their_definition(operation: str, ranks: int, algbw: float, busbw: float) -> None:
    made = bandwidth.measured(operation, 10**9, ranks, [100_000.0, 99_000.0, 300_000.0])
    assert (made.algbw, made.busbw) == pytest.approx((algbw, busbw))
    assert (made.time_us, made.fastest_us, made.slowest_us) == (100_000.0, 99_000.0, 300_000.0)


@given(st.integers(2, 64), st.floats(1, 1e6), st.integers(1, 2**31))
def test_all_reduce_moves_twice_what_all_gather_does(ranks: int, time: float, size: int) -> None:
    reduce = bandwidth.measured("all_reduce", size, ranks, [time])
    gather = bandwidth.measured("all_gather", size, ranks, [time])
    assert reduce.busbw == pytest.approx(2 * gather.busbw)
    assert gather.busbw <= gather.algbw


def test_lines_are_found_among_others() -> None:
    text = "\n".join(
        [
            "spark1:1:1 [0] NCCL INFO Connected all rings",
            row("all_reduce", 8192, [30.0, 40.0, 35.0]),
            row("all_reduce", 1024**2, [100.0]),
            row("all_reduce", GIB, [50_000.0]),
            row("all_gather", 8192, [20.0]),
            'NCCL_BENCH_END {"ranks": 2, "nccl": "2.28.9"}',
        ]
    )
    rows, end = bandwidth.parse(text)
    assert [each.bytes for each in rows] == [8192, 1024**2, GIB, 8192]
    assert end == {"ranks": 2, "nccl": "2.28.9"}
    reduce, gather = bandwidth.summaries(rows)
    assert (reduce.latency_us, reduce.peak_bytes) == (35.0, GIB)
    assert reduce.large_busbw == pytest.approx(GIB / 50_000 / 1000)
    assert reduce.ratio == pytest.approx((1024**2 / 100 / 1000) / (GIB / 50_000 / 1000))
    assert (gather.large_busbw, gather.ratio) == (None, None)
    assert len(bandwidth.table(rows).splitlines()) == 5


def test_a_run_that_did_not_end_says_so() -> None:
    assert bandwidth.parse(row("all_reduce", 8192, [30.0]))[1] is None


@pytest.mark.parametrize(
    "text",
    ["NCCL_BENCH {broken", 'NCCL_BENCH {"operation": "all_reduce"}', row("reduce", 8, [1.0]), row("all_reduce", 8, [])],
)
def test_a_line_that_makes_no_sense_is_an_error(text: str) -> None:
    with pytest.raises(CollectionError):
        bandwidth.parse(text)
