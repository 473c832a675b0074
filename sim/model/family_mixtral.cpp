// Mixtral: Mistral with experts in every layer; the weights of the chosen ones sum to 1.
#include "sim/model/config_decoder.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_mixtral_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 1e6,
                      "num_key_value_heads": 8, "num_experts_per_tok": 2, "norm_topk_prob": true, "bos_token_id": 1,
                      "eos_token_id": 2})");
  ModelConfig config = read_decoder(fields, {.family = "mixtral", .attention_bias = false});
  read_windows(fields, config, [](std::uint32_t) { return true; });
  read_experts(fields, config, 8);
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
