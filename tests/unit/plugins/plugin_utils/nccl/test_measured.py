"""How the benchmark's ranks ended: a reason where nothing was measured, else the input of verify."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.nccl.measured import measured

Plain = dict[str, t.Any]
ROW = {"operation": "all_reduce", "bytes": 1 << 30, "ranks": 2, "calls": 2, "rounds_us": [50000.0]}
OUTPUT = f'NCCL_BENCH {json.dumps(ROW)}\nNCCL_BENCH_END {{"nccl": "2.29.7", "torch": "2.9", "ranks": 2}}\n'
READY: Plain = {"check": {"rc": 0}, "fault": ""}
IB = {"verdict": "ib", "summary": "All 2 ranks use RDMA."}


def ended(rc: int | None = 0, **more: t.Any) -> Plain:
    return READY | {"done": ({} if rc is None else {"rc": rc}) | more}


def ranks(one: Plain | None = None, two: Plain | None = None) -> dict[str, Plain]:
    return {"spark1": READY if one is None else one, "spark2": READY if two is None else two}


def test_figures_go_to_the_gate_with_what_carried_them() -> None:
    made = measured(ranks(ended(stdout=OUTPUT), ended(stdout="")), IB)
    assert made["hosts"] == ["spark1", "spark2"]
    assert (made["output"], made["transport"], made["faults"]) == (OUTPUT, IB, [])
    assert [reading["name"] for reading in made["readings"]] == ["spark1", "spark2"]
    assert made["versions"] == {"nccl": "2.29.7", "torch": "2.9"}


def test_nothing_is_said_of_ranks_that_can_start_and_have_not() -> None:
    assert measured(ranks()) == {}


@pytest.mark.parametrize(
    ("seen", "says"),
    [
        ({}, "two hosts are needed; asked: none"),
        ({"spark1": READY}, "two hosts are needed; asked: spark1"),
        (ranks(two={"check": {"rc": 4, "stderr": "x\nPyTorch sees no GPU.\n"}}), "spark2: PyTorch sees no GPU."),
        (ranks(two={"check": {"rc": 2, "msg": "[Errno 2] No such file: '/opt/python'"}}), "spark2: [Errno 2] No such"),
        (
            ranks(
                two={
                    "check": {"rc": 2, "msg": "Error executing command.", "stderr": "", "cmd": "/opt/python - --check"}
                }
            ),
            "spark2: /opt/python could not be started",
        ),
        (ranks(two={"check": {"unreachable": True, "msg": "Failed to connect"}}), "spark2: Failed to connect"),
        (ranks(two={"check": {}, "fault": "the HCA of VF 1 is not known."}), "spark2: the HCA of VF 1 is not known."),
        (ranks({}, {}), "spark1: no answer; spark2: no answer"),
        (ranks(ended(3, stderr="rank 0: less than the floor"), ended(3, stderr="")), "spark1: rank 0: less than"),
    ],
)
def test_what_could_not_be_measured_is_a_reason(seen: dict[str, Plain], says: str) -> None:
    made = measured(seen, IB)
    assert list(made) == ["reason"]
    assert made["reason"].startswith(says)


def test_a_rank_that_ended_badly_is_a_fault_of_its_host() -> None:
    made = measured(ranks(ended(1, stderr="Trace\nRuntimeError: NCCL error hf_0123456789abcdefgh"), ended(None)), IB)
    first, second = made["faults"]
    assert first["host"] == "spark1"
    assert first["message"].startswith("its rank ended with status 1: RuntimeError: NCCL error")
    assert "hf_0123" not in first["message"]
    assert made["readings"][0]["lines"] == 3  # what it printed (nothing), and the error output
    assert second == {"host": "spark2", "message": "its rank did not end in time: no answer"}


def test_a_rank_that_could_not_be_started_is_a_fault_too() -> None:
    made = measured(ranks(READY, ended(1, stderr="the store was not reached")), IB)
    assert made["output"] == ""
    assert [fault["host"] for fault in made["faults"]] == ["spark1", "spark2"]


@pytest.mark.parametrize("told", [None, {}, {"failed": True, "msg": "text: no NCCL output in it."}])
def test_logs_without_nccl_leave_the_transport_unknown(told: t.Any) -> None:
    made = measured(ranks(ended(stdout=OUTPUT), ended()), told)
    assert made["transport"]["verdict"] == "unknown"
    assert made["transport"]["summary"]


def test_a_wrong_form_is_one_clear_error() -> None:
    with pytest.raises(CollectionError, match="by host"):
        measured(["spark1"])  # type: ignore[arg-type]
