// Seed-OSS: LLaMA with biases of q, k and v, and a flag of its own for that of the output projection.
#include "sim/model/config_decoder.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_seed_oss_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"max_position_embeddings": 524288, "num_key_value_heads": 8, "head_dim": 128,
                      "attention_bias": true, "bos_token_id": 0, "eos_token_id": 2})");
  ModelConfig config = read_decoder(fields, {.family = "seed_oss", .mlp_bias = true});
  config.shape.out_bias = fields.flag("attention_out_bias", false);
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
