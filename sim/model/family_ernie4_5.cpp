// ERNIE 4.5, the dense ones: LLaMA with rotary embedding on adjacent pairs, and one flag for all biases.
#include "sim/model/config_decoder.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_ernie4_5_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"max_position_embeddings": 131072, "num_key_value_heads": 2, "head_dim": 128,
                      "rms_norm_eps": 1e-5, "rope_theta": 5e5, "tie_word_embeddings": true, "bos_token_id": 1,
                      "eos_token_id": 2})");
  ModelConfig config = read_decoder(fields, {.family = "ernie4_5", .rotary = RotaryStyle::kAdjacentPairs});
  config.shape.qkv_bias = config.shape.out_bias = config.shape.mlp_bias = fields.flag("use_bias", false);
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
