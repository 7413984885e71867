"""Profiles of owners: another engine than the base profile's, and all faults at once."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.profile import profile
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.plan import launch_plan

SOURCE = [{"of": "engine", "from": "own choice", "verified": "inferred"}]
VLLM = {"name": "vllm", "version": "0.33.0"}


def own(**changes: t.Any) -> dict[str, t.Any]:
    return {
        "id": "mine",
        "title": "Ours",
        "extends": "glm-4.7-nvfp4",
        "proven": "untested",
        "source": SOURCE,
        **changes,
    }


def changed(plan: t.Mapping[str, t.Any]) -> list[str]:
    return [f["message"] for f in plan["findings"] if f["rule"] == "engine.changed"]


@pytest.mark.parametrize("base", ["glm-4.7-nvfp4", "glm-4.7-fp8"])  # the second extends the first, and names no engine
def test_another_engine_drops_what_was_said_to_the_first(base: str) -> None:
    plan = launch_plan(own(extends=base, engine=VLLM, settings={"context_length": 65536}))
    assert plan["engine"] == {"name": "vllm", "version": "0.33.0", "image": None}
    assert {key for key, each in plan["resolved"].items() if each["by"] == "asked"} == {"context_length"}
    assert plan["variant"] == "default"
    assert plan["parallel"] == {"nodes": 4, "tp": 4, "pp": 1, "ep": 1}
    (said,) = changed(plan)
    for word in (
        "vllm, not sglang",
        "0.5.10",
        ">=0.5.10,<0.5.12",
        "scitrera/dgx-spark-sglang:0.5.10",
        "moe_runner_backend",
        "mtp-triton",
    ):
        assert word in said


def test_another_engine_in_the_overrides_drops_it_too() -> None:
    plan = launch_plan("gemma-4-31b-it", {}, {"engine": VLLM, "settings": {"max_model_len": 4096}})
    assert {key for key, each in plan["resolved"].items() if each["by"] == "asked"} == {"context_length"}
    assert "--speculative" not in " ".join(plan["ranks"][0]["argv"])
    assert len(changed(plan)) == 1


def test_a_variant_of_null_is_taken_away() -> None:
    base = "glm-4.7-flash-vllm"
    mine = {"id": "mine", "title": "Ours", "extends": base, "proven": "untested", "source": SOURCE}
    assert launch_plan({**mine, "variants": {"two": None}})["variant"] == "one"
    with pytest.raises(CollectionError, match="variant 'two' is not one of one"):
        launch_plan({**mine, "variants": {"two": None}}, {}, {"variant": "two"})


def test_what_the_first_engine_s_image_must_have_is_not_asked_of_the_second_s() -> None:
    name = "qwen3.5-122b-a10b-nvfp4-vllm"
    rules = {f["rule"] for f in launch_plan(name)["findings"]}
    assert "image.mods" in rules
    other = {"engine": {"name": "sglang", "version": "0.5.17"}}
    assert "image.mods" not in {f["rule"] for f in launch_plan(name, {}, other)["findings"]}


def test_the_same_engine_drops_nothing() -> None:
    plan = launch_plan(own(engine={"name": "sglang", "version": "0.5.11"}))
    assert not changed(plan)
    assert plan["settings"]["quantization"] == "modelopt_fp4"


@pytest.mark.parametrize("where", ["profile", "overrides"])
def test_another_engine_needs_a_version_of_its_own(where: str) -> None:
    engine = {"engine": {"name": "vllm"}}
    with pytest.raises(CollectionError, match=r"engine\.version is missing: engine\.name is vllm, not sglang"):
        launch_plan(own(**engine) if where == "profile" else own(), {}, engine if where == "overrides" else {})


def test_all_faults_of_the_form_are_told_at_once() -> None:
    wrong = own(proven="perhaps", engine={"name": "llama.cpp", "version": 9}, colour="red", checkpoint_gb=0)
    with pytest.raises(CollectionError) as refused:
        profile.find(wrong)
    for word in (
        "proven: 'perhaps'",
        "engine.name: 'llama.cpp'",
        "engine.version: 9",
        "'colour'",
        "checkpoint_gb: 0",
    ):
        assert word in str(refused.value)


def test_all_faults_of_the_sense_are_told_at_once() -> None:
    wrong = own(
        engine={"version": "0.5.20"},
        parallel={"tp": 7},
        settings={"context_length": "long", "disable_cuda_graph": True, "enforce_eager": True},
    )
    with pytest.raises(CollectionError) as refused:
        launch_plan(wrong, {}, {"settings": {"port": 30000}})
    for word in (
        "engine.version: 0.5.20",
        "parallel.tp",
        "settings.context_length: 'long'",
        "settings.enforce_eager",
        "settings.port",
    ):
        assert word in str(refused.value)
    assert {f.subject for f in refused.value.findings} >= {"settings.context_length", "settings.port"}


def test_a_circle_is_named() -> None:
    known = {"a": own(id="a", extends="b"), "b": own(id="b", extends="a")}
    with pytest.raises(CollectionError, match="a → b → a is a cycle"):
        profile.extended(known["a"], known)
