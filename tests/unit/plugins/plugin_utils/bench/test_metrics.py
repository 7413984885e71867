"""What engines report of their speculation, in the metrics of vLLM 0.32.0 and SGLang 0.5.10 and 0.5.23."""

from __future__ import annotations

import pytest

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench import metrics

ENGINES = knowledge.load("metrics")
VLLM = """# TYPE vllm:spec_decode_num_drafts_total counter
vllm:num_requests_running{{engine="0",model_name="tiny"}} {running}
vllm:num_requests_waiting{{engine="0",model_name="tiny"}} {waiting}
vllm:spec_decode_num_drafts_total{{engine="0",model_name="tiny"}} {drafts}
vllm:spec_decode_num_draft_tokens_total{{engine="0",model_name="tiny"}} {drafted}
vllm:spec_decode_num_accepted_tokens_total{{engine="0",model_name="tiny"}} {accepted}
"""


def vllm(drafts: float, drafted: float, accepted: float, running: float = 0, waiting: float = 0) -> str:
    return VLLM.format(**locals())


def test_counters_count_what_a_load_added() -> None:
    loads = [[vllm(100, 300, 290), vllm(200, 600, 440)], [vllm(200, 600, 440), vllm(210, 630, 440)]]
    found = metrics.acceptance(loads, ENGINES["vllm"])
    assert found is not None
    assert found.length == pytest.approx(1 + 150 / 110)
    assert found.rate == pytest.approx(150 / 330)
    assert "vllm:spec_decode_num_accepted_tokens_total" in found.source


def test_without_speculation_there_is_none() -> None:
    assert metrics.acceptance([["vllm:num_requests_running 1", "vllm:num_requests_running 0"]], ENGINES["vllm"]) is None
    assert metrics.acceptance([[vllm(5, 15, 1), vllm(5, 15, 1)]], ENGINES["vllm"]) is None
    assert metrics.acceptance([[]], ENGINES["vllm"]) is None


def test_sglang_by_its_counter_and_before_that_by_its_gauges() -> None:
    gauges = 'sglang:spec_accept_length{{tp_rank="0"}} {}\nsglang:spec_accept_rate{{tp_rank="0"}} {}\n'
    old = [[gauges.format(0, 0), gauges.format(2.0, 0.4), gauges.format(3.0, 0.6)]]
    found = metrics.acceptance(old, ENGINES["sglang"])
    assert found is not None
    assert (found.length, found.rate) == (2.5, 0.5)
    counters = 'sglang:generation_tokens_total{{is_streaming="True"}} {}\nsglang:spec_verify_calls_total {}\n'
    new = [[counters.format(100, 50) + gauges.format(2, 0.5), counters.format(400, 150) + gauges.format(2, 0.5)]]
    found = metrics.acceptance(new, ENGINES["sglang"])
    assert found is not None
    assert (found.length, found.rate) == (3.0, 0.5)


def test_an_engine_is_known_by_its_metrics() -> None:
    assert (metrics.engine_of(vllm(1, 1, 1), ENGINES) or {})["id"] == "vllm"
    assert metrics.engine_of("process_cpu_seconds_total 1", ENGINES) is None
    assert metrics.waited([vllm(1, 1, 1, 8, 0), vllm(1, 1, 1, 8, 24)], ENGINES["vllm"]) == (8, 24)


def test_logs_tell_it_where_metrics_do_not() -> None:
    log = (
        "Decode batch, #running-req: 1, accept len: 2.00, accept rate: 0.40, gen throughput: 20\n"
        "Decode batch, #running-req: 1, accept len: 3.00, accept rate: 0.60, gen throughput: 20\n"
    )
    found = metrics.acceptance_of_log(log, ENGINES)
    assert found is not None
    assert (found.length, found.rate) == (2.5, 0.5)
    line = (
        "SpecDecoding metrics: Mean acceptance length: {}, Accepted throughput: 1.00 tokens/s, Drafted throughput: 3.00 "
        "tokens/s, Accepted: 10 tokens, Drafted: {} tokens, Per-position acceptance rate: 0.5, 0.2, Avg Draft acceptance "
        "rate: {}%\n"
    )
    found = metrics.acceptance_of_log(line.format("2.00", 30, "40.0") + line.format("3.00", 10, "80.0"), ENGINES)
    assert found is not None
    assert (found.length, found.rate) == (2.25, pytest.approx(0.5))
    assert metrics.acceptance_of_log("Decode batch", ENGINES) is None
