// Fuzz target: any bytes as a file of numbers for the heads of a model.
#include <cmath>
#include <cstdint>
#include <string_view>

#include "sim/policy/head_values.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto values = kvroof::parse_head_values({reinterpret_cast<const char*>(data), size});
  if (!values) {
    kvroof::check(!values.error().empty() && values.error().size() < 1000, "a refusal is one sentence");
    return 0;
  }
  kvroof::check(!values.value().empty(), "there are layers");
  for (const auto& layer : values.value()) {
    kvroof::check(!layer.empty() && layer.size() == values.value().front().size(), "layers are alike");
    for (const float value : layer) kvroof::check(std::isfinite(value) && value >= 0, "accepted values are numbers");
  }
  return 0;
}
