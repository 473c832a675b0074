#include "sim/device/products.hpp"

#include <algorithm>

namespace kvroof {
namespace {

struct Lacking {
  std::string_view architecture;
  bool fp8, fp4, int8;
};

constexpr std::array<Lacking, 11> kLacking = {{
    {"Volta", true, true, true},
    {"Turing", true, true, false},
    {"Ampere", true, true, false},
    {"Ada", false, true, false},
    {"Hopper", false, true, false},
    {"CDNA2", true, true, false},
    {"CDNA3", false, true, false},
    {"RDNA3", true, true, false},
    {"Gaudi", false, true, false},
    {"Gaudi2", false, true, false},
    {"TPU", true, true, false},
}};

}  // namespace

bool lacks_products(const Device& device, DeviceField peak) {
  const auto* const known = std::ranges::find(kLacking, device.architecture, &Lacking::architecture);
  if (known == kLacking.end()) return false;
  if (peak == DeviceField::kPeakFp8Tflops) return known->fp8;
  if (peak == DeviceField::kPeakFp4Tflops) return known->fp4;
  return peak == DeviceField::kPeakInt8Tops && known->int8;
}

}  // namespace kvroof
