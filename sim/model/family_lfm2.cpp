// LFM2: gated short convolutions in most layers, attention with norms of q and k in the others.
#include <algorithm>

#include "sim/model/config_states.hpp"
#include "sim/model/families.hpp"

namespace kvroof {
namespace {

ModelConfig read_lfm2(ConfigFields& fields, std::string_view family) {
  fields.defaults(R"({"vocab_size": 65536, "num_attention_heads": 32, "num_key_value_heads": 8,
                      "max_position_embeddings": 128000, "norm_eps": 1e-5, "rope_theta": 1e6})");
  fields.defaults(fields.flag("tie_embedding", true) ? R"({"tie_word_embeddings": true})" : "{}");
  fields.only("conv_bias", false, "biases of convolutions are not supported");
  ModelConfig config = read_decoder(fields, {.family = family, .norm_eps = "norm_eps", .attention_bias = false});
  config.shape.qk_norm = QkNorm::kHead;
  StateLayers state;
  state.kind = StateKind::kShortConvolution;
  state.convolution = fields.size("conv_L_cache", 3, 64);
  const std::vector<std::int64_t> listed = fields.ids("full_attn_idxs", {});
  read_mixers(fields, config, state, [&](std::uint32_t layer) {
    return !fields.has("full_attn_idxs") || std::ranges::find(listed, std::int64_t{layer}) != listed.end();
  });
  return config;
}

// Files say the size before a gate takes its third, which is rounded up to a multiple.
std::uint32_t gated_size(ConfigFields& fields, std::uint32_t size) {
  if (!fields.flag("block_auto_adjust_ff_dim", true)) return size;
  const std::uint32_t multiple = fields.size("block_multiple_of", 256);
  const std::uint32_t third = 2 * size / 3;  // a size is below 2^24
  const auto scaled = static_cast<std::uint32_t>(fields.positive("block_ffn_dim_multiplier", 1.0) * third);
  return std::max(1U, (scaled + multiple - 1) / multiple) * multiple;
}

}  // namespace

Result<ModelConfig> parse_lfm2_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  if (fields.has("block_ff_dim")) {
    fields.defaults(fmt::format(R"({{"intermediate_size": {}}})", fields.size("block_ff_dim")));
  }
  fields.defaults(R"({"hidden_size": 2560, "intermediate_size": 12288, "num_hidden_layers": 32})");
  ModelConfig config = read_lfm2(fields, "lfm2");
  config.shape.ffn = gated_size(fields, config.shape.ffn);
  return finish_config(fields, std::move(config));
}

// The leading layers have a plain MLP, the others experts that a bias helps to choose.
Result<ModelConfig> parse_lfm2_moe_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"hidden_size": 2048, "intermediate_size": 7168, "moe_intermediate_size": 1792,
                      "num_hidden_layers": 32, "num_experts_per_tok": 4})");
  ModelConfig config = read_lfm2(fields, "lfm2_moe");
  ModelShape& s = config.shape;
  s.experts = fields.size("num_experts", 32, 1U << 16);
  s.experts_per_token = fields.size("num_experts_per_tok", {}, s.experts);
  s.expert_ffn = fields.size("moe_intermediate_size", {}, 1U << 20);
  s.dense_layers = fields.count("num_dense_layers", 2, s.mlps());
  s.router_bias = fields.flag("use_expert_bias", true);
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
