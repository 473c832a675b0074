// Granite 3: LLaMA whose embeddings, attention, residuals and logits are scaled by numbers of their own.
#include "sim/model/config_granite.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_granite_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "bos_token_id": 1, "eos_token_id": 2})");
  ModelConfig config = read_decoder(fields, {.family = "granite", .mlp_bias = true});
  read_granite_scales(fields, config);
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
