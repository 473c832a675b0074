// Granite 4: Mamba-2 in most layers, attention mostly without positions in the others; each with a shared MLP, and
// experts beside it where there are some.
#include <algorithm>

#include "sim/model/config_granite.hpp"
#include "sim/model/config_states.hpp"
#include "sim/model/families.hpp"

namespace kvroof {
namespace {

// The size of a head may be "auto": what is left of mamba_expand times the model for each.
StateLayers read_granite_states(ConfigFields& fields, std::uint32_t hidden) {
  constexpr Mamba2Keys kKeys{"mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state", "mamba_d_conv"};
  fields.only("mamba_proj_bias", false, "biases of projections are not supported");
  fields.only("mamba_conv_bias", true, "a convolution without biases is not supported");
  fields.only("hidden_act", {"silu", "swish"}, "but Mamba-2 is only supported with");
  const std::uint32_t width = fields.size("mamba_expand", 2, 64) * hidden, heads = fields.size(kKeys.heads, 128);
  const std::uint32_t each = std::max(1U, width / heads);
  const bool said = fields.has(kKeys.head_dim) && !fields.is_text(kKeys.head_dim);
  StateLayers state = read_mamba2(fields, kKeys, said ? std::nullopt : std::optional(each));
  if (state.values() != width) {
    fields.fail(fmt::format("mamba_n_heads · mamba_d_head is {} · {}, expected mamba_expand · hidden_size, {}",
                            state.heads, state.value_dim, width));
  }
  return state;
}

}  // namespace

Result<ModelConfig> parse_granitemoehybrid_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
                      "num_attention_heads": 32, "max_position_embeddings": 2048, "rms_norm_eps": 1e-6,
                      "num_local_experts": 8, "num_experts_per_tok": 2, "shared_intermediate_size": 1024,
                      "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_conv": 4,
                      "bos_token_id": 1, "eos_token_id": 2})");
  ModelConfig config = read_decoder(fields, {.family = "granitemoehybrid"});
  read_granite_scales(fields, config);
  ModelShape& s = config.shape;
  fields.only("position_embedding_type", {"nope", "rope"}, "but in this family is only supported as");
  if (fields.text("position_embedding_type", "nope") == "nope") {
    s.position = PositionScheme::kNone;
    config.options.rotary.clear();
  }
  read_mixers(fields, config, read_granite_states(fields, s.hidden), [](std::uint32_t) { return false; });
  const std::uint32_t shared = fields.size("shared_intermediate_size");
  if (fields.count("num_local_experts", 8) == 0) {
    s.ffn = shared;
  } else {
    read_experts(fields, config, 8);
    s.shared_expert_ffn = shared;
    config.options.routing.renormalise = true;  // scores of the chosen alone
  }
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
