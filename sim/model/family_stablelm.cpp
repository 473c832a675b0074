// StableLM: layer norms with bias and a partial rotary embedding; the 12B version has a parallel residual after one
// norm, and layer norms of q and k with a vector for each head.
#include "sim/model/config_decoder.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_stablelm_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"max_position_embeddings": 4096, "layer_norm_eps": 1e-5, "partial_rotary_factor": 0.25,
                      "bos_token_id": 0, "eos_token_id": 0})");
  ModelConfig config = read_decoder(
      fields, {.family = "stablelm", .norm = NormKind::kLayer, .norm_eps = "layer_norm_eps", .partial_rotary = true});
  config.shape.norm_bias = true;
  config.shape.qkv_bias = fields.flag("use_qkv_bias", false);
  config.shape.out_bias = false;
  if (fields.flag("qk_layernorm", false)) config.shape.qk_norm = QkNorm::kEachHead;
  if (fields.flag("use_parallel_residual", false)) {
    config.shape.norms_per_layer = 1;
    config.options.residual = ResidualOrder::kParallel;
  }
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
