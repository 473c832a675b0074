// MiniMax-Text-01: lightning attention in most layers, attention in the others, experts in all.
#include "sim/model/config_states.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_minimax_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
                      "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 131072,
                      "rms_norm_eps": 1e-5, "num_local_experts": 8, "num_experts_per_tok": 2})");
  ModelConfig config = read_decoder(fields, {.family = "minimax", .attention_bias = false, .partial_rotary = true});
  ModelShape& s = config.shape;
  StateLayers state;
  state.kind = StateKind::kLightning;
  state.heads = state.key_heads = s.heads;
  state.key_dim = state.value_dim = s.head_dim;
  state.type = fields.weight_type();
  const std::vector<std::int64_t> listed = fields.ids("attn_type_list", {});  // 1 attends, of the first files
  if (!listed.empty() && listed.size() != s.layers) {
    fields.fail(fmt::format("attn_type_list has {} entries, expected one for each of the {} layers", listed.size(),
                            s.layers));
    return fields.failure();
  }
  read_mixers(fields, config, state,
              [&](std::uint32_t layer) { return listed.empty() ? (layer + 1) % 2 != 0 : listed[layer] == 1; });
  if (fields.count("shared_intermediate_size", 0) > 0) {
    fields.refuse("shared_intermediate_size", "shared experts are not supported in this family");
  }
  read_experts(fields, config, 8);
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
