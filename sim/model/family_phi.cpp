// Phi-1, 1.5 and 2: attention and plain MLP in parallel after one layer norm, rotary embedding on a part of each head,
// biases everywhere, an LM head with a bias.
#include "sim/model/config_decoder.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_phi_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"layer_norm_eps": 1e-5, "hidden_act": "gelu_new", "partial_rotary_factor": 0.5,
                      "bos_token_id": 1, "eos_token_id": 2})");
  ModelConfig config = read_decoder(
      fields, {.family = "phi", .norm = NormKind::kLayer, .norm_eps = "layer_norm_eps", .partial_rotary = true});
  fields.only("qk_layernorm", false, "norms of q and k are not supported in this family");
  ModelShape& shape = config.shape;
  shape.norms_per_layer = 1;
  shape.mlp = MlpKind::kPlain;
  shape.norm_bias = shape.qkv_bias = shape.out_bias = shape.mlp_bias = shape.head_bias = true;
  config.options.residual = ResidualOrder::kParallel;
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
