// Ministral 3: Mistral without a window and with YaRN, whose queries are scaled by the logarithm of their positions
// from the original length on, which the engine does not do.
#include <array>

#include "sim/model/config_decoder.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_ministral3_config(std::string_view config_json) {
  constexpr std::array<std::string_view, 2> kOwnKeys = {"llama_4_scaling_beta", "max_position_embeddings"};
  ConfigFields fields(config_json);
  fields.defaults(R"({"vocab_size": 131072, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 34,
                      "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-5,
                      "max_position_embeddings": 262144, "sliding_window": null, "bos_token_id": 1, "eos_token_id": 2,
                      "rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "mscale": 1.0,
                                          "mscale_all_dim": 1.0, "beta_fast": 32.0, "beta_slow": 1.0,
                                          "original_max_position_embeddings": 16384, "llama_4_scaling_beta": 0.1}})");
  ModelConfig config =
      read_decoder(fields, {.family = "mistral", .attention_bias = false, .own_rotary_keys = kOwnKeys});
  read_windows(fields, config, [](std::uint32_t) { return true; });
  config.options.cannot_run =
      "queries that are scaled by their positions (llama_4_scaling_beta) are not built; plan, compare and simulate "
      "take this model as it is";
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
