// GPT-NeoX and Pythia: half-split rotary embedding on a part of each head; attention and MLP in parallel, each after a
// norm of its own, or one after the other.
#include "sim/model/config_gpt.hpp"
#include "sim/model/config_rotary.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_gpt_neox_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"bos_token_id": 0, "eos_token_id": 2, "rotary_pct": 0.25, "rotary_emb_base": 10000})");
  ModelConfig config = read_gpt(fields, {.family = "gpt_neox",
                                         .layers = {"num_hidden_layers"},
                                         .hidden = {"hidden_size"},
                                         .heads = {"num_attention_heads"},
                                         .positions = {"max_position_embeddings"},
                                         .norm_eps = "layer_norm_eps"});
  ModelShape& shape = config.shape;
  shape.ffn = fields.size("intermediate_size");
  shape.qkv_bias = shape.out_bias = fields.flag("attention_bias", true);
  shape.tied_head = fields.flag("tie_word_embeddings", false);
  ModelOptions& options = config.options;
  options.residual =
      fields.flag("use_parallel_residual", true) ? ResidualOrder::kParallel : ResidualOrder::kSequential;
  options.activation = fields.activation("hidden_act", Activation::kGelu);
  options.rotary = {read_rotary(fields, {.dims = shape.head_dim,
                                         .partial = true,
                                         .theta_key = "rotary_emb_base",
                                         .share_key = "rotary_pct"})};
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
