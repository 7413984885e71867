"""What real engines said of themselves on GPUs (tests/engines/cut.py), beside the plan of the same cases: no GPU is needed here.

Cut from runs of SGLang 0.5.12 and vLLM 0.26.0 on H200s. What only that GPU decides is not among the settings, nor is memory that only
it has.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench import metrics
from ansible_collections.dgxspark.cluster.tests.engines import compare, vllm_cases
from ansible_collections.dgxspark.cluster.tests.engines.cases import CASES
from ansible_collections.dgxspark.cluster.tests.engines.groups import planned

FILES = sorted((pathlib.Path(__file__).resolve().parents[3] / "fixtures/engines").glob("*-h200.json"))
READ = [json.loads(file.read_text(encoding="utf-8")) for file in FILES]
SAID = {"models": {name: own for each in READ for name, own in each["models"].items()},
        "cases": {name: told for each in READ for name, told in each["cases"].items()}}  # fmt: skip
KNOWN = {trial.case.id: trial.case for trial in (*CASES, *vllm_cases.CASES)}
UNKNOWN = {"moe_runner_backend", "quantization", "block_size", "chunked_prefill_size"}
SHOWN = [name for name, told in SAID["cases"].items() if "info" in told]
REFUSED = [name for name, told in SAID["cases"].items() if "refused" in told]
# Ends that no plan can see.
NOT_THE_PLANS = {
    "mem-mimo-nextn": "the installed transformers does not know the model",
    "two-ib-unchecked": "there is no RDMA device: the preflight says it, and was left out on purpose",
    # The drafter is a name: nobody stated what it is made of.
    "mem-qwen3-8b-1.7b": "the drafter's own cache",
    "mem-qwen3.5": "the folder had config.json alone, and no image processor's file",
    "mem-qwen3-vl": "the same",
    "mem-gemma-4": "the same",
    "mem-super-fp8": "the copy of its hf_quant_config.json that was carried names no exclude_modules",
    "vllm-set-flashinfer": "FlashInfer was not carried there",
    "vllm-set-moe-fp8": "this small model's widths: CUTLASS's kernel for blocks of FP8 falls back to one that has none",
    "vllm-set-kv-e5m2": "FlashAttention 3's kernels, which a Spark has not; with Triton's, the rule attention.vllm-e5m2-triton",
}


@functools.cache
def plan(name: str) -> t.Any:
    case = KNOWN[name]
    return planned(case, {"config": SAID["models"][case.model], "quant": None, "where": case.model})


@pytest.mark.parametrize("name", SHOWN)
def test_no_setting_is_another_than_the_plan_says(name: str) -> None:
    """What the plan calls unknown is what a kernel's choice at load hangs on, and the page shows only as `auto`."""
    found = compare.settings(plan(name)["resolved"], SAID["cases"][name]["info"])
    assert len(found) >= (7 if name.startswith("vllm-") else 15)
    assert {key: value for key, value in found.items() if value[0] == "differs"} == {}
    assert {key for key, value in found.items() if value[0] == "unknown"} <= UNKNOWN


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_engine_refuses_the_plan_blocks(name: str) -> None:
    made = plan(name)
    blocked = [found["rule"] for found in made["findings"] if found["severity"] == "error"]
    assert set(NOT_THE_PLANS) <= {*KNOWN}
    if name not in NOT_THE_PLANS and not adjusted(name):
        assert made["verdict"] == "blocked", SAID["cases"][name]["refused"]
        assert blocked


MEASURED = [name for name, told in SAID["cases"].items() if "figures" in told and not name.startswith("vllm-")]
MEASURED_VLLM = [name for name, told in SAID["cases"].items() if "figures" in told and name.startswith("vllm-")]
# Off by more than 1 %, for a cause that nobody looked for: what MLA's absorbed matrices and Hopper's MXFP4 kernels keep.
OFF = {"mem-deepseek": 0.02, "mem-gpt-oss": 0.15, "vllm-mem-gpt-oss": 0.05, "vllm-mem-gpt-oss-spark": 0.05}
# Peaks of a run that the plan has by more than a tenth wrong.
PEAKS_OFF = {
    "vllm-mem-gpt-oss": "its experts' kernels on this GPU keep no buffers while a run samples",
    "vllm-mem-qwen3-8b": "Model Runner V2 samples with less",
    "vllm-mem-tp2-qwen3-8b": "the same",
}


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


@pytest.mark.parametrize("name", MEASURED_VLLM)
def test_vllm_s_cache_holds_as_many_tokens_as_the_plan_says_of_its_size(name: str) -> None:
    """By what it chose for a GPU whose memory it can read: its share of that memory is no Spark's."""
    case, told = KNOWN[name], SAID["cases"][name]
    own = told["info"]["vllm_config"]["scheduler_config"]
    chosen = {"chunked_prefill_size": own["max_num_batched_tokens"], "max_running_requests": own["max_num_seqs"]}
    files = {"config": SAID["models"][case.model], "quant": None, "where": case.model}
    memory = planned(dataclasses.replace(case, settings={**case.settings, **chosen}), files, free_gib=137.0)["memory"]
    said = {key: figures[0] for key, figures in told["figures"].items()}
    if name not in PEAKS_OFF:
        assert memory["activations_gib"] == pytest.approx(said["activations"], rel=0.1)
    assert memory["weights_gib"] + memory["draft_gib"] == pytest.approx(said["weights"], rel=OFF.get(name, 0.01))
    assert memory["kv_tokens_logged"] / memory["kv_gib"] == pytest.approx(said["tokens"] / said["kv"], rel=0.001)


def test_before_0_5_14_the_head_s_cache_comes_out_of_the_reserve(own_memory: list[str]) -> None:
    case, said = KNOWN["mem-next-nextn"], SAID["cases"]["mem-next-nextn"]["figures"]
    files = {"config": SAID["models"][case.model], "quant": None, "where": case.model}
    memory = planned(case, files, own_memory, free_gib=said["free"][0])["memory"]
    # What is left of the head: its embeddings and output are the target's, once it is loaded.
    weights = said["weights"][1] - 2 * 151936 * 2048 * 2 / 2**30
    assert memory["draft_gib"] == pytest.approx(weights + said["kv"][1], rel=0.01)


DRAFTED = [name for name, told in SAID["cases"].items() if "drafted" in told]


@pytest.mark.parametrize("name", DRAFTED)
def test_a_trained_head_changes_no_answer_and_drafts_as_many_tokens_as_the_plan_says(name: str) -> None:
    told, entries = SAID["cases"][name]["drafted"], knowledge.load("metrics")
    assert (told["asked"], told["wrong"]) == (102, {})
    made, engine = plan(name)["speculation"], KNOWN[name].engine[0]
    counted = metrics.acceptance([told["metrics"]], entries[engine])
    assert (counted is None) == (not made)
    if counted is None:
        assert metrics.acceptance_of_log(told["log"], entries) is None
        return
    assert counted.length
    assert 0.75 * made["tokens"] <= counted.length <= made["tokens"]
    assert counted.rate == pytest.approx((counted.length - 1) / (made["tokens"] - 1), abs=0.01)


@pytest.mark.parametrize("name", [name for name in DRAFTED if SAID["cases"][name]["drafted"]["log"]])
def test_an_engine_s_metrics_and_its_log_tell_the_same_acceptance(name: str) -> None:
    """SGLang's gauges are its last line's. vLLM counts; in its log are those drafts that were made before its last line."""
    told, entries = SAID["cases"][name]["drafted"], knowledge.load("metrics")
    engine = KNOWN[name].engine[0]
    counted = metrics.acceptance([told["metrics"]], entries[engine])
    if engine == "sglang":
        logged = metrics.acceptance_of_log(told["log"].splitlines()[-1], entries)
        assert counted and logged
        assert (counted.length, counted.rate) == pytest.approx((logged.length, logged.rate), abs=0.01)
        return
    first, last = ({key: sum(values) for key, values in metrics.values_of(text).items()} for text in told["metrics"])
    drafts, tokens = (
        last[each] - first[each] for each in (f"vllm:spec_decode_num_{key}_total" for key in ("drafts", "draft_tokens"))
    )
    assert tokens == drafts * (plan(name)["speculation"]["tokens"] - 1)
    logged = metrics.acceptance_of_log(told["log"], entries)
    assert counted and logged
    assert logged.length
    assert logged.rate == pytest.approx((logged.length - 1) / (plan(name)["speculation"]["tokens"] - 1), abs=0.01)
    assert logged.length == pytest.approx(counted.length, rel=0.1)


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
