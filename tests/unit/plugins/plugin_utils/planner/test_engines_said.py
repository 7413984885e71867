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


MEASURED = [name for name, told in SAID["cases"].items() if "figures" in told]
# Off by more than 1 %, for a cause that nobody looked for: what MLA's absorbed matrices and Hopper's MXFP4 kernels keep.
OFF = {"mem-deepseek": 0.02, "mem-gpt-oss": 0.15}


@pytest.fixture(scope="module")
def own_memory(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return an overlay for a GPU with memory of its own: there a start takes nothing that the engine would count as weights."""
    folder = tmp_path_factory.mktemp("knowledge")
    entry = {"id": "memory.load", "replaces": "memory.load", "value": 0, "unit": "GiB", "meaning": "A discrete GPU.",
             "source": ["benchmarks/results/engines"], "verified": "measured"}  # fmt: skip
    (folder / "constants").mkdir()
    (folder / "constants" / "own.yml").write_text(json.dumps({"entries": [entry]}), encoding="utf-8")
    return [str(folder)]


@pytest.mark.parametrize("name", MEASURED)
def test_it_holds_what_the_plan_says(name: str, own_memory: list[str]) -> None:
    case, said = KNOWN[name], SAID["cases"][name]["figures"]
    files = {"config": SAID["models"][case.model], "quant": None, "where": case.model}
    memory = planned(case, files, own_memory, free_gib=said["free"][0])["memory"]
    assert memory["weights_gib"] == pytest.approx(said["weights"][0], rel=OFF.get(name, 0.01))
    if name != "mem-gpt-oss":  # two pools, whose sum is the plan's
        assert memory["kv_tokens"] == pytest.approx(said["tokens"][0], rel=0.01)
    if "mamba" in said:
        assert memory["mamba_gib"] == pytest.approx(said["mamba"][0], rel=0.02)


def test_before_0_5_14_the_head_s_cache_comes_out_of_the_reserve(own_memory: list[str]) -> None:
    case, said = KNOWN["mem-next-nextn"], SAID["cases"]["mem-next-nextn"]["figures"]
    files = {"config": SAID["models"][case.model], "quant": None, "where": case.model}
    memory = planned(case, files, own_memory, free_gib=said["free"][0])["memory"]
    # What is left of the head: its embeddings and output are the target's, once it is loaded.
    weights = said["weights"][1] - 2 * 151936 * 2048 * 2 / 2**30
    assert memory["draft_gib"] == pytest.approx(weights + said["kv"][1], rel=0.01)


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
