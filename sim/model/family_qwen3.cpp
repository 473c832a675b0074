// Qwen3: LLaMA with an RMS norm of each head of q and k before rotation, and Qwen2's windows.
#include "sim/model/config_decoder.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_qwen3_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"max_position_embeddings": 32768, "sliding_window": 4096, "head_dim": 128})");
  ModelConfig config = read_decoder(fields, {.family = "qwen3"});
  config.shape.qk_norm = QkNorm::kHead;
  read_qwen_windows(fields, config);
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
