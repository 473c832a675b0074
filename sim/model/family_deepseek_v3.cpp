// DeepSeek-V3 (arXiv:2412.19437), R1, Moonlight, Kimi K2: DeepSeek-V2's latent attention, experts chosen by sigmoids
// and a bias. Layers behind the last one, which draft tokens (num_nextn_predict_layers), are no part of the model.
#include "sim/model/config_deepseek.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_deepseek_v3_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "n_routed_experts": 256,
                      "num_experts_per_tok": 8, "n_shared_experts": 1, "moe_intermediate_size": 2048,
                      "first_k_dense_replace": 3, "routed_scaling_factor": 2.5, "n_group": 8, "topk_group": 4,
                      "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
                      "v_head_dim": 128, "bos_token_id": 0, "eos_token_id": 1})");
  ModelConfig config = read_deepseek_v3(fields);
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
