// LFM2: gated short convolutions in most layers, attention with norms of q and k in the others.
#include <algorithm>
#include <cmath>

#include "sim/model/config_states.hpp"
#include "sim/model/families.hpp"

namespace kvroof {
namespace {

ModelConfig read_lfm2(ConfigFields& fields, std::string_view family) {
  fields.defaults(R"({"vocab_size": 65536, "num_attention_heads": 32, "num_key_value_heads": 8,
                      "max_position_embeddings": 128000, "norm_eps": 1e-5, "rope_theta": 1e6,
                      "tie_word_embeddings": true})");
  fields.only("conv_bias", false, "biases of convolutions are not supported");
  ModelConfig config = read_decoder(fields, {.family = family, .norm_eps = "norm_eps", .attention_bias = false});
  config.shape.qk_norm = QkNorm::kHead;
  config.shape.tied_head = fields.flag("tie_embedding", config.shape.tied_head);  // an older name, which counts
  StateLayers state;
  state.kind = StateKind::kShortConvolution;
  state.convolution = fields.size("conv_L_cache", 3, 64);
  const std::vector<std::int64_t> listed = fields.ids("full_attn_idxs", {});
  read_mixers(fields, config, state, [&](std::uint32_t layer) {
    return !fields.has("full_attn_idxs") || std::ranges::find(listed, std::int64_t{layer}) != listed.end();
  });
  return config;
}

constexpr std::uint32_t kMostMlp = 1U << 20;

// Files say the size before a gate takes its third, which is rounded up to a multiple.
std::uint32_t gated_size(ConfigFields& fields, std::uint32_t size) {
  if (!fields.flag("block_auto_adjust_ff_dim", true)) return size;
  const std::uint32_t multiple = fields.size("block_multiple_of", 256);
  const std::uint32_t third = 2 * size / 3;  // a size is below 2^24
  const double scaled = std::floor(fields.positive("block_ffn_dim_multiplier", 1.0) * third);
  if (!(scaled <= kMostMlp)) {
    fields.fail(fmt::format("block_ffn_dim_multiplier makes an MLP of {}, expected at most {}", scaled, kMostMlp));
    return size;
  }
  return std::max(1U, (static_cast<std::uint32_t>(scaled) + multiple - 1) / multiple) * multiple;
}

}  // namespace

Result<ModelConfig> parse_lfm2_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"hidden_size": 2560, "intermediate_size": 12288, "num_hidden_layers": 32})");
  ModelConfig config = read_lfm2(fields, "lfm2");
  config.shape.ffn = gated_size(fields, fields.size("block_ff_dim", config.shape.ffn));  // likewise
  return finish_config(fields, std::move(config));
}

// The leading layers have a plain MLP, the others experts that a bias helps to choose.
Result<ModelConfig> parse_lfm2_moe_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"hidden_size": 2048, "intermediate_size": 7168, "moe_intermediate_size": 1792,
                      "num_hidden_layers": 32, "num_experts_per_tok": 4})");
  ModelConfig config = read_lfm2(fields, "lfm2_moe");
  ModelShape& s = config.shape;
  read_experts(fields, config, 32);
  s.dense_layers = fields.count("num_dense_layers", 2, s.mlps());
  s.router_bias = fields.flag("use_expert_bias", true);
  RoutingRule& routing = config.options.routing;
  routing.scores = RouterScores::kSigmoid;
  routing.renormalise = fields.flag("norm_topk_prob", true);
  routing.scale = static_cast<float>(fields.positive("routed_scaling_factor", 1.0));
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
