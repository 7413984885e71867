"""Bands: figures that owners of Sparks have published fall into the right band, with the right cause, or into none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.bands import (
    Band,
    BandSet,
    bytes_text,
    certainty,
    choose,
    read,
)
from ansible_collections.dgxspark.cluster.tests.support.recorded_bands import GIB, RECORDED

SHIPPED = knowledge.load("bands")
SIGNS = {
    "log_ib",
    "log_socket",
    "log_one_function",
    "log_all_functions",
    "wire_idle",
    "wire_used",
    "wire_one_function",
    "wire_all_functions",
}


def spark(operation: str, topology: str, nodes: int, ports: int = 1) -> BandSet | None:
    ports = 2 if topology in ("triangle", "ring") else ports  # a neighbour at each
    return choose(SHIPPED.values(), "spark", operation, topology, nodes, ports)


@pytest.mark.parametrize(
    ("operation", "topology", "nodes", "size", "busbw", "verdict", "cause"),
    [row[1:] for row in RECORDED],
    ids=[f"{row[0]}: {row[5]:.4g}" for row in RECORDED],
)
def test_recorded_figures_of_sparks(
    operation: str, topology: str, nodes: int, size: int, busbw: float, verdict: str, cause: str | None
) -> None:
    reading = read(busbw, size, spark(operation, topology, nodes))
    assert reading.verdict == verdict
    assert (reading.band.cause if reading.band else None) == cause
    # A figure alone never makes a cause certain.
    assert reading.certainty == ("suspected" if cause else None)


@pytest.mark.parametrize(
    ("busbw", "verdict"),
    [
        (20.0, "pass"),
        (19.99, "warn"),
        (14.0, "warn"),
        (13.99, "suspect"),
        (9.0, "suspect"),
        (8.99, "unknown"),
        (3.0, "suspect"),
        (3.01, "unknown"),
        (1.8, "suspect"),
        (1.79, "unknown"),
        (1.7, "suspect"),
        (1.49, "unknown"),
    ],
)
def test_the_edges_of_the_bands(busbw: float, verdict: str) -> None:
    assert read(busbw, GIB, spark("all_reduce", "switch", 4)).verdict == verdict


@pytest.mark.parametrize(
    ("busbw", "signs", "expected"),
    [
        (9.78, {"log_ib", "log_one_function"}, "confirmed"),
        (9.78, {"wire_used", "wire_one_function"}, "confirmed"),
        (9.78, {"log_ib", "log_all_functions"}, "ruled out"),
        (9.78, {"log_one_function", "wire_all_functions"}, "suspected"),
        (9.78, {"log_ib"}, "suspected"),
        (9.78, {"log_socket"}, "ruled out"),
        (2.12, {"log_socket"}, "confirmed"),
        (2.12, {"wire_idle"}, "confirmed"),
        (2.12, {"log_ib", "log_all_functions"}, "ruled out"),
        (2.12, {"log_socket", "wire_used"}, "suspected"),
        (1.6, {"log_ib", "wire_used", "wire_all_functions"}, "suspected"),
        (1.6, {"log_socket"}, "ruled out"),
        (18.0, {"log_ib", "log_all_functions"}, "suspected"),
    ],
)
def test_only_the_log_or_the_counters_make_a_cause_certain(busbw: float, signs: set[str], expected: str) -> None:
    assert read(busbw, GIB, spark("all_reduce", "switch", 4), signs).certainty == expected


def test_bands_name_hardware_classes_and_do_not_hide_one_another() -> None:
    hardware = knowledge.load("hardware")
    for entry in SHIPPED.values():
        assert entry["hardware"] in hardware
        chosen = choose(
            [entry],
            entry["hardware"],
            entry["operations"][0],
            entry["topologies"][0],
            entry.get("nodes", 4),
            entry["ports"],
        )
        assert chosen is not None
        for band in chosen.bands:
            middle = band.low + 0.1 if band.high is None else (band.low + band.high) / 2
            assert chosen.find(middle) is band


def test_an_empty_band_is_refused() -> None:
    entry: dict[str, Any] = {**SHIPPED["spark.busbw.switch"]}
    entry["bands"] = [{"verdict": "pass", "from": 5, "to": 5, "message": "x", "source": ["y"]}]
    with pytest.raises(CollectionError, match="from 5 to 5 GB/s is empty"):
        choose([entry], "spark", "all_reduce", "switch", 4, 1)


@pytest.mark.parametrize("topology", ["direct", "switch"])
def test_what_one_port_carries_is_not_what_two_should(topology: str) -> None:
    assert read(22.0, GIB, spark("all_reduce", topology, 2)).verdict == "pass"
    assert read(22.0, GIB, spark("all_reduce", topology, 2, ports=2)).verdict == "unknown"


BANDS = st.builds(
    lambda low, width, confirmed, refuted: Band(
        "suspect", low, low + width, "x", "nccl.x", "y", frozenset(confirmed), frozenset(refuted)
    ),
    st.floats(0, 30),
    st.floats(0.1, 10),
    st.sets(st.sampled_from(sorted(SIGNS))),
    st.sets(st.sampled_from(sorted(SIGNS))),
)


@given(st.lists(BANDS, max_size=6), st.floats(0, 60), st.sets(st.sampled_from(sorted(SIGNS))))
def test_a_reading_is_of_a_band_that_holds_or_of_none(bands: list[Band], busbw: float, signs: set[str]) -> None:
    reading = read(busbw, GIB, BandSet("x", GIB, tuple(bands)), signs)
    holding = [band for band in bands if band.low <= busbw <= (band.high or 99)]
    assert reading.band == (holding[0] if holding else None)
    if reading.certainty == "confirmed":
        assert reading.band is not None
        assert signs & reading.band.confirmed_by
        assert not signs & reading.band.refuted_by


@given(BANDS)
def test_without_signs_nothing_is_certain(band: Band) -> None:
    assert certainty(band, ()) == "suspected"


@pytest.mark.parametrize(
    ("size", "text"), [(GIB, "1 GiB"), (1536 * 1024**2, "1536 MiB"), (8192, "8 KiB"), (1000, "1000 B"), (1, "1 B")]
)
def test_sizes_are_written_whole(size: int, text: str) -> None:
    assert bytes_text(size) == text
