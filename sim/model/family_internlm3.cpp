// InternLM3: LLaMA with other defaults, whose flags of biases have names of their own.
#include "sim/model/config_decoder.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_internlm3_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"max_position_embeddings": 32768, "num_key_value_heads": 2, "head_dim": 128,
                      "rms_norm_eps": 1e-5, "bos_token_id": 1, "eos_token_id": 2})");
  ModelConfig config = read_decoder(fields, {.family = "internlm3"});
  ModelShape& shape = config.shape;
  shape.qkv_bias = shape.out_bias = fields.flag(fields.named({"qkv_bias", "attention_bias"}), false);
  shape.mlp_bias = fields.flag(fields.named({"bias", "mlp_bias"}), false);
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
