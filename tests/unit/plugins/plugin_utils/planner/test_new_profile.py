"""A whole profile from a model's own files: what is read, what is chosen, what is left to a person, and the resulting file."""

from __future__ import annotations

import typing as t

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.authoring import new_profile
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.authoring.model_source import Source
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.model import checkpoint
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.model.config_facts import model_facts
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.profile import profile, profile_text
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving import plan as serving
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.plan import launch_plan
from ansible_collections.dgxspark.cluster.tests.unit.model_configs import PUBLIC, Tree

CLUSTER = {"hosts": ["spark1", "spark2", "spark3", "spark4"], "free_gib": 110}
LLAMA = "meta-llama/Llama-3.3-70B-Instruct"
PLAIN = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "vocab_size": 1000,
    "max_position_embeddings": 4096, "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 256,
}  # fmt: skip
MODULES = (
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
)


def source(name: str, **more: Tree) -> Source:
    config, quant = PUBLIC[name]
    files = {"config.json": config, "hf_quant_config.json": quant, **more}
    return Source({key: value for key, value in files.items() if value}, name, name)


def made(name: str, **wanted: t.Any) -> new_profile.Made:
    return serving.new_profile(source(name), new_profile.ProfileRequest(**wanted), CLUSTER)


def index(*stored: str, size: int | None = None) -> Tree:
    """Return a list of tensors: all modules as BF16, but MODULES with the tensors `stored` by a format."""
    names = [
        f"model.layers.{layer}.{module}.{part}"
        for layer in (0, 1)
        for module in MODULES
        for part in ("weight", *stored)
    ]
    names += ["model.embed_tokens.weight", "lm_head.weight"]
    return {"metadata": {"total_size": size} if size else {}, "weight_map": dict.fromkeys(names, "model.safetensors")}


def small(**files: Tree) -> new_profile.Made:
    held = {"config.json": PLAIN, **{name.replace("__", "."): content for name, content in files.items()}}
    return serving.new_profile(Source(held, "own", "own/made"), new_profile.ProfileRequest(), CLUSTER)


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_what_comes_of_a_public_configuration_is_a_profile_that_is_planned(name: str) -> None:
    found = made(name)
    text = profile_text.body(found.profile, found.decide)
    read = yaml.safe_load(text)
    knowledge.validate("profile", read, name)
    facts = model_facts(*PUBLIC[name])
    assert (read["facts"], read["precision"]) == (facts["facts"], facts["precision"])
    assert launch_plan(read, CLUSTER)["memory"] == found.plan["memory"]
    # Each mark is in the file, and every error of the plan is one.
    assert text.count(profile_text.MARK) == len(found.decide)
    errors = [f["rule"] for f in found.plan["findings"] if f["severity"] == "error"]
    assert all(any(rule in said for _key, said in found.decide) for rule in errors)


@pytest.mark.parametrize(
    ("name", "engine", "nodes", "reasoning", "tools"),
    [
        ("openai/gpt-oss-120b", "vllm", 1, "openai_gptoss", "openai"),
        ("zai-org/GLM-4.7-Flash", "vllm", 1, "glm45", "glm47"),
        (LLAMA, "vllm", 2, None, "llama3_json"),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4", "sglang", 1, "nemotron_3", "qwen3_coder"),
        ("zai-org/GLM-4.7-FP8", "sglang", 4, "glm45", "glm47"),
    ],
)
def test_engine_spread_and_parsers_are_chosen(
    name: str, engine: str, nodes: int, reasoning: str | None, tools: str
) -> None:
    settings = made(name).profile["settings"]
    assert made(name).profile["engine"]["name"] == engine
    assert made(name).profile["parallel"]["nodes"] == nodes
    assert (settings.get("reasoning_parser"), settings.get("tool_call_parser")) == (reasoning, tools)


def test_what_the_owner_says_counts() -> None:
    found = made(LLAMA, id="mine", engine="sglang", nodes=4)
    assert (found.profile["id"], found.profile["engine"]["name"]) == ("mine", "sglang")
    assert found.profile["parallel"] == {"nodes": 4, "tp": 4, "pp": 1, "ep": 1}
    assert found.profile["settings"]["tool_call_parser"] == "llama3"


def test_a_spread_that_does_not_divide_is_refused_with_its_reason() -> None:
    with pytest.raises(CollectionError, match="parallel"):
        made(LLAMA, nodes=3)


def test_a_context_that_the_cache_does_not_hold_is_shortened_and_said() -> None:
    found = made("moonshotai/Kimi-K2.5", nodes=4)
    assert found.plan["verdict"] == "blocked"
    assert any(key == "parallel" for key, _text in found.decide)
    found = serving.new_profile(
        source(LLAMA), new_profile.ProfileRequest(nodes=2), {"hosts": ["a", "b"], "free_gib": 85}
    )
    length = found.profile["settings"]["context_length"]
    assert length < 131072
    assert length % 1024 == 0
    assert any(text.startswith("context_length: ") for _key, text in found.decide)


@pytest.mark.parametrize(
    ("stored", "form"),
    [
        (("weight_scale", "weight_scale_2", "input_scale"), "nvfp4"),
        (("weight_packed", "weight_scale", "weight_global_scale"), "nvfp4"),
        (("weight_scale_inv",), "fp8"),
        (("weight_scale", "input_scale"), "fp8"),
        (("qweight", "qzeros", "scales"), "int4"),
        (("weight_packed", "weight_scale", "weight_shape"), "int4"),
    ],
)
def test_the_list_of_tensors_tells_the_formats_where_nothing_else_does(stored: tuple[str, ...], form: str) -> None:
    found = small(model__safetensors__index__json=index(*stored))
    assert found.profile["precision"] == {"attention": form, "dense": form}
    assert not any(key == "precision" for key, _text in found.decide)


def test_a_list_of_modules_goes_before_the_list_of_tensors() -> None:
    quant = {"quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head", "*self_attn*"]}}
    found = small(model__safetensors__index__json=index("weight_scale"), hf_quant_config__json=quant)
    assert found.profile["precision"] == {"dense": "fp8"}


def test_modules_that_the_list_of_tensors_does_not_have_are_marked() -> None:
    fused = index("weight_scale_inv")
    fused["weight_map"] = {name.replace("q_proj", "qkv_proj"): file for name, file in fused["weight_map"].items()}
    said = [text for key, text in small(model__safetensors__index__json=fused).decide if key == "precision"]
    assert len(said) == 1
    assert "precision.attention" in said[0]


def test_a_checkpoint_of_another_size_is_said() -> None:
    size = 2 * (2 * 1000 * 64 + 2 * (64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 256))
    for told, wrong in ((size, False), (2 * size, True)):
        found = small(model__safetensors__index__json=index(size=told))
        assert any("one of them is wrong" in text for _key, text in found.decide) == wrong


def test_safetensors_headers_are_read_like_the_list() -> None:
    header = {"__metadata__": {}, "model.layers.0.mlp.up_proj.weight": {"dtype": "F8_E4M3", "shape": [2, 2], "data_offsets": [0, 4]},
              "model.layers.0.mlp.up_proj.weight_scale_inv": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}  # fmt: skip
    names, size = checkpoint.of_headers([header, header], "own")
    assert size == 16
    assert checkpoint.formats(names) == {"model.layers.0.mlp.up_proj": "fp8"}
    with pytest.raises(CollectionError, match="data_offsets"):
        checkpoint.of_headers([{"a.weight": {}}], "own")


def test_the_first_expert_speaks_for_all() -> None:
    names = [
        f"model.layers.0.mlp.experts.{number}.up_proj.{part}"
        for number in range(3)
        for part in ("weight", "weight_scale_2")
    ]
    assert checkpoint.formats(names) == {"model.layers.0.mlp.experts.0.up_proj": "nvfp4"}


def test_a_model_that_is_not_known_is_left_to_a_person() -> None:
    strange = PLAIN | {"architectures": ["OtherForCausalLM"], "model_type": "other", "kv_lora_rank": 12}
    found = serving.new_profile(
        Source({"config.json": strange}, "own", "own/other"), new_profile.ProfileRequest(), CLUSTER
    )
    assert "facts" not in found.profile
    keys = {key for key, _text in found.decide}
    assert {"facts", "settings", "engine"} <= keys
    text = profile_text.body(found.profile, found.decide)
    assert text.count(profile_text.MARK) == len(found.decide)
    knowledge.validate("profile", yaml.safe_load(text), "own")


def test_the_name_says_a_format_that_no_file_has() -> None:
    held = Source({"config.json": PLAIN}, "own", "own/made-NVFP4")
    assert any(
        "NVFP4" in text for _key, text in serving.new_profile(held, new_profile.ProfileRequest(), CLUSTER).decide
    )


def test_a_profile_that_was_made_before_is_not_its_own_example(tmp_path: t.Any) -> None:
    first = made(LLAMA)
    (tmp_path / "model_profiles").mkdir()
    (tmp_path / "model_profiles" / "own.yml").write_text(yaml.safe_dump(first.profile), encoding="utf-8")
    again = serving.new_profile(source(LLAMA), new_profile.ProfileRequest(), CLUSTER, [str(tmp_path)])
    assert again.profile == first.profile


def test_an_owner_s_parsers_go_before_the_shipped_ones(tmp_path: t.Any) -> None:
    (tmp_path / "parsers").mkdir()
    own = {"id": "mine", "models": "llama-3", "engines": {"vllm": {"reasoning_parser": [], "tool_call_parser": ["pythonic"]}},
           "source": ["Ours"], "verified": "measured"}  # fmt: skip
    (tmp_path / "parsers" / "own.yml").write_text(yaml.safe_dump(own), encoding="utf-8")
    found = serving.new_profile(source(LLAMA), new_profile.ProfileRequest(), CLUSTER, [str(tmp_path)])
    assert found.profile["settings"]["tool_call_parser"] == "pythonic"


def test_every_parser_is_one_that_some_version_has() -> None:
    tables = knowledge.load("engines").values()
    for entry in knowledge.load("parsers").values():
        for engine, named in entry["engines"].items():
            for setting, names in named.items():
                specs = [table["flags"][setting.replace("_", "-")] for table in tables if table["engine"] == engine]
                known = {name for spec in specs for name in spec.get("choices") or spec.get("known")}
                assert set(names) <= known, (entry["id"], engine, setting)


@pytest.mark.parametrize("name", sorted(knowledge.load("profile")))
def test_shipped_profiles_have_the_parsers_of_their_families(name: str) -> None:
    entry = profile.find(name)
    own = {key: entry["settings"].get(key) for key in new_profile.PARSERS}
    config = next((config for model, (config, _q) in PUBLIC.items() if model == entry["model"]), None)
    if config is None:
        pytest.skip("not run: the model's own file could not be had")
    found, _missing, _id = new_profile.parsers(
        entry["model"], config["model_type"], entry["engine"]["name"], entry["engine"]["version"]
    )
    assert {key: found.get(key) for key in own if own[key]} == {key: value for key, value in own.items() if value}


@given(st.text(alphabet=st.characters(blacklist_categories=("Cs",)), max_size=40), st.integers(0, 10_000))
def test_an_edited_file_is_told(addition: str, at: int) -> None:
    file = profile_text.sealed("id: made\ntitle: A\n", "own")
    assert not profile_text.edited(file)
    assert profile_text.edited("id: made\n")
    start = file.index("id: made")
    at = start + at % (len(file) - start + 1)
    changed = file[:at] + addition + file[at:]
    assert profile_text.edited(changed) == (changed != file)
