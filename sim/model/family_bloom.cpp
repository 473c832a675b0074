// BLOOM: ALiBi, a layer norm on the embeddings, GELU in the tanh form whatever the file says.
#include "sim/core/alibi.hpp"
#include "sim/model/config_gpt.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_bloom_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"bos_token_id": 1, "eos_token_id": 2})");
  ModelConfig config = read_gpt(fields, {.family = "bloom",
                                         .layers = {"n_layer", "num_hidden_layers"},
                                         .hidden = {"hidden_size", "n_embed"},
                                         .heads = {"n_head", "num_attention_heads"},
                                         .positions = {"seq_length"}});
  ModelShape& shape = config.shape;
  shape.position = PositionScheme::kAlibi;
  shape.embedding_norm = true;
  shape.tied_head = fields.flag("tie_word_embeddings", true);
  fields.only("apply_residual_connection_post_layernorm", false, kNotSupported);
  config.options.activation = Activation::kGeluTanh;
  config.options.alibi_slopes = alibi_slopes(shape.heads);
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
