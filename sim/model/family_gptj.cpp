// GPT-J: attention and MLP in parallel after one norm, rotary embedding of adjacent pairs on the first dimensions of
// each head, no biases in attention, an LM head with a bias.
#include "sim/model/config_gpt.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_gptj_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"bos_token_id": 50256, "eos_token_id": 50256, "rotary_dim": 64})");
  ModelConfig config = read_gpt(fields, {.family = "gptj",
                                         .layers = {"n_layer", "num_hidden_layers"},
                                         .hidden = {"n_embd", "hidden_size"},
                                         .heads = {"n_head", "num_attention_heads"},
                                         .positions = {"n_positions", "max_position_embeddings"}});
  ModelShape& shape = config.shape;
  shape.ffn = fields.size("n_inner", shape.ffn);
  shape.position = PositionScheme::kRotaryAdjacent;
  shape.norms_per_layer = 1;
  shape.qkv_bias = shape.out_bias = false;
  shape.tied_head = fields.flag("tie_word_embeddings", false);
  shape.head_bias = true;
  fields.only("rotary", true, kNotSupported);
  const std::uint32_t dims = fields.size("rotary_dim", {}, shape.head_dim);
  if (dims % 2 != 0) fields.refuse("rotary_dim", "an even number is expected");
  ModelOptions& options = config.options;
  options.residual = ResidualOrder::kParallel;
  options.activation = fields.activation("activation_function", Activation::kGeluTanh);
  options.rotary = {plain_rotary(RotaryStyle::kAdjacentPairs, dims, 10000.0)};
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
