// EXAONE 4: norms of the outputs of attention and MLP, and of each head of q and k. Where a model has sliding layers,
// those that see everything know no positions.
#include "sim/model/config_exaone.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_exaone4_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"rms_norm_eps": 1e-5, "sliding_window": 4096, "sliding_window_pattern": 4, "bos_token_id": 0,
                      "eos_token_id": 2})");
  ModelConfig config = read_decoder(fields, {.family = "exaone4", .attention_bias = false});
  config.shape.qk_norm = QkNorm::kHead;
  read_exaone_windows(fields, config);
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
