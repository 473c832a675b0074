// Gemma 4, the text model: layers that slide and such that see everything, whose heads are wider and whose KV heads may
// be fewer, with k and v of one projection; layers without rows of their own; an embedding of each layer; experts
// beside the MLP.
#include "sim/model/config_decoder.hpp"
#include "sim/model/config_gemma.hpp"
#include "sim/model/config_layers.hpp"
#include "sim/model/families.hpp"

namespace kvroof {
namespace {

// Files of transformers 5 say of each layer that sees everything what others say once.
void read_layer_overrides(ConfigFields& fields, const std::vector<bool>& sliding) {
  const std::vector<std::string> layers = fields.names("per_layer_config");
  if (layers.empty()) return;
  const std::string first = "per_layer_config." + layers.front();
  const std::uint32_t head_dim = fields.size(first + ".head_dim", fields.size("head_dim"), kMostHeadDim);
  const std::uint32_t kv_heads = fields.size(first + ".num_key_value_heads", fields.size("num_key_value_heads"));
  for (std::uint32_t i = 0, seen = 0; i < sliding.size() && !fields.failed(); ++i) {
    const std::string entry = fmt::format("per_layer_config.{}", i);
    const bool as_first = fields.size(entry + ".head_dim", fields.size("head_dim")) == head_dim &&
                          fields.size(entry + ".num_key_value_heads", fields.size("num_key_value_heads")) == kv_heads;
    seen += fields.has_object(entry) ? 1 : 0;
    if (fields.has_object(entry) == sliding[i] || (!sliding[i] && !as_first) ||
        (i + 1 == sliding.size() && seen != layers.size())) {
      fields.fail("per_layer_config is only supported with the same sizes for each layer of full attention");
    }
  }
  fields.forget({"global_head_dim", "num_global_key_value_heads"});
  fields.defaults(fmt::format(R"({{"global_head_dim": {}, "num_global_key_value_heads": {}}})", head_dim, kv_heads));
}

void read_full_layers(ConfigFields& fields, ModelShape& s, const std::vector<bool>& sliding) {
  read_layer_overrides(fields, sliding);
  OtherAttention full{{}, s.heads, s.kv_heads, 0, 0};
  full.v_of_k = fields.flag("attention_k_eq_v", false);
  full.head_dim = full.v_head_dim = fields.size("global_head_dim", 512U, kMostHeadDim);
  if (full.v_of_k) full.kv_heads = fields.size("num_global_key_value_heads", s.kv_heads, kMostHeads);
  std::vector<bool> sees_all = sliding;
  sees_all.flip();
  set_other_heads(s, sees_all, full);
}

void read_gemma4_experts(ConfigFields& fields, ModelShape& s) {
  if (!fields.flag("enable_moe_block", false)) return;
  s.experts = fields.size("num_experts", {}, 1U << 16);
  s.experts_per_token = fields.size("top_k_experts", {}, s.experts);
  s.expert_ffn = fields.size("moe_intermediate_size", {}, 1U << 20);
  s.shared_expert_ffn = s.ffn;
  s.norms_per_layer = 7;
  s.layer_extras = s.hidden + s.experts;  // scales of what is routed, and of the experts
}

}  // namespace

Result<ModelConfig> parse_gemma4_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  const bool unified = fields.text("model_type", "").starts_with("gemma4_unified");
  fields.defaults(R"({"vocab_size": 262144, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 30,
                      "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "tie_word_embeddings": true,
                      "bos_token_id": 2, "eos_token_id": 1})");
  fields.defaults(unified ? R"({"max_position_embeddings": 262144, "sliding_window": 1024,
                                "hidden_size_per_layer_input": 0})"
                          : R"({"max_position_embeddings": 131072, "sliding_window": 512,
                                "hidden_size_per_layer_input": 256})");
  fields.only("use_bidirectional_attention", {"vision"}, "but attention to later tokens is only supported as");
  fields.forget({"rope_parameters", "rope_scaling"});
  ModelConfig config = read_decoder(fields, {.family = "gemma4_text", .activation = "hidden_activation"});
  ModelShape& s = config.shape;
  s.qk_norm = QkNorm::kHead;
  s.norms_per_layer = 4;
  config.options.logit_softcap = read_softcap(fields, "final_logit_softcapping");
  std::vector<bool> sliding = read_layer_list(fields, {"layer_types", "sliding_attention", "full_attention"}, s.layers,
                                              [](std::uint32_t layer) { return (layer + 1) % 6 != 0; });
  sliding.back() = false;
  set_windows(s, sliding, fields.size("sliding_window"));
  read_full_layers(fields, s, sliding);
  read_sharing(fields, s, sliding);
  if (s.sharing_layers > 0 && fields.flag("use_double_wide_mlp", false)) s.sharing_ffn = 2 * s.ffn;
  read_layer_embedding(fields, s);
  read_gemma4_experts(fields, s);
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
