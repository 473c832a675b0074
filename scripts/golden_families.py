"""Sizes of the tiny models that scripts/make-transformers-goldens makes: a name is that of a model type, behind which a
dash may tell several of one type apart."""
VOCAB = 64
SHAPE = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2,
         "num_hidden_layers": 2, "vocab_size": VOCAB, "max_position_embeddings": 192, "bos_token_id": 1,
         "eos_token_id": 2, "pad_token_id": 0}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 24}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "mscale": 1.0, "mscale_all_dim": 0.8, "beta_fast": 32.0,
        "beta_slow": 1.0, "original_max_position_embeddings": 24}
GROWING = {"llama_4_scaling_beta": 0.5}  # queries, with their positions
SIGMOID_EXPERTS = {"n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 32, "n_shared_experts": 1,
                   "first_k_dense_replace": 1, "norm_topk_prob": True, "routed_scaling_factor": 2.5}
DEEPSEEK_V3 = SHAPE | SIGMOID_EXPERTS | {
    "num_key_value_heads": 4, "n_group": 4, "topk_group": 2, "q_lora_rank": 24, "kv_lora_rank": 32,
    "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 24, "rope_parameters": YARN}
GPT_OSS = SHAPE | {"num_hidden_layers": 3, "head_dim": 32, "num_attention_heads": 8, "sliding_window": 8,
                   "num_local_experts": 8, "num_experts_per_tok": 3,
                   "rope_parameters": {"rope_type": "yarn", "rope_theta": 1.5e5, "factor": 4.0, "beta_fast": 32.0,
                                       "beta_slow": 1.0, "truncate": False, "original_max_position_embeddings": 24}}
# Of every kind of layer two: some attend, the others hold a state.
HYBRID = SHAPE | {"num_hidden_layers": 4, "layer_types": ["linear_attention", "full_attention"] * 2, "head_dim": 32,
                  "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 16,
                  "linear_value_head_dim": 24, "linear_conv_kernel_dim": 4,
                  "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 0.5}}
GRANITE_SCALES = {"embedding_multiplier": 12.0, "attention_multiplier": 0.4, "residual_multiplier": 0.22,
                  "logits_scaling": 6.0}
# Two groups of B and C; heads read other groups than their neighbours.
GRANITE_HYBRID = SHAPE | {
    "num_hidden_layers": 4, "layer_types": ["linear_attention", "full_attention"] * 2, "shared_intermediate_size": 48,
    "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_n_groups": 2, "mamba_d_state": 24, "mamba_expand": 2,
    "mamba_d_conv": 4, "mamba_chunk_size": 16} | GRANITE_SCALES
NEMOTRON_H = SHAPE | {"head_dim": 32, "mamba_num_heads": 8, "mamba_head_dim": 16, "n_groups": 2, "ssm_state_size": 24,
                      "conv_kernel": 4, "chunk_size": 16}
GRANITE_MOE = SHAPE | GRANITE_SCALES | {"intermediate_size": 32, "num_local_experts": 8, "num_experts_per_tok": 3,
                                        "tie_word_embeddings": True}
HUNYUAN = SHAPE | {"head_dim": 32, "attention_bias": True,
                   "rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "alpha": 50.0, "factor": 1.0}}
LFM2 = SHAPE | {"num_hidden_layers": 4, "layer_types": ["conv", "full_attention", "conv", "full_attention"],
                "conv_L_cache": 3, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}
# A model with a tower for pictures, of which the text part alone is run; the tower is as small as it may be.
QWEN_TOWER = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 64,
              "patch_size": 4, "fullatt_block_indexes": [0], "deepstack_visual_indexes": [0],
              "num_position_embeddings": 16}
PIXTRAL = {"model_type": "pixtral", "num_hidden_layers": 1, "hidden_size": 16, "intermediate_size": 16,
           "num_attention_heads": 2, "head_dim": 8, "image_size": 16, "patch_size": 4}


def with_tower(tower, **text):
    return {"vision_config": tower, "text_config": SHAPE | text}


TOWERS = {
    "glm4v": with_tower(QWEN_TOWER, tie_word_embeddings=False,
                        rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5,
                                         "mrope_section": [1, 1, 2]}),
    "kimi_k25": with_tower({"num_hidden_layers": 1, "hidden_size": 16, "intermediate_size": 16,
                            "num_attention_heads": 2, "patch_size": 4, "pos_emb_height": 4, "pos_emb_width": 4},
                           model_type="deepseek_v3", tie_word_embeddings=False, **DEEPSEEK_V3),
    "mistral3-mistral4": with_tower(PIXTRAL, model_type="mistral4", tie_word_embeddings=False,
                                    **(DEEPSEEK_V3 | {"routed_scaling_factor": 1.5, "rope_parameters": YARN | GROWING | {
                                        "partial_rotary_factor": 1 / 3}})),
    "mistral3": with_tower(PIXTRAL, model_type="mistral", head_dim=32, sliding_window=None, tie_word_embeddings=False,
                           rope_parameters={"rope_type": "default", "rope_theta": 1e6}),
    "qwen2_5_vl": with_tower(QWEN_TOWER, rope_parameters={"rope_type": "default", "rope_theta": 1e6,
                                                          "mrope_section": [2, 3, 3]}),
    "qwen3_vl": with_tower(QWEN_TOWER, head_dim=32, tie_word_embeddings=True,
                           rope_parameters={"rope_type": "default", "rope_theta": 5e6, "mrope_interleaved": True,
                                            "mrope_section": [6, 5, 5]}),
    "qwen3_vl_moe": with_tower(QWEN_TOWER, head_dim=32, moe_intermediate_size=32, num_experts=4, num_experts_per_tok=2,
                               tie_word_embeddings=False,
                               rope_parameters={"rope_type": "default", "rope_theta": 5e6, "mrope_interleaved": True,
                                                "mrope_section": [6, 5, 5]}),
}
MODELS = TOWERS | {
    "arcee": SHAPE | {"attention_bias": True, "mlp_bias": True},
    "cohere2": SHAPE | {"num_hidden_layers": 3, "sliding_window": 8, "sliding_window_pattern": 3, "logit_scale": 0.125,
                        "rope_parameters": {"rope_type": "default", "rope_theta": 5e4}},
    "deepseek_v3": DEEPSEEK_V3,
    "deepseek_v3-fp8": DEEPSEEK_V3,
    "ernie4_5": SHAPE | {"head_dim": 32, "use_bias": True, "tie_word_embeddings": True},
    "ernie4_5_moe": SHAPE | {"moe_intermediate_size": 32, "moe_k": 3, "moe_num_experts": 8, "moe_num_shared_experts": 2,
                             "moe_layer_start_index": 1, "tie_word_embeddings": True},
    "exaone": SHAPE | {"attention_bias": True, "rope_parameters": LLAMA3},
    "exaone4": SHAPE | {"num_hidden_layers": 3, "sliding_window": 8, "sliding_window_pattern": "LLG", "head_dim": 32,
                        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
                        "rope_parameters": LLAMA3},
    "exaone_moe": SHAPE | {"num_hidden_layers": 3, "sliding_window": 8, "sliding_window_pattern": "LLG", "head_dim": 32,
                           "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
                           "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 32,
                           "num_shared_experts": 2, "first_k_dense_replace": 1, "n_group": 4, "topk_group": 2,
                           "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
    "flex_olmo": SHAPE | {"intermediate_size": 32, "num_experts": 8, "num_experts_per_tok": 3},
    "glm4": SHAPE | {"head_dim": 32},
    "glm4_moe": SHAPE | SIGMOID_EXPERTS | {"head_dim": 32, "use_qk_norm": True,
                                           "attention_bias": True, "n_group": 1, "topk_group": 1},
    "gpt_oss": GPT_OSS,
    "gpt_oss-mxfp4": GPT_OSS,
    "granite": SHAPE | GRANITE_SCALES,
    "granitemoe": GRANITE_MOE,
    "granitemoeshared": GRANITE_MOE | {"shared_intermediate_size": 48},
    "granitemoehybrid": GRANITE_HYBRID | {"intermediate_size": 32, "num_local_experts": 4, "num_experts_per_tok": 2,
                                          "tie_word_embeddings": True},
    "granitemoehybrid-dense": GRANITE_HYBRID | {"num_local_experts": 0, "tie_word_embeddings": True},
    "hunyuan_v1_dense": HUNYUAN,
    "hunyuan_v1_moe": HUNYUAN | {"intermediate_size": 32, "num_experts": 8, "moe_topk": 3, "tie_word_embeddings": True},
    "hyperclovax": SHAPE | GRANITE_SCALES | {"attention_multiplier": None, "logits_scaling": 0.25},
    "lfm2": LFM2 | {"block_auto_adjust_ff_dim": True, "block_multiple_of": 16, "tie_word_embeddings": True},
    "lfm2_moe": LFM2 | {"moe_intermediate_size": 32, "num_experts": 8, "num_experts_per_tok": 3, "num_dense_layers": 1,
                        "use_expert_bias": True, "norm_topk_prob": True, "routed_scaling_factor": 1.5},
    "minimax_m2": SHAPE | {"intermediate_size": 32, "head_dim": 32, "num_local_experts": 8, "num_experts_per_tok": 3,
                           "rope_parameters": {"rope_type": "default", "rope_theta": 5e6,
                                               "partial_rotary_factor": 0.5}},
    "ministral3": SHAPE | {"head_dim": 32, "sliding_window": None, "rope_parameters": YARN | GROWING},
    "nemotron": SHAPE | {"head_dim": 32, "attention_bias": True, "mlp_bias": True},
    "nemotron_h": NEMOTRON_H | {
        "num_hidden_layers": 8, "layers_block_type": ["linear_attention", "moe", "linear_attention", "full_attention",
                                                      "moe", "linear_attention", "moe", "full_attention"],
        "moe_intermediate_size": 32, "moe_shared_expert_intermediate_size": 48, "n_routed_experts": 4,
        "num_experts_per_tok": 2, "routed_scaling_factor": 2.5},
    "nemotron_h-dense": NEMOTRON_H | {
        "num_hidden_layers": 7, "layers_block_type": ["linear_attention", "mlp", "linear_attention", "full_attention",
                                                      "mlp", "linear_attention", "mlp"]},
    "olmoe": SHAPE | {"intermediate_size": 32, "num_experts": 8, "num_experts_per_tok": 3},
    "phi": SHAPE | {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}},
    "phimoe": SHAPE | {"intermediate_size": 32, "num_local_experts": 8, "router_jitter_noise": 0.3,
                       "attention_bias": True, "lm_head_bias": True, "sliding_window": 24,
                       "rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4, "short_mscale": 1.2,
                                           "long_mscale": 1.2, "short_factor": [1.0 + 0.1 * i for i in range(8)],
                                           "long_factor": [1.0 + i for i in range(8)],
                                           "original_max_position_embeddings": 96}},
    "qwen3_5_moe_text": HYBRID | {"moe_intermediate_size": 32, "shared_expert_intermediate_size": 48, "num_experts": 4,
                                  "num_experts_per_tok": 2},
    "qwen3_5_text": HYBRID | {"tie_word_embeddings": True},
    "qwen3_next": HYBRID | {"moe_intermediate_size": 32, "shared_expert_intermediate_size": 48, "num_experts": 4,
                            "num_experts_per_tok": 2, "norm_topk_prob": True},
    "seed_oss": SHAPE | {"head_dim": 32, "attention_out_bias": True, "attention_dropout": 0.1},
    "solar_open": SHAPE | {"head_dim": 32, "attention_bias": True, "n_routed_experts": 8, "num_experts_per_tok": 3,
                           "moe_intermediate_size": 32, "n_shared_experts": 2, "n_group": 4, "topk_group": 2,
                           "routed_scaling_factor": 2.5},
    "smollm3": SHAPE | {"num_hidden_layers": 3, "no_rope_layer_interval": 2},
    "smollm3-fp8-channel": SHAPE | {"num_hidden_layers": 3, "no_rope_layer_interval": 2},
    "youtu": SHAPE | {"num_key_value_heads": 4, "q_lora_rank": 24, "kv_lora_rank": 32, "qk_nope_head_dim": 16,
                      "qk_rope_head_dim": 8, "v_head_dim": 24},
}
