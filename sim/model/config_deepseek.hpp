// What the configurations of DeepSeek's families have in common, and of those that took over its mixture of experts.
#pragma once

#include "sim/model/config_decoder.hpp"

namespace kvroof {

// Multi-head latent attention (arXiv:2405.04434, section 2.1) as one KV head whose row is the latent and the rotated
// part of k: kv_lora_rank, q_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim.
void read_latent(ConfigFields& fields, ModelConfig& config);

// Leading dense layers, then routed and shared experts: n_routed_experts, num_experts_per_tok, moe_intermediate_size,
// n_shared_experts, first_k_dense_replace, routed_scaling_factor.
void read_shared_experts(ConfigFields& fields, ModelConfig& config);

// n_group and topk_group.
void read_groups(ConfigFields& fields, const ModelShape& shape, RoutingRule& routing);

// The same experts, scored by sigmoids and chosen by scores and a bias that training keeps their loads even with
// (DeepSeek-V3, arXiv:2412.19437, section 2.1.2): scoring_func sigmoid, topk_method noaux_tc.
void read_sigmoid_experts(ConfigFields& fields, ModelConfig& config);
// How experts are chosen alone: of groups that their two best ones rank, with weights that sum to 1 where
// norm_topk_prob does not say otherwise; and in that family.
void read_grouped_routing(ConfigFields& fields, ModelConfig& config);
void read_sigmoid_routing(ConfigFields& fields, ModelConfig& config);

// DeepSeek-V3 without experts but for finish_config(): latent attention and MLPs. `family` names its tensors.
// `rotary_keys` as DecoderKeys::own_rotary_keys.
ModelConfig read_latent_decoder(ConfigFields& fields, std::string_view family = "deepseek_v3",
                                std::span<const std::string_view> rotary_keys = {});
// A whole DeepSeek-V3, likewise: latent attention and those experts.
ModelConfig read_deepseek_v3(ConfigFields& fields, std::string_view family = "deepseek_v3");

// How many leading layers are dense, as mlp_layer_types says for each layer; refuses dense ones behind sparse ones.
// Without that list: `otherwise`.
std::uint32_t read_dense_layers(ConfigFields& fields, std::uint32_t layers, std::uint32_t otherwise);

// The index of sparse attention (DeepSeek-V3.2, arXiv:2512.02556): index_n_heads, index_head_dim, index_topk; and the
// layers that have one (indexer_types, index_topk_pattern, index_topk_freq; arXiv:2603.12201), all where nothing says.
void read_index(ConfigFields& fields, ModelConfig& config);
// A DeepSeek-V3 with such an index, likewise, which the engine does not run.
ModelConfig read_indexed_deepseek(ConfigFields& fields, std::string_view family);

}  // namespace kvroof
