// Cohere's Command-R: one layer norm without bias a layer, attention and MLP in parallel, rotary embedding on adjacent
// pairs, scaled logits; in the larger version layer norms of q and k with a vector for each head.
#include "sim/model/config_decoder.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_cohere_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"max_position_embeddings": 8192, "layer_norm_eps": 1e-5, "logit_scale": 0.0625,
                      "rope_theta": 5e5, "tie_word_embeddings": true, "bos_token_id": 5, "eos_token_id": 255001})");
  ModelConfig config = read_decoder(fields, {.family = "cohere",
                                             .norm = NormKind::kLayer,
                                             .norm_eps = "layer_norm_eps",
                                             .rotary = RotaryStyle::kAdjacentPairs});
  // The context that the model is made for; max_position_embeddings only sized a table of its first code.
  config.shape.max_positions = fields.size("model_max_length", config.shape.max_positions);
  config.shape.norms_per_layer = 1;
  if (fields.flag("use_qk_norm", false)) config.shape.qk_norm = QkNorm::kEachHead;
  config.options.residual = ResidualOrder::kParallel;
  config.options.logit_scale = static_cast<float>(fields.positive("logit_scale"));
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
