// What the configurations of decoders that are built like LLaMA have in common; a family's file adds what is special.
#pragma once

#include <array>
#include <functional>
#include <span>
#include <string_view>

#include "sim/model/config_fields.hpp"
#include "sim/model/config_rotary.hpp"

namespace kvroof {

struct DecoderKeys {
  std::string_view family;  // model_type
  std::string_view layers = "num_hidden_layers";
  NormKind norm = NormKind::kRms;
  std::string_view norm_eps = "rms_norm_eps";
  std::string_view activation = "hidden_act";
  std::string_view head_dim = "head_dim";  // hidden_size / num_attention_heads where it is absent
  RotaryStyle rotary = RotaryStyle::kHalfSplit;
  // Whether the family's code reads the keys of these names; else they say nothing.
  bool attention_bias = true;
  bool mlp_bias = false;
  bool partial_rotary = false;              // a part of each head may be rotated
  std::string_view rotary_layer_type = {};  // see RotaryRequest
  std::span<const std::string_view> own_rotary_keys = {};
};

// Sizes, heads (grouped queries, explicit head_dim), biases by attention_bias and mlp_bias, norm, activation, rotary
// embedding, attention scale 1/√head_dim, tied head, token ids. Call fields.defaults() with the family's own first.
ModelConfig read_decoder(ConfigFields& fields, const DecoderKeys& keys);

// Layers that slide, as layer_types says or else `slides`; they get sliding_window as their window. A null there, or a
// window that no sequence outgrows, is none.
std::vector<bool> read_windows(ConfigFields& fields, ModelConfig& config,
                               const std::function<bool(std::uint32_t layer)>& slides);

// Which layers turn q and k: 1 in no_rope_layers, whatever its name says, or all but the last of each
// no_rope_layer_interval.
std::vector<bool> read_turned_layers(ConfigFields& fields, std::uint32_t layers);
// The other layers have no rotary embedding.
void set_turned_layers(ModelConfig& config, const std::vector<bool>& turned);

// Keys of rope_parameters that are read by read_query_scale(), or repeat another one in its families.
inline constexpr std::array<std::string_view, 2> kQueryScaleKeys = {"llama_4_scaling_beta", "max_position_embeddings"};
// llama_4_scaling_beta and original_max_position_embeddings of the rotary embedding: how queries grow.
void read_query_scale(ConfigFields& fields, ModelConfig& config);

// Qwen's use_sliding_window, sliding_window and max_window_layers: layers from the latter on have the window.
void read_qwen_windows(ConfigFields& fields, ModelConfig& config);
// The same keys in Qwen's MoE families: versions of transformers disagree on what max_window_layers says, so only
// layer_types counts.
void read_qwen_moe_windows(ConfigFields& fields, ModelConfig& config);

// Experts in every layer under Qwen's names: num_experts or num_local_experts (else `experts`), num_experts_per_tok,
// norm_topk_prob.
// Refuses dense layers between them (decoder_sparse_step, mlp_only_layers).
void read_experts(ConfigFields& fields, ModelConfig& config, std::uint32_t experts);

}  // namespace kvroof
