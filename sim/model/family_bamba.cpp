// Bamba: Mamba-2 in most layers, attention with half of each head rotated in some; an MLP in each. And Falcon-H1, whose
// layers all attend and hold a state of Mamba-2, both on the same input.
#include <algorithm>

#include "sim/model/config_layers.hpp"
#include "sim/model/config_states.hpp"
#include "sim/model/families.hpp"

namespace kvroof {
namespace {

// The size of a head may be "auto": what is left of the width for each.
StateLayers read_bamba_states(ConfigFields& fields, std::uint32_t width) {
  constexpr Mamba2Keys kKeys{"mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state", "mamba_d_conv"};
  fields.defaults(R"({"mamba_n_heads": 128, "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_conv": 4})");
  fields.only("mamba_proj_bias", false, "biases of projections are not supported");
  fields.only("mamba_conv_bias", true, "a convolution without biases is not supported");
  const bool said = fields.has(kKeys.head_dim) && !fields.is_text(kKeys.head_dim);
  const std::uint32_t each = std::max(1U, width / fields.size(kKeys.heads, 128U));
  StateLayers state = read_mamba2(fields, kKeys, said ? std::nullopt : std::optional(each));
  if (state.values() != width) {
    fields.fail(fmt::format("mamba_n_heads · mamba_d_head is {} · {}, expected {}", state.heads, state.value_dim,
                            width));
  }
  return state;
}

}  // namespace

Result<ModelConfig> parse_bamba_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"vocab_size": 128000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
                      "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 262144,
                      "rms_norm_eps": 1e-5, "bos_token_id": 1, "eos_token_id": 2})");
  fields.forget({"partial_rotary_factor", "attn_rotary_emb"});
  ModelConfig config = read_decoder(fields, {.family = "bamba", .mlp_bias = true, .partial_rotary = true});
  ModelShape& s = config.shape;
  const std::vector<bool> attends =
      read_layer_numbers(fields, "attn_layer_indices", s.layers, [](std::uint32_t) { return false; });
  const std::uint32_t width = fields.size("mamba_expand", 2, 64) * s.hidden;
  fields.forget({"layer_types", "layers_block_type"});
  read_mixers(fields, config, read_bamba_states(fields, width), [&](std::uint32_t layer) { return attends[layer]; });
  return finish_config(fields, std::move(config));
}

Result<ModelConfig> parse_falcon_h1_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"vocab_size": 128000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
                      "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 8192,
                      "rms_norm_eps": 1e-5, "mamba_d_ssm": 1024, "bos_token_id": 1, "eos_token_id": 2})");
  ModelConfig config = read_decoder(fields, {.family = "falcon_h1", .mlp_bias = true});
  ModelShape& s = config.shape;
  fields.only("projectors_bias", false, "biases of projections are not supported");
  const std::uint32_t expanded = fields.size("mamba_expand", 2, 64) * s.hidden;
  s.state = read_bamba_states(fields, fields.has("mamba_d_ssm") ? fields.size("mamba_d_ssm") : expanded);
  s.state.layers = s.layers;
  s.state.beside_attention = true;
  s.state.output_norm = fields.flag("mamba_rms_norm", false);
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
