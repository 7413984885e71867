"""What real engines said of themselves on GPUs (tests/engines/cut.py), beside the plan of the same cases: no GPU is needed here.

Cut from runs of SGLang 0.5.12 on H200s. What only that GPU decides is not among the settings, nor is memory that only it has.
"""

from __future__ import annotations

import functools
import json
import pathlib
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.tests.engines import compare
from ansible_collections.dgxspark.cluster.tests.engines.cases import CASES
from ansible_collections.dgxspark.cluster.tests.engines.groups import planned

SAID = json.loads(
    (pathlib.Path(__file__).resolve().parents[3] / "fixtures/engines/sglang-0.5.12-h200.json").read_text(
        encoding="utf-8"
    )
)
KNOWN = {trial.case.id: trial.case for trial in CASES}
SHOWN = [name for name, told in SAID["cases"].items() if "info" in told]
REFUSED = [name for name, told in SAID["cases"].items() if "refused" in told]
# Ends that no plan can see.
NOT_THE_PLANS = {
    "mem-mimo-nextn": "the installed transformers does not know the model",
    "two-ib-unchecked": "there is no RDMA device: the preflight says it, and was left out on purpose",
    # The drafter is a name: nobody stated what it is made of.
    "mem-qwen3-8b-1.7b": "the drafter's own cache",
}


@functools.cache
def plan(name: str) -> t.Any:
    case = KNOWN[name]
    return planned(case, {"config": SAID["models"][case.model], "quant": None, "where": case.model})


@pytest.mark.parametrize("name", SHOWN)
def test_no_setting_is_another_than_the_plan_says(name: str) -> None:
    """What the plan calls unknown is what a kernel's choice at load hangs on, and the page shows only as `auto`."""
    found = compare.settings(plan(name)["resolved"], SAID["cases"][name]["info"])
    assert len(found) >= 15
    assert {key: value for key, value in found.items() if value[0] == "differs"} == {}
    assert {key for key, value in found.items() if value[0] == "unknown"} <= {"moe_runner_backend", "quantization"}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_engine_refuses_the_plan_blocks(name: str) -> None:
    made = plan(name)
    blocked = [found["rule"] for found in made["findings"] if found["severity"] == "error"]
    if name not in NOT_THE_PLANS and not adjusted(name):
        assert made["verdict"] == "blocked", SAID["cases"][name]["refused"]
        assert blocked


def adjusted(name: str) -> bool:
    """Whether the plan now adds what the engine missed when it was run."""
    return name in ("set-alone-open", "set-alone-no-tokens")


@pytest.mark.parametrize("name", ["set-alone-open", "set-alone-no-tokens"])
def test_an_engine_that_drafts_gets_all_three_numbers(name: str) -> None:
    """With one or two of them SGLang ends: AssertionError, or '>' between None and a number."""
    argv = plan(name)["ranks"][0]["argv"]
    given = {
        flag: argv[argv.index(f"--speculative-{flag}") + 1] for flag in ("num-steps", "eagle-topk", "num-draft-tokens")
    }
    assert given == {"num-steps": "3", "eagle-topk": "1", "num-draft-tokens": "4"}
