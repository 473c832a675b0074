#include "sim/model/config_hunyuan.hpp"

#include <array>
#include <cmath>

namespace kvroof {
namespace {

// base · alpha^(dims / (dims − 2)): NTK-aware scaling by a fixed factor; `factor` beside it says nothing.
void read_alpha(ConfigFields& fields, RotaryRule& rule) {
  const std::string section = rotary_section(fields), key = section + ".alpha";
  if (!fields.has(key) || fields.is_number(key, 0)) return;
  const double alpha = fields.positive(key);
  const std::string kind = fields.text(section + ".rope_type", fields.text(section + ".type", "default"));
  if (kind != "dynamic") return fields.refuse(key, "it is only supported in a rotary embedding of kind \"dynamic\"");
  const double theta = rule.theta * std::pow(alpha, static_cast<double>(rule.dims) / (rule.dims - 2.0));
  if (rule.dims <= 2 || !std::isfinite(theta) || theta < 1) {
    return fields.refuse(key, fmt::format("with it the base of the rotary embedding is {}", theta));
  }
  rule = plain_rotary(rule.style, rule.dims, theta);
}

}  // namespace

ModelConfig read_hunyuan(ConfigFields& fields, std::string_view family) {
  // Of YaRN, which published files repeat and this kind does not read.
  constexpr std::array<std::string_view, 5> kOwnKeys = {"alpha", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"};
  fields.defaults(R"({"rms_norm_eps": 1e-5, "max_position_embeddings": 2048, "bos_token_id": 1, "eos_token_id": 2})");
  ModelConfig config = read_decoder(fields, {.family = family, .own_rotary_keys = kOwnKeys});
  read_alpha(fields, config.options.rotary.front());
  fields.only("use_qk_norm", true, "a model of this family without norms of q and k is not supported");
  fields.only("use_cla", false, "layers that share a cache are not supported");
  fields.only("mlp_bias", false, "biases of MLPs are not supported in this family");
  config.shape.qk_norm = QkNorm::kHead;
  config.options.norms_after_rotary = true;
  return config;
}

}  // namespace kvroof
