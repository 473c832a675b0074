// OLMo Hybrid: gated delta nets in three layers of four, OLMo 3's attention in the fourth.
#include <algorithm>

#include "sim/model/config_states.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_olmo_hybrid_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"vocab_size": 100352, "hidden_size": 3840, "intermediate_size": 11008, "num_hidden_layers": 32,
                      "num_attention_heads": 30, "max_position_embeddings": 65536, "rms_norm_eps": 1e-6})");
  ModelConfig config = read_decoder(fields, {.family = "olmo_hybrid"});
  ModelShape& s = config.shape;
  s.qk_norm = QkNorm::kWhole;
  const std::uint32_t keys = fields.size("linear_num_key_heads", s.heads, kMostHeads);
  const std::uint32_t key_dim = fields.size("linear_key_head_dim", std::max(1U, 3 * s.hidden / 4 / keys), kMostHeadDim);
  fields.defaults(fmt::format(R"({{"linear_num_key_heads": {}, "linear_num_value_heads": {},
                                   "linear_key_head_dim": {}, "linear_value_head_dim": {}}})",
                              keys, s.heads, key_dim, 2 * key_dim));
  read_mixers(fields, config, read_gated_delta(fields), [&](std::uint32_t layer) { return layer % 4 == 3; });
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
