// OLMo 3: OLMo 2 with a window in three layers of four, whose rotary embedding is never scaled in the old form.
#include "sim/model/config_decoder.hpp"
#include "sim/model/families.hpp"

namespace kvroof {
namespace {

constexpr double kTheta = 5e5;

// rope_theta outside of rope_parameters is of the full layers alone, as transformers reads it.
RotaryRule read_sliding_rotary(ConfigFields& fields, std::uint32_t dims) {
  if (fields.has_object("rope_parameters.sliding_attention")) {
    return read_rotary(fields, {.dims = dims, .layer_type = "sliding_attention"});
  }
  return plain_rotary(RotaryStyle::kHalfSplit, dims, kTheta);
}

}  // namespace

Result<ModelConfig> parse_olmo3_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"rms_norm_eps": 1e-5, "rope_theta": 5e5, "sliding_window": 4096, "eos_token_id": 50279})");
  ModelConfig config = read_decoder(fields, {.family = "olmo3", .rotary_layer_type = "full_attention"});
  config.shape.qk_norm = QkNorm::kWhole;
  const auto sliding = read_windows(fields, config, [](std::uint32_t layer) { return (layer + 1) % 4 != 0; });
  config.options.rotary.push_back(read_sliding_rotary(fields, config.shape.head_dim));
  for (std::size_t i = 0; i < sliding.size(); ++i) config.options.layers[i].rotary = sliding[i] ? 1 : 0;
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
