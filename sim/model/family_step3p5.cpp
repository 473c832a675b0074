// Step 3.5 Flash, and the text model of Step 3.7 Flash: layers with a window, of more query heads, and such that see
// everything; each head's output has a gate; experts chosen as DeepSeek-V3's beside a shared one. Layers behind the
// last one, which draft tokens, are no part of the model.
#include "sim/core/text.hpp"
#include "sim/model/config_decoder.hpp"
#include "sim/model/config_layers.hpp"
#include "sim/model/families.hpp"

namespace kvroof {
namespace {

// Published files have the numbers of the layers with experts in one text.
std::uint32_t count_expert_layers(ConfigFields& fields, std::uint32_t layers) {
  constexpr std::string_view kNumbers = "moe_layers_enum";
  if (fields.is_list(kNumbers)) fields.refuse(kNumbers, "numbers of layers are expected in one text");
  if (fields.has("mlp_layer_types") || !fields.is_text(kNumbers)) {
    return count_of(read_layer_list(fields, {"mlp_layer_types", "sparse", "dense"}, layers,
                                    [](std::uint32_t layer) { return layer >= 3; }));
  }
  std::vector<bool> with_experts(layers);
  const std::string numbers = fields.text(kNumbers, "");
  for (const std::string_view part : split(numbers, ',')) {
    const auto number = parse_number<std::uint32_t>(trimmed(part));
    if (!number) fields.refuse(kNumbers, "numbers of layers with commas between them are expected");
    if (number && *number < layers) with_experts[*number] = true;
  }
  return count_of(with_experts);
}

void read_step_attention(ConfigFields& fields, ModelShape& s) {
  s.qk_norm = QkNorm::kHead;
  const std::string_view gate = fields.named({"use_head_wise_attn_gate", "gating"});
  s.head_gate = fields.flag(gate, true);
  if (!s.head_gate) fields.refuse(gate, "a model without gates of heads is not supported");
  const std::vector<bool> sliding = read_layer_list(fields, {"layer_types", "sliding_attention", "full_attention"},
                                                    s.layers, [](std::uint32_t) { return false; });
  if (count_of(sliding) == 0) return;
  set_windows(s, sliding, fields.size("sliding_window"));
  OtherAttention other{{}, s.heads, s.kv_heads, s.head_dim, s.v_head_dim};
  const std::string_view heads =
      fields.named({"num_sliding_attention_heads", "attention_other_setting.num_attention_heads"});
  other.heads = fields.size(heads, s.heads, kMostHeads);
  other.kv_heads = fields.size("attention_other_setting.num_attention_groups", s.kv_heads, kMostHeads);
  other.head_dim = other.v_head_dim = fields.size("attention_other_setting.head_dim", s.head_dim, kMostHeadDim);
  set_other_heads(s, sliding, other);
}

void read_step_experts(ConfigFields& fields, ModelShape& s) {
  const std::uint32_t with_experts = count_expert_layers(fields, s.layers);
  if (with_experts == 0) return;
  s.dense_layers = s.layers - with_experts;
  s.experts = fields.size(fields.named({"moe_num_experts", "n_routed_experts"}), 288U, 1U << 16);
  s.experts_per_token = fields.size(fields.named({"moe_top_k", "num_experts_per_tok"}), 8U, s.experts);
  s.expert_ffn = fields.size("moe_intermediate_size", 1280U);
  s.shared_expert_ffn = fields.size(fields.named({"share_expert_dims", "share_expert_dim"}), 1280U);
  s.router_bias = true;
}

}  // namespace

Result<ModelConfig> parse_step3p5_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  const std::uint32_t groups = fields.size(fields.named({"num_key_value_heads", "num_attention_groups"}), 8U);
  fields.defaults(fmt::format(R"({{"num_key_value_heads": {}}})", groups));
  fields.defaults(R"({"vocab_size": 128815, "hidden_size": 4096, "intermediate_size": 11264, "num_hidden_layers": 45,
                      "num_attention_heads": 64, "head_dim": 128, "max_position_embeddings": 128000,
                      "rms_norm_eps": 1e-5})");
  fields.forget({"rope_theta", "rope_parameters", "rope_scaling", "partial_rotary_factors"});
  ModelConfig config = read_decoder(fields, {.family = "step3p5"});
  fields.only("mlp_bias", false, "biases of MLPs are not supported");
  read_step_attention(fields, config.shape);
  read_step_experts(fields, config.shape);
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
