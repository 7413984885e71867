"""Figures of models without a shipped profile, under config.json's names, and the sizes that they were published with.

Written by hand from model cards, the engines' own configuration classes and copies that tests of other projects hold; widths of
towers are those of transformers' classes.
"""

from __future__ import annotations

import typing as t

from ansible_collections.dgxspark.cluster.tests.unit.model_configs import FP8, MISTRAL_SMALL_4, PIXTRAL, Tree, every


def packed(*ignore: str, bits: int = 8, kind: str = "float", group: int | None = None) -> Tree:
    """Return compressed-tensors' entry: all linear layers alike but for some modules."""
    weights: Tree = {"num_bits": bits, "type": kind} | ({"group_size": group} if group else {})
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
            "ignore": list(ignore)}  # fmt: skip


def plain(architecture: str, kind: str, **more: t.Any) -> Tree:
    return {"architectures": [architecture], "model_type": kind, "tie_word_embeddings": False, **more}


GLM_AIR = plain("Glm4MoeForCausalLM", "glm4_moe", num_hidden_layers=46, hidden_size=4096, num_attention_heads=96,
                num_key_value_heads=8, head_dim=128, intermediate_size=10944, moe_intermediate_size=1408, n_routed_experts=128,
                n_shared_experts=1, num_experts_per_tok=8, first_k_dense_replace=1, num_nextn_predict_layers=1,
                vocab_size=151552, max_position_embeddings=131072)  # fmt: skip
SCOUT = {"architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4", "text_config": {
    "model_type": "llama4_text", "num_hidden_layers": 48, "hidden_size": 5120, "num_attention_heads": 40, "num_key_value_heads": 8,
    "head_dim": 128, "intermediate_size": 8192, "intermediate_size_mlp": 16384, "interleave_moe_layer_step": 1,
    "num_local_experts": 16, "num_experts_per_tok": 1, "attention_chunk_size": 8192, "vocab_size": 202048,
    "max_position_embeddings": 10485760}, "vision_config": {
        "num_hidden_layers": 34, "hidden_size": 1408, "intermediate_size": 5632, "patch_size": 14, "num_channels": 3,
        "projector_input_dim": 4096, "projector_output_dim": 4096}}  # fmt: skip

# (config.json, hf_quant_config.json).
MORE: dict[str, tuple[Tree, Tree | None]] = {
    "ByteDance-Seed/Seed-OSS-36B-Instruct": (
        plain("SeedOssForCausalLM", "seed_oss", num_hidden_layers=64, hidden_size=5120, intermediate_size=27648,
              num_attention_heads=80, num_key_value_heads=8, head_dim=128, vocab_size=155136, max_position_embeddings=524288), None),
    "microsoft/phi-4": (
        plain("Phi3ForCausalLM", "phi3", num_hidden_layers=40, hidden_size=5120, intermediate_size=17920, num_attention_heads=40,
              num_key_value_heads=10, vocab_size=100352, max_position_embeddings=16384, sliding_window=None), None),
    "mistralai/Mistral-Small-3.2-24B-Instruct-2506": (
        plain("Mistral3ForConditionalGeneration", "mistral3", spatial_merge_size=2, vision_config=PIXTRAL, text_config={
            "model_type": "mistral", "num_hidden_layers": 40, "hidden_size": 5120, "intermediate_size": 32768,
            "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 131072,
            "max_position_embeddings": 131072, "sliding_window": None}), None),
    "mistralai/Mistral-Small-4-119B-2603": (MISTRAL_SMALL_4, None),
    "google/gemma-3-27b-it": (  # what its file leaves out is the class's default
        {"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "text_config": {
            "model_type": "gemma3_text", "num_hidden_layers": 62, "hidden_size": 5376, "intermediate_size": 21504,
            "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 128, "sliding_window": 1024},
            "vision_config": {"num_hidden_layers": 27, "hidden_size": 1152, "intermediate_size": 4304, "patch_size": 14}}, None),
    "zai-org/GLM-4.5-Air-FP8": (
        GLM_AIR | {"quantization_config": packed("lm_head", *every(47, "mlp.gate", first=1, prefix="model.layers"),
                                                 "model.layers.46.eh_proj", "model.layers.46.shared_head.head")}, None),
    "moonshotai/Kimi-Linear-48B-A3B-Instruct": (
        plain("KimiLinearForCausalLM", "kimi_linear", num_hidden_layers=27, hidden_size=2304, vocab_size=163840,
              num_attention_heads=32, num_key_value_heads=32, head_dim=72, kv_lora_rank=512, q_lora_rank=None,
              qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128, num_experts=256, num_experts_per_token=8,
              num_shared_experts=1, moe_intermediate_size=1024, intermediate_size=9216, first_k_dense_replace=1,
              model_max_length=1048576, linear_attn_config={
                  "full_attn_layers": [4, 8, 12, 16, 20, 24, 27], "head_dim": 128, "num_heads": 32, "short_conv_kernel_size": 4}),
        None),
    "inclusionAI/Ling-3.0-flash-int4": (
        plain("BailingMoeV3ForCausalLM", "bailing_hybrid", num_hidden_layers=42, hidden_size=2560, vocab_size=157184,
              first_k_dense_replace=2, intermediate_size=6144, num_attention_heads=32, num_key_value_heads=32, head_dim=128,
              kv_lora_rank=512, q_lora_rank=None, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128,
              short_conv_kernel_size=4, no_kda_lora=True, gated_attention_proj_granularity_type="head_wise", num_experts=512,
              num_experts_per_tok=8, num_shared_experts=1, moe_intermediate_size=768, moe_shared_expert_intermediate_size=768,
              layer_group_size=6, max_position_embeddings=131072,
              quantization_config=packed("lm_head", "re:.*attention.*", "re:.*shared_experts.*", "re:.*mlp.gate$",
                                         r"re:model\.layers\.[01]\.mlp.*", bits=4, kind="int", group=32)), None),
    "inclusionAI/Ling-flash-2.0": (
        plain("BailingMoeV2ForCausalLM", "bailing_moe", num_hidden_layers=32, hidden_size=4096, num_attention_heads=32,
              num_key_value_heads=4, head_dim=128, intermediate_size=9216, moe_intermediate_size=1024, num_experts=256,
              num_experts_per_tok=8, num_shared_experts=1, first_k_dense_replace=1, vocab_size=157184,
              max_position_embeddings=32768, num_nextn_predict_layers=0), None),
    "ibm-granite/granite-4.0-h-small": (
        plain("GraniteMoeHybridForCausalLM", "granitemoehybrid", num_hidden_layers=40, hidden_size=4096, num_attention_heads=32,
              num_key_value_heads=8, num_local_experts=72, num_experts_per_tok=10, shared_intermediate_size=1536,
              intermediate_size=768, mamba_d_state=128, mamba_d_conv=4, mamba_n_heads=128, mamba_d_head=64, mamba_n_groups=1,
              layer_types=["attention" if layer in (5, 15, 25, 35) else "mamba" for layer in range(40)], vocab_size=100352,
              max_position_embeddings=131072, position_embedding_type="nope") | {"tie_word_embeddings": True}, None),
    "nvidia/NVIDIA-Nemotron-Nano-9B-v2": (
        plain("NemotronHForCausalLM", "nemotron_h", num_hidden_layers=56, hidden_size=4480, num_attention_heads=40,
              num_key_value_heads=8, head_dim=128, intermediate_size=15680, mamba_num_heads=128, mamba_head_dim=80, n_groups=8,
              ssm_state_size=128, conv_kernel=4, vocab_size=131072, max_position_embeddings=131072,
              hybrid_override_pattern="M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-"), None),
    "baidu/ERNIE-4.5-21B-A3B-Thinking": (
        plain("Ernie4_5_MoeForCausalLM", "ernie4_5_moe", num_hidden_layers=28, hidden_size=2560, intermediate_size=12288,
              moe_intermediate_size=1536, num_attention_heads=20, num_key_value_heads=4, moe_num_experts=64,
              moe_num_shared_experts=2, moe_k=6, moe_layer_start_index=1, moe_layer_end_index=27, moe_layer_interval=1,
              vocab_size=103424, max_position_embeddings=131072) | {"tie_word_embeddings": True}, None),
    "tencent/Hunyuan-A13B-Instruct-FP8": (
        plain("HunYuanMoEV1ForCausalLM", "hunyuan_v1_moe", num_hidden_layers=32, hidden_size=4096, num_attention_heads=32,
              num_key_value_heads=8, attention_head_dim=128, intermediate_size=3072, num_experts=64,
              moe_intermediate_size=[3072] * 32, moe_topk=[8] * 32, num_shared_expert=[1] * 32, use_cla=False,
              vocab_size=128167, max_position_embeddings=32768,
              quantization_config=packed("lm_head", *every(32, "mlp.gate.wg", prefix="model.layers")))
        | {"tie_word_embeddings": True}, None),
    "XiaomiMiMo/MiMo-V2-Flash": (
        plain("MiMoV2FlashForCausalLM", "mimo_v2_flash", num_hidden_layers=48, hidden_size=4096, num_attention_heads=64,
              num_key_value_heads=4, head_dim=192, v_head_dim=128, swa_num_attention_heads=64, swa_num_key_value_heads=8,
              swa_head_dim=192, swa_v_head_dim=128, sliding_window=128, attention_chunk_size=128, intermediate_size=16384,
              moe_intermediate_size=2048, n_routed_experts=256, num_experts_per_tok=8,
              hybrid_layer_pattern=[0, *[1, 1, 1, 1, 0], *[1, 1, 1, 1, 1, 0] * 7], moe_layer_freq=[0] + [1] * 47,
              vocab_size=152576, max_position_embeddings=262144, quantization_config=FP8), None),
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": (SCOUT, None),
    "nvidia/Llama-4-Scout-17B-16E-Instruct-NVFP4": (SCOUT, {
        "producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": [
            "language_model.lm_head", "vision_model*", "multi_modal_projector*",
            *every(48, "feed_forward.router", "self_attn*", prefix="language_model.model.layers")]}}),
}  # fmt: skip

# Billions of bytes of the files, or billions of weights where the card has no more.
BYTES = {
    "ByteDance-Seed/Seed-OSS-36B-Instruct": 72.3, "microsoft/phi-4": 29.32, "google/gemma-3-27b-it": 54.86,
    "mistralai/Mistral-Small-3.2-24B-Instruct-2506": 48.02, "moonshotai/Kimi-Linear-48B-A3B-Instruct": 98.25,
    "ibm-granite/granite-4.0-h-small": 64.42, "nvidia/NVIDIA-Nemotron-Nano-9B-v2": 17.78,
    "baidu/ERNIE-4.5-21B-A3B-Thinking": 43.65, "meta-llama/Llama-4-Scout-17B-16E-Instruct": 217.3,
    "inclusionAI/Ling-3.0-flash-int4": 76.0,
}  # fmt: skip
WEIGHTS = {
    "mistralai/Mistral-Small-4-119B-2603": 119.0, "zai-org/GLM-4.5-Air-FP8": 106.0, "inclusionAI/Ling-flash-2.0": 103.0,
    "tencent/Hunyuan-A13B-Instruct-FP8": 80.0, "XiaomiMiMo/MiMo-V2-Flash": 309.0,
}  # fmt: skip
# Bytes that a token takes in a BF16 cache: 2 bytes of K and V of each layer that has one, or of the latent.
CACHE = {
    "ByteDance-Seed/Seed-OSS-36B-Instruct": 64 * 2 * 8 * 128 * 2, "microsoft/phi-4": 40 * 2 * 10 * 128 * 2,
    "moonshotai/Kimi-Linear-48B-A3B-Instruct": 7 * (512 + 64) * 2, "inclusionAI/Ling-3.0-flash-int4": 7 * (512 + 64) * 2,
    "ibm-granite/granite-4.0-h-small": 4 * 2 * 8 * 128 * 2, "nvidia/NVIDIA-Nemotron-Nano-9B-v2": 4 * 2 * 8 * 128 * 2,
    "zai-org/GLM-4.5-Air-FP8": 46 * 2 * 8 * 128 * 2, "mistralai/Mistral-Small-4-119B-2603": 36 * (256 + 64) * 2,
    "tencent/Hunyuan-A13B-Instruct-FP8": 32 * 2 * 8 * 128 * 2, "baidu/ERNIE-4.5-21B-A3B-Thinking": 28 * 2 * 4 * 128 * 2,
    "XiaomiMiMo/MiMo-V2-Flash": 2 * (192 + 128) * (9 * 4 + 39 * 8),
}  # fmt: skip
