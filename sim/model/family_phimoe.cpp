// Phi-3.5-MoE: Mixtral with layer norms and biases. The two experts of a token are chosen one after the other by
// SparseMixer (arXiv:2409.12136): each weighs as its part of a softmax over those that are left and near it.
#include <array>

#include "sim/model/config_decoder.hpp"
#include "sim/model/families.hpp"

namespace kvroof {
namespace {

// Longrope's temperature, which files of this family say by themselves, once for each of its tables.
void read_magnitude(ConfigFields& fields, RotaryRule& rule) {
  const std::string section = rotary_section(fields);
  const std::string kind = fields.text(section + ".rope_type", fields.text(section + ".type", "default"));
  if (kind == "default") return;
  if (kind != "longrope") {
    return fields.refuse(section, "in this family a rotary embedding is only supported as default or longrope");
  }
  const double magnitude = fields.positive(section + ".short_mscale");
  if (fields.positive(section + ".long_mscale") != magnitude) {
    fields.refuse(section + ".long_mscale", "another one than short_mscale is not supported");
  }
  rule.magnitude = static_cast<float>(magnitude);
}

}  // namespace

Result<ModelConfig> parse_phimoe_config(std::string_view config_json) {
  constexpr std::array<std::string_view, 2> kOwnKeys = {"short_mscale", "long_mscale"};
  ConfigFields fields(config_json);
  fields.defaults(R"({"vocab_size": 32064, "hidden_size": 4096, "intermediate_size": 6400, "num_hidden_layers": 32,
                      "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 131072,
                      "rms_norm_eps": 1e-5, "rope_theta": 1e6, "num_experts_per_tok": 2, "router_jitter_noise": 0.01,
                      "bos_token_id": 1, "eos_token_id": 2})");
  ModelConfig config =
      read_decoder(fields, {.family = "phimoe", .norm = NormKind::kLayer, .own_rotary_keys = kOwnKeys});
  read_magnitude(fields, config.options.rotary.front());
  read_windows(fields, config, [&](std::uint32_t) { return fields.has("sliding_window"); });
  read_experts(fields, config, 16);
  ModelShape& s = config.shape;
  s.expert_ffn = s.ffn;
  s.norm_bias = true;
  s.head_bias = fields.flag("lm_head_bias", false);
  if (s.experts_per_token != 2) {
    fields.refuse("num_experts_per_tok", "in this family a token takes two experts");
  }
  RoutingRule& routing = config.options.routing;
  routing = {.scores = RouterScores::kSparseMixer};
  routing.margin = static_cast<float>(2 * fields.positive("router_jitter_noise"));
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
