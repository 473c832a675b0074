// Helium: LLaMA with rotary embedding on adjacent pairs.
#include "sim/model/config_decoder.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_helium_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"max_position_embeddings": 4096, "num_key_value_heads": 20, "head_dim": 128,
                      "rms_norm_eps": 1e-8, "rope_theta": 1e5, "bos_token_id": 1, "eos_token_id": 2})");
  ModelConfig config =
      read_decoder(fields, {.family = "helium", .rotary = RotaryStyle::kAdjacentPairs, .mlp_bias = true});
  config.shape.out_bias = false;
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
