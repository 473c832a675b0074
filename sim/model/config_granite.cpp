#include "sim/model/config_granite.hpp"

namespace kvroof {

void read_granite_scales(ConfigFields& fields, ModelConfig& config, double attention) {
  ModelOptions& options = config.options;
  options.embedding_scale = static_cast<float>(fields.positive("embedding_multiplier", 1.0));
  options.residual_scale = static_cast<float>(fields.positive("residual_multiplier", 1.0));
  options.logit_scale = static_cast<float>(1 / fields.positive("logits_scaling", 1.0));
  const auto scale = static_cast<float>(fields.positive("attention_multiplier", attention));
  for (LayerRule& layer : options.layers) layer.scale = scale;
}

}  // namespace kvroof
