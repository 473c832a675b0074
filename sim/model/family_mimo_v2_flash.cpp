// MiMo-V2-Flash: layers with a window, twice the KV heads and sinks, and every sixth that sees everything; v is
// narrower than k; DeepSeek-V3's experts. Layers behind the last one, which draft tokens, are no part of the model.
#include "sim/model/config_decoder.hpp"
#include "sim/model/config_deepseek.hpp"
#include "sim/model/config_layers.hpp"
#include "sim/model/families.hpp"

namespace kvroof {
namespace {

std::uint32_t read_dense_layers(ConfigFields& fields, std::uint32_t layers) {
  if (fields.is_list("moe_layer_freq")) {
    return layers - count_of(read_layer_flags(fields, "moe_layer_freq", layers, [](std::uint32_t) { return true; }));
  }
  return count_of(read_layer_list(fields, {"mlp_layer_types", "dense", "sparse"}, layers,
                                  [](std::uint32_t layer) { return layer == 0; }));
}

// Published files say how many tokens before its own a token sees.
std::uint32_t read_window(ConfigFields& fields) {
  return fields.has("sliding_window_size") ? fields.size("sliding_window_size") + 1
                                           : fields.size("sliding_window", 129U);
}

void read_mimo_attention(ConfigFields& fields, ModelShape& s) {
  const auto slides = [](std::uint32_t layer) { return layer > 0 && (layer + 1) % 6 != 0; };
  const std::vector<bool> sliding =
      fields.has("layer_types")
          ? read_layer_list(fields, {"layer_types", "sliding_attention", "full_attention"}, s.layers, slides)
          : read_layer_flags(fields, "hybrid_layer_pattern", s.layers, slides);
  set_windows(s, sliding, read_window(fields));
  s.v_head_dim = fields.size("v_head_dim", 128U, kMostHeadDim);
  const OtherAttention full{{}, s.heads, s.kv_heads, s.head_dim, s.v_head_dim};
  s.heads = fields.size("swa_num_attention_heads", s.heads, kMostHeads);
  s.kv_heads = fields.size("swa_num_key_value_heads", 2 * s.kv_heads, kMostHeads);
  s.head_dim = fields.size("swa_head_dim", s.head_dim, kMostHeadDim);
  s.v_head_dim = fields.size("swa_v_head_dim", s.v_head_dim, kMostHeadDim);
  s.attention_sinks = fields.flag("add_swa_attention_sink_bias", true);
  fields.only("add_full_attention_sink_bias", false, "sinks in layers without a window are not supported");
  std::vector<bool> sees_all = sliding;
  sees_all.flip();
  set_other_heads(s, sees_all, full);
}

}  // namespace

Result<ModelConfig> parse_mimo_v2_flash_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"vocab_size": 152576, "hidden_size": 4096, "intermediate_size": 16384, "num_hidden_layers": 48,
                      "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 192, "rms_norm_eps": 1e-5,
                      "max_position_embeddings": 131072, "moe_intermediate_size": 2048, "num_experts_per_tok": 8,
                      "n_routed_experts": 256, "n_group": 1, "topk_group": 1, "bos_token_id": 1})");
  fields.forget({"rope_parameters", "rope_scaling", "partial_rotary_factor"});
  ModelConfig config = read_decoder(fields, {.family = "mimo_v2_flash"});
  ModelShape& s = config.shape;
  s.out_bias = false;
  read_mimo_attention(fields, s);
  const std::uint32_t dense = read_dense_layers(fields, s.layers);
  fields.forget({"moe_layer_freq", "first_k_dense_replace"});
  read_sigmoid_experts(fields, config);
  s.dense_layers = dense;
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
