// LongCat-Flash: a layer is latent attention and an MLP twice, with experts beside them, some of which do nothing: as
// many of a token's are counted as such as even choice takes.
#include <algorithm>

#include "sim/model/config_decoder.hpp"
#include "sim/model/config_deepseek.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_longcat_flash_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"vocab_size": 131072, "hidden_size": 6144, "ffn_hidden_size": 12288, "num_attention_heads": 64,
                      "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "v_head_dim": 128,
                      "qk_nope_head_dim": 128, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
                      "bos_token_id": 1, "eos_token_id": 2})");
  const std::uint32_t pairs = fields.has("num_layers") ? fields.size("num_layers", {}, kMostLayers / 2)
                                                       : fields.size("num_hidden_layers", 56U, kMostLayers) / 2;
  if (pairs == 0) fields.fail("num_hidden_layers is 1, expected pairs of layers");
  fields.forget({"num_hidden_layers", "intermediate_size", "num_key_value_heads"});
  fields.defaults(fmt::format(R"({{"num_hidden_layers": {}, "intermediate_size": {}}})", std::max(2 * pairs, 1U),
                              fields.size("ffn_hidden_size")));
  ModelConfig config = read_decoder(fields, {.family = "longcat_flash", .head_dim = "qk_rope_head_dim"});
  read_latent(fields, config);
  fields.only("zero_expert_type", {"identity"}, "experts that do nothing are only supported as");
  ModelShape& s = config.shape;
  s.mlp_layers = 3 * pairs;
  s.dense_layers = 2 * pairs;
  s.experts = fields.size("n_routed_experts", 512U, 1U << 16);
  const std::uint32_t idle = fields.count("zero_expert_num", 256, 1U << 12), all = s.experts + idle;
  const std::uint64_t chosen = std::uint64_t{fields.size("moe_topk", 12U, all)} * s.experts;
  s.experts_per_token = std::clamp(static_cast<std::uint32_t>((chosen + all / 2) / all), 1U, s.experts);
  s.expert_ffn = fields.size("expert_ffn_hidden_size", 2048U, 1U << 20);
  s.router_bias = true;
  // Four norms in each pair of layers, where one for two parts is counted; the router's rows for experts that do
  // nothing.
  s.norms_per_layer = 1;
  const std::uint64_t extras = std::uint64_t{4 * pairs - 5 * pairs / 2} * s.hidden +
                               std::uint64_t{pairs} * idle * (std::uint64_t{s.hidden} + 1);
  if (extras > 1U << 30) fields.fail(fmt::format("zero_expert_num is {}, more than is supported", idle));
  s.model_extras = static_cast<std::uint32_t>(extras);
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
