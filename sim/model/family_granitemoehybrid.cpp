// Granite 4: Mamba-2 in most layers, attention mostly without positions in the others; each with a shared MLP, and
// experts beside it where there are some.
#include "sim/model/config_states.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_granitemoehybrid_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
                      "num_attention_heads": 32, "max_position_embeddings": 2048, "rms_norm_eps": 1e-6,
                      "num_local_experts": 8, "num_experts_per_tok": 2, "shared_intermediate_size": 1024})");
  ModelConfig config = read_decoder(fields, {.family = "granitemoehybrid"});
  ModelShape& s = config.shape;
  if (fields.text("position_embedding_type", "nope") == "nope") {
    s.position = PositionScheme::kNone;
    config.options.rotary.clear();
  }
  read_mixers(fields, config, read_mamba2(fields, s.hidden), [](std::uint32_t) { return false; });
  const std::uint32_t shared = fields.size("shared_intermediate_size");
  s.experts = fields.count("num_local_experts", 8, 1U << 16);
  if (s.experts == 0) {
    s.ffn = shared;
  } else {
    s.experts_per_token = fields.size("num_experts_per_tok", {}, s.experts);
    s.expert_ffn = s.ffn;
    s.shared_expert_ffn = shared;
  }
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
