#include "sim/model/config_decoder.hpp"

#include <algorithm>

#include "sim/model/config_of_shape.hpp"

namespace kvroof {
namespace {

void read_heads(ConfigFields& fields, const DecoderKeys& keys, ModelShape& shape) {
  shape.heads = fields.size("num_attention_heads", {}, kMostHeads);
  shape.kv_heads = fields.size("num_key_value_heads", shape.heads, kMostHeads);
  if (shape.heads % shape.kv_heads != 0) {
    fields.fail(fmt::format("num_attention_heads ({}) is not a multiple of num_key_value_heads ({})", shape.heads,
                            shape.kv_heads));
  }
  if (!fields.has(keys.head_dim) && shape.hidden % shape.heads != 0) {
    fields.fail(fmt::format("hidden_size ({}) is not a multiple of num_attention_heads ({}), and {} is missing",
                            shape.hidden, shape.heads, keys.head_dim));
  }
  shape.head_dim = fields.size(keys.head_dim, std::max(1U, shape.hidden / shape.heads), kMostHeadDim);
  shape.v_head_dim = shape.head_dim;
  if (shape.head_dim % 2 != 0) {
    fields.fail(fmt::format("{} is {}, but rotary embedding needs an even number", keys.head_dim, shape.head_dim));
  }
}

ModelShape read_shape(ConfigFields& fields, const DecoderKeys& keys) {
  ModelShape shape;
  shape.family = keys.family;
  shape.layers = fields.size(keys.layers, {}, kMostLayers);
  shape.hidden = fields.size("hidden_size");
  shape.embedding_width = shape.hidden;
  shape.ffn = fields.size("intermediate_size");
  shape.vocab = fields.size("vocab_size");
  shape.max_positions = std::max(fields.size("max_position_embeddings", 2048U), yarn_reach(fields));
  read_heads(fields, keys, shape);
  shape.position =
      keys.rotary == RotaryStyle::kHalfSplit ? PositionScheme::kRotaryHalfSplit : PositionScheme::kRotaryAdjacent;
  shape.norm = keys.norm;
  shape.qkv_bias = keys.attention_bias && fields.flag("attention_bias", false);
  shape.out_bias = shape.qkv_bias;
  shape.mlp_bias = keys.mlp_bias && fields.flag("mlp_bias", false);
  shape.tied_head = fields.flag("tie_word_embeddings", false);
  shape.weight_type = fields.weight_type();
  return shape;
}

bool is_sliding(ConfigFields& fields, const std::string& type) {
  if (type != "sliding_attention" && type != "full_attention") {
    fields.fail(fmt::format("layer_types has \"{}\", which is not supported; known: full_attention, sliding_attention",
                            type.substr(0, 80)));
  }
  return type == "sliding_attention";
}

}  // namespace

ModelConfig read_decoder(ConfigFields& fields, const DecoderKeys& keys) {
  ModelConfig config;
  config.shape = read_shape(fields, keys);
  ModelOptions& options = config.options;
  options.norm_eps = static_cast<float>(fields.positive(keys.norm_eps, 1e-6));
  options.activation = fields.activation(keys.activation, Activation::kSilu);
  options.rotary = {read_rotary(fields, {.style = keys.rotary,
                                         .dims = config.shape.head_dim,
                                         .partial = keys.partial_rotary,
                                         .layer_type = keys.rotary_layer_type,
                                         .own_keys = keys.own_rotary_keys})};
  options.layers.assign(config.shape.layers, {default_attention_scale(config.shape.head_dim)});
  options.bos_ids = fields.ids("bos_token_id", {});
  options.eos_ids = fields.ids("eos_token_id", {});
  return config;
}

std::vector<bool> read_windows(ConfigFields& fields, ModelConfig& config,
                               const std::function<bool(std::uint32_t layer)>& slides) {
  ModelShape& shape = config.shape;
  const std::vector<std::string> types = fields.texts("layer_types");
  if (!types.empty() && types.size() != shape.layers) {
    fields.fail(
        fmt::format("layer_types has {} entries, expected one for each of the {} layers", types.size(), shape.layers));
    return std::vector<bool>(shape.layers);
  }
  std::vector<bool> sliding(shape.layers);
  for (std::uint32_t i = 0; i < shape.layers; ++i)
    sliding[i] = types.empty() ? slides(i) : is_sliding(fields, types[i]);
  if (std::find(sliding.begin(), sliding.end(), true) == sliding.end()) return sliding;
  if (!types.empty() && !fields.has("sliding_window")) fields.fail("sliding_window is missing, but layer_types has it");
  const std::uint32_t window = fields.has("sliding_window") ? fields.size("sliding_window") : shape.max_positions;
  if (window >= shape.max_positions) return sliding;
  shape.layer_windows.assign(shape.layers, 0);
  for (std::uint32_t i = 0; i < shape.layers; ++i) {
    if (sliding[i]) shape.layer_windows[i] = window;
  }
  return sliding;
}

void read_query_scale(ConfigFields& fields, ModelConfig& config) {
  const std::string section = rotary_section(fields), beta = section + ".llama_4_scaling_beta";
  if (!fields.has(beta) || fields.is_number(beta, 0)) return;
  config.options.query_scale = {static_cast<float>(fields.positive(beta)),
                                fields.size(section + ".original_max_position_embeddings")};
}

std::vector<bool> read_turned_layers(ConfigFields& fields, std::uint32_t layers) {
  const std::uint32_t period = fields.size("no_rope_layer_interval", 4U);
  const std::vector<std::int64_t> listed = fields.ids("no_rope_layers", {});
  if (!listed.empty() && listed.size() != layers) {
    fields.fail(
        fmt::format("no_rope_layers has {} entries, expected one for each of the {} layers", listed.size(), layers));
    return std::vector<bool>(layers);
  }
  std::vector<bool> turned(layers);
  for (std::uint32_t i = 0; i < layers; ++i) turned[i] = listed.empty() ? (i + 1) % period != 0 : listed[i] != 0;
  return turned;
}

void set_turned_layers(ModelConfig& config, const std::vector<bool>& turned) {
  for (std::uint32_t i = 0; i < turned.size(); ++i) {
    if (!turned[i]) config.shape.unturned_layers.push_back(i);
  }
  leave_layers_unturned(config);
}

void read_qwen_windows(ConfigFields& fields, ModelConfig& config) {
  const bool used = fields.flag("use_sliding_window", false);
  const std::uint32_t first = fields.count("max_window_layers", 28);
  read_windows(fields, config, [&](std::uint32_t layer) { return used && layer >= first; });
}

void read_qwen_moe_windows(ConfigFields& fields, ModelConfig& config) {
  if (!fields.has("layer_types")) {
    fields.only("use_sliding_window", false, "without layer_types it is not supported in this family");
  }
  read_windows(fields, config, [](std::uint32_t) { return false; });
}

void read_experts(ConfigFields& fields, ModelConfig& config, std::uint32_t experts) {
  ModelShape& shape = config.shape;
  shape.experts = fields.size(fields.has("num_experts") ? "num_experts" : "num_local_experts", experts, 1U << 16);
  shape.experts_per_token = fields.size("num_experts_per_tok", {}, shape.experts);
  shape.expert_ffn = fields.size("moe_intermediate_size", shape.ffn);
  config.options.routing.renormalise = fields.flag("norm_topk_prob", false);
  if (fields.size("decoder_sparse_step", 1U) != 1) {
    fields.refuse("decoder_sparse_step", "dense layers between expert layers are not supported");
  }
  if (!fields.empty("mlp_only_layers")) {
    fields.refuse("mlp_only_layers", "dense layers between expert layers are not supported");
  }
}

}  // namespace kvroof
