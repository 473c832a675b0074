// Hunyuan 3: LLaMA's attention with norms of the heads of q and k, DeepSeek-V3's experts behind dense layers. Layers
// behind the last one, which draft tokens, are no part of the model.
#include "sim/model/config_decoder.hpp"
#include "sim/model/config_layers.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_hy_v3_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"vocab_size": 120832, "hidden_size": 4096, "intermediate_size": 13312, "num_hidden_layers": 80,
                      "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-5,
                      "max_position_embeddings": 131072, "rope_theta": 11158840.0})");
  ModelConfig config = read_decoder(fields, {.family = "hy_v3"});
  ModelShape& s = config.shape;
  fields.only("mlp_bias", false, "biases of MLPs are not supported");
  s.qk_norm = QkNorm::kHead;
  const std::uint32_t leading = fields.count("first_k_dense_replace", 1, s.layers);
  s.dense_layers = count_of(read_layer_list(fields, {"mlp_layer_types", "dense", "sparse"}, s.layers,
                                            [&](std::uint32_t layer) { return layer < leading; }));
  s.experts = fields.size(fields.named({"num_experts", "num_local_experts"}), 192U, 1U << 16);
  s.experts_per_token = fields.size("num_experts_per_tok", 8U, s.experts);
  s.expert_ffn = fields.size("moe_intermediate_size", 1536U, 1U << 20);
  s.shared_expert_ffn = s.expert_ffn * fields.count("num_shared_experts", 1, 1U << 10);
  s.router_bias = true;
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
