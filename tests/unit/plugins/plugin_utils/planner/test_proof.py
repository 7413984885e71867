"""What a measured row proves, and for which plans: failed requests, free memory, a model's name."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.judgement import evidence, findings
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.judgement.plan import recommend
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.judgement.table import serving_table
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.profile.profile import find
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.vocabulary.hub_names import model_key
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.plan import launch_plan

ROWS = evidence.load_rows()
BY_ID = {row.id: row for row in ROWS}
ULTRA = "nemotron-3-ultra-550b-nvfp4"

# --- what proves nothing ----------------------------------------------------------------------------------------------


def test_a_row_with_failed_requests_proves_nothing() -> None:
    lost = [row for row in ROWS if row.lost]
    assert {row.id for row in lost} == {"m057", "m060", "m107"} and all(row.verdict == "stable" for row in lost)
    for row in lost:
        assert not row.proves
        seen = evidence.MatchingRows((evidence.Comparison(row, {}, {}),), ())
        assert not seen.proven
        (said,) = findings.flawed(seen)
        assert said.severity == "warning" and row.lost[0] in said.message and "proves nothing" in said.message
    assert BY_ID["m113"].proves and not BY_ID["m111"].proves


def test_a_plan_equal_to_such_a_row_is_not_proven_and_says_why() -> None:
    made = launch_plan("nemotron-3-super-120b-nvfp4", {"hosts": ["a", "b", "c", "d"]}, {"variant": "ep4-mtp"})
    assert made["verdict"] == "unproven"
    assert [e["id"] for e in made["evidence"] if e["equal"]] == ["m107"]
    shown = "\n".join(serving_table(made))
    assert "PROVEN" not in shown.splitlines()[1].replace("UNPROVEN", "")
    assert "1 of 8 requests failed at n = 8" in shown
    chosen = {
        "shape": "mixed",
        "variant": "ep4-mtp",
        "row": "m107",
        "verdict": "unproven",
        "reason": ".",
        "blemishes": ["one failed"],
    }
    assert "of this row: one failed" in "\n".join(serving_table(made, chosen))


def test_a_run_again_that_passed_does_not_outweigh_one_that_lost_answers() -> None:
    """Steps 5 of Super ran four times: twice every answer passed (m058, m061), twice one was ended (m057, m060)."""
    steps = {"speculative_num_steps": 5, "speculative_num_draft_tokens": 5}
    made = launch_plan(
        "nemotron-3-super-120b-nvfp4", {"hosts": ["a", "b", "c", "d"]}, {"variant": "ep1-mtp", "settings": steps}
    )
    assert {e["id"] for e in made["evidence"] if e["equal"]} == {"m057", "m058", "m060", "m061"}
    assert made["verdict"] == "unproven"
    assert {"evidence.m057", "evidence.m060"} <= {f["rule"] for f in made["findings"]}


def test_no_plan_says_proven_and_that_nothing_is() -> None:
    made = launch_plan("qwen3.5-122b-a10b-nvfp4-vllm", {"hosts": ["a"]})
    shown = "\n".join(serving_table(made, recommend("qwen3.5-122b-a10b-nvfp4-vllm", "agents")))
    assert made["verdict"] == "proven" and "nothing is proven" not in shown


# --- a share of what was free -----------------------------------------------------------------------------------------


def shares(free: float, share: float | None) -> dict[str, t.Any]:
    settings_ = {"mem_fraction_static": share}
    return launch_plan(ULTRA, {"hosts": ["a", "b", "c", "d"], "free_gib": free}, {"settings": settings_})


def test_a_crash_for_want_of_memory_says_nothing_of_nodes_that_have_more() -> None:
    """m111 ran at 0.85 with 100.7 GiB free, where the cache is empty; at 110 GiB the plan itself picks 0.85."""
    made = shares(110, None)
    assert made["memory"]["chosen"] == 0.85 and made["verdict"] == "unproven"
    row = next(e for e in made["evidence"] if e["id"] == "m111")
    assert row["differs"] == {"free_gib": {"row": 100.7, "plan": 110.0}}
    for free in (100.7, 101.2):
        made = shares(free, 0.85)
        assert made["verdict"] == "blocked" and "evidence.m111" in {f["rule"] for f in made["findings"]}


def test_a_crash_that_memory_does_not_explain_holds_whatever_is_free() -> None:
    override = {"settings": {"moe_runner_backend": "triton"}, "accept": []}
    made = launch_plan(ULTRA, {"hosts": ["a", "b", "c", "d"], "free_gib": 112}, override | {"variant": "ep4"})
    assert "evidence.m117" in {f["rule"] for f in made["findings"]} and made["verdict"] == "blocked"


@pytest.mark.parametrize(("free", "verdict_"), [(110, "proven"), (100.0, "proven"), (99.0, "unproven")])
def test_a_stable_row_proves_a_share_of_as_much_memory_or_more(free: float, verdict_: str) -> None:
    assert shares(free, 0.9)["verdict"] == verdict_


@pytest.mark.parametrize("name", ["Sehyo/Qwen3.5-122B-A10B-NVFP4", "sehyo/qwen3.5-122b-a10b-nvfp4"])
def test_the_hub_ignores_case(name: str) -> None:
    known = find("qwen3.5-122b-a10b-nvfp4-vllm")
    assert known["model"] == "Sehyo/Qwen3.5-122B-A10B-NVFP4"
    assert launch_plan({**known, "id": "mine", "model": name}, {"hosts": ["a"]})["verdict"] == "proven"
    assert evidence.recommend_row(name, "single", ROWS) == evidence.recommend_row(known["model"], "single", ROWS)


def test_a_folder_s_name_has_its_case() -> None:
    assert model_key("/models/A") != model_key("/models/a") and model_key("A") != model_key("a")


# --- a drafter's weights ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "fetched"),
    [("/models/drafter", False), ("./drafter", False), ("drafter", False), ("~/a/b", False), ("owner/drafter", True)],
)
def test_a_drafter_that_nothing_fetches_is_a_finding(path: str, fetched: bool) -> None:
    override = {"settings": {"speculative_algorithm": "EAGLE3", "speculative_draft_model_path": path}}
    made = launch_plan("glm-4.7-nvfp4", {"hosts": ["a", "b", "c", "d"]}, override)
    assert ("weights.drafter-folder" in {f["rule"] for f in made["findings"]}) is not fetched
    assert (path in {each["repo"] for each in made["weights"]}) is fetched


@pytest.mark.parametrize(
    ("name", "value", "missing"),
    [
        ("chat_template", "/templates/x.jinja", True),
        ("chat_template", "chatml", False),
        ("tokenizer_path", "~/tokenizer", True),
        ("tokenizer_path", "owner/tokenizer", False),
        ("lora_paths", ["a=/adapters/a"], True),
        ("speculative_token_map", "file:///map.pt", True),
        ("served_model_name", "/models/x", False),
    ],
)
def test_other_files_that_nothing_mounts_are_a_finding(name: str, value: t.Any, missing: bool) -> None:
    made = launch_plan("glm-4.7-nvfp4", {"hosts": ["a", "b", "c", "d"]}, {"settings": {name: value}})
    found = [each for each in made["findings"] if each["rule"] == "arguments.local-file"]
    assert [each["names"] for each in found] == ([[name]] if missing else [])


def test_a_drafter_in_vllms_object_counts_too() -> None:
    override = {"settings": {"speculative_config": {"method": "eagle3", "model": "/x", "num_speculative_tokens": 3}}}
    made = launch_plan("qwen3.5-122b-a10b-nvfp4-vllm", {"hosts": ["a"]}, override)
    assert "weights.drafter-folder" in {f["rule"] for f in made["findings"]}
