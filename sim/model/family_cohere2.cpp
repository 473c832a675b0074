// Command-R7B and Command-A: Cohere's block; three layers of four slide and turn q and k, the others see everything and
// know no positions.
#include "sim/model/config_decoder.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_cohere2_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"max_position_embeddings": 8192, "layer_norm_eps": 1e-5, "logit_scale": 0.0625,
                      "sliding_window": 4096, "tie_word_embeddings": true, "bos_token_id": 5,
                      "eos_token_id": 255001})");
  ModelConfig config = read_decoder(fields, {.family = "cohere2",
                                             .norm = NormKind::kLayer,
                                             .norm_eps = "layer_norm_eps",
                                             .rotary = RotaryStyle::kAdjacentPairs});
  config.shape.norms_per_layer = 1;
  config.options.residual = ResidualOrder::kParallel;
  config.options.logit_scale = static_cast<float>(fields.positive("logit_scale"));
  const std::uint32_t period = fields.size("sliding_window_pattern", 4U);
  set_turned_layers(config,
                    read_windows(fields, config, [&](std::uint32_t layer) { return (layer + 1) % period != 0; }));
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
