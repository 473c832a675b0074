// GLM-4 as first published (9B): LLaMA with rotary embedding on adjacent pairs of half of a head, and biases of q, k
// and v.
#include "sim/model/config_decoder.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_glm_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"max_position_embeddings": 131072, "num_key_value_heads": 2, "head_dim": 128,
                      "rms_norm_eps": 1.5625e-7, "partial_rotary_factor": 0.5, "attention_bias": true,
                      "eos_token_id": [151329, 151336, 151338]})");
  ModelConfig config =
      read_decoder(fields, {.family = "glm", .rotary = RotaryStyle::kAdjacentPairs, .partial_rotary = true});
  config.shape.out_bias = false;
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
