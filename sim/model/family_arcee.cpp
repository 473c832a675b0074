// Arcee's AFM: LLaMA with a plain MLP of squared relus.
#include "sim/model/config_decoder.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_arcee_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"vocab_size": 32000, "hidden_size": 2560, "intermediate_size": 18432, "num_hidden_layers": 32,
                      "num_attention_heads": 32, "max_position_embeddings": 4096, "hidden_act": "relu2",
                      "rms_norm_eps": 1e-5, "bos_token_id": 128000, "eos_token_id": 128001})");
  ModelConfig config = read_decoder(fields, {.family = "arcee", .mlp_bias = true});
  config.shape.mlp = MlpKind::kPlain;
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
