// Hunyuan-A13B: the dense one's attention, and in every layer experts beside a shared one, all of them as wide.
// Published files say of each layer how many there are and how many a token takes.
#include "sim/model/config_hunyuan.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_hunyuan_v1_moe_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  for (const char* key : {"num_experts", "moe_topk", "num_shared_expert", "moe_intermediate_size"}) fields.unify(key);
  fields.only("use_mixed_mlp_moe", true, "a model of this family without a shared expert is not supported");
  if (fields.count("moe_layer_num_skipped", 0) > 0) {
    fields.refuse("moe_layer_num_skipped", "dense layers before expert layers are not supported in this family");
  }
  if (fields.size("num_shared_expert", 1U) != 1) {
    fields.refuse("num_shared_expert", "in this family only one shared expert is supported");
  }
  fields.defaults(fmt::format(R"({{"num_experts_per_tok": {}}})", fields.size("moe_topk", 1U)));
  ModelConfig config = read_hunyuan(fields, "hunyuan_v1_moe");
  read_experts(fields, config, 1);
  ModelShape& s = config.shape;
  if (s.expert_ffn != s.ffn) {
    fields.refuse("moe_intermediate_size", fmt::format("in this family experts have intermediate_size ({})", s.ffn));
  }
  s.shared_expert_ffn = s.ffn;
  config.options.routing.renormalise = true;
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
