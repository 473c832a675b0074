// MiniMax-M2: experts in every layer, chosen as DeepSeek-V3's are, none shared; norms over the whole of q and k; a part
// of each head is rotated, which published files say in elements (rotary_dim). Layers that draft tokens are no part of
// the model.
#include <cmath>

#include "sim/model/config_decoder.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_minimax_m2_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"vocab_size": 200064, "hidden_size": 3072, "intermediate_size": 1536, "num_hidden_layers": 62,
                      "num_attention_heads": 48, "num_key_value_heads": 8, "head_dim": 128, "num_experts_per_tok": 8,
                      "max_position_embeddings": 196608, "rope_theta": 5e6, "norm_topk_prob": true,
                      "bos_token_id": 200034, "eos_token_id": 200020})");
  fields.only("qk_norm_type", {"per_layer"}, "norms of q and k are supported");
  fields.only("use_qk_norm", true, "a model of this family without norms of q and k is not supported");
  fields.only("use_routing_bias", true, "a model of this family without biases that choose experts is not supported");
  fields.only("scoring_func", {"sigmoid"}, "in this family routing is only supported by");
  if (fields.count("shared_intermediate_size", 0) > 0) {
    fields.refuse("shared_intermediate_size", "shared experts are not supported in this family");
  }
  if (fields.has("rotary_dim") && !fields.has("partial_rotary_factor")) {
    // The least share of which that many elements are the whole part.
    const double share = std::nextafter(double{1} * fields.size("rotary_dim") / fields.size("head_dim"), 2.0);
    fields.defaults(fmt::format(R"({{"partial_rotary_factor": {}}})", share));
  }
  ModelConfig config = read_decoder(fields, {.family = "minimax_m2", .attention_bias = false, .partial_rotary = true});
  config.shape.qk_norm = QkNorm::kWhole;
  read_experts(fields, config, 256);
  config.shape.router_bias = true;
  config.options.routing.scores = RouterScores::kSigmoid;
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
