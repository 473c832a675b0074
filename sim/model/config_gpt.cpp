#include "sim/model/config_gpt.hpp"

#include <algorithm>

namespace kvroof {
namespace {

ModelShape read_shape(ConfigFields& fields, const GptKeys& keys) {
  ModelShape shape;
  shape.family = keys.family;
  shape.layers = fields.size(fields.named(keys.layers), {}, kMostLayers);
  const std::string_view hidden_key = fields.named(keys.hidden);
  const std::string_view heads_key = fields.named(keys.heads);
  shape.hidden = fields.size(hidden_key);
  shape.heads = fields.size(heads_key, {}, kMostHeads);
  shape.vocab = fields.size("vocab_size");
  shape.max_positions = fields.size(fields.named(keys.positions), keys.default_positions);
  if (shape.hidden % shape.heads != 0 || shape.hidden / shape.heads > kMostHeadDim) {
    fields.fail(fmt::format("{} ({}) over {} ({}) is no head size from 1 to {}", hidden_key, shape.hidden, heads_key,
                            shape.heads, kMostHeadDim));
  }
  shape.kv_heads = shape.heads;
  shape.head_dim = std::clamp(shape.hidden / shape.heads, 1U, kMostHeadDim);
  shape.v_head_dim = shape.head_dim;
  shape.embedding_width = shape.hidden;
  shape.ffn = 4 * shape.hidden;
  shape.mlp = MlpKind::kPlain;
  shape.norm = NormKind::kLayer;
  shape.norm_bias = shape.qkv_bias = shape.out_bias = shape.mlp_bias = true;
  shape.weight_type = fields.weight_type();
  return shape;
}

}  // namespace

ModelConfig read_gpt(ConfigFields& fields, const GptKeys& keys) {
  ModelConfig config;
  config.shape = read_shape(fields, keys);
  ModelOptions& options = config.options;
  options.activation = Activation::kGelu;
  options.norm_eps = static_cast<float>(fields.positive(keys.norm_eps, 1e-5));
  options.layers.assign(config.shape.layers, {default_attention_scale(config.shape.head_dim)});
  options.bos_ids = fields.ids("bos_token_id", {});
  options.eos_ids = fields.ids("eos_token_id", {});
  return config;
}

}  // namespace kvroof
