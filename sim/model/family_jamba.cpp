// Jamba: Mamba in seven layers of eight, attention without positions in the eighth; experts in every other layer,
// counted as the last ones.
#include "sim/model/config_layers.hpp"
#include "sim/model/config_states.hpp"
#include "sim/model/families.hpp"

namespace kvroof {
namespace {

StateLayers read_mamba1(ConfigFields& fields, std::uint32_t hidden) {
  fields.only("mamba_proj_bias", false, "biases of projections are not supported");
  fields.only("mamba_conv_bias", true, "a convolution without biases is not supported");
  StateLayers state;
  state.kind = StateKind::kMamba1;
  state.heads = fields.size("mamba_expand", 2, 64) * hidden;  // each channel is one
  state.value_dim = state.key_heads = 1;
  state.key_dim = fields.size("mamba_d_state", 16U, kMostHeadDim);
  state.convolution = fields.size("mamba_d_conv", 4U, 64);
  const bool said = fields.has("mamba_dt_rank") && !fields.is_text("mamba_dt_rank");
  state.step_rank = said ? fields.size("mamba_dt_rank", {}, kMostHeadDim) : (hidden + 15) / 16;
  state.type = state_type(fields, "mamba_ssm_cache_dtype");
  return state;
}

// One in so many layers, from the offset on.
struct Every {
  std::uint32_t period, offset;
  [[nodiscard]] bool operator()(std::uint32_t layer) const { return layer % period == offset; }
};

Every read_every(ConfigFields& fields, std::string_view period, std::uint32_t usual, std::string_view offset,
                 std::uint32_t first) {
  const Every every{fields.size(period, usual, kMostLayers), fields.count(offset, first, kMostLayers)};
  if (every.offset >= every.period) {
    fields.fail(fmt::format("{} is {}, expected less than {} ({})", offset, every.offset, period, every.period));
  }
  return every;
}

}  // namespace

Result<ModelConfig> parse_jamba_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"vocab_size": 65536, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
                      "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 262144,
                      "rms_norm_eps": 1e-6, "num_experts": 16, "num_experts_per_tok": 2, "bos_token_id": 1,
                      "eos_token_id": 2})");
  ModelConfig config = read_decoder(fields, {.family = "jamba", .attention_bias = false});
  ModelShape& s = config.shape;
  s.position = PositionScheme::kNone;
  config.options.rotary.clear();
  const Every attends = read_every(fields, "attn_layer_period", 8, "attn_layer_offset", 4);
  const Every has_experts = read_every(fields, "expert_layer_period", 2, "expert_layer_offset", 1);
  std::uint32_t dense = 0;
  for (std::uint32_t layer = 0; layer < s.layers; ++layer) dense += has_experts(layer) ? 0 : 1;
  const std::uint32_t all = s.layers;
  read_mixers(fields, config, read_mamba1(fields, s.hidden), attends);
  if (fields.size("num_experts") > 1 && dense < all) {
    read_experts(fields, config, 16);
    s.dense_layers = dense;
  }
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
