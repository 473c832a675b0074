// DeepSeek-V2 (arXiv:2405.04434): multi-head latent attention, leading dense layers, then routed and shared experts.
// Keys and arithmetic are those of the model code published with the checkpoints.
#include <cmath>

#include "sim/model/config_decoder.hpp"
#include "sim/model/families.hpp"

namespace kvroof {
namespace {

constexpr std::uint32_t kMostLatent = 1U << 16;

// One KV head whose row is the latent and the rotated part of k.
void read_latent(ConfigFields& fields, ModelConfig& config) {
  fields.only("attention_bias", false, "biases in latent attention are not supported");
  ModelShape& s = config.shape;
  s.latent_rank = fields.size("kv_lora_rank", {}, kMostLatent / 2);
  s.latent_q_rank = fields.count("q_lora_rank", 0, 1U << 20);
  s.latent_nope_dim = fields.size("qk_nope_head_dim", {}, kMostLatent);
  s.latent_rope_dim = fields.size("qk_rope_head_dim", {}, kMostLatent / 2);
  s.latent_v_dim = fields.size("v_head_dim", {}, kMostLatent);
  s.kv_heads = 1;
  s.head_dim = s.latent_rank + s.latent_rope_dim;
  s.v_head_dim = s.latent_rank;
  // YaRN's temperature acts on the whole product here: its square multiplies the scale.
  double scale = 1 / std::sqrt(static_cast<double>(s.latent_nope_dim) + s.latent_rope_dim);
  const std::string section = rotary_section(fields);
  if (fields.has(section + ".mscale_all_dim")) {
    const double temperature =
        yarn_magnitude(fields.positive(section + ".factor"), fields.positive(section + ".mscale_all_dim"));
    scale *= temperature * temperature;
  }
  config.options.layers.assign(s.layers, {static_cast<float>(scale)});
}

void read_groups(ConfigFields& fields, const ModelShape& shape, RoutingRule& routing) {
  fields.only("topk_method", {"greedy", "group_limited_greedy"}, "but routing is only supported as");
  if (fields.text("topk_method", "greedy") != "group_limited_greedy") return;
  routing.groups = fields.size("n_group", {}, shape.experts);
  routing.top_groups = fields.size("topk_group", {}, routing.groups);
  if (shape.experts % routing.groups != 0) {
    fields.fail(fmt::format("n_routed_experts ({}) is not a multiple of n_group ({})", shape.experts, routing.groups));
  } else if (shape.experts_per_token > shape.experts / routing.groups * routing.top_groups) {
    fields.fail(fmt::format("num_experts_per_tok is {}, more than the experts of topk_group ({}) groups",
                            shape.experts_per_token, routing.top_groups));
  }
}

void read_moe(ConfigFields& fields, ModelConfig& config) {
  fields.only("scoring_func", {"softmax"}, "but routing is only supported by");
  if (fields.size("moe_layer_freq", 1U) != 1) {
    fields.refuse("moe_layer_freq", "dense layers between expert layers are not supported");
  }
  ModelShape& s = config.shape;
  s.experts = fields.size("n_routed_experts", {}, 1U << 16);
  s.experts_per_token = fields.size("num_experts_per_tok", {}, s.experts);
  s.expert_ffn = fields.size("moe_intermediate_size", {}, 1U << 20);
  s.shared_expert_ffn = s.expert_ffn * fields.count("n_shared_experts", 0, 1U << 10);
  s.dense_layers = fields.count("first_k_dense_replace", 0, s.layers);
  // The published code then leaves routed_scaling_factor out, and transformers does not normalise at all.
  fields.only("norm_topk_prob", false, "in this family it is not supported");
  RoutingRule& routing = config.options.routing;
  routing.scale = static_cast<float>(fields.positive("routed_scaling_factor", 1.0));
  read_groups(fields, s, routing);
}

}  // namespace

Result<ModelConfig> parse_deepseek_v2_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"bos_token_id": 100000, "eos_token_id": 100001})");
  ModelConfig config = read_decoder(
      fields, {.family = "deepseek_v2", .head_dim = "qk_rope_head_dim", .rotary = RotaryStyle::kAdjacentPairs});
  read_latent(fields, config);
  if (fields.has("n_routed_experts")) read_moe(fields, config);
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
