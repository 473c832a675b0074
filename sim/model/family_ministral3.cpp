// Ministral 3: Mistral without a window and with YaRN, whose queries grow with their positions from the original length
// on.
#include "sim/model/config_decoder.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_ministral3_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"vocab_size": 131072, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 34,
                      "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-5,
                      "max_position_embeddings": 262144, "sliding_window": null, "bos_token_id": 1,
                      "eos_token_id": 2})");
  if (!fields.has("rope_scaling")) {
    fields.defaults(R"({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "mscale": 1.0,
                                            "mscale_all_dim": 1.0, "beta_fast": 32.0, "beta_slow": 1.0,
                                            "original_max_position_embeddings": 16384,
                                            "llama_4_scaling_beta": 0.1}})");
  }
  ModelConfig config = read_decoder(
      fields, {.family = "mistral", .attention_bias = false, .own_rotary_keys = kQueryScaleKeys});
  read_windows(fields, config, [](std::uint32_t) { return true; });
  read_query_scale(fields, config);
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
