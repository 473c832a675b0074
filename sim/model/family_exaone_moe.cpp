// K-EXAONE: EXAONE 4's attention, whose layers that see everything know no positions, with norms of inputs, and
// DeepSeek-V3's experts behind leading dense layers. Layers that draft tokens are no part of the model.
#include "sim/model/config_deepseek.hpp"
#include "sim/model/config_exaone.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_exaone_moe_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"num_key_value_heads": 32, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
                      "sliding_window": 4096, "sliding_window_pattern": 4, "num_experts": 64, "num_experts_per_tok": 8,
                      "num_shared_experts": 1, "moe_intermediate_size": 1024, "first_k_dense_replace": 1,
                      "routed_scaling_factor": 2.5, "n_group": 1, "topk_group": 1, "bos_token_id": 1,
                      "eos_token_id": 53})");
  fields.defaults(fmt::format(R"({{"n_routed_experts": {}, "n_shared_experts": {}}})", fields.size("num_experts"),
                              fields.count("num_shared_experts", 1, 1U << 10)));
  ModelConfig config = read_decoder(fields, {.family = "exaone_moe", .attention_bias = false});
  config.shape.qk_norm = QkNorm::kHead;
  read_sigmoid_experts(fields, config);
  config.shape.dense_layers = read_dense_layers(fields, config.shape.layers, config.shape.dense_layers);
  read_exaone_windows(fields, config);
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
