#include "sim/core/number_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace kvroof {

std::string number_text(double x) {
  if (std::isnan(x)) return "–";
  if (std::isinf(x)) return x > 0 ? "∞" : "−∞";
  if (x == 0) return "0";
  const double rounded = std::stod(fmt::format("{:.2e}", x));  // 9.996 has one digit less than it seems
  const double magnitude = std::floor(std::log10(std::abs(rounded)));
  if (magnitude < -4) return fmt::format("{:.2e}", x);
  return fmt::format("{:.{}f}", x, std::clamp(2 - static_cast<int>(magnitude), 0, 6));
}

}  // namespace kvroof
