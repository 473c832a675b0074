// DeepSeek-V3.2 (arXiv:2512.02556): DeepSeek-V3 whose queries read the tokens that an index chooses.
#include "sim/model/config_deepseek.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_deepseek_v32_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"vocab_size": 129280, "hidden_size": 7168, "intermediate_size": 18432, "num_hidden_layers": 61,
                      "num_attention_heads": 128, "max_position_embeddings": 163840, "rms_norm_eps": 1e-6,
                      "n_routed_experts": 256, "num_experts_per_tok": 8, "n_shared_experts": 1,
                      "moe_intermediate_size": 2048, "first_k_dense_replace": 3, "routed_scaling_factor": 2.5,
                      "n_group": 8, "topk_group": 4, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
                      "qk_rope_head_dim": 64, "v_head_dim": 128, "index_n_heads": 64, "index_head_dim": 128,
                      "index_topk": 2048, "bos_token_id": 0, "eos_token_id": 1})");
  return finish_config(fields, read_indexed_deepseek(fields, "deepseek_v32"));
}

}  // namespace kvroof
