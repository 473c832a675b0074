// SmolLM3: LLaMA of which every fourth layer knows no positions.
#include "sim/model/config_decoder.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

namespace {

// Which layers turn q and k: 1 in no_rope_layers, whatever its name says.
std::vector<bool> read_turned(ConfigFields& fields, const ModelShape& shape) {
  const std::uint32_t period = fields.size("no_rope_layer_interval", 4U);
  const std::vector<std::int64_t> listed = fields.ids("no_rope_layers", {});
  if (!listed.empty() && listed.size() != shape.layers) {
    fields.fail(fmt::format("no_rope_layers has {} entries, expected one for each of the {} layers", listed.size(),
                            shape.layers));
    return std::vector<bool>(shape.layers);
  }
  std::vector<bool> turned(shape.layers);
  for (std::uint32_t i = 0; i < shape.layers; ++i) turned[i] = listed.empty() ? (i + 1) % period != 0 : listed[i] != 0;
  return turned;
}

}  // namespace

Result<ModelConfig> parse_smollm3_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"max_position_embeddings": 32768, "num_key_value_heads": 4, "rope_theta": 2e6,
                      "tie_word_embeddings": true, "bos_token_id": 128000, "eos_token_id": 128001})");
  ModelConfig config = read_decoder(fields, {.family = "smollm3", .mlp_bias = true});
  const std::vector<bool> turned = read_turned(fields, config.shape);
  if (fields.flag("use_sliding_window", false) && fields.has("sliding_window")) {
    read_windows(fields, config, [&](std::uint32_t layer) { return !turned[layer]; });
  }
  set_turned_layers(config, turned);
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
