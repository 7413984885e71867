"""The plan judges what will run: whatever a setting is called, whoever sets it, and whether it is written at all."""

from __future__ import annotations

import functools
import json
import typing as t

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner import api
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.judgement.table import serving_table
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.profile import profile
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.vocabulary.settings import (
    load_tables,
    read_layer,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving import plan
from ansible_collections.dgxspark.cluster.tests.support.properties import examples

HOSTS = ["spark1", "spark2", "spark3", "spark4"]
VARIANTS = [
    (name, variant)
    for name in sorted(knowledge.shared("profile"))
    for variant in (*profile.find(name).get("variants", {}), "")
]
QWEN, GLM, GEMMA, ULTRA, SUPER, VLLM = (
    "qwen3.5-397b-a17b-nvfp4", "glm-4.7-nvfp4", "gemma-4-31b-it", "nemotron-3-ultra-550b-nvfp4",
    "nemotron-3-super-120b-nvfp4", "qwen3.5-122b-a10b-nvfp4-vllm",
)  # fmt: skip


def planned(
    name: str | dict[str, t.Any], variant: str = "", free: float | None = None, **overrides: t.Any
) -> dict[str, t.Any]:
    known = profile.find(name) if isinstance(name, str) else name
    hosts = [f"spark{number}" for number in range(1, max(4, known.get("parallel", {}).get("nodes", 4)) + 1)]
    cluster: dict[str, t.Any] = {"hosts": hosts} | ({"free_gib": free} if free else {})
    return plan.launch_plan(name, cluster, ({"variant": variant} if variant else {}) | overrides)


def rules(made: dict[str, t.Any], severity: str = "") -> set[str]:
    return {f["rule"] for f in made["findings"] if severity in ("", f["severity"])}


def words(made: dict[str, t.Any]) -> list[str]:
    return list(made["ranks"][0]["argv"])


# --- one vocabulary ---------------------------------------------------------------------------------------------------


def test_one_value_where_the_engine_takes_several_is_a_list_of_one() -> None:
    one = planned(SUPER, settings={"cuda_graph_bs": 7})
    assert one == planned(SUPER, settings={"cuda_graph_bs": [7]})
    assert one["resolved"]["cuda_graph_bs"]["value"] == [7]


def test_a_number_with_zeros_too_many_is_planned_as_any_other() -> None:
    assert planned(VLLM, settings={"speculative_num_steps": 10**12})["verdict"] != "proven"


@pytest.mark.parametrize(("name", "alias"), [(GLM, "enforce-eager"), (VLLM, "disable-cuda-graph")])
def test_dashes_are_underscores_in_an_alias_as_well(name: str, alias: str) -> None:
    assert planned(name, settings={alias: True}) == planned(name, settings={"disable_cuda_graph": True})


def test_an_empty_list_says_nothing() -> None:
    assert planned(SUPER, settings={"cuda_graph_bs": []}) == planned(SUPER)


def test_an_alias_does_not_pass_by_a_check() -> None:
    asked = {"speculative_algo": "NEXTN", "speculative_num_steps": 5, "speculative_num_draft_tokens": 4}
    made = planned(GEMMA, settings=asked)
    assert made["verdict"] == "blocked"
    assert any("steps + 1 = 6" in f["message"] for f in made["findings"])


def test_eager_by_its_other_name_is_eager() -> None:
    made = planned(GLM, settings={"enforce_eager": True})
    assert "--disable-cuda-graph" in words(made)
    assert made["verdict"] != "proven"
    assert made["resolved"]["disable_cuda_graph"] == {"value": True, "by": "asked"}


def test_the_plan_and_the_argument_list_have_the_same_number_of_requests() -> None:
    made = planned(QWEN, settings={"max_num_seqs": 8})
    argv = words(made)
    assert argv[argv.index("--max-running-requests") + 1] == "8"
    assert made["memory"]["max_running_requests"] == 8
    on_vllm = planned(VLLM, settings={"max_running_requests": 4})
    argv = words(on_vllm)
    assert argv[argv.index("--max-num-seqs") + 1] == "4"


def test_a_variable_is_a_name_of_the_setting_that_it_says() -> None:
    by_name = planned(ULTRA, settings={"disable_deep_gemm": False})
    by_variable = planned(ULTRA, environment={"SGLANG_ENABLE_JIT_DEEPGEMM": "1"})
    assert by_variable == by_name
    assert by_name["ranks"][0]["env"]["SGLANG_ENABLE_JIT_DEEPGEMM"] == "true"


def _variables() -> list[tuple[str, str, bool, str]]:
    """Every word of every variable that expresses a boolean setting: engine, variable, setting's value, word."""
    parts = [
        (engine, part)
        for entry in load_tables().settings.values()
        for engine in ("sglang", "vllm")
        for way in entry.get(engine, ())
        if isinstance(part := way, dict) and "env" in part and entry["type"] == "bool"
    ]
    return [
        (engine, part["env"], ours == "true", word)
        for engine, part in parts
        for ours, word in part.get("values", {}).items()
        if word is not None
    ]


@pytest.mark.parametrize(("engine", "name", "ours", "word"), _variables())
def test_a_variable_is_read_by_the_words_that_the_plan_writes(engine: str, name: str, ours: bool, word: str) -> None:
    dialects = [load_tables().dialect(engine, parser.version) for parser in load_tables().versions(engine)]
    knowing = [dialect for dialect in dialects if name in dialect.variables]
    assert knowing
    for dialect in knowing:
        settings_, kept, faults, _given = read_layer({}, {name: word}, dialect)
        assert (list(settings_.values()), kept, faults) == ([ours], {}, [])


@pytest.mark.parametrize("word", ["ram", "0", "io_uring"])
def test_a_word_of_a_variable_that_no_setting_has_is_passed_on(word: str) -> None:
    dialect = load_tables().dialect("vllm", "0.33.0")
    settings_, kept, faults, _given = read_layer({}, {"VLLM_PLE_TABLE_MEMORY": word}, dialect)
    assert (settings_, kept, faults) == ({"lookup_on_disk": False}, {"VLLM_PLE_TABLE_MEMORY": word}, [])


def test_a_variable_without_a_value_is_taken_back() -> None:
    taken_back = planned(ULTRA, environment={"SGLANG_ENABLE_JIT_DEEPGEMM": None})
    assert taken_back == planned(ULTRA, settings={"disable_deep_gemm": None})
    assert "OWN" not in planned(ULTRA, environment={"OWN": None})["ranks"][0]["env"]


def test_the_keys_of_an_object_are_settings() -> None:
    whole = planned(VLLM, settings={"speculative_config": {"method": "mtp", "num_speculative_tokens": 2}})
    single = planned(VLLM, settings={"speculative_num_steps": 2})
    assert whole == single
    off = planned(VLLM, settings={"speculative_config": None})
    assert off["speculation"] == {}
    assert "--speculative-config" not in words(off)


@pytest.mark.parametrize(
    ("settings", "environment", "text"),
    [
        ({"max_num_seqs": 8, "max_running_requests": 8}, {}, "the same setting as max_num_seqs"),
        ({"disable_deep_gemm": True}, {"SGLANG_ENABLE_JIT_DEEPGEMM": "false"}, "the same setting as disable_deep_gemm"),
        ({"enable_prefix_caching": True, "disable_radix_cache": False}, {}, "the same setting"),
        ({"tp_size": 2}, {}, "Give parallel.tp"),
        ({"port": 9000}, {}, "Give instance.port"),
        ({"cuda_graph_max_bs": "eight"}, {}, "'eight' is not a whole number"),
        ({"mem_fraction_static": 1.7}, {}, "not below 1"),
        ({}, {"SGLANG_ENABLE_SPEC_V2": "perhaps"}, "neither true nor false"),
        ({"disable_deep_gemm": "true"}, {}, "'true' is not true or false"),
        ({"enable_spec_v2": "1"}, {}, "'1' is not true or false"),
        ({}, {"OWN": {"a": 1}}, "neither a text nor a whole number"),
        ({}, {"OWN": True}, "neither a text nor a whole number"),
        ({"nccl_transport": "RoCE"}, {}, "'RoCE' does not have the form roce|socket"),
    ],
)
def test_what_is_said_twice_or_wrongly_is_refused_with_its_place(
    settings: dict[str, t.Any], environment: dict[str, str], text: str
) -> None:
    with pytest.raises(CollectionError, match=text) as caught:
        planned(GLM, settings=settings, environment=environment)
    assert "overrides" in str(caught.value)


def test_all_faults_of_a_layer_are_told_at_once() -> None:
    with pytest.raises(CollectionError) as caught:
        planned(GLM, settings={"cuda_graph_max_bs": "eight", "page_size": 0.5, "tp_size": 2})
    assert {f.subject for f in caught.value.findings} == {
        "settings.cuda_graph_max_bs", "settings.page_size", "settings.tp_size",
    }  # fmt: skip


TABLES = load_tables()
ALIASES = sorted((alias, key) for alias, key in TABLES.names.items() if alias != key)
VALUES: dict[str, list[t.Any]] = {"bool": [True, False], "int": [1, 8, 512], "float": [0.5, 0.9], "str": ["triton"]}


@functools.cache
def kept(name: str, variant: str, setting: str, value: t.Any) -> dict[str, t.Any] | str:
    try:
        return planned(name, variant, settings={setting: value})
    except CollectionError as exc:
        return str(exc).replace(f"settings.{setting}:", "SETTING:")


@settings(max_examples=examples(150))
@given(st.sampled_from(VARIANTS), st.sampled_from(ALIASES), st.integers(0, 2))
def test_an_alias_and_its_name_give_the_same_plan(which: tuple[str, str], names: tuple[str, str], pick: int) -> None:
    alias, name = names
    values = VALUES.get(TABLES.settings[name]["type"], ["x"])
    value = values[pick % len(values)]
    assert kept(*which, alias, value) == kept(*which, name, value)


# --- what is not written ----------------------------------------------------------------------------------------------


def same(first: dict[str, t.Any], second: dict[str, t.Any]) -> bool:
    # Findings of `arguments` are about how a setting is written, not about what runs.
    found, others = ({rule for rule in rules(made) if not rule.startswith("arguments.")} for made in (first, second))
    return (first["verdict"], found, first["memory"]) == (second["verdict"], others, second["memory"])


ADDED_BY_THE_PLAN = {
    "mem_fraction_static",
    "gpu_memory_utilization",
    "max_running_requests",
    "json_model_override_args",
}


@settings(max_examples=examples(120))
@given(st.sampled_from(VARIANTS), st.data())
def test_a_default_that_is_written_changes_nothing(which: tuple[str, str], data: st.DataObject) -> None:
    """Removing a setting, and writing down what the engine then runs with, give the same verdict and findings."""
    name, variant = which
    asked = sorted(
        {key for key, said in planned(name, variant)["resolved"].items() if said["by"] in ("asked", "default")}
    )
    key = data.draw(st.sampled_from([key for key in asked if key not in ADDED_BY_THE_PLAN]))
    without = planned(name, variant, settings={key: None})
    said = without["resolved"].get(key)
    if said is None or said["by"] != "default" or said["value"] is None:
        return
    assert same(planned(name, variant, settings={key: said["value"]}), without)


@pytest.mark.parametrize(
    ("name", "setting", "default"),
    [(GLM, "torchao_config", ""), (GEMMA, "debug_tensor_dump_inject", False), (VLLM, "optimization_level", 2)],
)
def test_a_default_that_no_word_can_say_is_the_default(name: str, setting: str, default: t.Any) -> None:
    written, without = planned(name, settings={setting: default}), planned(name)
    assert same(written, without)
    assert words(written) == words(without)


BAD: dict[str, list[dict[str, t.Any]]] = {
    "sglang": [
        {"attention_backend": "fa3"}, {"moe_runner_backend": "flashinfer_trtllm"}, {"speculative_algorithm": "EAGLE3"},
        {"mem_fraction_static": 0.3}, {"mem_fraction_static": 0.99}, {"disable_cuda_graph": True, "moe_runner_backend": "triton"},
        {"quantization": "fp8"}, {"attention_backend": "triton", "disable_piecewise_cuda_graph": False},
    ],
    "vllm": [{"gpu_memory_utilization": 0.3}, {"gpu_memory_utilization": 0.99}, {"quantization": "fp8"}],
}  # fmt: skip


@settings(max_examples=examples(150))
@given(st.sampled_from(VARIANTS), st.data())
def test_nothing_becomes_proven_by_being_left_out(which: tuple[str, str], data: st.DataObject) -> None:
    """A setting that only the engine can resolve never turns blocked into proven, nor clears its rule."""
    name, variant = which
    bad = data.draw(st.sampled_from(BAD[profile.find(name)["engine"]["name"]]))
    blocked = planned(name, variant, settings=bad)
    if blocked["verdict"] != "blocked":
        return
    key = data.draw(st.sampled_from(sorted(blocked["resolved"].keys() - bad.keys())))
    again = planned(name, variant, settings=bad | {key: None})
    if again["resolved"].get(key, {}).get("by") == "unknown":
        assert again["verdict"] != "proven"


@settings(max_examples=examples(150))
@given(st.sampled_from(VARIANTS), st.data())
def test_a_name_that_nobody_knows_proves_nothing(which: tuple[str, str], data: st.DataObject) -> None:
    """Adding a setting that no table knows turns nothing into proven."""
    name, variant = which
    bad = data.draw(st.sampled_from([{}, *BAD[profile.find(name)["engine"]["name"]]]))
    key = data.draw(st.sampled_from(["own_flag", "attention_backends", "max_running_request", "_", "enable_nothing"]))
    value = data.draw(st.sampled_from([None, True, 8, "x"]))
    before, after = planned(name, variant, settings=bad), planned(name, variant, settings=bad | {key: value})
    assert before["verdict"] == after["verdict"] or after["verdict"] != "proven"


def test_null_and_false_are_judged_alike() -> None:
    unset, off = (planned(GLM, "plain", settings={"disable_piecewise_cuda_graph": value}) for value in (None, False))
    assert unset["verdict"] == off["verdict"] == "blocked"
    assert rules(unset, "error") == rules(off, "error") != set()


@pytest.mark.parametrize("runner", [None, "auto", "cutlass"])
def test_the_runner_that_the_engine_takes_is_judged(runner: str | None) -> None:
    made = planned(QWEN, "ep4", settings={"moe_runner_backend": runner, "disable_cuda_graph": True})
    assert "experts.eager-garbage" in rules(made, "error")


def test_deep_gemm_that_nobody_switches_off_is_found() -> None:
    assert "experts.deep-gemm" in rules(planned(ULTRA, settings={"disable_deep_gemm": None}))


def test_what_only_the_engine_knows_is_a_warning_that_names_the_setting() -> None:
    made = planned(GLM, "plain", settings={"quantization": None, "moe_runner_backend": "flashinfer_cutlass"})
    hanging = [f for f in made["findings"] if "only the running engine decides" in f["message"]]
    assert made["resolved"]["quantization"] == {"value": None, "by": "unknown"}
    assert all(f["severity"] != "error" for f in hanging)
    assert any("quantization" in f["message"] and "Set quantization in settings" in f["remedy"] for f in hanging)


def bare(**changes: t.Any) -> dict[str, t.Any]:
    own = {
        key: value for key, value in profile.find(QWEN).items() if key not in ("origin", "facts", "variants", "shapes")
    }
    own |= {"id": "mine", "parallel": {"nodes": 4, "tp": 4, "pp": 1, "ep": 4}, "precision": {"experts": "nvfp4"}}
    return own | {"settings": {**own["settings"], **changes}}


def test_a_profile_without_facts_says_what_could_not_be_judged() -> None:
    made = planned(bare(disable_cuda_graph=True, moe_runner_backend="triton"))
    unjudged = next(f for f in made["findings"] if f["rule"] == "facts.unjudged")
    assert "attention.triton-mamba-first" in unjudged["message"]
    assert "memory.unknown" in rules(made)
    assert "not every rule could be judged" in serving_table(made)[1]
    assert made["verdict"] != "proven"
    assert "experts.eager-garbage" in unjudged["message"]
    assert "k8s_dgx_model_config" in unjudged["remedy"]


def test_a_share_that_the_engine_works_out_is_no_trouble() -> None:
    made = planned(bare(mem_fraction_static=None))
    assert made["resolved"]["mem_fraction_static"]["by"] == "unknown"
    assert not any("mem_fraction_static" in f["remedy"] for f in made["findings"])


def test_what_a_change_of_engine_leaves_behind_is_told_in_words() -> None:
    """To an owner whose own file names another engine; a shipped profile that does says all that it needs."""
    shipped = "qwen3.5-122b-a10b-nvfp4"
    assert not [f for f in planned(shipped)["findings"] if f["rule"] == "engine.changed"]
    engine = {"name": "sglang", "version": "0.5.12"}
    source = [{"of": "engine", "from": "own choice", "verified": "inferred"}]
    own = {
        "id": "mine",
        "title": "Ours",
        "extends": f"{shipped}-vllm",
        "proven": "untested",
        "source": source,
        "engine": engine,
    }
    told = next(f["message"] for f in planned(own)["findings"] if f["rule"] == "engine.changed")
    assert told.endswith("mods (fix-qwen3.5-autoround, fix-qwen3.5-chat-template), note.")


def test_nobody_is_told_to_write_down_what_is_written() -> None:
    """0.5.10 overrides NemotronH's runner: whether it does depends on the model, or on the quantization, not on the runner."""
    unknown_model = planned(bare(disable_cuda_graph=True, moe_runner_backend="triton"))
    assert unknown_model["resolved"]["moe_runner_backend"] == {"value": None, "by": "unknown"}
    assert not any("Write moe_runner_backend" in f["remedy"] for f in unknown_model["findings"])
    settings = {"moe_runner_backend": "triton", "quantization": None}
    known_model = planned(ULTRA, settings=settings, engine={"version": "0.5.10", "versions": "", "image": None})
    said = next(f for f in known_model["findings"] if f["rule"] == "experts.ungated-cutlass")
    assert "Set quantization in settings" in said["remedy"]
    assert "facts.unjudged" not in rules(known_model)


def test_what_the_engine_reads_off_the_checkpoint_does_not_contradict_it() -> None:
    made = planned(VLLM)
    assert made["resolved"]["quantization"]["by"] == "unknown"
    told = "settings.quantization-unlike"
    assert told not in rules(made)
    # vLLM corrects the value for ModelOpt's checkpoints, and refuses it for others: the profile does not say which this is.
    assert told in rules(planned(VLLM, settings={"quantization": "fp8"}), "warning")


QUANTIZATION = {"load.unquantized", "settings.quantization-other", "settings.quantization-other-vllm", "settings.quantization-unlike",
                "settings.quantization-fp4-of-fp8"}  # fmt: skip


@pytest.mark.parametrize("name", sorted(knowledge.load("profile")))
def test_a_quantization_that_nobody_asked_for_is_held_against_no_checkpoint(name: str) -> None:
    assert not rules(planned(name)) & QUANTIZATION


@pytest.mark.parametrize(
    ("name", "drafter", "method"),
    [
        (VLLM, "z-lab/Qwen3.5-122B-A10B-DFlash", "dflash"),
        (VLLM, "some/Speculator-EAGLE3-drafter", "eagle3"),
        (VLLM, "yuhuili/EAGLE-LLaMA3-Instruct-8B", "eagle"),
        (VLLM, "deepseek-ai/dspark_qwen3_8b_block7", "dspark"),
        (VLLM, "some/smaller-model", "draft_model"),
        ("gemma-4-31b-it-nvfp4a16-vllm", "google/gemma-4-31B-it-assistant", "mtp"),
        (
            VLLM,
            "google/gemma-4-26B-A4B-it-assistant",
            "mtp",
        ),  # another profile says what it is (vllm-project/vllm#53836)
    ],
)
def test_a_drafter_without_a_method_is_planned_with_the_one_that_vllm_infers(
    name: str, drafter: str, method: str
) -> None:
    asked = {"model": drafter, "num_speculative_tokens": 3}
    own = {key: value for key, value in profile.find(name).items() if key not in ("variants", "shapes")}
    made = planned({**own, "settings": {"speculative_config": asked}})
    assert (made["speculation"]["algorithm"], made["speculation"]["steps"]) == (method, 3)
    assert made["resolved"]["speculative_num_draft_tokens"]["value"] == 4
    given = json.loads(words(made)[words(made).index("--speculative-config") + 1])
    assert given == asked  # what vLLM infers is not written for it


# --- proven means this one was measured -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "variant", "settings"),
    [
        (QWEN, "ep1-mtp", {"mem_fraction_static": None}),
        (ULTRA, "ep4", {"disable_deep_gemm": False}),
        (ULTRA, "ep4", {"enable_eplb": True}),
        (QWEN, "ep4", {"cuda_graph_bs": [1, 2, 4], "max_running_requests": 8}),
        (ULTRA, "ep4", {"mem_fraction_static": None}),
        (SUPER, "ep4", {"disable_deep_gemm": None}),
    ],
)
def test_what_was_not_measured_is_not_proven(name: str, variant: str, settings: dict[str, t.Any]) -> None:
    made = planned(name, variant, settings=settings)
    assert made["verdict"] != "proven"
    assert not made["conflict"]
    assert not any(row["equal"] and row["verdict"] == "stable" for row in made["evidence"])


@pytest.mark.parametrize("name", [ULTRA, QWEN, GEMMA, VLLM])
def test_a_variable_that_the_run_had_not_makes_it_another_one(name: str) -> None:
    """NCCL_IB_DISABLE replaces RoCE with sockets, and CUDA_LAUNCH_BLOCKING slows a run: no row had them."""
    assert planned(name)["verdict"] == "proven"
    for variable in ("NCCL_IB_DISABLE", "CUDA_LAUNCH_BLOCKING", "SGLANG_FORCE_FP8_MARLIN"):
        made = planned(name, environment={variable: "1"})
        assert made["verdict"] == "unproven"
        assert made["evidence"][0]["differs"] == {f"environment.{variable}": {"row": "not set", "plan": "1"}}
    assert planned(name, environment={"HF_HOME": "/weights", "NCCL_DEBUG": "INFO"})["verdict"] == "proven"


@pytest.mark.parametrize(
    ("over", "verdict"),
    [
        ({"max_position_embeddings": 10**6}, "proven"),
        ('{"max_position_embeddings": 1000000}', "proven"),
        ({"max_position_embeddings": 10**6, "num_experts_per_tok": 1}, "unproven"),
        ('{"num_hidden_layers": 2, "max_position_embeddings": 1000000}', "unproven"),
        ({"max_position_embeddings": 10**6, "rope_scaling": {"factor": 4}}, "unproven"),
        ("[1]", "unproven"),
    ],
)
def test_the_config_s_cap_alone_may_be_lifted(over: t.Any, verdict: str) -> None:
    assert planned(ULTRA, "ep4", settings={"json_model_override_args": over})["verdict"] == verdict


def test_an_image_that_is_not_named_proves_nothing() -> None:
    made = planned(ULTRA, engine={"image": None})
    assert made["verdict"] == "unproven"
    assert made["evidence"][0]["differs"]["image"]["plan"] is None


def test_a_known_image_of_another_version_is_refused_with_the_way_out() -> None:
    made = planned(ULTRA, engine={"version": "0.5.13"})
    found = next(f for f in made["findings"] if f["rule"] == "image.engine")
    assert made["verdict"] == "blocked"
    assert "0.5.12" in found["message"]
    assert "0.5.13" in found["message"]
    assert "engine.image" in found["remedy"]
    assert "version: 0.5.12" in found["remedy"]
    assert "image.engine" not in rules(planned(ULTRA, engine={"version": "0.5.12"}))


@pytest.mark.parametrize("version", ["v0.5.12", "0.5.12-dev", "0.5.12rc1", "0.5.12+cu130"])
def test_versions_as_owners_write_them(version: str) -> None:
    made = planned(ULTRA, engine={"version": version})
    assert made["verdict"] == "proven"
    assert words(made) == words(planned(ULTRA))


def test_a_bad_row_alone_is_a_reason_and_shows_a_way_out() -> None:
    made = planned(ULTRA, settings={"mem_fraction_static": 0.85, "max_running_requests": 32})
    found = next(f for f in made["findings"] if f["rule"] == "evidence.m111")
    assert made["verdict"] == "blocked"
    assert "Not enough memory" in found["message"]
    assert "mem_fraction_static 0.9" in found["remedy"] or "mem_fraction_static 0.88" in found["remedy"]
    assert "BLOCKED by" in serving_table(made)[1]


def test_a_host_more_than_the_profile_is_for_is_told() -> None:
    made = plan.launch_plan(GLM, {"hosts": [*HOSTS, "spark5"]})
    assert "spark5" in next(f for f in made["findings"] if f["rule"] == "hosts.idle")["message"]


def test_with_drafts_an_image_with_the_fixes_keeps_five_states_for_a_request() -> None:
    """Seed 004: 96 slots are enough for 32 requests without drafts, and for 19 with them."""
    asked = {"max_running_requests": 32, "max_mamba_cache_size": 96}
    made = planned(SUPER, "ep1-mtp", settings=asked)
    assert made["memory"]["max_running_requests"] == 19
    assert made["resolved"]["mamba_scheduler_strategy"] == {"value": "extra_buffer", "by": "default"}
    said = next(f for f in made["findings"] if f["rule"] == "memory.fewer-requests")
    assert "32 requests are configured, but only 19 can run" in said["message"]
    assert planned(SUPER, "ep1", settings=asked)["memory"]["max_running_requests"] == 32


def test_a_way_out_of_the_radix_cache_is_one_that_the_engine_takes() -> None:
    """SGLang 0.5.10 to 0.5.13 refuse the extra buffer without a radix cache."""
    made = planned(QWEN, "ep1-mtp", settings={"disable_radix_cache": True})
    assert rules(made, "error") == {"memory.states-need-radix-cache"}
    assert planned(
        QWEN, "ep1-mtp", settings={"disable_radix_cache": True, "mamba_scheduler_strategy": "no_buffer"}
    )["verdict"] == "unproven"  # fmt: skip


def test_the_plan_never_chooses_what_is_no_share() -> None:
    """A prompt in one chunk counts more activations than a Spark has memory: nothing helps, and the plan does not blame the share."""
    asked = {"mem_fraction_static": None, "chunked_prefill_size": -1}
    made = planned(ULTRA, "ep4", free=90, settings=asked, parallel={"tp": 1, "pp": 4, "ep": 1})
    assert rules(made, "error") & {"memory.does-not-fit", "memory.fraction-out-of-range"} == {"memory.does-not-fit"}
    assert 0 < made["settings"]["mem_fraction_static"] < 1


def test_no_request_is_not_any_number_of_requests() -> None:
    made = planned(ULTRA, free=82, settings={"max_mamba_cache_size": None})
    assert made["verdict"] == "blocked"
    assert "any number" not in "\n".join(serving_table(made))


def test_memory_that_holds_no_request_is_an_error_whatever_was_measured() -> None:
    made = planned(QWEN, free=60)
    assert made["verdict"] == "blocked"
    assert made["conflict"]
    assert any(rule.startswith("memory.") for rule in rules(made, "error"))


def test_where_nobody_measured_the_memory_the_headline_says_what_it_takes() -> None:
    made = planned(QWEN, "ep1-mtp", settings={"mem_fraction_static": 0.6})
    for line in serving_table(made):
        assert "K cache -" not in line


# --- shapes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["single", "agents", "throughput", "mixed"])
@pytest.mark.parametrize("name", sorted({name for name, _variant in VARIANTS}))
def test_a_shape_serves_the_variant_whose_row_it_picked(name: str, shape: str) -> None:
    found = api.recommend(name, shape)
    made = planned(name, "" if found["variant"] == "default" else found["variant"])
    if found["verdict"] == "proven":
        assert made["verdict"] == "proven"
        assert found["row"] in {row["id"] for row in made["evidence"] if row["equal"]}
    else:
        assert found["reason"]
        assert made["verdict"] != "blocked"


def test_the_compromise_is_no_row_that_lost_an_answer() -> None:
    found = api.recommend(SUPER, "mixed")
    assert (found["row"], found["variant"]) == ("m056", "ep1-mtp")
    blemished = api.recommend(SUPER, "single")
    assert any("1 of 8" in text for text in blemished["blemishes"])


# --- times that are too short ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "rule"),
    [
        ({"watchdog_timeout": 5}, "load.watchdog-short"),
        ({"watchdog_timeout": 0}, "load.watchdog-short"),
        ({"dist_timeout": 5}, "load.dist-timeout-short"),
    ],
)
def test_a_time_in_which_no_engine_comes_up_is_told_and_not_proven(asked: dict[str, t.Any], rule: str) -> None:
    made = planned(SUPER, "ep1-mtp", settings=asked)
    assert rule in rules(made, "warning")
    assert made["verdict"] == "unproven"


def test_a_time_that_is_long_enough_is_no_other_run() -> None:
    made = planned(SUPER, "ep1-mtp", settings={"watchdog_timeout": 60, "dist_timeout": 60})
    assert made["verdict"] == "proven" and not rules(made) & {"load.watchdog-short", "load.dist-timeout-short"}
