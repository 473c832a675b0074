// Solar Open: GLM-4.5 that turns whole heads, with experts in every layer.
#include "sim/model/config_deepseek.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_solar_open_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"vocab_size": 196608, "hidden_size": 4096, "num_hidden_layers": 48, "num_attention_heads": 64,
                      "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 131072,
                      "rms_norm_eps": 1e-5, "rope_theta": 1e6, "moe_intermediate_size": 1280,
                      "num_experts_per_tok": 8, "n_shared_experts": 1, "n_routed_experts": 128, "n_group": 1,
                      "topk_group": 1})");
  // No layer is as wide as published files say beside the width of experts.
  fields.defaults(fmt::format(R"({{"intermediate_size": {}}})", fields.size("moe_intermediate_size")));
  ModelConfig config = read_decoder(fields, {.family = "solar_open"});
  fields.only("use_qk_norm", false, "norms of q and k are not supported in this family");
  config.shape.out_bias = false;
  read_sigmoid_experts(fields, config);
  if (config.shape.dense_layers > 0) {
    fields.refuse("first_k_dense_replace", "in this family every layer has experts");
  }
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
