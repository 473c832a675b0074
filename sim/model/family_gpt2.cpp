// GPT-2 and Cerebras-GPT: learned positions, tied head. The activation is what the file says: Cerebras-GPT has the
// exact form of GELU.
#include "sim/model/config_gpt.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_gpt2_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"bos_token_id": 50256, "eos_token_id": 50256})");
  ModelConfig config = read_gpt(fields, {.family = "gpt2",
                                         .layers = {"n_layer", "num_hidden_layers"},
                                         .hidden = {"n_embd", "hidden_size"},
                                         .heads = {"n_head", "num_attention_heads"},
                                         .positions = {"n_positions", "max_position_embeddings"},
                                         .default_positions = 1024});
  ModelShape& shape = config.shape;
  shape.ffn = fields.size("n_inner", shape.ffn);
  shape.position = PositionScheme::kLearned;
  shape.position_rows = shape.max_positions;
  shape.tied_head = fields.flag("tie_word_embeddings", true);
  fields.only("add_cross_attention", false, kNotSupported);
  ModelOptions& options = config.options;
  options.activation = fields.activation("activation_function", Activation::kGeluTanh);
  const float scale = fields.flag("scale_attn_weights", true) ? default_attention_scale(shape.head_dim) : 1.0F;
  const bool by_layer = fields.flag("scale_attn_by_inverse_layer_idx", false);
  for (std::uint32_t i = 0; i < shape.layers; ++i) {
    options.layers[i].scale = by_layer ? scale / static_cast<float>(i + 1) : scale;
  }
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
