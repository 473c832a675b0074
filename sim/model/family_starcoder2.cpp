// StarCoder2: layer norms with bias, biases everywhere, a plain MLP, a window; hidden_act counts, activation_function
// does not.
#include "sim/model/config_decoder.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_starcoder2_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"max_position_embeddings": 4096, "num_key_value_heads": 2, "norm_epsilon": 1e-5,
                      "hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": true, "bos_token_id": 50256,
                      "eos_token_id": 50256})");
  ModelConfig config =
      read_decoder(fields, {.family = "starcoder2", .norm = NormKind::kLayer, .norm_eps = "norm_epsilon"});
  fields.only("mlp_type", {"default"}, "but this family's MLP is only supported as");
  fields.only("norm_type", {"layer_norm"}, "but this family's norm is only supported as");
  ModelShape& shape = config.shape;
  shape.norm_bias = true;
  shape.mlp = MlpKind::kPlain;
  shape.qkv_bias = shape.out_bias = shape.mlp_bias = fields.flag("use_bias", true);
  read_windows(fields, config, [](std::uint32_t) { return true; });
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
