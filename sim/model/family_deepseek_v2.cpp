// DeepSeek-V2 (arXiv:2405.04434): multi-head latent attention, leading dense layers, then routed and shared experts.
// Keys and arithmetic are those of the model code published with the checkpoints.
#include "sim/model/config_deepseek.hpp"
#include "sim/model/families.hpp"

namespace kvroof {
namespace {

void read_moe(ConfigFields& fields, ModelConfig& config) {
  fields.only("scoring_func", {"softmax"}, "but routing is only supported by");
  // The published code then leaves routed_scaling_factor out, and transformers does not normalise at all.
  fields.only("norm_topk_prob", false, "in this family it is not supported");
  read_shared_experts(fields, config);
  fields.only("topk_method", {"greedy", "group_limited_greedy"}, "but routing is only supported as");
  if (fields.text("topk_method", "greedy") != "group_limited_greedy") return;
  read_groups(fields, config.shape, config.options.routing);
}

}  // namespace

Result<ModelConfig> parse_deepseek_v2_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"n_shared_experts": 2, "q_lora_rank": 1536, "bos_token_id": 100000, "eos_token_id": 100001})");
  ModelConfig config = read_decoder(fields, {.family = "deepseek_v2",
                                             .head_dim = "qk_rope_head_dim",
                                             .rotary = RotaryStyle::kAdjacentPairs,
                                             .mlp_bias = true});
  read_latent(fields, config);
  if (fields.has("n_routed_experts")) read_moe(fields, config);
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
