// Gemma 2: four norms a layer, soft-caps, a window on the even layers.
#include "sim/model/config_gemma.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_gemma2_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"num_key_value_heads": 4, "sliding_window": 4096, "attn_logit_softcapping": 50.0,
                      "final_logit_softcapping": 30.0})");
  ModelConfig config = read_gemma(fields, {.family = "gemma2", .activation = "hidden_activation"});
  read_gemma2_attention(fields, config);
  const float softcap = read_softcap(fields, "attn_logit_softcapping");
  for (LayerRule& layer : config.options.layers) layer.softcap = softcap;
  read_windows(fields, config, [](std::uint32_t layer) { return layer % 2 == 0; });
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
