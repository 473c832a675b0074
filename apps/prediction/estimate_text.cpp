#include "apps/prediction/estimate_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/cli/wide_rows.hpp"

namespace kvroof {

std::string short_number(double x) {
  if (x == 0) return "0";
  const double rounded = std::stod(fmt::format("{:.2e}", x));  // 9.996 has one digit less than it seems
  const int digits = std::clamp(2 - static_cast<int>(std::floor(std::log10(std::abs(rounded)))), 0, 6);
  return fmt::format("{:.{}f}", x, digits);
}

std::string with_interval(const Estimate& e, double scale) {
  const double half = std::max(e.high80 - e.value, e.value - e.low80);
  if (half >= e.value) return fmt::format("{} ({})", short_number(e.value * scale), interval_text(e, scale));
  return fmt::format("{} ±{:.0f}%", short_number(e.value * scale), 100 * half / e.value);
}

std::string interval_text(const Estimate& e, double scale) {
  return fmt::format("{} to {}", short_number(e.low80 * scale), short_number(e.high80 * scale));
}

std::string interval95_text(const Estimate& e, double scale) {
  return fmt::format("{} to {}", short_number(e.low95 * scale), short_number(e.high95 * scale));
}

nlohmann::ordered_json interval_json(const Estimate& e, double scale) {
  return {{"value", e.value * scale},
          {"low80", e.low80 * scale},
          {"high80", e.high80 * scale},
          {"low95", e.low95 * scale},
          {"high95", e.high95 * scale},
          {"dominated_by", name_of(e.dominated_by)}};
}

nlohmann::ordered_json interval_json(const std::optional<Estimate>& e, double scale) {
  return if_any(e.has_value(), interval_json(e.value_or(Estimate{}), scale));
}

}  // namespace kvroof
