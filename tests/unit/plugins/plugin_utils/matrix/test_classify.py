"""The outcome of a case, where the logs have no known lines."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import signatures
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix import classify
from ansible_collections.dgxspark.cluster.tests.unit import matrix_driven

Plain = dict[str, t.Any]


def outcome(**ended: t.Any) -> classify.Outcome:
    return classify.classify(classify.Ended(**ended), signatures.load_table(), {})


@pytest.mark.parametrize(
    "line",
    [
        "ImportError: no module named 'fast_kernels', falling back to the slow ones",
        "[2026-11-25 10:00:00] WARNING utils.py:7: ImportError: no module named 'fast_kernels'",
        "RuntimeError: no such counter; ignored",
    ],
)
def test_a_fault_that_the_engine_has_dealt_with_is_no_crash(line: str) -> None:
    logs = {"rank0": f"loading\n{line}\nstill loading\n"}
    found = outcome(stage="switch", message="not ready in 900 s", timed_out=True, logs=logs)
    assert (found.cls, found.line) == ("hang", "still loading")


def test_a_fault_that_ended_the_engine_is_a_crash_though_another_was_dealt_with() -> None:
    text = "ImportError: no x, falling back to y\nImportError: no y\nKeyError: ignored by nobody, falling back\n"
    found = outcome(stage="switch", message="ended", logs={"rank0": text})
    assert (found.cls, found.line) == ("startup_crash", "ImportError: no y")


def test_a_rank_that_was_asked_to_end_shows_no_fault_of_its_own() -> None:
    stopped = "loading\nsupervisor: rank 0: stopped by SIGTERM.\n"
    logs = {"rank0": stopped, "rank1": "loading\nValueError: no such backend\n"}
    found = outcome(stage="switch", message="ended", logs=logs)
    assert (found.cls, found.where, found.line) == ("startup_crash", "rank1:2", "ValueError: no such backend")
    found = outcome(stage="switch", message="not ready in 900 s", timed_out=True, logs={"rank0": stopped})
    assert found.cls == "hang"


@pytest.mark.parametrize(
    "line", ["decode batch", "ValueError: no such backend", matrix_driven.LINES["out_of_memory_loading"]]
)
def test_old_ranks_that_are_not_gone_say_nothing_of_a_case_that_was_not_started(line: str) -> None:
    """The logs and restarts are theirs."""
    found = outcome(
        stage="switch",
        message="default is not gone after 120 s.",
        not_gone=True,
        logs={"rank0": line},
        restarts={"rank0": 1},
    )
    assert found == classify.Outcome("not_started", "default is not gone after 120 s.")


SOCKETS = "spark1:225:225 [0] NCCL INFO Channel 00/0 : 1[1] -> 0[0] [receive] via NET/Socket/0\n"


@pytest.mark.parametrize("planned", [True, False])
def test_tcp_is_the_cause_only_where_the_plan_does_not_ask_for_it(planned: bool) -> None:
    """Six of twelve cases of a matrix over TCP ended for another reason, and were said to be the transport's."""
    classes = {"engine.nccl-over-sockets": "transport"}
    ended = classify.Ended(
        "switch", "rank 0 ended", restarts={"a": 1}, logs={"a": f"{SOCKETS}ValueError: no such backend\n"}, sockets_planned=planned,
    )  # fmt: skip
    found = classify.classify(ended, signatures.load_table(), classes)
    right = ("startup_crash", "ValueError: no such backend") if planned else ("transport", SOCKETS.strip())
    assert (found.cls, found.line) == right


LOST = "ConnectionError: peer closed the connection"


@pytest.mark.parametrize(
    ("lost", "cause"),
    [
        (f"ERROR 11-26 12:00:05 [core.py:7] {LOST}", "ERROR 11-26 12:00:01 [core.py:9] ValueError: no such kernel"),
        (f"[2026-11-26 12:00:05 TP0] {LOST}", "[2026-11-26 12:00:01 TP1] ValueError: no such kernel"),
        # Stack lines without a timestamp of their own, and one in another format than its neighbour's.
        (
            f"[2026-11-26 12:00:01.900] it fails:\n  {LOST}",
            "[rank1]:[E1126 12:00:01.418546830 x.cpp:6] ends:\nValueError: no kernel",
        ),
        (f"2026-11-26T12:00:05.25Z {LOST}", "2026-11-26T12:00:05.125Z ValueError: no such kernel"),
    ],
)
@pytest.mark.parametrize("first", ["rank0", "rank1"])
def test_of_several_faults_the_earliest_in_time_is_the_cause(lost: str, cause: str, first: str) -> None:
    other = "rank1" if first == "rank0" else "rank0"
    texts = {first: f"loading\n{cause}\n", other: f"loading\n{lost}\n"}
    found = outcome(stage="switch", message="ended", logs={name: texts[name] for name in ("rank0", "rank1")})
    assert (found.line, found.where.partition(":")[0]) == (cause.splitlines()[-1], first)


def test_faults_without_a_time_come_in_the_order_of_the_ranks() -> None:
    logs = {"rank0": f"{LOST}\n", "rank1": "ValueError: no such kernel\n"}
    assert outcome(stage="switch", message="ended", logs=logs).where == "rank0:1"
    timed = {**logs, "rank1": "11-26 12:00:01 ValueError: no such kernel\n"}
    assert outcome(stage="switch", message="ended", logs=timed).where == "rank1:1"


def test_a_known_line_is_shown_where_it_came_first() -> None:
    line = "Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)"
    logs = {"rank0": f"[2026-11-26 12:00:05] {line}\n", "rank1": f"[2026-11-26 12:00:01] {line}\n"}
    assert outcome(stage="switch", message="ended", logs=logs).where == "rank1:1"


def level(ok: int, **causes: int) -> Plain:
    return {"workloads": [{"name": "chat", "levels": [matrix_driven.level(8, "failed", ok, 10.0, **causes)]}]}


@pytest.mark.parametrize(
    ("ok", "causes", "cls"),
    [
        (0, {"tokens.hang": 8}, "hang"),
        (3, {"tokens.hang": 5}, "hang"),
        (2, {"tokens.hang": 5, "tokens.refused": 1}, "hang"),
        (7, {"tokens.hang": 1}, "requests_failed"),
        (3, {"tokens.refused": 5}, "requests_failed"),
    ],
)
def test_where_most_requests_hang_it_is_a_hang(ok: int, causes: dict[str, int], cls: str) -> None:
    assert outcome(stage=None, report=level(ok, **causes)).cls == cls


def test_requests_that_fail_are_explained_by_what_was_answered_and_not_by_the_last_line_of_a_log() -> None:
    """SGLang 0.5.12 answered a prompt longer than its pool with status 200 (benchmarks/results/engines)."""
    logs = {"rank0": 'loading\nINFO:     127.0.0.1:34456 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'}
    found = outcome(stage=None, report=level(0, **{"tokens.server-error": 8}), logs=logs)
    assert (found.cls, found.where, found.line) == ("requests_failed", "bench", "8 at once: failed")
    logs["rank0"] += "RuntimeError: no page is left\n"
    found = outcome(stage=None, report=level(0, **{"tokens.server-error": 8}), logs=logs)
    assert (found.cls, found.where, found.line) == ("requests_failed", "rank0:3", "RuntimeError: no page is left")
    # Where nothing was answered, the last line says how far it came.
    found = outcome(stage=None, report=level(0, **{"tokens.hang": 8}), logs={"rank0": "decode batch\n"})
    assert (found.cls, found.line) == ("hang", "decode batch")


def test_why_an_engine_ended_is_not_that_its_supervisor_saw_it_end() -> None:
    """As SGLang 0.5.12 logged it for a method whose parameters the checkpoint does not have (benchmarks/results/engines)."""
    log = (
        "[2026-11-29 10:16:23] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/opt/sg/sglang/srt/model_loader/weight_utils.py", line 308, in get_quant_config\n'
        '    raise ValueError(f"Cannot find the config file for {model_config.quantization}")\n'
        "ValueError: Cannot find the config file for awq\n\n"
        "[2026-11-29 10:16:23] Received sigquit from a child process. It usually means the child failed.\n"
        "supervisor: rank 0: the engine was killed by SIGKILL; its log is above.\n"
    )
    found = outcome(stage="switch", message="rank 0: the engine was killed by SIGKILL", logs={"rank0": log})
    assert (found.cls, found.where, found.line) == (
        "startup_crash",
        "rank0:4",
        "ValueError: Cannot find the config file for awq",
    )
