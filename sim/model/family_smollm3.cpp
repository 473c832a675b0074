// SmolLM3: LLaMA of which every fourth layer knows no positions.
#include "sim/model/config_decoder.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_smollm3_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"max_position_embeddings": 32768, "num_key_value_heads": 4, "rope_theta": 2e6,
                      "tie_word_embeddings": true, "bos_token_id": 128000, "eos_token_id": 128001})");
  ModelConfig config = read_decoder(fields, {.family = "smollm3", .mlp_bias = true});
  const std::vector<bool> turned = read_turned_layers(fields, config.shape.layers);
  if (fields.flag("use_sliding_window", false) && fields.has("sliding_window")) {
    read_windows(fields, config, [&](std::uint32_t layer) { return !turned[layer]; });
  }
  set_turned_layers(config, turned);
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
