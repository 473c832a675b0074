// GLM-5: GLM-4.7-Flash's latent attention and experts with DeepSeek-V3.2's index, which layers may share.
#include "sim/model/config_deepseek.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_glm_moe_dsa_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"vocab_size": 154880, "hidden_size": 6144, "intermediate_size": 12288, "num_hidden_layers": 78,
                      "num_attention_heads": 64, "max_position_embeddings": 202752, "rms_norm_eps": 1e-5,
                      "n_routed_experts": 256, "num_experts_per_tok": 8, "n_shared_experts": 1,
                      "moe_intermediate_size": 2048, "first_k_dense_replace": 3, "routed_scaling_factor": 2.5,
                      "n_group": 1, "topk_group": 1, "kv_lora_rank": 512, "q_lora_rank": 2048, "qk_nope_head_dim": 192,
                      "qk_rope_head_dim": 64, "v_head_dim": 256, "index_n_heads": 32, "index_head_dim": 128,
                      "index_topk": 2048, "bos_token_id": 0, "eos_token_id": 1})");
  return finish_config(fields, read_indexed_deepseek(fields, "glm_moe_dsa"));
}

}  // namespace kvroof
