"""What the guide on serving shows is taken literally: entries, profiles, overrides, names and messages."""

from __future__ import annotations

import re
import typing as t

import pytest
import yaml

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import SET_BY_PLAN
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.plan import launch_plan
from ansible_collections.dgxspark.cluster.tests.unit import guide

GUIDE = (guide.GUIDES / "guide_serving.rst").read_text(encoding="utf-8")
GEMMA, VLLM = "gemma-4-31b-it", "qwen3.5-122b-a10b-nvfp4-vllm"


def blocks() -> list[t.Any]:
    """All YAML of the guide."""
    return [yaml.safe_load(block) for block in guide.blocks("guide_serving", "yaml")]


def only(key: str) -> list[t.Any]:
    return [block[key] for block in blocks() if isinstance(block, dict) and key in block]


@pytest.fixture(scope="module")
def owner(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An owner's folder with every entry of the guide, in the file that its sentence names."""
    folder = tmp_path_factory.mktemp("dgxspark")
    named = re.findall(r"in ``(\w+/mine\.yml)``[.:]", GUIDE)
    entries = only("entries")
    assert len(named) == len(entries) == 4
    for name, own in zip(named, entries, strict=True):
        (folder / name).parent.mkdir()
        (folder / name).write_text(yaml.safe_dump({"entries": own}), encoding="utf-8")
    return str(folder)


def test_the_owner_s_rule_blocks_and_its_fix_ends_it(owner: str) -> None:
    def rules(**settings: t.Any) -> list[str]:
        plan = launch_plan(GEMMA, {}, {"settings": settings}, [owner])
        return [f["rule"] for f in plan["findings"] if f["severity"] == "error"]

    fix = only("entries")[0][0]["fix"][0]["settings"]
    assert rules(disable_cuda_graph=True) == ["mine.eager-long-context"]
    assert rules(**fix) == []


def test_the_owner_s_choice_says_what_was_unknown(owner: str) -> None:
    assert launch_plan(VLLM)["resolved"]["fp4_gemm_backend"] == {"value": None, "by": "unknown"}
    chosen = launch_plan(VLLM, knowledge_dirs=[owner])["resolved"]["fp4_gemm_backend"]
    assert chosen == {"value": "flashinfer_cutlass", "by": "default"}


def test_the_owner_s_comparison_keeps_the_proof(owner: str) -> None:
    often = {"settings": {"decode_log_interval": 10}}
    assert launch_plan(GEMMA, {}, often)["verdict"] == "unproven"
    assert launch_plan(GEMMA, {}, often, [owner])["verdict"] == "proven"


def test_the_owner_s_image_is_held_against_the_version(owner: str) -> None:
    own = {"engine": {"image": only("entries")[3][0]["image"]}}
    assert "image.engine" in {f["rule"] for f in launch_plan(GEMMA, {}, own, [owner])["findings"]}


def test_profiles_and_overrides_are_planned() -> None:
    profiles = [*only("k8s_dgx_model_profile"), *(b for b in blocks() if isinstance(b, dict) and "extends" in b)]
    assert {launch_plan(profile)["verdict"] for profile in profiles} == {"unproven"}
    assert len(profiles) == 2
    for overrides in only("k8s_dgx_overrides"):
        assert launch_plan(GEMMA, {}, overrides)["verdict"] in ("proven", "unproven"), overrides


@pytest.mark.parametrize(
    ("profile", "given", "name", "value"),
    [
        (GEMMA, {"settings": {"speculative_algo": "NEXTN"}}, "speculative_algorithm", "FROZEN_KV_MTP"),
        (GEMMA, {"settings": {"max_num_seqs": 8}}, "max_running_requests", 8),
        (GEMMA, {"settings": {"enforce_eager": True}}, "disable_cuda_graph", True),
        (GEMMA, {"environment": {"SGLANG_ENABLE_SPEC_V2": "0"}}, "enable_spec_v2", False),
        (VLLM, {"settings": {"speculative_config": {"num_speculative_tokens": 2}}}, "speculative_num_steps", 2),
    ],
)
def test_names_are_those_of_the_table(profile: str, given: dict[str, t.Any], name: str, value: t.Any) -> None:
    (layer,) = given.values()
    assert f"``{next(iter(layer))}" in GUIDE
    assert launch_plan(profile, {}, given)["resolved"][name]["value"] == value


@pytest.mark.parametrize(
    "settings", [{"enforce_eager": True, "disable_cuda_graph": True}, {"context_length": "x"}, {"port": 8000}]
)
def test_refusals_read_as_shown(settings: dict[str, t.Any]) -> None:
    with pytest.raises(CollectionError) as refused:
        launch_plan(GEMMA, {}, {"settings": settings})
    assert f"   {refused.value}\n" in GUIDE


def test_the_table_of_what_the_plan_says_itself_is_whole() -> None:
    table = GUIDE.partition("The plan sets this")[2].partition("A name that the engine")[0]
    assert set(SET_BY_PLAN) <= set(re.findall(r"``(\w+)``", table))


def test_the_file_of_one_of_several_models_starts_and_switches() -> None:
    [own] = [block for block in guide.blocks("guide_kubernetes", "yaml") if "k8s_dgx_free_gib" in block]
    given = yaml.safe_load(own)
    switched = re.findall(
        r"-e @coder\.yml -e k8s_dgx_model_profile=(\S+)", "\n".join(guide.commands("guide_kubernetes", prompt=False))
    )
    assert switched
    for profile in (given["k8s_dgx_model_profile"], *switched):
        plan = launch_plan(profile, {"free_gib": given["k8s_dgx_free_gib"]}, given["k8s_dgx_overrides"])
        assert (plan["verdict"], plan["instance"]["name"]) == ("unproven", "coder")
