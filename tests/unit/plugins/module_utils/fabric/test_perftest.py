"""Arguments of the RDMA test programs, and the figures in their output."""

from __future__ import annotations

import dataclasses
import itertools
import pathlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.perftest import (
    RdmaTest,
    argv,
    figures,
    last_words,
)

REAL = pathlib.Path(__file__).parents[3] / "fixtures" / "perftest"
TEST = RdmaTest(
    id="write/spark1:p0f0v0>spark2:p0f0v0",
    role="client",
    program="ib_write_bw",
    hca="rocep1s0f0v0",
    hca_port=1,
    gid_index=3,
    address="10.100.0.1",
    peer="10.100.0.2",
    port=18600,
    size=65536,
    duration=2,
)


def test_the_ends_differ_by_the_peer_only() -> None:
    client, server = argv(TEST), argv(dataclasses.replace(TEST, role="server"))
    assert client == [*server, "10.100.0.2"]
    assert server[0] == "ib_write_bw"


def test_device_gid_and_port_are_those_of_the_test() -> None:
    words = argv(TEST)
    said = dict(itertools.pairwise(words))
    assert (said["-d"], said["-x"], said["-i"], said["-s"], said["-D"]) == ("rocep1s0f0v0", "3", "1", "65536", "2")
    # the ends rendezvous on `port`; the program listens on the next one
    assert said["-p"] == "18601"
    assert "-m" not in words


def test_iterations_and_path_mtu() -> None:
    words = argv(dataclasses.replace(TEST, duration=None, iterations=20, path_mtu=4096))
    assert words[words.index("-n") + 1] == "20"
    assert words[words.index("-m") + 1] == "4096"
    assert "-D" not in words


def test_the_fallback_has_arguments_of_its_own() -> None:
    words = argv(dataclasses.replace(TEST, program="ibv_rc_pingpong", duration=None, iterations=100))
    assert words[words.index("-g") + 1] == "3"
    assert "-x" not in words
    assert "-F" not in words


def real(name: str) -> str:
    """What a program printed on a node of the virtual lab."""
    return (REAL / f"{name}.txt").read_text(encoding="utf-8")


def test_bandwidth_by_iterations() -> None:
    found = figures("ib_write_bw", real("write_bw"))
    assert found["gbps"] == pytest.approx(4.48 * 8 * 1.048576 / 1000, rel=1e-4)
    assert found["gbps_peak"] == pytest.approx(5.35 * 8 * 1.048576 / 1000, rel=1e-4)
    assert found["iterations"] == 20


def test_a_bandwidth_too_low_for_its_two_digits_is_that_of_the_messages() -> None:
    """As seen on a busy lab: packets were retransmitted many times, and all 20 messages arrived."""
    said = real("write_bw")
    assert figures("ib_write_bw", said.replace("4.48", "0.00").replace("0.001147", "0.000001"))["gbps"] == 0.000033
    assert figures("ib_write_bw", said.replace("4.48", "0.00").replace("0.001147", "0.000000"))["gbps"] == 0


def test_bandwidth_by_duration_has_no_peak_to_speak_of() -> None:
    found = figures("ib_write_bw", real("write_bw_duration"))
    assert found["gbps"] == pytest.approx(19.65 * 8 * 1.048576 / 1000, rel=1e-4)
    assert found["iterations"] == 15100


def test_bandwidth_in_the_unit_of_older_versions() -> None:
    """Constructed: perftest before 6 calls 2^20 bytes MB."""
    assert figures("ib_write_bw", real("write_bw").replace("MiB/sec", "MB/sec")) == figures(
        "ib_write_bw", real("write_bw")
    )


def test_latency_with_names_that_one_blank_parts() -> None:
    found = figures("ib_send_lat", real("send_lat"))
    assert (found["usec"], found["usec_typical"], found["usec_max"]) == (1067.56, 873.42, 2872.01)


def test_the_fallback_s_figures() -> None:
    assert figures("ibv_rc_pingpong", real("pingpong")) == {"gbps": pytest.approx(0.00029), "usec": 1744.9}


@pytest.mark.parametrize("name", ["write_bw", "write_bw_duration", "send_lat", "pingpong"])
def test_no_figures_of_a_program_that_did_not_finish(name: str) -> None:
    program = {"send_lat": "ib_send_lat", "pingpong": "ibv_rc_pingpong"}.get(name, "ib_write_bw")
    output = real(name)
    whole = figures(program, output)
    figure_line = output.rstrip("-\n ").rfind("\n")
    for end in range(figure_line):
        assert figures(program, output[:end]) != whole, output[:end]
    assert figures(program, output[:figure_line]) == {}
    assert figures("ib_write_bw", real("no_route")) == {}


@settings(deadline=None)
@given(st.text(max_size=300))
def test_any_output_is_read_without_a_fault(text: str) -> None:
    for program in ("ib_write_bw", "ib_send_lat", "ibv_rc_pingpong"):
        figures(program, text)
    assert len(last_words(text)) <= 400
    assert "\n" not in last_words(text)


def test_last_words_are_the_complaints() -> None:
    assert last_words(real("no_route")) == "Failed to modify QP 21 to RTR; Unable to Connect the HCA's through the link"
    assert last_words("one\n-----\ntwo\n") == "one; two"
