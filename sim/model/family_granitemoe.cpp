// Granite 3 with experts in every layer, which have intermediate_size; a shared MLP beside them in some.
#include "sim/model/config_granite.hpp"
#include "sim/model/families.hpp"

namespace kvroof {
namespace {

ModelConfig read_granite_moe(ConfigFields& fields) {
  fields.defaults(R"({"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
                      "num_attention_heads": 32, "max_position_embeddings": 2048, "rms_norm_eps": 1e-6,
                      "num_local_experts": 8, "num_experts_per_tok": 2, "bos_token_id": 1, "eos_token_id": 2})");
  ModelConfig config = read_decoder(fields, {.family = "granitemoe"});
  read_granite_scales(fields, config);
  ModelShape& s = config.shape;
  s.experts = fields.size("num_local_experts", {}, 1U << 16);
  s.experts_per_token = fields.size("num_experts_per_tok", {}, s.experts);
  s.expert_ffn = s.ffn;
  config.options.routing.renormalise = true;  // scores of the chosen alone
  return config;
}

}  // namespace

Result<ModelConfig> parse_granitemoe_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  return finish_config(fields, read_granite_moe(fields));
}

Result<ModelConfig> parse_granitemoeshared_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  ModelConfig config = read_granite_moe(fields);
  config.shape.shared_expert_ffn = fields.count("shared_intermediate_size", 0, 1U << 20);
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
