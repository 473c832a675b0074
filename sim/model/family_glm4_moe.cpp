// GLM-4.5 and 4.6: LLaMA's attention with half of each head rotated, biases of q, k and v and, in the large one, norms
// of the heads of q and k; DeepSeek-V3's experts. Layers behind the last one, which draft tokens, are no part of the
// model.
#include "sim/model/config_deepseek.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_glm4_moe_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "num_key_value_heads": 8,
                      "partial_rotary_factor": 0.5, "n_routed_experts": 128, "num_experts_per_tok": 8,
                      "n_shared_experts": 1, "moe_intermediate_size": 1408, "first_k_dense_replace": 1,
                      "n_group": 1, "topk_group": 1,
                      "bos_token_id": null, "eos_token_id": [151329, 151336, 151338]})");
  ModelConfig config = read_decoder(fields, {.family = "glm4_moe", .partial_rotary = true});
  config.shape.out_bias = false;
  if (fields.flag("use_qk_norm", false)) config.shape.qk_norm = QkNorm::kHead;
  read_sigmoid_experts(fields, config);
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
