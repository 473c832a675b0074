// EXAONE 3.0 and 3.5: LLaMA under other names.
#include "sim/model/config_decoder.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_exaone_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"num_key_value_heads": 8, "max_position_embeddings": 4096, "rope_theta": 5e5, "bos_token_id": 1,
                      "eos_token_id": 361})");
  const std::string_view epsilon = fields.named({"rms_norm_eps", "layer_norm_epsilon"});
  fields.defaults(fmt::format(R"({{"{}": 1e-5}})", epsilon));
  return finish_config(fields, read_decoder(fields, {.family = "exaone",
                                                     .layers = fields.named({"num_hidden_layers", "num_layers"}),
                                                     .norm_eps = epsilon,
                                                     .activation = fields.named({"hidden_act", "activation_function"}),
                                                     .mlp_bias = true}));
}

}  // namespace kvroof
