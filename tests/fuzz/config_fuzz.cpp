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
  const kvroof::ModelOptions& options = config.value().options;
  kvroof::check(kvroof::shape_problem(shape).empty(), "accepted shapes are possible");
  kvroof::check(options.layers.size() == shape.layers, "every layer has a rule");
  for (const kvroof::LayerRule& layer : options.layers) {
    kvroof::check(layer.scale > 0 && (options.rotary.empty() || layer.rotary < options.rotary.size()),
                  "accepted options are numbers");
  }
  for (const kvroof::RotaryRule& rule : options.rotary) {
    kvroof::check(rule.dims % 2 == 0 && rule.inverse_frequencies.size() == rule.dims / 2, "a frequency for each pair");
  }
  return 0;
}
