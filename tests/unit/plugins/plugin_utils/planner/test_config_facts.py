"""Facts and precision from a model's own files: the shipped profiles, and what is reported of files that cannot be read completely."""

from __future__ import annotations

import collections
import copy
import pathlib
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, from_plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.model import (
    config_facts,
    config_json,
    config_precision,
    model,
    sparse,
    vllm_cache,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.model.config_facts import model_facts
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.profile import profile
from ansible_collections.dgxspark.cluster.tests.unit.model_configs import DEEPSEEK, FP8, GLM, PUBLIC, QWEN_397B, Tree

# Profiles of models whose own file was not available: one of the same make-up, and what differs from it.
SIBLING: dict[str, tuple[str, dict[str, t.Any]]] = {
    "mistralai/Mistral-Small-4-119B-2603-NVFP4": ("mistralai/Mistral-Small-4-119B-2603", {}),
    "nvidia/GLM-4.7-NVFP4": ("zai-org/GLM-4.7-FP8", {}),
    "nvidia/Qwen3-235B-A22B-Instruct-2507-NVFP4": ("nvidia/Qwen3-235B-A22B-NVFP4", {"native_context": 262144}),
    "nvidia/Qwen3-235B-A22B-Thinking-2507-NVFP4": ("nvidia/Qwen3-235B-A22B-NVFP4", {"native_context": 262144}),
    "Qwen/Qwen3-Coder-30B-A3B-Instruct-FP8": ("Qwen/Qwen3-30B-A3B-FP8", {"native_context": 262144}),
    "RedHatAI/Qwen3-Coder-Next-NVFP4": ("nvidia/Qwen3-Next-80B-A3B-Thinking-NVFP4", {}),
    "Qwen/Qwen3-Coder-Next-FP8": ("nvidia/Qwen3-Next-80B-A3B-Thinking-NVFP4", {"head": None}),
    "Intel/Qwen3-Coder-Next-int4-AutoRound": ("nvidia/Qwen3-Next-80B-A3B-Thinking-NVFP4", {"head": None}),
    "nvidia/Qwen3.8-27B-NVFP4": ("nvidia/Qwen3.6-27B-NVFP4", {}),
    "Qwen/Qwen3.8-27B-FP8": ("Qwen/Qwen3.6-27B-FP8", {}),
    "RadixArk/Qwen3.8-27B-NVFP4": ("nvidia/Qwen3.6-27B-NVFP4", {}),
    "local-inference-lab/Qwen3.8-Flash-Next-NVFP4": ("RadixArk/Qwen3.8-Flash-Next-NVFP4", {}),
    "nvidia/Qwen3.8-Flash-Next-NVFP4": ("RadixArk/Qwen3.8-Flash-Next-NVFP4", {}),
    "Intel/Qwen3.5-122B-A10B-int4-AutoRound": ("Sehyo/Qwen3.5-122B-A10B-NVFP4", {}),
    "Qwen/Qwen3.5-122B-A10B-FP8": ("Sehyo/Qwen3.5-122B-A10B-NVFP4", {}),
    "cyankiwi/Qwen3.5-122B-A10B-AWQ-4bit": ("Sehyo/Qwen3.5-122B-A10B-NVFP4", {"head": None}),
    # A pruned checkpoint has fewer experts.
    "sparkarena/Minimax-M3-v0-NVFP4": ("nvidia/MiniMax-M3-NVFP4", {}),
    **{
        f"sparkarena/Minimax-M3-v0-NVFP4-REAP{parallelism}": (
            "nvidia/MiniMax-M3-NVFP4",
            {"moe": {"layers": 57, "experts": left, "top_k": 4, "intermediate": 3072, "shared_intermediate": 3072}},
        )
        for parallelism, left in ((25, 96), (50, 64))
    },
    "nvidia/Llama-3.3-70B-Instruct-NVFP4": ("meta-llama/Llama-3.3-70B-Instruct", {}),
    "deepseek-ai/DeepSeek-V4-Flash-Vision-Exp": ("deepseek-ai/DeepSeek-V4-Flash-0731", {}),
    # Quantized files of models whose own are above; how they are stored rests on the profiles' sources.
    "nvidia/GLM-5.3-Flash-NVFP4": ("zai-org/GLM-5.3-Flash", {}),
    "poolside/Laguna-S-2.1-NVFP4": ("poolside/Laguna-S-2.1", {}),
    "poolside/Laguna-XS-2.1-NVFP4": ("poolside/Laguna-XS-2.1", {}),
    "Inferact/Muse-Glimmer-30B-NVFP4-W4A4": ("meta-models/Muse-Glimmer-30B", {}),
    "ibm-granite/granite-4.0-h-small-FP8": ("ibm-granite/granite-4.0-h-small", {}),
    "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4": ("nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-BF16", {}),
    "ebircak/gemma-4-31B-it-4bit-NVFP4A16-GPTQ": ("google/gemma-4-31B-it", {}),
    "sakamakismile/KAT-Coder-V2.5-Dev-NVFP4": ("Qwen/Qwen3.6-35B-A3B-FP8", {"head": None, "vision_params": 0}),
    "bleysg/Qwen3.5-122B-A10B-int4-fp8-hybrid": ("Sehyo/Qwen3.5-122B-A10B-NVFP4", {}),
}
# Files without a list of quantized modules, though the checkpoints are quantized: their precision rests on its sources.
NO_LIST = {
    "zai-org/GLM-4.7-FP8", "nvidia/Qwen3-Next-80B-A3B-Thinking-NVFP4", "Qwen/Qwen3-VL-8B-Instruct-FP8",
    "Sehyo/Qwen3.5-122B-A10B-NVFP4", "Qwen/Qwen3.6-27B-FP8", "Qwen/Qwen3.6-35B-A3B-FP8", "RedHatAI/Qwen3.6-35B-A3B-NVFP4",
    "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4", "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-NVFP4",
    "zai-org/GLM-5.3-Flash",
}  # fmt: skip
PROFILES = sorted(knowledge.load("profile"))
PLAIN = {
    "architectures": ["MadeForCausalLM"], "model_type": "made", "num_hidden_layers": 4, "hidden_size": 64, "vocab_size": 1000,
    "max_position_embeddings": 4096, "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 256,
}  # fmt: skip
CONFIGS = {name: config for name, (config, _quant) in PUBLIC.items()}


def read(name: str) -> dict[str, t.Any]:
    if name not in PUBLIC:
        pytest.fail(
            f"There is no config.json of {name} to compare the profile's facts with. Add what it says to PUBLIC in "
            "tests/unit/model_configs.py, or to SIBLING here a model of the same make-up.",
            pytrace=False,
        )
    config, quant = PUBLIC[name]
    return model_facts(config, quant)


def facts_of(plain: t.Mapping[str, t.Any]) -> model.Facts:
    return from_plain(model.Facts, plain)


@pytest.mark.parametrize("name", PROFILES)
def test_a_shipped_profile_says_what_the_models_own_file_says(name: str) -> None:
    entry = profile.find(name)
    source, other = SIBLING.get(entry["model"], (entry["model"], {}))
    if "facts" not in entry:
        assert entry["note"]  # which says why
        pytest.skip("not run: the profile states no facts")
    found = read(source)
    told, given_facts = dict(found["facts"]) | other, dict(entry["facts"])
    given_facts.pop("vision", None)  # config.json does not state the image size
    towers = told.pop("vision_params", 0), given_facts.pop("vision_params", 0)
    assert facts_of(given_facts) == facts_of(told)
    assert towers[1] == pytest.approx(towers[0], rel=0.05)  # profiles give it rounded, as model cards do
    assert found["inferred"] == []
    if source not in NO_LIST and entry["model"] not in SIBLING:
        stored = {kind: form for kind, form in entry.get("precision", {}).items() if form != "bf16"}
        assert stored == found["precision"]
        assert entry.get("quant_method", found["quantization"]["method"]) == found["quantization"]["method"]


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_what_was_read_is_a_profiles(name: str) -> None:
    found = read(name)
    inline = {
        "id": "own", "title": "Own", "model": "own/model", "proven": "untested", "parallel": {}, "settings": {},
        "engine": {"name": "vllm", "version": "0.20.0"}, "facts": found["facts"], "precision": found["precision"],
        "source": [{"of": "facts", "from": "config.json", "verified": "vendor"}],
    }  # fmt: skip
    resolved = profile.resolve(profile.find(inline))
    assert resolved.facts is not None
    # Formats are counted over the same weights as in the plan: none is missing, none is extra.
    assert model.tensors(resolved.facts, resolved.precision)


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_formats_are_shared_out_over_the_weights_that_the_plan_counts(name: str) -> None:
    config = {key: value for key, value in PUBLIC[name][0].items() if key != "quantization_config"}
    own = config_json.Config(config, config_json.family(config, name), name)
    facts, mixers, feeds = config_facts.read(own)
    shared: collections.Counter[str] = collections.Counter()
    for module in config_precision.modules(own, facts, mixers, feeds):
        shared[module.kind] += module.params
    counted: collections.Counter[str] = collections.Counter()
    for each in model.tensors(facts, profile.DEFAULT_PRECISION):
        counted[each.kind] += round(each.params)
    assert shared == counted


@pytest.mark.parametrize(
    ("name", "weights", "size"),
    [  # cards: 671B, 116.8B in 65.2 GB, 235B, 396.8B in about 251 GB, 550B
        ("deepseek-ai/DeepSeek-V3", 671.0, 684.6),
        ("openai/gpt-oss-120b", 116.8, 65.2),
        ("nvidia/Qwen3-235B-A22B-NVFP4", 235.1, 134.1),
        ("nvidia/Qwen3.5-397B-A17B-NVFP4", 396.8, 251.1),
        ("nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-NVFP4", 549.3, None),
        # 125B, 51B of n-grams and an indexer; 284B; both from their cards, with the sizes of their files.
        ("RadixArk/Qwen3.8-Flash-Next-NVFP4", 177.4, 135.1),
        ("deepseek-ai/DeepSeek-V4-Flash", 284.3, 159.4),
        ("nvidia/MiniMax-M3-NVFP4", 426.8, 249.2),
        ("nvidia/GLM-5.2-NVFP4", 743.0, 465.0),
        ("deepseek-ai/DeepSeek-V4-Flash-0731", 284.3, 166.4),
        # In BF16, as published: 235 GB, 59,553,253,376 bytes, 59.99 GiB, 65.8 GB.
        ("poolside/Laguna-S-2.1", 117.6, 235.1),
        ("meta-models/Muse-Glimmer-30B", 29.78, 59.55),
        ("ibm-granite/granite-4.0-h-small", 32.2, 64.41),
        ("nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-BF16", 31.58, 65.83),
    ],
)
def test_published_sizes(name: str, weights: float, size: float | None) -> None:
    found = read(name)
    tensors = model.tensors(facts_of(found["facts"]), profile.DEFAULT_PRECISION | found["precision"])
    assert sum(each.params for each in tensors if each.kind != "head") / 1e9 == pytest.approx(weights, rel=0.001)
    if size:
        assert sum(each.bytes for each in tensors) / 1e9 == pytest.approx(size, rel=0.001)


@pytest.mark.parametrize(
    ("profile_id", "size"),
    [  # bytes of the files: sparkring#257, Crow#141, an index's total_size, vllm-project/recipes
        ("glm-5.3-flash-nvfp4-vllm", 204.476), ("glm-5.3-flash-fp8-vllm", 328.36), ("laguna-s-2.1-nvfp4-vllm", 71.899),
        ("muse-glimmer-30b-nvfp4-vllm", 25.42),
    ],
)  # fmt: skip
def test_formats_of_a_profile_come_to_the_published_size(profile_id: str, size: float) -> None:
    own = profile.resolve(profile.find(profile_id))
    assert own.facts is not None
    assert sum(each.bytes for each in model.tensors(own.facts, own.precision)) / 1e9 == pytest.approx(size, rel=0.0025)


def test_latent_attention_may_have_no_rotary_part() -> None:
    facts = read("zai-org/GLM-5.3-Flash")["facts"]
    assert (facts["mla"]["layers"], facts["mla"]["rope_dim"], facts["linear"]["layers"]) == (11, 0, 34)
    config, _quant = PUBLIC["zai-org/GLM-5.3-Flash"]
    text = {**config["text_config"], "qk_rope_head_dim": -1}
    with pytest.raises(CollectionError, match=r"qk_rope_head_dim: -1 is not a whole number of at least 0"):
        model_facts({**config, "text_config": text})


def test_layers_are_compressed_by_the_ratios_that_the_file_lists() -> None:
    facts = read("deepseek-ai/DeepSeek-V4-Flash-0731")["facts"]
    assert [(each["layers"], each.get("ratio"), "indexer" in each) for each in facts["compressed"]] == [
        (2, None, False), (21, 4, True), (20, 128, False),
    ]  # fmt: skip
    # 512 keys of four tokens each; a stage of DSpark for each layer that it looks at.
    assert facts["compressed"][1]["indexer"] == {"heads": 64, "head_dim": 128, "budget": 2048}
    assert (facts["head"]["compressed"]["layers"], facts["head"]["moe"]["layers"]) == (3, 3)
    config, _quant = PUBLIC["deepseek-ai/DeepSeek-V4-Flash"]
    assert read("deepseek-ai/DeepSeek-V4-Flash")["facts"]["head"]["moe"]["layers"] == 1
    with pytest.raises(
        CollectionError, match=r"compress_ratios: .* is not a list with a number for each of the 43 layers"
    ):
        model_facts({**config, "compress_ratios": [0, 4]})


def test_a_key_of_its_own_says_a_kinds_format() -> None:
    config, _quant = PUBLIC["deepseek-ai/DeepSeek-V4-Flash"]
    assert model_facts(config)["precision"]["experts"] == "mxfp4"
    assert model_facts({**config, "expert_dtype": "fp8"})["precision"]["experts"] == "fp8"
    with pytest.raises(CollectionError, match=r"expert_dtype: \['fp4'\] is not the name of a format"):
        model_facts({**config, "expert_dtype": ["fp4"]})
    unknown = model_facts({**config, "expert_dtype": "fp6"})
    assert unknown["inferred"] == ["precision.experts"]
    assert unknown["unread"][-1] == (
        "config.json: expert_dtype: 'fp6' is not a known format (fp4, fp8): how experts are stored is taken from the list of modules."
    )
    flash, _quant = PUBLIC["RadixArk/Qwen3.8-Flash-Next-NVFP4"]
    plain = {**flash, "text_config": {**flash["text_config"], "ple_embedding_dtype": "bfloat16"}}
    found = model_facts(plain)
    assert ("lookup" in found["precision"], found["inferred"]) == (False, [])
    # The compressors are never quantized.
    assert model_facts(config)["precision"]["attention"] == {"bf16": 309592064, "rest": "fp8"}
    assert read("RadixArk/Qwen3.8-Flash-Next-NVFP4")["precision"] == {"experts": "nvfp4", "lookup": "fp8"}


def test_layers_of_latent_attention_and_a_vision_tower() -> None:
    facts = read("moonshotai/Kimi-K2.5")["facts"]
    assert facts["mla"] == {
        "layers": 61, "heads": 64, "kv_lora_rank": 512, "nope_dim": 128, "rope_dim": 64, "v_dim": 128, "q_lora_rank": 1536,
    }  # fmt: skip
    assert (facts["moe"]["layers"], facts["dense"]["layers"]) == (60, 1)
    assert "head" not in facts  # num_nextn_predict_layers: 0


def test_a_list_beside_the_language_models_keys_does_not_speak_of_the_vision_tower() -> None:
    found = model_facts(PUBLIC["moonshotai/Kimi-K2.5"][0])
    assert found["precision"] == {"experts": "int4_g32"}  # attention, shared experts and the dense layer by expressions
    assert found["quantization"] == {"method": "compressed-tensors", "kv_cache": None}


def test_a_model_that_denoises_has_its_canvas_and_its_familys_steps() -> None:
    name = "nvidia/diffusiongemma-26B-A4B-it-NVFP4"
    assert read(name)["facts"]["diffusion"] == {"canvas": 256, "steps": [12, 17, 30]}
    assert read(name)["precision"] == {"experts": "nvfp4"}


@pytest.mark.parametrize("steps", ["`[12, 17]`", "`12`", '`["a", 1, 2]`', "nothing"])
def test_steps_that_are_not_three_numbers_are_refused(steps: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "architectures").mkdir()
    (tmp_path / "architectures" / "made.yml").write_text(
        f"id: made\nmodel_types: [made]\nreads: {{canvas: '`8`', denoising_steps: '{steps}'}}\n"
        "source: [own]\nverified: inferred\n"
    )
    with pytest.raises(CollectionError, match=r"is not (three numbers|a whole number)"):
        model_facts(PLAIN, overlays=[str(tmp_path)])


def test_sliding_layers_have_heads_of_their_own() -> None:
    sliding, full = read("google/gemma-4-31B-it")["facts"]["attention"]
    assert sliding == {"layers": 50, "heads": 32, "kv_heads": 16, "head_dim": 256, "window": 1024}
    assert full == {"layers": 10, "heads": 32, "kv_heads": 4, "head_dim": 512}


def test_hf_quant_config_is_read_where_the_config_says_nothing() -> None:
    quant = {"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "exclude_modules": ["*.self_attn*"]}}
    found = model_facts(GLM, quant)
    assert found["quantization"] == {"method": "modelopt", "kv_cache": "fp8"}
    assert found["precision"] == {"experts": "nvfp4", "shared_experts": "nvfp4", "dense": "nvfp4", "head": "nvfp4"}
    own = model_facts(GLM | {"quantization_config": FP8}, quant)
    assert own["quantization"]["method"] == "fp8"
    assert own["precision"]["attention"] == "fp8"


def test_a_prediction_layer_that_is_left_out_stays_plain() -> None:
    # ModelOpt excludes it by its index: the layer after the last.
    quant = {"quantization": {"quant_algo": "NVFP4", "exclude_modules": ["lm_head", "model.layers.92*"]}}
    assert "head" not in model_facts(GLM, quant)["precision"]


def test_an_expression_means_the_modules_that_it_matches_and_not_what_lies_in_them() -> None:
    group = {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "float", "group_size": 16}}
    stated = {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head", "re:.*mlp.gate$"],
    }
    given = GLM | {"quantization_config": stated | {"ignore": [*stated["ignore"], r"re:.*mlp\.shared_experts$"]}}
    assert model_facts(given)["precision"]["shared_experts"] == "nvfp4"
    given = GLM | {"quantization_config": stated | {"ignore": [*stated["ignore"], r"re:.*mlp\.shared_experts\..*"]}}
    assert "shared_experts" not in model_facts(given)["precision"]


def test_groups_of_named_modules_win_over_those_of_a_class() -> None:
    groups = {
        "a": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "float", "group_size": 16}},
        "b": {"targets": ["re:.*self_attn.*"], "weights": {"num_bits": 8, "type": "float"}},
    }
    found = model_facts(GLM | {"quantization_config": {"quant_method": "compressed-tensors", "config_groups": groups}})
    assert (found["precision"]["attention"], found["precision"]["experts"]) == ("fp8", "nvfp4")


def test_layers_of_several_formats_are_counted() -> None:
    left_out = [f"model.layers.{layer}.self_attn.o_proj" for layer in range(10)]
    found = model_facts(GLM, {"quantization": {"quant_algo": "NVFP4", "exclude_modules": left_out}})
    assert found["precision"]["attention"] == {"bf16": 10 * 96 * 128 * 5120, "rest": "nvfp4"}


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "quant_method 'bitsandbytes'"),
        ({"quant_method": "gptq", "bits": 3}, "bits: 3-bit weights"),
        ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "int"}}}},
         "config_groups.group_0: weights {'num_bits': 8, 'type': 'int', 'group_size': None}"),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {"model.layers.0.mlp": {"quant_algo": "X9"}}},
         "'X9' (model.layers.0.mlp)"),
    ],
)  # fmt: skip
def test_a_format_that_is_not_known_is_said(stated: Tree, said: str) -> None:
    found = model_facts(GLM | {"quantization_config": stated})
    assert found["facts"] is not None
    assert found["precision"] == {}
    assert found["inferred"] == ["precision"]
    assert [text for text in found["unread"] if said in text]


def test_a_plain_transformer_of_an_unknown_family_is_read_and_said() -> None:
    found = model_facts(PLAIN)
    assert found["family"] is None
    assert found["inferred"] == ["facts"]
    assert found["facts"]["attention"] == [{"layers": 4, "heads": 8, "kv_heads": 4, "head_dim": 8}]
    assert found["facts"]["dense"] == {"layers": 4, "intermediate": 256}
    assert found["unread"] == [
        "config.json: the architecture MadeForCausalLM is not known here: it was read as a plain transformer."
    ]


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("ssm_state_size", 128, "layers with a state: their sizes"),
        ("kv_lora_rank", 512, "kv_lora_rank: latent attention"),
        ("sliding_window", 128, "which layers slide"),
        ("compress_ratios", [4, 128], "a compressed cache"),
        ("n_shared_experts", 1, "shared experts: their width"),
        ("num_local_experts", 8, "the experts' width"),
        ("layer_types", ["kda"] * 4, "layer_types: 'kda' (layer 0) is not one of full_attention"),
        ("num_attention_heads", None, "num_attention_heads is missing"),
    ],
)
def test_what_the_usual_reading_would_get_wrong_is_named_and_nothing_is_guessed(
    key: str, value: t.Any, said: str
) -> None:
    found = model_facts(PLAIN | {key: value})
    assert found["facts"] is None
    assert found["precision"] == {}
    assert found["stated"] == {"hidden_size": 64, "vocab_size": 1000, "native_context": 4096, "layers": 4}
    (unread,) = found["unread"]
    assert said in unread
    assert "write the profile's facts by hand" in unread.lower()


def test_a_window_that_is_off_is_none() -> None:
    found = model_facts(PLAIN | {"sliding_window": 1024, "use_sliding_window": False})
    assert "window" not in found["facts"]["attention"][0]


def test_what_facts_have_no_place_for_is_said() -> None:
    found = model_facts(DEEPSEEK | {"index_topk_pattern": "FSSS"})
    assert found["unread"] == [
        "config.json: DeepseekV3ForCausalLM: not counted: which layers take the choice of one before them "
        "(index_topk_pattern)."
    ]
    tower = model_facts(GLM | {"vision_config": {"depth": 3}})
    assert tower["unread"] == ["config.json: Glm4MoeForCausalLM: not counted: the vision tower (vision_config)."]


DSA: Tree = {
    "model_type": "glm_moe_dsa",
    "num_hidden_layers": 78,
    "index_n_heads": 32,
    "index_head_dim": 128,
    "index_topk": 2048,
}


@pytest.mark.parametrize(
    ("said", "layers"),
    [
        ({}, None),
        ({"index_topk_freq": 4, "index_skip_topk_offset": 3}, 21),  # GLM-5.2's, whose indexer_types have 21 `full`
        ({"indexer_types": ["full", "full", "full", "shared"] + ["full", "shared"] * 37}, 40),
    ],
)
def test_which_latent_layers_have_an_indexer(said: Tree, layers: int | None) -> None:
    mla = model_facts(DEEPSEEK | DSA | said)["facts"]["mla"]
    assert mla["indexer"] == {"heads": 32, "head_dim": 128, "budget": 2048} | ({"layers": layers} if layers else {})


def test_an_indexer_has_a_cache_of_its_own() -> None:
    """local-inference-lab/vllm#82 measured 54,728 bytes for each token of GLM-5.2 with its prediction layer: 79 of 656, 22 of 132."""
    glm = facts_of(read("nvidia/GLM-5.2-NVFP4")["facts"])
    indexer = glm.mla.indexer
    assert indexer and sparse.latent_index_bytes(indexer, 78) == 21 * 132
    (kind,) = vllm_cache.kinds(glm, model.Parallelism(8), {"kv_cache_dtype": "fp8_ds_mla"}, head=True)
    assert kind.layers * (kind.page + kind.beside) / kind.block == pytest.approx(54728, abs=1)
    fork = model.kv_bytes(glm, "fp8", model.Parallelism(8), head=True)
    assert fork == 79 * 576 + 22 * 132


def test_an_indexer_of_pooled_keys() -> None:
    """local-inference-lab/vllm#549 has 33 bytes for each token of GLM-5.3-Flash, whose keys stand for four tokens."""
    assert sparse.latent_index_bytes(sparse.LatentIndexer(32, 128, 2048, 4), 11) == 11 * 33


def test_a_draft_model() -> None:
    text = PUBLIC["google/gemma-4-31B-it"][0]["text_config"] | {
        "num_hidden_layers": 4, "hidden_size": 1024, "intermediate_size": 8192, "num_kv_shared_layers": 4,
        "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
    }  # fmt: skip
    found = model_facts(
        {"architectures": ["Gemma4AssistantForCausalLM"], "model_type": "gemma4_assistant", "text_config": text}
    )
    assert found["drafter"]["frozen_kv"] is True
    assert found["drafter"]["params"] / 1e9 == pytest.approx(0.47, rel=0.15)
    assert read("google/gemma-4-31B-it")["drafter"] is None


@pytest.mark.parametrize(
    ("stated", "experts"),
    [("3,4,5", {3, 4, 5}), (" 2, 4 ,7 ", {2, 4, 7}), ([1, 6], {1, 6}), ("44,99", {44}), (None, set(range(1, 45)))],
)
def test_layers_with_experts_are_those_that_the_file_lists(stated: t.Any, experts: set[int]) -> None:
    config, _quant = PUBLIC["stepfun-ai/Step-3.7-Flash-NVFP4"]
    facts = model_facts({**config, "text_config": {**config["text_config"], "moe_layers_enum": stated}})["facts"]
    assert (facts["moe"]["layers"], facts["dense"]["layers"]) == (len(experts), 45 - len(experts))


@pytest.mark.parametrize("stated", ["3,", "three", "3;4", {"3": True}, [3, "4"]])
def test_a_list_of_layers_that_is_none_is_refused(stated: t.Any) -> None:
    config, _quant = PUBLIC["stepfun-ai/Step-3.7-Flash-NVFP4"]
    with pytest.raises(CollectionError, match=r"moe_layers_enum: .* is not a (list|whole number)"):
        model_facts({**config, "text_config": {**config["text_config"], "moe_layers_enum": stated}})


def owned(tmp_path: pathlib.Path, said: str) -> list[str]:
    """Write an owner's description of the family `made`."""
    folder = tmp_path / "architectures"
    folder.mkdir(parents=True)
    (folder / "made.yml").write_text(f"id: made\nmodel_types: [made]\n{said}\nsource: [own]\nverified: inferred\n")
    return [str(tmp_path)]


def test_an_owner_describes_a_family(tmp_path: pathlib.Path) -> None:
    own = owned(tmp_path, "reads: {intermediate: n_inner, gated_dense: '`false`'}")
    found = model_facts(PLAIN | {"n_inner": 128}, overlays=own)
    assert found["facts"]["dense"] == {"layers": 4, "intermediate": 128, "gated": False}
    assert (found["family"], found["inferred"], found["unread"]) == ("made", [], [])


@pytest.mark.parametrize(
    ("path", "config", "width"),
    [("n_inner", {"n_inner": 128}, 128), ("n_inner", {}, 256), ("{only: n_inner}", {"n_inner": 128}, 128)],
)
def test_what_a_family_reads_is_added_to_the_usual_keys(
    path: str, config: Tree, width: int, tmp_path: pathlib.Path
) -> None:
    found = model_facts(PLAIN | config, overlays=owned(tmp_path, f"reads: {{intermediate: {path}}}"))
    assert found["facts"]["dense"]["intermediate"] == width


def test_a_figure_that_only_a_familys_own_key_has_is_not_read_elsewhere(tmp_path: pathlib.Path) -> None:
    with pytest.raises(CollectionError, match=r"config\.json: n_inner is missing: a dense layer of MadeForCausalLM"):
        model_facts(PLAIN, overlays=owned(tmp_path, "reads: {intermediate: {only: n_inner}}"))
    own = owned(tmp_path / "usual", "reads: {intermediate: n_inner}")
    with pytest.raises(CollectionError, match=r"n_inner \|\| intermediate_size is missing"):
        model_facts({**PLAIN, "intermediate_size": None}, overlays=own)


@pytest.mark.parametrize(("alone", "sliding"), [("", 3), ("alone: true, ", 2)])
def test_a_familys_marks_are_added_to_the_usual_ones(alone: str, sliding: int, tmp_path: pathlib.Path) -> None:
    own = owned(tmp_path, f"mixer: {{{alone}marks: [{{read: slides, at: sliding, others: attention}}]}}")
    usual = ["sliding_attention"] * 3 + ["full_attention"]
    found = model_facts(PLAIN | {"slides": [1, 2], "layer_types": usual, "sliding_window": 64}, overlays=own)
    assert [each["layers"] for each in found["facts"]["attention"] if "window" in each] == [sliding]
    found = model_facts(PLAIN | {"slides": "1,2,3", "sliding_window": 64}, overlays=own)
    assert [each["layers"] for each in found["facts"]["attention"]] == [1, 3]


COMPRESSED = {
    "kv_lora_rank": None, "qk_rope_head_dim": 8, "q_lora_rank": 16, "o_lora_rank": 16, "o_groups": 2, "sliding_window": 64,
    "head_dim": 16, "compress_ratios": [0, 4, 4, 8],
}  # fmt: skip


@pytest.mark.parametrize("kind", ["compressed", "linear"])
def test_a_kind_of_layer_whose_modules_no_entry_names_is_said(kind: str, tmp_path: pathlib.Path) -> None:
    reads = (
        "{ratios: compress_ratios, o_lora_rank: o_lora_rank, o_groups: o_groups}"
        if kind == "compressed"
        else "{key_heads: '`2`', key_dim: '`8`', value_heads: '`2`', value_dim: '`8`'}"
    )
    own = owned(tmp_path, f"reads: {reads}\nmixer: {{usual: {kind}, linear: gdn, alone: true}}")
    assert model_facts(PLAIN | COMPRESSED, overlays=own)["facts"]  # only the list of modules needs their names
    said = (
        f"config.json: MadeForCausalLM has layers of the kind {kind}, and modules.{kind} of its family names none of their "
        "modules: how they are stored cannot be read."
    )
    with pytest.raises(CollectionError, match=said):
        model_facts(PLAIN | COMPRESSED | {"quantization_config": FP8}, overlays=own)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"num_hidden_layers": "92"}, "config.json: num_hidden_layers: '92' is not a whole number of at least 1."),
        ({"num_key_value_heads": 0}, "config.json: num_key_value_heads: 0 is not a whole number of at least 1."),
        (
            {"num_hidden_layers": 9999},
            "config.json: num_hidden_layers: 9999 is not a number of layers, at most 4096.",
        ),
        ({"model_type": ["glm4_moe"]}, r"config.json: model_type: \['glm4_moe'\] is not a name."),
        ({"hidden_size": True}, "config.json: hidden_size: True is not a whole number of at least 1."),
        ({"tie_word_embeddings": "no"}, "config.json: tie_word_embeddings: 'no' is not true or false."),
        (
            {"architectures": "Glm4MoeForCausalLM"},
            "config.json: architectures: 'Glm4MoeForCausalLM' is not a list of names.",
        ),
        ({"first_k_dense_replace": "three"}, "config.json: first_k_dense_replace: 'three' is not a whole number"),
        ({"mlp_only_layers": 3}, "config.json: mlp_only_layers: 3 is not a list."),
        ({"layer_types": ["full_attention"] * 3}, "config.json: layer_types: it has 3 entries for 92 layers."),
        ({"layer_types": ["mamba"] * 92}, r"layer_types: 'mamba' \(layer 0\) is not one of full_attention, "),
        ({"layer_types": ["linear_attention"] * 92}, "linear attention layers of an unknown kind"),
        (
            {"num_experts_per_tok": None},
            "num_experts_per_tok is missing: a layer with experts of Glm4MoeForCausalLM needs it",
        ),
        ({"quantization_config": []}, None),
        ({"quantization_config": "fp8"}, "config.json: quantization_config: a dictionary is needed, not 'fp8'."),
        ({"quantization_config": {"ignore": "lm_head"}}, "ignore: a list of modules is needed"),
        (
            {"quantization_config": {"quantized_layers": ["lm_head"]}},
            "quantized_layers: a dictionary keyed by module is needed",
        ),
        ({"quantization_config": {"config_groups": {"a": 1}}}, "config_groups.a: a dictionary is needed"),
        ({"quantization_config": FP8 | {"ignore": ["re:(("]}}, r"'re:\(\(': it is not a regular expression"),
    ],
)
def test_what_is_wrong_is_named_by_its_key(change: Tree, said: str | None) -> None:
    if said is None:
        assert model_facts(GLM | change)["precision"] == {}
        return
    with pytest.raises(CollectionError, match=said):
        model_facts(GLM | change)


@pytest.mark.parametrize(("config", "quant"), [([], None), ("config.json", None), (GLM, ["NVFP4"])])
def test_a_file_that_is_no_dictionary(config: t.Any, quant: t.Any) -> None:
    with pytest.raises(CollectionError, match=r"a dictionary is needed, not (list|str)"):
        model_facts(config, quant)


@given(
    st.sampled_from(sorted(CONFIGS)),
    st.dictionaries(
        st.from_regex(r"\Ax_[a-z]{1,8}\Z"), st.none() | st.integers() | st.text() | st.lists(st.integers())
    ),
)
def test_keys_that_nobody_knows_change_nothing(name: str, more: Tree) -> None:
    config = CONFIGS[name]
    assert model_facts(more | config) == model_facts(config)


@given(
    st.sampled_from(["num_hidden_layers", "hidden_size", "vocab_size", "num_attention_heads", "num_key_value_heads", "head_dim",
                     "moe_intermediate_size", "num_experts", "num_experts_per_tok", "max_position_embeddings",
                     "linear_num_value_heads", "shared_expert_intermediate_size"]),
    st.text(min_size=1) | st.booleans() | st.integers(max_value=-1) | st.floats(allow_nan=False) | st.lists(st.integers(), min_size=1),
)  # fmt: skip
def test_a_value_of_the_wrong_type_is_refused_by_its_key(key: str, value: t.Any) -> None:
    if value is False and key in ("num_experts", "num_key_value_heads"):
        return  # the next alternative is used: no experts, as many KV heads as heads
    config = copy.deepcopy(QWEN_397B)
    config["text_config"][key] = value
    with pytest.raises(CollectionError, match=f"config.json: (.*{key}|.*missing)"):
        model_facts(config)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**7) | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=5,
)


def places(tree: t.Any, path: tuple[t.Any, ...] = ()) -> t.Iterator[tuple[t.Any, ...]]:
    yield path
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from places(value, (*path, key))


@given(st.sampled_from(sorted(PUBLIC)), JSON, st.data())
def test_whatever_a_file_holds_it_is_read_or_refused(name: str, value: t.Any, data: st.DataObject) -> None:
    given_config, given_quant = PUBLIC[name]
    files = {"config": copy.deepcopy(given_config), "quant": copy.deepcopy(given_quant)}
    path = data.draw(st.sampled_from([path for path in places(files) if path]))
    inside: t.Any = files
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = value
    try:
        found = model_facts(files["config"], files["quant"])
    except CollectionError as exc:
        assert str(exc)
    else:
        assert found["facts"] is None or facts_of(found["facts"])


KINDS = st.sampled_from(["full_attention", "linear_attention"])


@given(st.lists(KINDS, min_size=1, max_size=24), st.lists(st.integers(0, 23), max_size=8), st.integers(1, 3))
def test_each_layer_is_counted_once(kinds: list[str], dense: list[int], step: int) -> None:
    text = QWEN_397B["text_config"] | {
        "num_hidden_layers": len(kinds), "layer_types": kinds, "full_attention_interval": None, "mlp_only_layers": dense,
        "decoder_sparse_step": step, "intermediate_size": 512,
    }  # fmt: skip
    config = QWEN_397B | {"text_config": text}
    facts = facts_of(model_facts(config)["facts"])
    assert sum(each.layers for each in facts.attention) == kinds.count("full_attention")
    assert (facts.linear.layers if facts.linear else 0) == kinds.count("linear_attention")
    fed = [i for i in range(len(kinds)) if (i + 1) % step == 0 and i not in dense]
    assert (facts.moe.layers if facts.moe else 0) == len(fed)
    assert (facts.dense.layers if facts.dense else 0) == len(kinds) - len(fed)


@given(st.sampled_from(sorted(CONFIGS)), st.data())
def test_no_list_of_modules_makes_more_weights_than_there_are(name: str, data: st.DataObject) -> None:
    parts = st.sampled_from(
        ["self_attn", "mlp", "q_proj", "experts", "*", "layers.1*", "lm_head", "mtp*", "gate", "linear_attn*"]
    )
    left_out = data.draw(st.lists(st.lists(parts, min_size=1, max_size=3).map(".".join), max_size=4))
    quant = {
        "quantization": {
            "quant_algo": data.draw(st.sampled_from(["NVFP4", "FP8", "MXFP4"])),
            "exclude_modules": left_out,
        }
    }
    config = {key: value for key, value in CONFIGS[name].items() if key != "quantization_config"}
    found = model_facts(config, quant)
    tensors = model.tensors(facts_of(found["facts"]), profile.DEFAULT_PRECISION | found["precision"])
    assert all(each.params >= 0 for each in tensors)


def paths(entry: t.Any, key: str = "") -> t.Iterator[str]:
    if isinstance(entry, dict):
        for name, value in entry.items():
            yield from paths(value, "path" if key == "reads" else name)
    elif isinstance(entry, list):
        for value in entry:
            yield from paths(value, key)
    elif key in ("path", "read", "text", "at", "width", "intermediate", "matrices") and isinstance(entry, str):
        yield entry


@pytest.mark.parametrize("name", sorted(knowledge.load("architectures")))
def test_every_path_of_the_data_can_be_evaluated(name: str) -> None:
    entry = {
        key: value for key, value in knowledge.load("architectures")[name].items() if key not in ("source", "origin")
    }
    for path in paths(entry):
        config_json.find(path, {})


def test_no_two_entries_speak_of_one_family() -> None:
    entries = knowledge.load("architectures").values()
    for key in ("model_types", "classes"):
        named = [name for entry in entries for name in entry.get(key, ())]
        assert sorted(named) == sorted(set(named))
