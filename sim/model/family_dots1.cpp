// dots.llm1: Qwen3's attention with norms of the heads of q and k, DeepSeek-V3's experts, and a window in the upper
// layers.
#include "sim/model/config_deepseek.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_dots1_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"num_key_value_heads": 32, "norm_topk_prob": false, "n_group": 1, "topk_group": 1,
                      "sliding_window": 4096, "moe_intermediate_size": 1408})");
  ModelConfig config = read_decoder(fields, {.family = "dots1"});
  config.shape.qk_norm = QkNorm::kHead;
  read_sigmoid_experts(fields, config);
  const std::uint32_t first = fields.count("max_window_layers", 62);
  read_windows(fields, config, [&](std::uint32_t layer) { return layer >= first; });
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
