// HyperCLOVA X SEED: Granite 3 whose logits are multiplied by their scale, and mostly with norms of what attention and
// MLP put out as well.
#include <cmath>

#include "sim/model/config_granite.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_hyperclovax_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "bos_token_id": 1, "eos_token_id": 2})");
  ModelConfig config = read_decoder(fields, {.family = "hyperclovax", .mlp_bias = true});
  read_granite_scales(fields, config, 1 / std::sqrt(static_cast<double>(config.shape.head_dim)));
  config.options.logit_scale = static_cast<float>(fields.positive("logits_scaling", 1.0));
  if (fields.flag("use_post_norm", true)) config.shape.norms_per_layer = 4;
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
