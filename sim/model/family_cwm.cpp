// Code World Model: LLaMA 3 with a window in all layers but every fourth, the first one among those.
#include "sim/model/config_decoder.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_cwm_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"max_position_embeddings": 131072, "num_key_value_heads": 8, "head_dim": 128,
                      "rms_norm_eps": 1e-5, "rope_theta": 1e6, "sliding_window": 8192, "bos_token_id": 128000,
                      "eos_token_id": [128001, 128008, 128009]})");
  if (!fields.has("rope_parameters") && !fields.has("rope_scaling")) {
    fields.defaults(R"({"rope_scaling": {"rope_type": "llama3", "rope_theta": 1e6, "factor": 16.0,
                                         "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                         "original_max_position_embeddings": 8192}})");
  }
  ModelConfig config = read_decoder(fields, {.family = "cwm", .attention_bias = false, .mlp_bias = true});
  read_windows(fields, config, [](std::uint32_t layer) { return layer % 4 != 0; });
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
