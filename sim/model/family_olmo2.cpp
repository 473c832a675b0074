// OLMo 2: norms of the outputs of attention and MLP instead of their inputs, and of the whole projections q and k.
#include "sim/model/config_decoder.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_olmo2_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"rms_norm_eps": 1e-5, "eos_token_id": 50279})");
  ModelConfig config = read_decoder(fields, {.family = "olmo2"});
  config.shape.qk_norm = QkNorm::kWhole;
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
