// Kimi Linear: delta attention with a gate of each channel in three layers of four, latent attention without positions
// in the fourth, DeepSeek-V3's experts under names of their own.
#include <algorithm>

#include "sim/model/config_deepseek.hpp"
#include "sim/model/config_states.hpp"
#include "sim/model/families.hpp"

namespace kvroof {
namespace {

StateLayers read_delta_attention(ConfigFields& fields) {
  StateLayers state;
  state.kind = StateKind::kKimiDelta;
  state.heads = state.key_heads = fields.size(fields.named({"linear_attn_config.num_heads", "linear_num_heads"}), 32,
                                              kMostHeads);
  state.key_dim = state.value_dim = fields.size(fields.named({"linear_attn_config.head_dim", "linear_head_dim"}), 128,
                                                kMostHeadDim);
  const std::string_view convolution =
      fields.named({"linear_attn_config.short_conv_kernel_size", "linear_conv_kernel_dim"});
  state.convolution = fields.size(convolution, 4, 64);
  state.type = DType::kF32;
  return state;
}

// Their numbers count from one; without a list every fourth layer after the first one.
bool attends(const std::vector<std::int64_t>& listed, std::uint32_t layer) {
  if (listed.empty()) return layer > 0 && layer % 4 == 0;
  return std::ranges::find(listed, std::int64_t{layer} + 1) != listed.end();
}

void read_kimi_experts(ConfigFields& fields, ModelConfig& config) {
  ModelShape& s = config.shape;
  s.experts = fields.size(fields.named({"num_experts", "num_local_experts"}), 256, 1U << 16);
  s.experts_per_token = fields.size(fields.named({"num_experts_per_token", "num_experts_per_tok"}), 8, s.experts);
  s.expert_ffn = fields.size("moe_intermediate_size", 1024, 1U << 20);
  s.shared_expert_ffn = s.expert_ffn * fields.count(fields.named({"num_shared_experts", "n_shared_experts"}), 1, 1024);
  s.router_bias = true;
  const std::vector<std::string> kinds = fields.texts("mlp_layer_types");
  const auto dense = static_cast<std::uint32_t>(std::ranges::count(kinds, "dense"));
  s.dense_layers = kinds.empty() ? fields.count("first_k_dense_replace", 1, s.mlps()) : dense;
}

}  // namespace

Result<ModelConfig> parse_kimi_linear_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"vocab_size": 163840, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 27,
                      "num_attention_heads": 32, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "v_head_dim": 128,
                      "qk_nope_head_dim": 128, "rms_norm_eps": 1e-5})");
  fields.defaults(fmt::format(R"({{"max_position_embeddings": {}}})", fields.count("model_max_length", 1048576)));
  ModelConfig config = read_decoder(fields, {.family = "kimi_linear", .head_dim = "qk_rope_head_dim"});
  read_latent(fields, config);
  config.shape.position = PositionScheme::kNone;
  config.options.rotary.clear();
  const std::vector<std::int64_t> listed = fields.ids("linear_attn_config.full_attn_layers", {});
  read_mixers(fields, config, read_delta_attention(fields),
              [&](std::uint32_t layer) { return attends(listed, layer); });
  read_kimi_experts(fields, config);
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
