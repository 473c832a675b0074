// OLMoE: experts in every layer, norms of the whole projections q and k.
#include "sim/model/config_decoder.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_olmoe_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "num_experts_per_tok": 8,
                      "eos_token_id": 50279})");
  ModelConfig config = read_decoder(fields, {.family = "olmoe"});
  config.shape.qk_norm = QkNorm::kWhole;
  read_experts(fields, config, 64);
  fields.refuse("clip_qkv", "clamping q and k after their norms is not supported");
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
