"""A remedy that is said leads to a plan that passes; benchmarks/remedies.py goes over all rules and profiles."""

from __future__ import annotations

import re
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import Finding
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.judgement import remedies
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.judgement.rules import Offer
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.profile.profile import find
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.plan import launch_plan

RULES = knowledge.load("rules")
GLM, QWEN, ULTRA, GEMMA = "glm-4.7-nvfp4", "qwen3.5-397b-a17b-nvfp4", "nemotron-3-ultra-550b-nvfp4", "gemma-4-31b-it"
VLLM, FP8 = "qwen3.5-122b-a10b-nvfp4-vllm", "glm-4.7-fp8"
HOSTS = [f"spark{number}" for number in range(1, 5)]
STAGES = {"nodes": 4, "tp": 1, "pp": 4, "ep": 1}


def of(version: str) -> dict[str, t.Any]:
    return {"version": version, "versions": "", "image": None}


# Plans whose rules name settings: profile, settings, split, engine version.
PLANS: list[tuple[str, dict[str, t.Any], dict[str, int], str]] = [
    (GLM, {"attention_backend": "triton"}, STAGES, "0.5.10"),
    (GLM, {"attention_backend": "flashinfer", "speculative_algorithm": None}, STAGES, "0.5.12"),
    (GLM, {"attention_backend": "fa3", "moe_runner_backend": "flashinfer_trtllm"}, {}, "0.5.12"),
    (GLM, {"moe_runner_backend": "deep_gemm"}, {"nodes": 4, "tp": 4, "ep": 2}, "0.5.16"),
    (GLM, {}, {"nodes": 3, "tp": 3}, "0.5.13"),
    (GLM, {"mem_fraction_static": 0.3, "context_length": 400000}, {}, "0.5.12"),
    (GLM, {}, {"nodes": 1, "tp": 1}, "0.5.12"),
    (QWEN, {"moe_runner_backend": "flashinfer_cutlass", "enable_eplb": True}, {"ep": 4}, "0.5.10"),
    (QWEN, {"moe_runner_backend": "triton"}, {"ep": 4}, "0.5.17"),
    (QWEN, {}, {"nodes": 4, "tp": 2, "pp": 2, "ep": 2}, "0.5.13"),
    (ULTRA, {"attention_backend": "triton", "moe_runner_backend": "triton", "enable_eplb": True}, {}, "0.5.12"),
    (GEMMA, {"attention_backend": "flashinfer", "speculative_algorithm": None}, STAGES, "0.5.12"),
    (FP8, {"quantization": "modelopt_fp4", "moe_runner_backend": "flashinfer_cutlass"}, {"ep": 4}, "0.5.12"),
    (VLLM, {"gpu_memory_utilization": 0.99}, {}, "0.17.1"),
    (VLLM, {"gpu_memory_utilization": 0.3}, {}, "0.17.1"),
    (VLLM, {"max_running_requests": 10**6}, {}, "0.20.2"),
    (VLLM, {}, {"nodes": 4, "tp": 1, "pp": 4}, "0.33.0"),
]


@pytest.mark.parametrize(("name", "settings", "split", "version"), PLANS)
def test_every_change_that_is_said_passes_as_an_override(
    name: str, settings: dict[str, t.Any], split: dict[str, int], version: str
) -> None:
    cluster = {"hosts": HOSTS, "free_gib": 104.0}
    overrides: dict[str, t.Any] = {"engine": of(version), "settings": settings, "parallel": split}
    made = launch_plan(name, cluster, overrides)
    for found in made["findings"]:
        for way in found["ways"]:
            laid = {kind: {**overrides[kind], **way.get(kind, {})} for kind in ("settings", "parallel")}
            after = launch_plan(name, cluster, {**overrides, **laid})
            assert after["verdict"] != "blocked", (found["rule"], way, [f["rule"] for f in after["findings"][:3]])
            assert found["rule"] not in {f["rule"] for f in after["findings"]}
        if found["rule"] in RULES and "fix" in RULES[found["rule"]] and not found["ways"]:
            assert not re.search(r"[Ss]et [a-z_]+ to |[Uu]se tp \d", found["remedy"]), found


def test_no_split_is_advised_of_a_model_whose_heads_are_not_known() -> None:
    entry = {
        key: value
        for key, value in find(VLLM).items()
        if key in ("id", "title", "model", "source", "proven", "precision")
    }
    entry |= {
        "model": "nobody/unknown",
        "engine": {"name": "vllm", "version": "0.33.0"},
        "settings": {},
        "precision": {},
    }
    for nodes, said in ((3, False), (4, True)):
        made = launch_plan(entry | {"parallel": {"nodes": nodes, "tp": 1, "pp": nodes}})
        (found,) = [f for f in made["findings"] if f["rule"] == "topology.pipeline"]
        assert (f"tp {nodes}" in found["remedy"]) == said and "unknown" not in found["remedy"]
        assert found["ways"] == ([{"parallel": {"nodes": nodes, "tp": nodes, "pp": 1, "ep": 1}}] if said else [])


def finding(name: str, severity: t.Any = "error") -> Finding:
    return Finding(name, severity, "", "wrong", f"Set {name} to 1.")


def outcome(*errors: str, **fixes: t.Any) -> remedies.Outcome:
    offers = {name: Offer(tuple(each), otherwise="Or a newer image.") for name, each in fixes.items()}
    return remedies.Outcome(tuple(finding(name) for name in errors), offers)


def setting(**values: t.Any) -> dict[str, t.Any]:
    return {"settings": values}


def test_what_leads_to_another_error_is_said_with_what_that_one_needs() -> None:
    def plan(change: remedies.Change) -> remedies.Outcome | None:
        if change == setting(a=1):
            return outcome("b", b=[setting(a=0), setting(b=2)])
        return outcome() if change == setting(a=1, b=2) else None

    (told,), ways = remedies.planned(outcome("a", a=[setting(a=1), setting(a=3)]), plan)
    assert ways == {"a": [setting(a=1, b=2)]}
    assert told.remedy == "Set a to 1 and b to 2. Or a newer image."


def test_what_does_not_pass_is_not_said_and_one_that_passes_is_left_as_it_is_written() -> None:
    (told,), ways = remedies.planned(outcome("a", a=[setting(a=1)]), lambda change: outcome("c"))
    assert told.remedy == f"{remedies.NONE} Or a newer image." and ways == {"a": []}
    (told,), ways = remedies.planned(outcome("a", a=[setting(a=1)]), lambda change: outcome())
    assert told.remedy == "Set a to 1." and ways == {"a": [setting(a=1)]}


def test_the_work_is_bounded_however_many_errors_have_remedies() -> None:
    made: list[remedies.Change] = []
    every = {f"e{n}": [setting(**{f"e{n}": m}) for m in range(5)] for n in range(20)}

    def plan(change: remedies.Change) -> remedies.Outcome:
        made.append(change)
        return outcome(*(name for name in every if name not in change["settings"]), **every)

    remedies.planned(outcome(*every, **every), plan)
    assert len(made) <= remedies.TRIES


def test_a_warning_s_remedy_waits_until_the_plan_is_not_blocked_and_brings_no_other() -> None:
    start = remedies.Outcome((finding("a"), finding("w", "warning")), {"w": Offer((setting(w=1),))})
    told, ways = remedies.planned(start, lambda change: outcome())
    assert told[1].remedy == remedies.LATER and ways == {"w": []}
    alone = remedies.Outcome((finding("w", "warning"),), start.offers)
    (told_alone,), _ways = remedies.planned(alone, lambda change: remedies.Outcome((finding("x", "warning"),), {}))
    assert told_alone.remedy == remedies.NONE


NAMES = {
    name
    for key, entry in knowledge.load("settings").items()
    for name in (key, *entry.get("aliases", ()))
    if "_" in name
}
# Settings that a remedy names without a value to set them to, or as a second name of one.
SAID_ONLY = {
    "max_num_seqs",
    "max_num_batched_tokens",
    "json_model_override_args",
    "speculative_config",
    "moe_backend",
    "speculative_draft_model_path",
}


@pytest.mark.parametrize("rule", sorted(RULES))
def test_every_setting_that_a_remedy_names_is_in_a_fix(rule: str) -> None:
    entry = RULES[rule]
    fixes = entry.get("fix", [])
    changed = {name for fix in fixes for name in fix.get("settings", {})}
    named = set(re.findall(r"[a-z]+(?:_[a-z0-9]+)+", entry["remedy"])) & NAMES - SAID_ONLY
    assert named <= changed, named - changed
    if re.search(r"\btp \{|\bEP 1\b", entry["remedy"]):
        assert any("parallel" in fix for fix in fixes)
