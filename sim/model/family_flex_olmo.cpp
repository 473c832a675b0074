// FlexOlmo: OLMo 2 with experts in every layer.
#include "sim/model/config_decoder.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_flex_olmo_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"vocab_size": 100352, "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_theta": 5e5,
                      "num_experts_per_tok": 5, "eos_token_id": 100257})");
  ModelConfig config = read_decoder(fields, {.family = "flex_olmo"});
  config.shape.qk_norm = QkNorm::kWhole;
  read_experts(fields, config, 7);
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
