// Mistral 4: DeepSeek's latent attention, routing by a softmax in groups that their two best experts rank, and queries
// that grow with their positions.
#include <cmath>

#include "sim/model/config_deepseek.hpp"
#include "sim/model/families.hpp"

namespace kvroof {
namespace {

// The factor says which share of a head turns, as qk_rope_head_dim does.
void check_turned_share(ConfigFields& fields) {
  const double rope = fields.size("qk_rope_head_dim"), head = fields.size("qk_nope_head_dim") + rope;
  const std::string inner = rotary_section(fields) + ".partial_rotary_factor";
  for (const std::string_view share : {std::string_view(inner), std::string_view("partial_rotary_factor")}) {
    if (std::abs(fields.positive(share, rope / head) * head - rope) > 0.5) {
      fields.refuse(share, fmt::format("qk_rope_head_dim says that {} of the {} elements of a head turn", rope, head));
    }
    fields.forget({share});
  }
}

}  // namespace

Result<ModelConfig> parse_mistral4_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"vocab_size": 131072, "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36,
                      "num_attention_heads": 32, "max_position_embeddings": 1048576, "rms_norm_eps": 1e-6,
                      "n_routed_experts": 128, "num_experts_per_tok": 4, "n_shared_experts": 1,
                      "moe_intermediate_size": 2048, "n_group": 1, "topk_group": 1, "kv_lora_rank": 256,
                      "q_lora_rank": 1024, "qk_nope_head_dim": 64, "qk_rope_head_dim": 64, "v_head_dim": 128,
                      "bos_token_id": 1, "eos_token_id": 2})");
  if (!fields.has("rope_scaling")) {
    fields.defaults(R"({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 128.0, "mscale": 1.0,
                                            "mscale_all_dim": 1.0, "beta_fast": 32.0, "beta_slow": 1.0,
                                            "original_max_position_embeddings": 8192, "llama_4_scaling_beta": 0.1}})");
  }
  check_turned_share(fields);
  ModelConfig config = read_latent_decoder(fields, "mistral4", kQueryScaleKeys);
  read_query_scale(fields, config);
  read_shared_experts(fields, config);
  read_grouped_routing(fields, config);
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
