// Hunyuan 0.5B to 7B: LLaMA with norms of the heads of q and k, after rotary embedding.
#include "sim/model/config_hunyuan.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_hunyuan_v1_dense_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  return finish_config(fields, read_hunyuan(fields, "hunyuan_v1_dense"));
}

}  // namespace kvroof
