// GLM-4.7-Flash: DeepSeek-V3's latent attention and experts under its tensor names. mlp_layer_types says which layers
// are dense; without it the first one is.
#include "sim/model/config_deepseek.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_glm4_moe_lite_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"max_position_embeddings": 202752, "rms_norm_eps": 1e-5, "n_routed_experts": 64,
                      "num_experts_per_tok": 4, "n_shared_experts": 1, "moe_intermediate_size": 1536,
                      "routed_scaling_factor": 1.8, "n_group": 1, "topk_group": 1, "kv_lora_rank": 512,
                      "q_lora_rank": 768, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256,
                      "bos_token_id": 0, "eos_token_id": 1})");
  ModelConfig config = read_deepseek_v3(fields);
  const bool listed = !fields.empty("mlp_layer_types");
  config.shape.dense_layers = listed ? read_leading_dense(fields, config.shape.layers) : 1;
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
