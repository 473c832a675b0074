#include "sim/model/config_granite.hpp"

namespace kvroof {

void read_granite_scales(ConfigFields& fields, ModelConfig& config) {
  fields.defaults(R"({"embedding_multiplier": 1.0, "attention_multiplier": 1.0, "residual_multiplier": 1.0,
                      "logits_scaling": 1.0})");
  ModelOptions& options = config.options;
  options.embedding_scale = static_cast<float>(fields.positive("embedding_multiplier"));
  options.residual_scale = static_cast<float>(fields.positive("residual_multiplier"));
  options.logit_scale = static_cast<float>(1 / fields.positive("logits_scaling"));
  const auto scale = static_cast<float>(fields.positive("attention_multiplier"));
  for (LayerRule& layer : options.layers) layer.scale = scale;
}

}  // namespace kvroof
