"""Models without a shipped profile: their published sizes, the cache of a token by hand, and a whole profile of each."""

from __future__ import annotations

import typing as t

import pytest
import yaml

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import from_plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.authoring import new_profile
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.authoring.model_source import Source
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.model import model
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.model.config_facts import model_facts
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.profile import profile, profile_text
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving import plan as serving
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.plan import launch_plan
from ansible_collections.dgxspark.cluster.tests.unit.model_configs import PUBLIC, Tree
from ansible_collections.dgxspark.cluster.tests.unit.model_configs_more import (
    BYTES,
    CACHE,
    GLM_AIR,
    MORE,
    WEIGHTS,
    packed,
    plain,
)

CLUSTER = {"hosts": ["spark1", "spark2", "spark3", "spark4"], "free_gib": 114}


def made(name: str, **wanted: t.Any) -> new_profile.Made:
    config, quant = (MORE | PUBLIC)[name]
    files = {"config.json": config} | ({"hf_quant_config.json": quant} if quant else {})
    return serving.new_profile(Source(files, name, name), new_profile.ProfileRequest(**wanted), CLUSTER)


def stored(name: str) -> tuple[model.Facts, list[model.Tensors]]:
    found = model_facts(*MORE[name])
    assert found["inferred"] == []
    assert all(": not counted: prediction layers" in text for text in found["unread"])
    facts = from_plain(model.Facts, found["facts"])
    return facts, model.tensors(facts, profile.DEFAULT_PRECISION | found["precision"])


@pytest.mark.parametrize("name", sorted(BYTES | WEIGHTS))
def test_sizes_are_the_published_ones(name: str) -> None:
    _facts, tensors = stored(name)
    if name in BYTES:
        # Ling's prediction layer, which its copy of config.json does not name, is in its file.
        near = 0.05 if "int4" in name else 0.005
        assert sum(each.bytes for each in tensors) / 1e9 == pytest.approx(BYTES[name], rel=near)
    else:
        weights = sum(each.params for each in tensors if each.kind != "head")
        assert weights / 1e9 == pytest.approx(WEIGHTS[name], rel=0.01)


@pytest.mark.parametrize("name", sorted(CACHE))
def test_a_token_of_the_cache_takes_what_the_figures_give(name: str) -> None:
    assert model.kv_bytes(stored(name)[0], "auto", model.Parallelism()) == CACHE[name]


@pytest.mark.parametrize("name", sorted(MORE))
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_whole_profile_comes_of_each_and_none_is_blocked(name: str, engine: str) -> None:
    found = made(name, engine=engine)
    read = yaml.safe_load(profile_text.body(found.profile, found.decide))
    knowledge.validate("profile", read, name)
    again = launch_plan(read, CLUSTER)
    assert again["memory"] == found.plan["memory"]
    assert again["verdict"] != "blocked", [f for f in again["findings"] if f["severity"] == "error"]
    assert not any("does not fit" in text for _key, text in found.decide)


def test_a_kimi_layer_keeps_a_state_beside_its_latent_ones() -> None:
    facts, _tensors = stored("moonshotai/Kimi-Linear-48B-A3B-Instruct")
    assert (facts.linear and facts.linear.layers, facts.mla and facts.mla.layers) == (20, 7)
    assert facts.linear
    # 32 heads of 128 x 128 in FP32, and three inputs of the convolution of q, k and v.
    assert model.state_bytes(facts.linear, model.Parallelism()) == 20 * (32 * 128 * 128 * 4 + 3 * 3 * 4096 * 2)


def test_a_spread_whose_heads_do_not_divide_is_not_taken() -> None:
    config = PUBLIC["nvidia/MiniMax-M2.5-NVFP4"][0] | {"quantization_config": {"quant_method": "fp8"}}
    held = Source({"config.json": config}, "own", "MiniMaxAI/MiniMax-M2")
    found = serving.new_profile(held, new_profile.ProfileRequest(), CLUSTER)
    assert (found.profile["parallel"]["nodes"], found.plan["verdict"]) == (4, "unproven")


def test_what_a_rule_knows_a_way_out_of_is_no_question() -> None:
    # Its model card's example has 4 GPUs: on one, a kernel of its attention backend would have too many threads.
    four_bit = packed("lm_head", "re:.*self_attn.*", "re:.*mlp.gate$", "re:.*shared_experts.*", "re:model.layers.(0|46).*",
                      bits=4, kind="int", group=32)  # fmt: skip
    held = Source({"config.json": GLM_AIR | {"quantization_config": four_bit}}, "own", "cpatonn/GLM-4.5-Air-AWQ-4bit")
    found = serving.new_profile(held, new_profile.ProfileRequest(engine="sglang", nodes=1), CLUSTER)
    assert found.plan["verdict"] != "blocked"
    assert found.profile["settings"]["attention_backend"] == "triton"
    assert "attention.merge-state" in found.profile["source"][-1]["from"]
    found = made("nvidia/Qwen3-235B-A22B-NVFP4")
    assert found.plan["verdict"] != "blocked"
    assert not any(key == "settings" for key, _text in found.decide)


STRANGE: dict[str, tuple[Tree, tuple[str, ...]]] = {
    "a convolution": (
        plain("Lfm2MoeForCausalLM", "lfm2_moe", num_hidden_layers=4, hidden_size=64, vocab_size=1000, num_attention_heads=8,
              max_position_embeddings=4096, layer_types=["conv", "conv", "full_attention", "conv"]), ("layer_types", "'conv'")),
    "a state beside attention": (
        plain("FalconH1ForCausalLM", "falcon_h1", num_hidden_layers=4, hidden_size=64, vocab_size=1000, num_attention_heads=8,
              intermediate_size=128, max_position_embeddings=4096, mamba_d_state=16), ("layers with a state",)),
    "an encoder": (
        plain("T5ForConditionalGeneration", "t5", d_model=64, num_layers=4, is_encoder_decoder=True), ("an encoder",)),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(STRANGE))
def test_what_cannot_be_read_is_said_once_and_nothing_is_made_of_it(name: str) -> None:
    config, words = STRANGE[name]
    index = {"metadata": {"total_size": 150 * 10**9}, "weight_map": {"model.embed_tokens.weight": "one.safetensors"}}
    held = Source({"config.json": config, "model.safetensors.index.json": index}, "own", "own/strange-FP8")
    found = serving.new_profile(held, new_profile.ProfileRequest(), CLUSTER)
    said = [text for key, text in found.decide if key == "facts"]
    assert len(said) == 1
    assert all(word in said[0] for word in (*words, "guide", "150 GB"))
    # Two Sparks hold 150 GB; nothing is claimed about a format that was not read.
    assert found.profile["parallel"]["nodes"] == 2
    assert found.profile["title"] == "strange-FP8, 2 Sparks"
    assert {"facts", "precision"}.isdisjoint(each["of"] for each in found.profile["source"])
    knowledge.validate("profile", yaml.safe_load(profile_text.body(found.profile, found.decide)), "own")


def test_an_index_whose_names_are_not_known_is_one_remark() -> None:
    config, _quant = MORE["microsoft/phi-4"]
    index = {"metadata": {}, "weight_map": {"model.other.weight": "one.safetensors"}}
    held = Source({"config.json": config, "model.safetensors.index.json": index}, "own", "own/made")
    found = serving.new_profile(held, new_profile.ProfileRequest(), CLUSTER)
    (said,) = [text for key, text in found.decide if key == "precision"]
    assert "precision.attention, precision.dense" in said


@pytest.mark.parametrize(
    ("name", "nodes", "rule"),
    [
        ("glm-5.2-nvfp4-vllm", 1, "memory.weights-too-large"),
        ("glm-5.2-nvfp4-vllm", 2, "memory.weights-too-large"),
        ("glm-5.2-nvfp4-vllm", 4, "memory.vllm-does-not-fit"),
        ("minimax-m3-nvfp4", 2, "memory.does-not-fit"),
        ("minimax-m3-reap50-nvfp4", 1, "memory.weights-too-large"),
    ],
)
def test_what_a_large_model_does_not_fit_on_is_refused_by_its_memory(name: str, nodes: int, rule: str) -> None:
    assert launch_plan(name)["verdict"] != "blocked"
    smaller = launch_plan(name, {}, {"parallel": {"nodes": nodes, "tp": nodes}})
    assert smaller["verdict"] == "blocked"
    assert [f["rule"] for f in smaller["findings"] if f["severity"] == "error"] == [rule]


@pytest.mark.parametrize(
    ("name", "size"),
    [("minimax-m3-reap25-nvfp4", 187.0), ("minimax-m3-reap50-nvfp4", 128.9), ("glm-5.2-nvfp4-vllm", 465.0)],
)
def test_the_precision_of_a_large_model_meets_its_published_size(name: str, size: float) -> None:
    chosen = profile.resolve(profile.find(name))
    assert chosen.facts
    assert sum(each.bytes for each in model.tensors(chosen.facts, chosen.precision)) / 1e9 == pytest.approx(
        size, rel=0.005
    )
