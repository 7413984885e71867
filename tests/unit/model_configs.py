"""Figures from public models' own files, under config.json's names: what is needed to describe a model's make-up.

Written by hand from the files that ai-dynamo/aiconfigurator carries (commit 095f58a51c4ca8e61b66ec108d86f223f8d559ce,
model_configs), with lists of layers and modules written as the pattern that they repeat. Keys are the publishers' own.
"""

from __future__ import annotations

import typing as t

Tree = dict[str, t.Any]

TOWER = {"depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "in_channels": 3, "patch_size": 16,
         "spatial_merge_size": 2, "temporal_patch_size": 2, "num_position_embeddings": 2304}  # fmt: skip
GEMMA_TOWER = {"num_hidden_layers": 27, "hidden_size": 1152, "intermediate_size": 4304, "patch_size": 16,
               "position_embedding_size": 10240}  # fmt: skip
GROUP = {"num_bits": 4, "type": "float", "group_size": 16}
FP8 = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}


def every(layers: int, *modules: str, first: int = 0, prefix: str = "model.language_model.layers") -> list[str]:
    """List modules of layers."""
    return [f"{prefix}.{layer}.{module}" for layer in range(first, layers) for module in modules]


def modelopt(*left_out: str) -> Tree:
    """Return ModelOpt's entry in config.json: NVFP4 but for some modules."""
    group = {"input_activations": GROUP, "weights": GROUP, "targets": ["Linear"]}
    return {"quant_method": "modelopt", "quant_algo": "NVFP4", "config_groups": {"group_0": group}, "ignore": list(left_out),
            "kv_cache_scheme": {"dynamic": False, "num_bits": 8, "type": "float"}}  # fmt: skip


def mixed(layers: t.Mapping[str, str], **more: t.Any) -> Tree:
    """Return ModelOpt's hf_quant_config.json of a checkpoint with several formats."""
    said = {name: {"quant_algo": form} for name, form in layers.items()}
    return {
        "producer": {"name": "modelopt"},
        "quantization": {"quant_algo": "MIXED_PRECISION", "quantized_layers": said, **more},
    }


def qwen35(**text: t.Any) -> Tree:
    moe = "num_experts" in text
    kind = "Qwen3_5MoeForConditionalGeneration" if moe else "Qwen3_5ForConditionalGeneration"
    shared = {"vocab_size": 248320, "max_position_embeddings": 262144, "head_dim": 256, "full_attention_interval": 4,
              "attn_output_gate": True, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
              "linear_value_head_dim": 128, "mamba_ssm_dtype": "float32", "mtp_num_hidden_layers": 1, "mlp_only_layers": []}  # fmt: skip
    layers = ["linear_attention", "linear_attention", "linear_attention", "full_attention"] * (
        text["num_hidden_layers"] // 4
    )
    tower = TOWER | {"out_hidden_size": text["hidden_size"], "deepstack_visual_indexes": []}
    return {"architectures": [kind], "model_type": "qwen3_5_moe" if moe else "qwen3_5", "tie_word_embeddings": False,
            "text_config": shared | {"layer_types": layers} | text, "vision_config": tower}  # fmt: skip


def gemma4(**text: t.Any) -> Tree:
    layers = (["sliding_attention"] * 5 + ["full_attention"]) * (text["num_hidden_layers"] // 6)
    shared = {"vocab_size": 262144, "max_position_embeddings": 262144, "head_dim": 256, "global_head_dim": 512,
              "layer_types": layers, "sliding_window": 1024, "attention_k_eq_v": True, "num_kv_shared_layers": 0,
              "hidden_size_per_layer_input": 0, "tie_word_embeddings": True, "use_double_wide_mlp": False}  # fmt: skip
    return {"architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4", "audio_config": None,
            "text_config": shared | text, "vision_config": GEMMA_TOWER}  # fmt: skip


def nemotron(**own: t.Any) -> Tree:
    shared = {"architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "vocab_size": 131072, "head_dim": 128,
              "max_position_embeddings": 262144, "mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 8, "conv_kernel": 4,
              "mamba_ssm_cache_dtype": "float32", "n_shared_experts": 1, "num_key_value_heads": 2, "sliding_window": None,
              "tie_word_embeddings": False}  # fmt: skip
    return shared | own


def qwen3(**own: t.Any) -> Tree:
    shared = {"vocab_size": 151936, "head_dim": 128, "max_position_embeddings": 40960, "use_sliding_window": False,
              "sliding_window": None, "max_window_layers": own["num_hidden_layers"], "tie_word_embeddings": False,
              "mlp_only_layers": [], "decoder_sparse_step": 1, "num_experts_per_tok": 8}  # fmt: skip
    return shared | {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_experts": 128} | own


ULTRA = "MEMEMEM*E" * 12
SUPER = "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME"
WORDS = {"M": "mamba", "E": "moe", "*": "attention"}
GLM = {"architectures": ["Glm4MoeForCausalLM"], "model_type": "glm4_moe", "num_hidden_layers": 92, "hidden_size": 5120,
       "num_attention_heads": 96, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 12288, "vocab_size": 151552,
       "max_position_embeddings": 202752, "n_routed_experts": 160, "n_shared_experts": 1, "num_experts_per_tok": 8,
       "moe_intermediate_size": 1536, "first_k_dense_replace": 3, "num_nextn_predict_layers": 1}  # fmt: skip
MINIMAX = {"architectures": ["MiniMaxM2ForCausalLM"], "model_type": "minimax_m2", "num_hidden_layers": 62, "hidden_size": 3072,
           "num_attention_heads": 48, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 1536, "vocab_size": 200064,
           "num_experts_per_tok": 8, "num_local_experts": 256, "max_position_embeddings": 196608, "use_mtp": True,
           "num_mtp_modules": 3, "shared_intermediate_size": 0}  # fmt: skip
MINIMAX_LEFT = ["lm_head", *every(62, "block_sparse_moe.gate", "self_attn*", prefix="model.layers")]
NEXT = {"architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "num_hidden_layers": 48, "hidden_size": 2048,
        "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256, "full_attention_interval": 4, "vocab_size": 151936,
        "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
        "linear_value_head_dim": 128, "max_position_embeddings": 262144, "num_experts": 512, "num_experts_per_tok": 10,
        "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "mlp_only_layers": [], "decoder_sparse_step": 1,
        "intermediate_size": 5120, "use_sliding_window": False}  # fmt: skip
QWEN_35B = qwen35(num_hidden_layers=40, hidden_size=2048, num_attention_heads=16, num_key_value_heads=2, num_experts=256,
                  num_experts_per_tok=8, moe_intermediate_size=512, shared_expert_intermediate_size=512,
                  linear_num_value_heads=32)  # fmt: skip
QWEN_27B = qwen35(num_hidden_layers=64, hidden_size=5120, num_attention_heads=24, num_key_value_heads=4,
                  intermediate_size=17408, linear_num_value_heads=48)  # fmt: skip
QWEN_122B = qwen35(num_hidden_layers=48, hidden_size=3072, num_attention_heads=32, num_key_value_heads=2, num_experts=256,
                   num_experts_per_tok=8, moe_intermediate_size=1024, shared_expert_intermediate_size=1024,
                   linear_num_value_heads=64)  # fmt: skip
QWEN_397B = qwen35(num_hidden_layers=60, hidden_size=4096, num_attention_heads=32, num_key_value_heads=2, num_experts=512,
                   num_experts_per_tok=10, moe_intermediate_size=1024, shared_expert_intermediate_size=1024,
                   linear_num_value_heads=64)  # fmt: skip
QWEN_LEFT = ("lm_head", "model.visual*", "mtp.layers.0*", "*.mlp.shared_expert.*")
GEMMA_31B = gemma4(num_hidden_layers=60, hidden_size=5376, intermediate_size=21504, num_attention_heads=32,
                   num_key_value_heads=16, num_global_key_value_heads=4, enable_moe_block=False, num_experts=None)  # fmt: skip
DIFFUSION = gemma4(num_hidden_layers=30, hidden_size=2816, intermediate_size=2112, num_attention_heads=16, num_key_value_heads=8,
                   num_global_key_value_heads=2, num_experts=128, top_k_experts=8, moe_intermediate_size=704) | {
    "architectures": ["DiffusionGemmaForBlockDiffusion"], "model_type": "diffusion_gemma", "canvas_length": 256,
    "quantization_config": modelopt("lm_head", "*embed_vision*", "*mlp*", "*router*", "*self_attn*", "*self_conditioning*",
                                    "*vision_tower*")}  # fmt: skip
QWEN_235B = qwen3(num_hidden_layers=94, hidden_size=4096, num_attention_heads=64, num_key_value_heads=4,
                  intermediate_size=12288, moe_intermediate_size=1536)  # fmt: skip
DEEPSEEK = {"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "num_hidden_layers": 61, "hidden_size": 7168,
            "num_attention_heads": 128, "num_key_value_heads": 128, "intermediate_size": 18432, "vocab_size": 129280,
            "max_position_embeddings": 163840, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 256, "n_shared_experts": 1, "moe_layer_freq": 1,
            "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "first_k_dense_replace": 3,
            "num_nextn_predict_layers": 1}  # fmt: skip
GPT_OSS = {"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "num_hidden_layers": 36, "hidden_size": 2880,
           "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 2880, "vocab_size": 201088,
           "max_position_embeddings": 131072, "num_local_experts": 128, "num_experts_per_tok": 4, "experts_per_token": 4,
           "layer_types": ["sliding_attention", "full_attention"] * 18, "sliding_window": 128,
           "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": [
               "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}}  # fmt: skip
KIMI = {"architectures": ["KimiK25ForConditionalGeneration"], "model_type": "kimi_k25", "text_config": DEEPSEEK | {
    "model_type": "kimi_k2", "num_attention_heads": 64, "num_key_value_heads": 64, "vocab_size": 163840, "n_routed_experts": 384,
    "max_position_embeddings": 262144, "first_k_dense_replace": 1, "num_nextn_predict_layers": 0, "quantization_config": {
        "quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"group_0": {
            "targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "group_size": 32, "strategy": "group"}}},
        "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"]}}}  # fmt: skip
# The figures that several projects' tests hold a copy of config.json to; widths of the tower as in its siblings.
FLASH_NEXT = {
    "architectures": ["Qwen4ExpForConditionalGeneration"], "model_type": "qwen4_exp", "tie_word_embeddings": False,
    "text_config": {
        "model_type": "qwen4_exp_text", "num_hidden_layers": 48, "hidden_size": 2560, "vocab_size": 248320,
        "max_position_embeddings": 262144, "num_attention_heads": 24, "num_key_value_heads": 2, "head_dim": 256,
        "full_attention_interval": 4, "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 12,
        "output_gate_type": "sigmoid", "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
        "linear_num_value_heads": 48, "linear_value_head_dim": 128, "mamba_ssm_dtype": "float32", "indexer_budget": 2048,
        "indexer_compress_ratio": 4, "indexer_head_dim": 128, "indexer_kv_heads": 1, "indexer_n_heads": 4, "num_experts": 512,
        "num_experts_per_tok": 10, "moe_intermediate_size": 640, "shared_expert_intermediate_size": 640, "hc_count": 4,
        "hc_lowrank": 320, "ngram_size": 3, "heads_per_ngram": 8, "ngram_vocab_size_base": 20000000, "ple_embed_dim": 2560,
        "ple_layer_ids": [2], "ple_conv_kernel_size": 4, "ple_embedding_dtype": "float8_e4m3fn", "mtp_num_hidden_layers": 1},
    "vision_config": TOWER | {"out_hidden_size": 2560, "deepstack_visual_indexes": []}}  # fmt: skip
# What 0731 has beside the preview's file: ratios of its stages, and dspark_*.
DEEPSEEK_V4 = {
    "architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4", "num_hidden_layers": 43, "hidden_size": 4096,
    "vocab_size": 129280, "max_position_embeddings": 1048576, "num_attention_heads": 64, "num_key_value_heads": 1,
    "head_dim": 512, "qk_rope_head_dim": 64, "q_lora_rank": 1024, "o_lora_rank": 1024, "o_groups": 8, "sliding_window": 128,
    "index_head_dim": 128, "index_n_heads": 64, "index_topk": 512, "hc_mult": 4, "n_routed_experts": 256,
    "n_shared_experts": 1, "num_experts_per_tok": 6, "moe_intermediate_size": 2048, "num_hash_layers": 3,
    "num_nextn_predict_layers": 1, "tie_word_embeddings": False, "expert_dtype": "fp4",
    "compress_ratios": [0, 0, *[4, 128] * 20, 4, 0], "quantization_config": FP8 | {"scale_fmt": "ue8m0"}}  # fmt: skip

# 57 of 60 layers have experts and an indexer; the list of modules as NVIDIA's file has it.
M3 = {"architectures": ["MiniMaxM3SparseForConditionalGeneration"], "model_type": "minimax_m3_vl", "text_config": {
    "num_hidden_layers": 60, "hidden_size": 6144, "intermediate_size": 3072, "dense_intermediate_size": 12288,
    "shared_intermediate_size": 3072, "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 128,
    "vocab_size": 200064, "max_position_embeddings": 1048576, "num_local_experts": 128, "num_experts_per_tok": 4,
    "n_shared_experts": 1, "tie_word_embeddings": False, "num_mtp_modules": 1, "moe_layer_freq": [0] * 3 + [1] * 57,
    "sparse_attention_config": {"sparse_num_index_heads": 4, "sparse_index_dim": 128, "sparse_topk_blocks": 16,
                                "sparse_block_size": 128, "sparse_attention_freq": [0] * 3 + [1] * 57}},
      "vision_config": {"num_hidden_layers": 32, "hidden_size": 1280, "intermediate_size": 5120, "patch_size": 14,
                        "num_channels": 3, "projection_dim": 6144}}  # fmt: skip
M3_LAYERS = "language_model.model.layers"
M3_QUANT = mixed(
    dict.fromkeys(every(3, "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", prefix=M3_LAYERS), "MXFP8")
    | dict.fromkeys(every(60, *(f"self_attn.{part}_proj" for part in ("q", "k", "v", "o")), prefix=M3_LAYERS), "MXFP8")
    | dict.fromkeys(every(60, "self_attn.index_q_proj", "self_attn.index_k_proj", first=3, prefix=M3_LAYERS), "MXFP8")
    | dict.fromkeys(every(60, "block_sparse_moe.shared_experts", first=3, prefix=M3_LAYERS), "MXFP8")
    | dict.fromkeys(every(60, "block_sparse_moe.experts", first=3, prefix=M3_LAYERS), "NVFP4"),
    exclude_modules=["lm_head", "model.embed_tokens", "vision_tower", "multi_modal_projector", "patch_merge_mlp",
                     *every(60, "block_sparse_moe.gate", first=3, prefix=M3_LAYERS)])  # fmt: skip
GLM_52 = {"architectures": ["GlmMoeDsaForCausalLM"], "model_type": "glm_moe_dsa", "num_hidden_layers": 78, "hidden_size": 6144,
          "intermediate_size": 12288, "moe_intermediate_size": 2048, "num_attention_heads": 64, "num_key_value_heads": 64,
          "head_dim": 192, "kv_lora_rank": 512, "q_lora_rank": 2048, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64,
          "v_head_dim": 256, "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3,
          "moe_layer_freq": 1, "num_nextn_predict_layers": 1, "index_head_dim": 128, "index_n_heads": 32, "index_topk": 2048,
          "index_topk_freq": 4, "index_skip_topk_offset": 3, "vocab_size": 154880, "max_position_embeddings": 1048576,
          "tie_word_embeddings": False}  # fmt: skip

NANO = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"

# As a test of oMLX holds it, and as a note quotes max_position_embeddings; every fourth of 45 layers has latent attention.
GLM_53_FLASH: Tree = {
    "architectures": ["Glm5NextForConditionalGeneration"], "model_type": "glm5_next", "tie_word_embeddings": False,
    "text_config": {
        "model_type": "glm5_next_text", "vocab_size": 154880, "hidden_size": 4096, "intermediate_size": 12288,
        "num_hidden_layers": 45, "num_attention_heads": 64, "num_key_value_heads": 64, "first_k_dense_replace": 3,
        "moe_intermediate_size": 2048, "n_routed_experts": 288, "n_shared_experts": 1, "num_experts_per_tok": 8,
        "max_position_embeddings": 1048576, "mhc": True, "hc_mult": 4, "mla_use_nope": True, "q_lora_rank": 1536,
        "kv_lora_rank": 512, "qk_nope_head_dim": 256, "qk_rope_head_dim": 0, "v_head_dim": 256, "index_n_heads": 32,
        "index_head_dim": 128, "index_topk": 2048, "index_kpool": 4, "num_nextn_predict_layers": 1,
        "layer_types": [*(["linear_attention"] * 3 + ["deepseek_sparse_attention"]) * 11, "linear_attention"],
        "mlp_layer_types": ["dense"] * 3 + ["sparse"] * 42,
        "linear_attn_config": {"num_heads": 64, "head_dim": 128, "short_conv_kernel_size": 4, "gate_lower_bound": -5.0},
    },
    "vision_config": {"model_type": "glm5_next_vision", "depth": 24, "hidden_size": 1024, "intermediate_size": 4096,
                      "num_heads": 16, "patch_size": 14, "temporal_patch_size": 2, "spatial_merge_size": 2,
                      "out_hidden_size": 4096, "projection_intermediate_size": 10240, "in_channels": 3},
}  # fmt: skip


def laguna(**own: t.Any) -> Tree:
    layers = own["num_hidden_layers"]
    sliding = own.pop("sliding_heads")
    shared = {"architectures": ["LagunaForCausalLM"], "model_type": "laguna", "vocab_size": 100352, "num_attention_heads": 48,
              "num_key_value_heads": 8, "head_dim": 128, "sliding_window": 512, "num_experts": 256, "mlp_only_layers": [0],
              "decoder_sparse_step": 1, "tie_word_embeddings": False, "gating": "per-head", "max_position_embeddings": 262144,
              "layer_types": [f"{'sliding' if layer % 4 else 'full'}_attention" for layer in range(layers)],
              "mlp_layer_types": ["dense", *["sparse"] * (layers - 1)],
              "num_attention_heads_per_layer": [sliding if layer % 4 else 48 for layer in range(layers)]}  # fmt: skip
    return shared | own


MIMO_V26_FLASH: Tree = {  # as a port's tests state the released file; its tower for pictures is not read
    "architectures": ["MiMoV2ForCausalLM"], "model_type": "mimo_v2", "vocab_size": 152576, "hidden_size": 4096,
    "num_hidden_layers": 48, "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 192, "v_head_dim": 128,
    "swa_num_attention_heads": 64, "swa_num_key_value_heads": 8, "swa_head_dim": 192, "swa_v_head_dim": 128,
    "sliding_window": 128, "attention_chunk_size": 128, "attention_projection_layout": "fused_qkv",
    "hybrid_layer_pattern": [0, *[1, 1, 1, 1, 0], *[1, 1, 1, 1, 1, 0] * 7], "moe_layer_freq": [0] + [1] * 47,
    "intermediate_size": 16384, "moe_intermediate_size": 2048, "n_routed_experts": 256, "num_experts_per_tok": 8,
    "n_shared_experts": None, "num_nextn_predict_layers": 3, "max_position_embeddings": 1048576, "tie_word_embeddings": False,
    "vision_config": {"depth": 28}, "quantization_config": FP8 | {
        "mxfp4_block_size": 32, "store_dtype": "mxfp4",
        "ignored_layers": [*every(48, "self_attn.o_proj", prefix="model.layers"), "model.decoder.self_attn.o_proj"]},
}  # fmt: skip

# transformers 5.15.1: the defaults of MuseGlimmerConfig and its parts, which are this checkpoint's; layers by vllm-project/recipes.
MUSE_GLIMMER: Tree = {
    "architectures": ["MuseGlimmerForConditionalGeneration"], "model_type": "muse_glimmer", "out_hidden_size": 6144,
    "projector_hidden_size": 4096,
    "text_config": {
        "model_type": "muse_glimmer_text", "vocab_size": 202048, "hidden_size": 6656, "intermediate_size": 19968,
        "num_hidden_layers": 52, "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128,
        "max_position_embeddings": 131072, "tie_word_embeddings": False, "sliding_window": 2048,
        "layer_types": (["sliding_attention"] * 3 + ["full_attention"]) * 13,
    },
    "vision_config": {"patch_size": 14, "pos_emb_height": 32, "pos_emb_width": 32, "num_hidden_layers": 50,
                      "hidden_size": 1536, "intermediate_size": 8960, "patch_temporal": 2, "merge_size": 2},
}  # fmt: skip
# As another project's guide quotes it; transformers' GraniteMoeHybridConfig for mamba_n_heads, mamba_d_head and mamba_n_groups.
GRANITE_SMALL: Tree = {
    "architectures": ["GraniteMoeHybridForCausalLM"], "model_type": "granitemoehybrid", "hidden_size": 4096,
    "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 8, "num_local_experts": 72,
    "num_experts_per_tok": 10, "intermediate_size": 768, "shared_intermediate_size": 1536, "mamba_d_state": 128,
    "mamba_d_conv": 4, "mamba_expand": 2, "mamba_n_heads": 128, "mamba_d_head": 64, "mamba_n_groups": 1,
    "tie_word_embeddings": True, "vocab_size": 100352, "max_position_embeddings": 131072,
    "layer_types": ["attention" if layer in (5, 15, 25, 35) else "mamba" for layer in range(40)],
}  # fmt: skip
PIXTRAL = {"model_type": "pixtral", "hidden_size": 1024, "num_hidden_layers": 24, "intermediate_size": 4096, "patch_size": 14,
           "num_channels": 3}  # fmt: skip
# From the model's card and transformers' Mistral4Config.
MISTRAL_SMALL_4: Tree = {
    "architectures": ["Mistral3ForConditionalGeneration"], "model_type": "mistral3", "tie_word_embeddings": False,
    "spatial_merge_size": 2, "vision_config": PIXTRAL, "text_config": {
        "model_type": "mistral4", "num_hidden_layers": 36, "hidden_size": 4096, "intermediate_size": 12288,
        "moe_intermediate_size": 2048, "num_attention_heads": 32, "num_key_value_heads": 32, "n_routed_experts": 128,
        "n_shared_experts": 1, "num_experts_per_tok": 4, "first_k_dense_replace": 0, "kv_lora_rank": 256,
        "q_lora_rank": 1024, "qk_rope_head_dim": 64, "qk_nope_head_dim": 64, "v_head_dim": 128, "vocab_size": 131072,
        "max_position_embeddings": 1048576},
    "quantization_config": FP8 | {"modules_to_not_convert": ["model.vision_tower", "model.multi_modal_projector", "lm_head"]},
}  # fmt: skip
# By the profile's model, or one of the same make-up: (config.json, hf_quant_config.json).
PUBLIC: dict[str, tuple[Tree, Tree | None]] = {
    "zai-org/GLM-5.3-Flash": (GLM_53_FLASH, None),
    "XiaomiMiMo/MiMo-V2.6-Flash-RL": (MIMO_V26_FLASH, None),
    "mistralai/Mistral-Small-4-119B-2603": (MISTRAL_SMALL_4, None),
    "poolside/Laguna-S-2.1": (
        laguna(num_hidden_layers=48, hidden_size=3072, intermediate_size=12288, sliding_heads=72, num_experts_per_tok=10,
               moe_intermediate_size=1024, shared_expert_intermediate_size=1024), None),
    "poolside/Laguna-XS-2.1": (
        laguna(num_hidden_layers=40, hidden_size=2048, intermediate_size=8192, sliding_heads=64, num_experts_per_tok=8,
               moe_intermediate_size=512, shared_expert_intermediate_size=512), None),
    "meta-models/Muse-Glimmer-30B": (MUSE_GLIMMER, None),
    "ibm-granite/granite-4.0-h-small": (GRANITE_SMALL, None),
    # OpenPipe/ART#837: the layers of Nano; basecompute/baseRT#46: 52 layers, and one prediction layer of attention and experts.
    "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-BF16": (
        nemotron(num_hidden_layers=52, hidden_size=2688, intermediate_size=1856, num_attention_heads=32, mamba_num_heads=64,
                 n_routed_experts=128, num_experts_per_tok=6, moe_intermediate_size=1856,
                 moe_shared_expert_intermediate_size=3712,
                 layers_block_type=[WORDS[letter] for letter in NANO], num_nextn_predict_layers=1,
                 mtp_layers_block_type=["attention", "moe"]), None),
    "google/gemma-4-26B-A4B-it": (
        gemma4(num_hidden_layers=30, hidden_size=2816, intermediate_size=2112, num_attention_heads=16, num_key_value_heads=8,
               num_global_key_value_heads=2, enable_moe_block=True, num_experts=128, top_k_experts=8,
               moe_intermediate_size=704), None),
    "nvidia/diffusiongemma-26B-A4B-it-NVFP4": (DIFFUSION, None),
    "google/gemma-4-31B-it": (GEMMA_31B, None),
    "nvidia/Gemma-4-31B-IT-NVFP4": (
        GEMMA_31B | {"quantization_config": modelopt("lm_head", "model.embed_vision*", "model.vision_tower*",
                                                     *every(60, "self_attn*"))}, None),
    "nvidia/MiniMax-M2.5-NVFP4": (MINIMAX | {"quantization_config": modelopt(*MINIMAX_LEFT)}, None),
    "nvidia/MiniMax-M2.7-NVFP4": (MINIMAX | {"quantization_config": modelopt(*MINIMAX_LEFT)}, None),
    "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4": (
        nemotron(num_hidden_layers=88, hidden_size=4096, intermediate_size=2688, num_attention_heads=32, mamba_num_heads=128,
                 n_routed_experts=512, num_experts_per_tok=22, moe_intermediate_size=2688, moe_latent_size=1024,
                 moe_shared_expert_intermediate_size=5376, hybrid_override_pattern=SUPER, num_nextn_predict_layers=1,
                 mtp_hybrid_override_pattern="*E"), None),
    "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-NVFP4": (
        nemotron(hidden_size=8192, intermediate_size=5120, num_attention_heads=64, mamba_num_heads=256, n_routed_experts=512,
                 num_experts_per_tok=22, moe_intermediate_size=5120, moe_latent_size=2048,
                 moe_shared_expert_intermediate_size=10240, layers_block_type=[WORDS[letter] for letter in ULTRA],
                 num_nextn_predict_layers=1, mtp_layers_block_type=["attention", "moe"]), None),
    "nvidia/Qwen3-235B-A22B-NVFP4": (
        QWEN_235B, {"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16, "exclude_modules": [
            "lm_head", *every(94, "mlp.gate", prefix="model.layers")]}}),
    "Qwen/Qwen3-30B-A3B-FP8": (
        qwen3(num_hidden_layers=48, hidden_size=2048, num_attention_heads=32, num_key_value_heads=4, intermediate_size=6144,
              moe_intermediate_size=768, quantization_config=FP8 | {"modules_to_not_convert": [
                  "lm_head", *every(48, "input_layernorm", "mlp.gate", prefix="model.layers")]}), None),
    "zai-org/GLM-4.7-FP8": (GLM, None),
    "nvidia/Qwen3-Next-80B-A3B-Thinking-NVFP4": (NEXT, None),
    "Qwen/Qwen3-VL-8B-Instruct-FP8": (
        {"architectures": ["Qwen3VLForConditionalGeneration"], "model_type": "qwen3_vl", "tie_word_embeddings": False,
         "text_config": {"hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36, "num_attention_heads": 32,
                         "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 262144},
         "vision_config": TOWER | {"out_hidden_size": 4096, "deepstack_visual_indexes": [8, 16, 24]}}, None),
    "Sehyo/Qwen3.5-122B-A10B-NVFP4": (QWEN_122B, None),
    "nvidia/Qwen3.5-122B-A10B-NVFP4": (
        QWEN_122B | {"quantization_config": modelopt(*QWEN_LEFT, *every(48, "linear_attn*", "self_attn*"))}, None),
    "nvidia/Qwen3.5-397B-A17B-NVFP4": (
        QWEN_397B | {"quantization_config": modelopt(*QWEN_LEFT, *every(60, "linear_attn*", "self_attn*"))}, None),
    "Qwen/Qwen3.6-27B-FP8": (QWEN_27B, None),
    "nvidia/Qwen3.6-27B-NVFP4": (QWEN_27B, mixed(
        {"lm_head": "W4A16_NVFP4"}
        | dict.fromkeys(every(64, "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"), "W4A16_NVFP4")
        | dict.fromkeys(every(64, "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"), "FP8")
        | dict.fromkeys(every(64, "linear_attn.in_proj_qkv", "linear_attn.in_proj_z", "linear_attn.out_proj"), "FP8"),
        exclude_modules=["mtp*", "mtp.layers.0*"], kv_cache_quant_algo="FP8")),
    "Qwen/Qwen3.6-35B-A3B-FP8": (QWEN_35B, None),
    "nvidia/Qwen3.6-35B-A3B-NVFP4": (QWEN_35B, mixed(
        {"lm_head": "W4A16_NVFP4"}
        | dict.fromkeys(every(40, "mlp.experts", "mlp.shared_expert.gate_proj", "mlp.shared_expert.up_proj",
                              "mlp.shared_expert.down_proj"), "W4A16_NVFP4")
        | dict.fromkeys(every(40, "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"), "FP8")
        | dict.fromkeys(every(40, "linear_attn.in_proj_qkv", "linear_attn.in_proj_z", "linear_attn.out_proj"), "FP8"),
        exclude_modules=["mtp*", "mtp.layers.0*"])),
    "RedHatAI/Qwen3.6-35B-A3B-NVFP4": (QWEN_35B, None),
    # The figures that transformers' HYV3Config has as defaults; layer 80 by the first stack's notes on this checkpoint.
    "vroomfondel/Hy3-NVFP4-W4A4": (
        {"architectures": ["HYV3ForCausalLM"], "model_type": "hy_v3", "num_hidden_layers": 80, "hidden_size": 4096,
         "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 13312, "vocab_size": 120832,
         "max_position_embeddings": 262144, "num_experts": 192, "num_experts_per_tok": 8, "num_shared_experts": 1,
         "moe_intermediate_size": 1536, "first_k_dense_replace": 1, "num_nextn_predict_layers": 1,
         "quantization_config": modelopt("lm_head", "model.layers.80*")}, None),
    # The figures that TensorRT-LLM's test (test_modeling_step3p7) finds in it, and what it says of the excluded modules.
    "stepfun-ai/Step-3.7-Flash-NVFP4": (
        {"architectures": ["Step3p7ForConditionalGeneration"], "model_type": "step3p7", "tie_word_embeddings": False,
         "text_config": {
             "model_type": "step3p5", "num_hidden_layers": 45, "hidden_size": 4096, "intermediate_size": 11264, "vocab_size": 128896,
             "max_position_embeddings": 262144, "num_attention_heads": 64, "num_attention_groups": 8, "head_dim": 128,
             "sliding_window": 512, "use_head_wise_attn_gate": True, "moe_num_experts": 288, "moe_top_k": 8,
             "moe_intermediate_size": 1280, "share_expert_dim": 1280, "moe_layers_enum": ",".join(map(str, range(3, 45))),
             "layer_types": [f"{'sliding' if layer % 4 else 'full'}_attention" for layer in range(45)],
             "attention_other_setting": {"attention_type": "sliding_attention", "num_attention_heads": 96,
                                         "num_attention_groups": 8, "head_dim": 128}},
         "vision_config": {"layers": 47, "width": 1536, "heads": 16, "image_size": 728, "patch_size": 14},
         "quantization_config": modelopt(
             "lm_head", "model.vision_model*", "model.vit_large_projector*", *every(3, "mlp*"), *every(45, "self_attn*"),
             *every(45, "moe.gate", "share_expert*", first=3))}, None),
    # Its list of modules as a test of lichangfeng-1's vLLM holds a copy of it.
    "RadixArk/Qwen3.8-Flash-Next-NVFP4": (FLASH_NEXT, {
        "producer": {"name": "modelopt"},
        "quantization": {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": [
            "model.embed_tokens", "mtp.*", "model.mtp.*", "*.self_attn.*", "*.linear_attn.*", "*.mlp.gate*",
            "*.mlp.shared_expert.*", "*.mlp.shared_expert_gate*", "*hyper_connection*", "*.ple.*", "model.visual.*",
            "model.language_model.embed_tokens", "lm_head"]}}),
    "deepseek-ai/DeepSeek-V4-Flash": (DEEPSEEK_V4, None),
    "deepseek-ai/DeepSeek-V4-Flash-0731": (DEEPSEEK_V4 | {
        "compress_ratios": [0, 0, *[4, 128] * 20, 4, 0, 0, 0], "dspark_block_size": 5, "dspark_noise_token_id": 128799,
        "dspark_target_layer_ids": [40, 41, 42], "dspark_markov_rank": 256}, None),
    "nvidia/MiniMax-M3-NVFP4": (M3, M3_QUANT),
    "nvidia/GLM-5.2-NVFP4": (GLM_52, {"producer": {"name": "modelopt"}, "quantization": {
        "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16, "exclude_modules": [
            "lm_head", "model.embed_tokens", *(f"model.layers.{layer}.*" for layer in (0, 1, 2, 78)),
            *every(78, "mlp.shared_experts*", "self_attn*", first=3, prefix="model.layers")]}}),
    "deepseek-ai/DeepSeek-V3": (DEEPSEEK | {"quantization_config": FP8}, None),
    "openai/gpt-oss-120b": (GPT_OSS, None),
    "moonshotai/Kimi-K2.5": (KIMI, None),
    "zai-org/GLM-4.7-Flash": (
        {"architectures": ["Glm4MoeLiteForCausalLM"], "model_type": "glm4_moe_lite", "num_hidden_layers": 47, "hidden_size": 2048,
         "num_attention_heads": 20, "num_key_value_heads": 20, "head_dim": 64, "intermediate_size": 10240, "vocab_size": 154880,
         "max_position_embeddings": 202752, "n_routed_experts": 64, "n_shared_experts": 1, "num_experts_per_tok": 4,
         "moe_intermediate_size": 1536, "first_k_dense_replace": 1, "kv_lora_rank": 512, "q_lora_rank": 768,
         "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256, "torch_dtype": "bfloat16",
         "tie_word_embeddings": False}, None),
    "meta-llama/Llama-3.3-70B-Instruct": (
        {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 80, "hidden_size": 8192,
         "num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": 28672, "vocab_size": 128256,
         "max_position_embeddings": 131072, "torch_dtype": "bfloat16", "tie_word_embeddings": False}, None),
    "Qwen/Qwen3-32B": (
        {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "num_hidden_layers": 64, "hidden_size": 5120,
         "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 25600, "vocab_size": 151936,
         "max_position_embeddings": 40960, "use_sliding_window": False, "torch_dtype": "bfloat16",
         "tie_word_embeddings": False}, None),
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4": (
        nemotron(num_hidden_layers=52, hidden_size=2688, intermediate_size=1856, num_attention_heads=32, mamba_num_heads=64,
                 n_routed_experts=128, num_experts_per_tok=6, moe_intermediate_size=1856,
                 moe_shared_expert_intermediate_size=3712, hybrid_override_pattern=NANO),
        {"producer": {"name": "modelopt"}, "quantization": {
            "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16, "exclude_modules": [
                "lm_head", *(f"backbone.layers.{layer}.mixer.{part}" for layer in (4, 11, 18, 25, 32, 41)
                             for part in ("in_proj", "out_proj")),
                *(f"backbone.layers.{layer}.mixer.{part}_proj" for layer in (5, 12, 19, 26, 33, 42) for part in "qkvo"),
                *(f"backbone.layers.{layer}.mixer.conv1d" for layer, kind in enumerate(NANO) if kind == "M")]}}),
}  # fmt: skip
