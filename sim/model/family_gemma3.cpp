// Gemma 3, the text model: norms of each head of q and k; sliding layers with a rotary embedding of their own, and
// every sixth layer full. Published files leave out what equals the defaults of Gemma3TextConfig. As in transformers,
// nothing reads attn_logit_softcapping.
#include "sim/model/config_gemma.hpp"
#include "sim/model/families.hpp"

namespace kvroof {
namespace {

// Of sliding layers: never scaled in the old form.
RotaryRule read_local_rotary(ConfigFields& fields, std::uint32_t dims) {
  if (fields.has_object("rope_parameters.sliding_attention")) {
    return read_rotary(fields, {RotaryStyle::kHalfSplit, dims, false, "sliding_attention"});
  }
  return plain_rotary(RotaryStyle::kHalfSplit, dims, fields.positive("rope_local_base_freq", 10000.0));
}

}  // namespace

Result<ModelConfig> parse_gemma3_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"vocab_size": 262208, "max_position_embeddings": 131072, "num_attention_heads": 8,
                      "num_key_value_heads": 4, "rope_theta": 1e6, "sliding_window": 4096, "eos_token_id": [1, 106]})");
  ModelConfig config = read_gemma(
      fields, {.family = "gemma3_text", .activation = "hidden_activation", .rotary_layer_type = "full_attention"});
  config.shape.qk_norm = QkNorm::kHead;
  read_gemma2_attention(fields, config);
  const std::uint32_t period = fields.size("sliding_window_pattern", 6U);
  const auto sliding = read_windows(fields, config, [&](std::uint32_t layer) { return (layer + 1) % period != 0; });
  config.options.rotary.push_back(read_local_rotary(fields, config.shape.head_dim));
  for (std::size_t i = 0; i < sliding.size(); ++i) config.options.layers[i].rotary = sliding[i] ? 1 : 0;
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
