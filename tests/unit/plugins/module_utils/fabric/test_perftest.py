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

SAMPLES = pathlib.Path(__file__).parent / "samples"
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
    # the ends meet at `port`; the program listens at the next one
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


HEAD = """\
---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF		Device         : rocep1s0f0v0
 Number of qps   : 1		Transport type : IB
---------------------------------------------------------------------------------------
 local address: LID 0000 QPN 0x0011 PSN 0x1f5b6d RKey 0x000217 VAddr 0x007f3b2a5e6000
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:100:00:01
---------------------------------------------------------------------------------------
"""


@pytest.mark.parametrize("unit", ["MB/sec", "MiB/sec"])
def test_bandwidth_in_either_version_s_unit(unit: str) -> None:
    output = (
        HEAD
        + f" #bytes     #iterations    BW peak[{unit}]    BW average[{unit}]   MsgRate[Mpps]\n"
        + " 65536      399342           0.00               13001.20\t\t   0.208019\n"
    )
    found = figures("ib_write_bw", output)
    assert found["gbps"] == pytest.approx(13001.20 * 8 * 1.048576 / 1000)
    assert found["iterations"] == 399342


def test_latency_with_names_that_one_blank_parts() -> None:
    output = (
        " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]"
        "   99% percentile[usec]   99.9% percentile[usec] \n"
        " 2       1000          1.42           3.10         1.52     \t       1.53        \t0.05   \t\t1.70    \t\t3.10\n"
    )
    found = figures("ib_send_lat", output)
    assert (found["usec"], found["usec_typical"], found["usec_max"]) == (1.53, 1.52, 3.10)


def test_the_fallback_s_figures() -> None:
    output = "8192000 bytes in 0.50 seconds = 131.07 Mbit/sec\n1000 iters in 0.50 seconds = 500.00 usec/iter\n"
    assert figures("ibv_rc_pingpong", output) == {"gbps": pytest.approx(0.13107), "usec": 250.0}


def test_no_figures_of_a_program_that_did_not_finish() -> None:
    head = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n"
    assert figures("ib_write_bw", HEAD + head) == {}
    assert figures("ib_write_bw", HEAD + head + " Failed to modify QP 17 to RTR\n") == {}
    assert figures("ib_write_bw", "") == {}
    assert figures("ibv_rc_pingpong", "8192000 bytes in 0.50 seconds = 131.07 Mbit/sec\n") == {}


@settings(deadline=None)
@given(st.text(max_size=300))
def test_any_output_is_read_without_a_fault(text: str) -> None:
    for program in ("ib_write_bw", "ib_send_lat", "ibv_rc_pingpong"):
        figures(program, text)
    assert len(last_words(text)) <= 400
    assert "\n" not in last_words(text)


def test_last_words_are_the_complaints() -> None:
    output = HEAD + " Failed to modify QP 17 to RTR\n Unable to Connect the HCA's through the link\n"
    assert last_words(output) == "Failed to modify QP 17 to RTR; Unable to Connect the HCA's through the link"
    assert last_words("one\n-----\ntwo\n") == "one; two"
