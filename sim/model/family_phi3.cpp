// Phi-3, Phi-3.5 and Phi-4: LLaMA with fused projections, a window, and longrope in the long-context versions.
#include "sim/model/config_decoder.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_phi3_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"max_position_embeddings": 4096, "original_max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
                      "bos_token_id": 1, "eos_token_id": 32000})");
  ModelConfig config = read_decoder(fields, {.family = "phi3", .attention_bias = false, .partial_rotary = true});
  read_windows(fields, config, [](std::uint32_t) { return true; });
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
