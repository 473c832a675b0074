// GLM-4.7-Flash: DeepSeek-V3's latent attention and experts under its tensor names. mlp_layer_types says which layers
// are dense; without it the first one is.
#include <algorithm>

#include "sim/model/config_deepseek.hpp"
#include "sim/model/families.hpp"

namespace kvroof {
namespace {

std::uint32_t read_dense_layers(ConfigFields& fields, std::uint32_t layers) {
  const std::vector<std::string> types = fields.texts("mlp_layer_types");
  if (types.empty()) return 1;
  const auto first_sparse = std::ranges::find(types, "sparse");
  const bool leading = std::all_of(types.begin(), first_sparse, [](const auto& type) { return type == "dense"; }) &&
                       std::all_of(first_sparse, types.end(), [](const auto& type) { return type == "sparse"; });
  if (types.size() != layers || !leading) {
    fields.refuse("mlp_layer_types", "only dense layers before sparse ones are supported, one entry for each layer");
  }
  return static_cast<std::uint32_t>(first_sparse - types.begin());
}

}  // namespace

Result<ModelConfig> parse_glm4_moe_lite_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"max_position_embeddings": 202752, "rms_norm_eps": 1e-5, "n_routed_experts": 64,
                      "num_experts_per_tok": 4, "n_shared_experts": 1, "moe_intermediate_size": 1536,
                      "routed_scaling_factor": 1.8, "n_group": 1, "topk_group": 1, "kv_lora_rank": 512,
                      "q_lora_rank": 768, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256,
                      "bos_token_id": 0, "eos_token_id": 1})");
  ModelConfig config = read_deepseek_v3(fields);
  config.shape.dense_layers = read_dense_layers(fields, config.shape.layers);
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
