// MPT: ALiBi or learned positions, clamped q, k and v (storywriter), grouped queries, no biases in the released models.
// alibi_bias_max is obeyed as in the code published with the checkpoints. That code writes every key, so absent ones
// mean what transformers assumes: ALiBi and no biases.
#include <algorithm>

#include "sim/core/alibi.hpp"
#include "sim/model/config_gpt.hpp"
#include "sim/model/families.hpp"

namespace kvroof {
namespace {

constexpr std::string_view kOther = "but this family is built with";

void refuse_unbuilt(ConfigFields& fields) {
  fields.only("norm_type", {"low_precision_layernorm", "layernorm"}, kOther);
  fields.only("ffn_config.ffn_type", {"mptmlp"}, kOther);
  fields.only("ffn_config.ffn_act_fn.name", {"gelu"}, kOther);
  fields.only("ffn_config.ffn_act_fn.approximate", {"none"}, kOther);
  for (const char* key : {"prefix_lm", "attn_uses_sequence_id", "qk_gn", "rope"}) {
    fields.only(std::string("attn_config.") + key, false, kNotSupported);
  }
  fields.only("attn_config.fused_qkv", true, kNotSupported);
  for (const char* key : {"attn_config.attn_logit_softcapping", "final_logit_softcapping", "block_overrides"}) {
    fields.refuse(key, kNotSupported);
  }
}

void read_attention(ConfigFields& fields, ModelConfig& config) {
  ModelShape& shape = config.shape;
  const std::string type = fields.text("attn_config.attn_type", "multihead_attention");
  fields.only("attn_config.attn_type", {"multihead_attention", "multiquery_attention", "grouped_query_attention"},
              kOther);
  if (type == "multiquery_attention") shape.kv_heads = 1;
  if (type == "grouped_query_attention") shape.kv_heads = fields.size("attn_config.kv_n_heads", {}, kMostHeads);
  if (shape.heads % shape.kv_heads != 0) {
    fields.fail(fmt::format("n_heads ({}) is not a multiple of kv_n_heads ({})", shape.heads, shape.kv_heads));
  }
  if (fields.flag("attn_config.qk_ln", false)) shape.qk_norm = QkNorm::kWhole;
  if (fields.has("attn_config.softmax_scale")) {
    config.options.layers.assign(shape.layers, {static_cast<float>(fields.positive("attn_config.softmax_scale"))});
  }
  config.options.qkv_clip = static_cast<float>(fields.positive("attn_config.clip_qkv", 0));
}

void read_positions(ConfigFields& fields, ModelConfig& config) {
  ModelShape& shape = config.shape;
  if (fields.flag("attn_config.alibi", true)) {
    shape.position = PositionScheme::kAlibi;
    const double most = fields.positive("attn_config.alibi_bias_max", 8);
    config.options.alibi_slopes = alibi_slopes(shape.heads, static_cast<float>(most));
  } else if (fields.flag("learned_pos_emb", true)) {
    shape.position = PositionScheme::kLearned;
    shape.position_rows = shape.max_positions;
  } else {
    shape.position = PositionScheme::kNone;
  }
}

}  // namespace

Result<ModelConfig> parse_mpt_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  for (const char* key : {"attn_config", "ffn_config", "ffn_config.ffn_act_fn"}) {
    if (!fields.has_object(key)) fields.refuse(key, "an object is expected");
  }
  ModelConfig config = read_gpt(fields, {.family = "mpt",
                                         .layers = {"n_layers", "num_hidden_layers"},
                                         .hidden = {"d_model", "hidden_size"},
                                         .heads = {"n_heads", "num_attention_heads"},
                                         .positions = {"max_seq_len"}});
  ModelShape& shape = config.shape;
  read_attention(fields, config);
  read_positions(fields, config);
  refuse_unbuilt(fields);
  const double ratio = fields.positive("expansion_ratio", 4);
  shape.ffn = static_cast<std::uint32_t>(std::clamp(ratio * shape.hidden, 1.0, 4294967295.0));
  const bool bias = !fields.flag("no_bias", true);
  shape.norm_bias = shape.qkv_bias = shape.out_bias = shape.mlp_bias = bias;
  if (bias) fields.only("attn_config.qk_ln", false, "with biases this is not supported");
  shape.tied_head = fields.flag("tie_word_embeddings", true);
  config.options.logit_scale = static_cast<float>(fields.positive("logit_scale", 1));
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
