// OPT: learned positions that begin at row 2 of their table, relu. OPT-350m normalises after each addition, has no
// final norm, and projects from and to a narrower embedding.
#include "sim/model/config_gpt.hpp"
#include "sim/model/families.hpp"

namespace kvroof {
namespace {

constexpr std::uint32_t kPositionOffset = 2;

}  // namespace

Result<ModelConfig> parse_opt_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"bos_token_id": 2, "eos_token_id": 2})");
  ModelConfig config = read_gpt(fields, {.family = "opt",
                                         .layers = {"num_hidden_layers"},
                                         .hidden = {"hidden_size"},
                                         .heads = {"num_attention_heads"},
                                         .positions = {"max_position_embeddings"}});
  ModelShape& shape = config.shape;
  shape.ffn = fields.size("ffn_dim");
  shape.position = PositionScheme::kLearned;
  shape.position_rows = shape.max_positions + kPositionOffset;
  shape.embedding_width = fields.size("word_embed_proj_dim", shape.hidden);
  shape.qkv_bias = shape.out_bias = shape.mlp_bias = fields.flag("enable_bias", true);
  shape.tied_head = fields.flag("tie_word_embeddings", true);
  fields.only("layer_norm_elementwise_affine", true, kNotSupported);
  const bool norm_before = fields.flag("do_layer_norm_before", true);
  shape.final_norm = !fields.flag("_remove_final_layer_norm", false) && norm_before;
  ModelOptions& options = config.options;
  options.residual = norm_before ? ResidualOrder::kSequential : ResidualOrder::kNormAfterAdd;
  options.activation = fields.activation("activation_function", Activation::kRelu);
  options.position_offset = kPositionOffset;
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
