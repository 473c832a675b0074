// Granite 3: LLaMA whose embeddings, attention, residuals and logits are scaled by numbers of their own.
#include "sim/model/config_decoder.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_granite_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "embedding_multiplier": 1.0,
                      "attention_multiplier": 1.0, "residual_multiplier": 1.0, "logits_scaling": 1.0,
                      "bos_token_id": 1, "eos_token_id": 2})");
  ModelConfig config = read_decoder(fields, {.family = "granite", .mlp_bias = true});
  ModelOptions& options = config.options;
  options.embedding_scale = static_cast<float>(fields.positive("embedding_multiplier"));
  options.residual_scale = static_cast<float>(fields.positive("residual_multiplier"));
  options.logit_scale = static_cast<float>(1 / fields.positive("logits_scaling"));
  const auto scale = static_cast<float>(fields.positive("attention_multiplier"));  // in the place of 1/√head_dim
  for (LayerRule& layer : options.layers) layer.scale = scale;
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
