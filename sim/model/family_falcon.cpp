// Falcon, three generations of one family: multi-query with attention and MLP in parallel after one norm; grouped
// queries with two norms (new_decoder_architecture); and the "rw" models, sequential with ALiBi and biases.
#include "sim/core/alibi.hpp"
#include "sim/model/config_gpt.hpp"
#include "sim/model/config_rotary.hpp"
#include "sim/model/families.hpp"

namespace kvroof {
namespace {

void read_kv_heads(ConfigFields& fields, ModelShape& shape, bool grouped) {
  const std::string_view key = fields.named({"num_kv_heads", "n_head_kv"});
  const std::uint32_t stated = fields.size(key, shape.heads, kMostHeads);
  if (grouped) {
    shape.kv_heads = stated;
    if (shape.heads % stated != 0) {
      fields.fail(fmt::format("num_attention_heads ({}) is not a multiple of {} ({})", shape.heads, key, stated));
    }
  } else if (fields.flag("multi_query", true)) {
    shape.kv_heads = 1;
  } else if (stated != shape.heads) {
    fields.refuse(key, "with multi_query false this is not supported");
  }
}

void read_norms(ConfigFields& fields, ModelShape& shape, bool grouped, bool parallel) {
  if (grouped && !parallel) fields.refuse("parallel_attn", "with new_decoder_architecture this is not supported");
  const std::uint32_t norms = fields.size("num_ln_in_parallel_attn", grouped ? 2U : 1U, 2);
  if (norms == 2 && parallel && !grouped) {
    fields.refuse("num_ln_in_parallel_attn", "without new_decoder_architecture this is not supported");
  }
  shape.norms_per_layer = parallel ? norms : 2;
}

void read_positions(ConfigFields& fields, ModelConfig& config) {
  ModelShape& shape = config.shape;
  if (!fields.flag("alibi", false)) {
    if (shape.head_dim % 2 != 0) {
      fields.fail(fmt::format("the head size is {}, but rotary embedding needs an even number", shape.head_dim));
    }
    config.options.rotary = {read_rotary(fields, {.dims = shape.head_dim})};
    return;
  }
  shape.position = PositionScheme::kAlibi;
  config.options.alibi_slopes = alibi_slopes(shape.heads);
  config.options.alibi_rounded_scale = default_attention_scale(shape.head_dim);  // the bias joins q·k before the scale
}

}  // namespace

Result<ModelConfig> parse_falcon_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"bos_token_id": 11, "eos_token_id": 11})");
  ModelConfig config = read_gpt(fields, {.family = "falcon",
                                         .layers = {"num_hidden_layers", "n_layer"},
                                         .hidden = {"hidden_size", "n_embed"},
                                         .heads = {"num_attention_heads", "n_head"},
                                         .positions = {"max_position_embeddings"}});
  ModelShape& shape = config.shape;
  const bool grouped = fields.flag("new_decoder_architecture", false);
  const bool parallel = fields.flag("parallel_attn", true);
  read_kv_heads(fields, shape, grouped);
  read_norms(fields, shape, grouped, parallel);
  read_positions(fields, config);
  shape.ffn = fields.size("ffn_hidden_size", shape.ffn);
  shape.qkv_bias = shape.out_bias = shape.mlp_bias = fields.flag("bias", false);
  shape.tied_head = fields.flag("tie_word_embeddings", true);
  fields.only("apply_residual_connection_post_layernorm", false, kNotSupported);
  config.options.residual = parallel ? ResidualOrder::kParallel : ResidualOrder::kSequential;
  config.options.activation = fields.activation("activation", Activation::kGelu);
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
