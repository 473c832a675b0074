#include "apps/prediction/estimate_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/cli/wide_rows.hpp"
#include "sim/core/number_text.hpp"

namespace kvroof {

std::string with_interval(const Estimate& e, double scale) {
  const double half = std::max(e.high80 - e.value, e.value - e.low80);
  if (half >= e.value) return fmt::format("{} ({})", number_text(e.value * scale), interval_text(e, scale));
  return fmt::format("{} ±{:.0f}%", number_text(e.value * scale), 100 * half / e.value);
}

std::string interval_text(const Estimate& e, double scale) {
  return fmt::format("{} to {}", number_text(e.low80 * scale), number_text(e.high80 * scale));
}

std::string interval95_text(const Estimate& e, double scale) {
  return fmt::format("{} to {}", number_text(e.low95 * scale), number_text(e.high95 * scale));
}

std::string_view most_of_step(const Prediction& prediction, double token_seconds) {
  return prediction.waits_most(token_seconds) ? "prompts" : name_of(prediction.limited_by);
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
