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

// Numbers of layers, which count from one.
std::vector<std::int64_t> read_numbers(ConfigFields& fields, std::string_view key, std::uint32_t layers) {
  const std::vector<std::int64_t> listed = fields.ids(key, {});
  for (const std::int64_t number : listed) {
    if (number >= 1 && number <= layers) continue;
    fields.fail(fmt::format("{} has {}, expected numbers from 1 to {}", key, number, layers));
  }
  return listed;
}

// Either list says which layers attend; without one it is every fourth after the first.
std::vector<bool> read_attending(ConfigFields& fields, std::uint32_t layers) {
  const auto full = read_numbers(fields, "linear_attn_config.full_attn_layers", layers);
  const auto delta = read_numbers(fields, "linear_attn_config.kda_layers", layers);
  if (!full.empty() && !delta.empty() && full.size() + delta.size() != layers) {
    fields.fail(fmt::format("full_attn_layers and kda_layers have {} and {} entries, expected {} together", full.size(),
                            delta.size(), layers));
  }
  std::vector<bool> attends(layers);
  for (std::uint32_t i = 0; i < layers; ++i) {
    const auto in = [&](const auto& list) { return std::ranges::find(list, std::int64_t{i} + 1) != list.end(); };
    attends[i] = !full.empty() ? in(full) : !delta.empty() ? !in(delta) : i > 0 && i % 4 == 0;
  }
  return attends;
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
  if (fields.size("moe_layer_freq", 1U) != 1) {
    fields.refuse("moe_layer_freq", "dense layers between expert layers are not supported");
  }
  const std::vector<bool> attends = read_attending(fields, config.shape.layers);
  read_mixers(fields, config, read_delta_attention(fields), [&](std::uint32_t layer) { return attends[layer]; });
  read_kimi_experts(fields, config);
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
