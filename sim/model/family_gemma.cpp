// Gemma 1. The first release says "hidden_act": "gelu" and means the tanh form: only hidden_activation counts.
#include "sim/model/config_gemma.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_gemma_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  return finish_config(fields, read_gemma(fields, {.family = "gemma", .activation = "hidden_activation"}));
}

}  // namespace kvroof
