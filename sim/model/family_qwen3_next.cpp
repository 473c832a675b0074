// Qwen3-Next and Qwen3.5: gated delta nets in three layers of four; experts with a gated shared one, or plain MLPs.
#include "sim/model/config_states.hpp"
#include "sim/model/families.hpp"

namespace kvroof {
namespace {

Result<ModelConfig> with_experts(ConfigFields& fields, std::string_view family, std::uint32_t experts) {
  ModelConfig config = read_qwen3_hybrid(fields, family);
  config.shape.shared_expert_ffn = fields.size("shared_expert_intermediate_size");
  config.shape.shared_expert_gate = true;
  read_experts(fields, config, experts);
  return finish_config(fields, std::move(config));
}

}  // namespace

Result<ModelConfig> parse_qwen3_next_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 48,
                      "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256,
                      "max_position_embeddings": 32768, "partial_rotary_factor": 0.25, "num_experts_per_tok": 10,
                      "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "norm_topk_prob": true})");
  return with_experts(fields, "qwen3_next", 512);
}

Result<ModelConfig> parse_qwen3_5_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"vocab_size": 248320, "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 32,
                      "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 256,
                      "max_position_embeddings": 32768, "partial_rotary_factor": 0.25})");
  return finish_config(fields, read_qwen3_hybrid(fields, "qwen3_5_text"));
}

Result<ModelConfig> parse_qwen3_5_moe_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  // Every layer has experts; the size of a plain MLP says nothing and may be absent.
  fields.defaults(R"({"vocab_size": 248320, "hidden_size": 2048, "intermediate_size": 512, "num_hidden_layers": 40,
                      "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256,
                      "max_position_embeddings": 32768, "partial_rotary_factor": 0.25, "num_experts_per_tok": 8,
                      "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "norm_topk_prob": true})");
  fields.only("norm_topk_prob", true, "in this family the weights of the chosen experts sum to 1");
  return with_experts(fields, "qwen3_5_moe_text", 256);
}

}  // namespace kvroof
