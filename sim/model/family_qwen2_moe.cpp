// Qwen1.5-MoE and Qwen2-MoE: Qwen2 with routed experts and a shared expert behind a sigmoid gate in every layer.
#include "sim/model/config_decoder.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_qwen2_moe_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"max_position_embeddings": 32768, "num_experts_per_tok": 4, "moe_intermediate_size": 1408,
                      "shared_expert_intermediate_size": 5632})");
  ModelConfig config = read_decoder(fields, {.family = "qwen2_moe"});
  config.shape.qkv_bias = fields.flag("qkv_bias", true);
  config.shape.out_bias = false;
  config.shape.shared_expert_ffn = fields.size("shared_expert_intermediate_size");
  config.shape.shared_expert_gate = true;
  read_experts(fields, config, 60);
  read_qwen_moe_windows(fields, config);
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
