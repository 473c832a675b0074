// ERNIE 4.5 with experts: the dense one's attention; experts behind leading dense layers, chosen by parts of a softmax
// and a bias. Layers that draft tokens are no part of the model.
#include "sim/model/config_decoder.hpp"
#include "sim/model/families.hpp"

namespace kvroof {
namespace {

std::uint32_t read_dense_layers(ConfigFields& fields, std::uint32_t layers) {
  if (fields.size("moe_layer_interval", 1U) != 1) {
    fields.refuse("moe_layer_interval", "dense layers between expert layers are not supported");
  }
  const bool to_end = fields.is_number("moe_layer_end_index", -1);
  if (!to_end && fields.count("moe_layer_end_index", layers - 1) + 1 < layers) {
    fields.refuse("moe_layer_end_index", "dense layers behind expert layers are not supported");
  }
  return fields.count("moe_layer_start_index", 1, layers);
}

}  // namespace

Result<ModelConfig> parse_ernie4_5_moe_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"vocab_size": 103424, "hidden_size": 2560, "intermediate_size": 12288, "num_hidden_layers": 28,
                      "num_attention_heads": 20, "num_key_value_heads": 4, "max_position_embeddings": 131072,
                      "rms_norm_eps": 1e-5, "rope_theta": 5e5, "tie_word_embeddings": true, "bos_token_id": 1,
                      "eos_token_id": 2})");
  ModelConfig config = read_decoder(
      fields, {.family = "ernie4_5_moe", .rotary = RotaryStyle::kAdjacentPairs, .attention_bias = false});
  fields.only("use_bias", false, "biases are not supported in this family");
  ModelShape& s = config.shape;
  s.experts = fields.size("moe_num_experts", 64, 1U << 16);
  s.experts_per_token = fields.size("moe_k", 6, s.experts);
  s.expert_ffn = fields.size("moe_intermediate_size", 1536, 1U << 20);
  s.shared_expert_ffn = s.expert_ffn * fields.count("moe_num_shared_experts", 2, 1U << 10);
  s.dense_layers = read_dense_layers(fields, s.layers);
  s.router_bias = true;
  config.options.routing.renormalise = true;
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
