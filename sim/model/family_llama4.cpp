// Llama 4, the text model: layers that see chunks of tokens, and among them such that see everything and know no
// positions; in all layers or every so many a shared expert beside routed ones, whose input is scaled. A chunk counts
// as a window: no more of it is held.
#include "sim/model/config_layers.hpp"
#include "sim/model/config_states.hpp"
#include "sim/model/families.hpp"

namespace kvroof {
namespace {

void read_llama4_experts(ConfigFields& fields, ModelShape& s) {
  const std::uint32_t width = s.ffn, step = fields.has("moe_layers") ? 1 : fields.size("interleave_moe_layer_step", 1U);
  const std::uint32_t with_experts = count_of(
      read_layer_numbers(fields, "moe_layers", s.layers, [&](std::uint32_t layer) { return (layer + 1) % step == 0; }));
  s.ffn = fields.size("intermediate_size_mlp", 16384U);
  s.dense_layers = s.layers - with_experts;
  if (with_experts == 0) {
    s.dense_layers = 0;
    return;
  }
  s.experts = fields.size("num_local_experts", 16U, 1U << 16);
  s.experts_per_token = fields.size("num_experts_per_tok", 1U, s.experts);
  s.expert_ffn = s.shared_expert_ffn = width;
}

}  // namespace

Result<ModelConfig> parse_llama4_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"vocab_size": 202048, "hidden_size": 5120, "intermediate_size": 8192, "num_hidden_layers": 48,
                      "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-5,
                      "max_position_embeddings": 131072, "rope_theta": 500000.0, "attention_chunk_size": 8192,
                      "bos_token_id": 1, "eos_token_id": 2})");
  ModelConfig config =
      read_decoder(fields, {.family = "llama4_text", .rotary = RotaryStyle::kAdjacentPairs});
  ModelShape& s = config.shape;
  const std::vector<bool> turned = read_turned_layers(fields, s.layers);
  if (!fields.failed()) set_turned_layers(config, turned);
  const bool chunks = fields.has("attention_chunk_size");
  const std::vector<bool> chunked =
      read_layer_list(fields, {"layer_types", "chunked_attention", "full_attention"}, s.layers,
                      [&](std::uint32_t layer) { return chunks && turned[layer]; });
  if (count_of(chunked) > 0) set_windows(s, chunked, fields.size("attention_chunk_size"));
  read_llama4_experts(fields, s);
  say_not_run(config, "chunks of tokens and experts whose input is scaled");
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
