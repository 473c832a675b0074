// Nemotron 3 and 4, and Minitron: LLaMA with layer norms whose weights are stored less 1, half of each head rotated,
// and a plain MLP of squared relus.
#include "sim/model/config_decoder.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_nemotron_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"vocab_size": 256000, "hidden_size": 6144, "intermediate_size": 24576, "num_hidden_layers": 32,
                      "num_attention_heads": 48, "max_position_embeddings": 4096, "hidden_act": "relu2",
                      "norm_eps": 1e-5, "partial_rotary_factor": 0.5, "bos_token_id": 2, "eos_token_id": 3})");
  ModelConfig config = read_decoder(fields, {.family = "nemotron",
                                             .norm = NormKind::kLayer,
                                             .norm_eps = "norm_eps",
                                             .mlp_bias = true,
                                             .partial_rotary = true});
  config.shape.norm_bias = true;
  config.shape.mlp = MlpKind::kPlain;
  config.options.norm_offset = 1;
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
