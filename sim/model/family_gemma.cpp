// Gemma 1. Where hidden_activation says nothing, hidden_act counts; "gelu" there, as in the first release, means the
// tanh form.
#include "sim/model/config_gemma.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_gemma_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  ModelConfig config = read_gemma(fields, {.family = "gemma", .activation = "hidden_activation"});
  if (!fields.has("hidden_activation") && fields.text("hidden_act", "gelu") != "gelu") {
    config.options.activation = fields.activation("hidden_act", Activation::kGeluTanh);
  }
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
