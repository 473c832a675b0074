// Fuzz target: any bytes as config.json.
#include <cstdint>
#include <string_view>

#include "sim/model/config_json.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto config = kvroof::parse_config_json({reinterpret_cast<const char*>(data), size});
  if (!config) {
    kvroof::check(!config.error().empty() && config.error().size() < 1000, "a refusal is one sentence");
    return 0;
  }
  const kvroof::ModelShape& shape = config.value().shape;
  kvroof::check(shape.layers > 0 && shape.heads > 0 && shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0 &&
                    shape.head_dim > 0 && shape.head_dim % 2 == 0 && shape.vocab > 0,
                "accepted shapes are possible");
  kvroof::check(config.value().options.attention_scale > 0 && config.value().options.rope_theta > 0,
                "accepted options are numbers");
  return 0;
}
