// Qwen3-MoE: Qwen3 with experts in every layer, none of them shared.
#include "sim/model/config_decoder.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_qwen3_moe_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"max_position_embeddings": 32768, "num_key_value_heads": 4, "num_experts_per_tok": 8,
                      "moe_intermediate_size": 768})");
  ModelConfig config = read_decoder(fields, {.family = "qwen3_moe"});
  config.shape.qk_norm = QkNorm::kHead;
  read_experts(fields, config, 128);
  read_qwen_moe_windows(fields, config);
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
