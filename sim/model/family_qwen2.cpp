// Qwen2 and Qwen2.5: LLaMA with biases on q, k and v, and a window in the upper layers where it is switched on.
#include "sim/model/config_decoder.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_qwen2_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"max_position_embeddings": 32768, "sliding_window": 4096})");
  ModelConfig config = read_decoder(fields, {.family = "qwen2"});
  config.shape.qkv_bias = true;
  config.shape.out_bias = false;
  read_qwen_windows(fields, config);
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
