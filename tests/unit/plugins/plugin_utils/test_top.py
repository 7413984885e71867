"""The live view: readings of nodes and engines in, a short table and rates out, whatever they say."""

from __future__ import annotations

import json
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils import foreign
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge, top
from ansible_collections.dgxspark.cluster.tests.support.engine_metrics import VLLM

ENTRIES = knowledge.load("metrics")
SGLANG = """sglang:num_running_reqs{tp_rank="0"} 3.0
sglang:num_queue_reqs{tp_rank="0"} 0.0
sglang:token_usage{tp_rank="0"} 0.2
sglang:token_usage{tp_rank="1"} 0.4
sglang:prompt_tokens_total{model_name="m"} 100.0
sglang:generation_tokens_total{model_name="m"} 50.0
sglang:num_requests_total{model_name="m"} 7.0
"""
Plain = dict[str, t.Any]


def health(**gpu: t.Any) -> Plain:
    seen = {"utilisation": 96.0, "clock_mhz": 2405.0, "power_w": 38.12, "temperature_c": 71.0, **gpu}
    return {"memory": {"MemAvailable": 31 * 2**20, "MemTotal": 119 * 2**20}, "gpus": [seen]}


def counters(words: int, lost: int = 0, guid: str = "a") -> list[Plain]:
    counts = {"port_xmit_data": words, "port_rcv_data": 2 * words, "out_of_sequence": lost}
    return [{"hca": "rocep1s0f0v0", "port": 1, "guid": guid, "counts": counts}]


def reading(at: float, words: int, written: float, **more: t.Any) -> Plain:
    said = top.engine(VLLM.format(prompted=written * 4, written=written, finished=written / 100), ENTRIES)
    nodes = {
        "spark1": top.node(health(), counters(words, **more)),
        "spark2": top.node({}, (), "no route\x1b[2J to host"),
    }
    return {"at": at, "nodes": nodes, "groups": [top.group("coder", ["spark1", "spark2"], said)]}


def test_two_readings_are_a_table_with_rates() -> None:
    view = top.view(reading(110.0, 1_250_000_000, 4120.0, lost=7), reading(100.0, 0, 1000.0, lost=4))
    assert top.table(view, "14:02:11") == [
        "14:02:11  1 of 2 Sparks, 1 group, rates over 10 s",
        "",
        "node      free GiB  GPU %   MHz     W  °C  RoCE Gbit/s in   out  lost",
        "spark1  31.0/119.0     96  2405  38.1  71            8.00  4.00     3",
        "spark2  not seen: no route?[2J to host",
        "",
        "group  Sparks         running  waiting  KV %  tokens/s out      in  requests/s",
        "coder  spark1,spark2        8        2    43         312.0  1248.0         3.1",
    ]
    json.dumps(view)


def test_one_reading_has_no_rates_and_invents_none() -> None:
    view = top.view(reading(100.0, 1, 1000.0))
    lines = top.table(view, "14:02:11")
    assert lines[0] == "14:02:11  1 of 2 Sparks, 1 group"
    assert lines[3].split()[-3:] == ["-", "-", "-"] and lines[7].split()[-3:] == ["-", "-", "-"]
    assert view["seconds"] is None


def test_what_began_again_or_is_another_device_has_no_rate() -> None:
    before = reading(100.0, 10**9, 5000.0)
    restarted = top.view(reading(110.0, 10**6, 10.0), before)
    assert restarted["nodes"]["spark1"]["sent_gbps"] is None
    assert restarted["groups"][0]["output_tokens_per_s"] is None
    other = top.view(reading(110.0, 2 * 10**9, 6000.0, guid="b"), before)
    assert other["nodes"]["spark1"]["sent_gbps"] is None and other["nodes"]["spark1"]["lost"] is None


def test_both_engines_and_what_is_none() -> None:
    said = top.engine(SGLANG, ENTRIES)
    assert said == {
        "running": 3,
        "waiting": 0,
        "cache": pytest.approx(0.3),
        "prompt_tokens": 100,
        "output_tokens": 50,
        "requests": 7,
    }
    seen = top.view({"at": 1.0, "nodes": {}, "groups": [top.group("g", [], top.engine("<html>", ENTRIES))]})
    (line,) = [line for line in top.table(seen, "t") if line.startswith("g:")]
    assert "enable_metrics" in line


def test_a_counter_that_does_not_wrap_says_nothing_at_its_end() -> None:
    (port,) = top.node(health(), [{"hca": "h", "counts": {"port_xmit_data": 2**64 - 1, "port_rcv_data": 3}}])[
        "hcas"
    ].values()
    assert (port["sent"], port["received"], port["lost"]) == (None, 12, 0)


anything = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["utilisation", "power_w", "x"]), inner)
    ),
    max_leaves=8,
)


@given(
    st.dictionaries(st.sampled_from(["MemAvailable", "MemTotal"]), anything),
    st.lists(st.dictionaries(st.sampled_from(["utilisation", "power_w", "clock_mhz"]), anything), max_size=2),
    st.text(),
    st.text(),
)
def test_nothing_that_a_node_or_engine_says_breaks_the_table(
    memory: Plain, gpus: list[Plain], name: str, why: str
) -> None:
    nodes = {"a": top.node({"memory": memory, "gpus": gpus}, ()), "b": top.node({}, (), why or "x")}
    now = {"at": 2.0, "nodes": nodes, "groups": [top.group(name, [name], top.engine(why, ENTRIES))]}
    for line in top.table(top.view(now, now), "t"):
        assert foreign.line(line, 400) == line
