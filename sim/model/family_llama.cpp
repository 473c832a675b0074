// LLaMA: RMS norms, half-split rotary embedding, grouped queries, gated MLP, optional biases, tied or untied head.
// The keys and their defaults are those of Hugging Face's LlamaConfig, old (2023) and new (rope_parameters, dtype).
#include <algorithm>

#include "sim/model/config_fields.hpp"
#include "sim/model/families.hpp"

namespace kvroof {
namespace {

constexpr std::uint32_t kMostLayers = 1024;
constexpr std::uint32_t kMostHeads = 1024;
constexpr std::uint32_t kMostHeadDim = 65536;

void read_heads(ConfigFields& fields, ModelShape& shape) {
  shape.heads = fields.size("num_attention_heads", {}, kMostHeads);
  shape.kv_heads = fields.size("num_key_value_heads", shape.heads, kMostHeads);
  if (shape.heads % shape.kv_heads != 0) {
    fields.fail(fmt::format("num_attention_heads ({}) is not a multiple of num_key_value_heads ({})", shape.heads,
                            shape.kv_heads));
  }
  if (!fields.has("head_dim") && shape.hidden % shape.heads != 0) {
    fields.fail(fmt::format("hidden_size ({}) is not a multiple of num_attention_heads ({}), and head_dim is missing",
                            shape.hidden, shape.heads));
  }
  shape.head_dim = fields.size("head_dim", std::max(1U, shape.hidden / shape.heads), kMostHeadDim);
  shape.v_head_dim = shape.head_dim;
  if (shape.head_dim % 2 != 0) {
    fields.fail(fmt::format("head_dim is {}, but rotary embedding needs an even number", shape.head_dim));
  }
}

ModelShape read_shape(ConfigFields& fields) {
  ModelShape shape;
  shape.family = "llama";
  shape.layers = fields.size("num_hidden_layers", {}, kMostLayers);
  shape.hidden = fields.size("hidden_size");
  shape.embedding_width = shape.hidden;
  shape.ffn = fields.size("intermediate_size");
  shape.vocab = fields.size("vocab_size");
  shape.max_positions = fields.size("max_position_embeddings", 2048U);
  read_heads(fields, shape);
  shape.qkv_bias = fields.flag("attention_bias", false);
  shape.out_bias = shape.qkv_bias;
  shape.mlp_bias = fields.flag("mlp_bias", false);
  shape.tied_head = fields.flag("tie_word_embeddings", false);
  shape.weight_type = fields.weight_type();
  return shape;
}

}  // namespace

Result<ModelConfig> parse_llama_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  ModelConfig config;
  config.shape = read_shape(fields);
  fields.only("hidden_act", {"silu", "swish"}, "but this family's MLP is built with");
  fields.refuse("quantization_config", "quantised checkpoints cannot be read; use the unquantised one");
  if (fields.positive("partial_rotary_factor", 1.0) != 1.0)
    fields.refuse("partial_rotary_factor", "whole heads are rotated");
  ModelOptions& options = config.options;
  options.norm_eps = static_cast<float>(fields.positive("rms_norm_eps", 1e-6));
  options.rotary = {plain_rotary(RotaryStyle::kHalfSplit, config.shape.head_dim, fields.plain_rope_theta(10000.0))};
  options.layers.assign(config.shape.layers, {default_attention_scale(config.shape.head_dim)});
  options.bos_ids = fields.ids("bos_token_id", {1});
  options.eos_ids = fields.ids("eos_token_id", {2});
  if (fields.failed()) return fields.failure();
  return config;
}

}  // namespace kvroof
