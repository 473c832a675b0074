#include "sim/policy/layer_budgets.hpp"

#include <algorithm>
#include <cmath>

namespace kvroof {

std::uint32_t pyramid_without_window(const PyramidRule& rule, const PolicyContext& context, std::uint32_t mean) {
  if (context.layers < 2) return mean;
  const std::int64_t scored = std::int64_t{context.prompt} - rule.window;
  std::int64_t low = mean / rule.beta;
  std::int64_t high = 2 * std::int64_t{mean} - low;
  if (high >= scored) {
    high = scored;
    low = 2 * std::int64_t{mean} - high;
  }
  // Rounded down also where it falls below 0: a mean above the scored tokens makes a pyramid that widens.
  const std::int64_t steps = context.layers - 1;
  const std::int64_t step = (high - low - (high < low ? steps - 1 : 0)) / steps;
  return static_cast<std::uint32_t>(std::max<std::int64_t>(0, high - std::int64_t{context.layer.value} * step));
}

std::uint32_t pyramid_budget(const PyramidRule& rule, const PolicyContext& context, std::uint32_t budget) {
  const std::uint64_t n = context.prompt;
  if (budget <= rule.window || n < budget || n < 2 * std::uint64_t{budget - rule.window}) return budget;
  return rule.window + pyramid_without_window(rule, context, budget - rule.window);
}

std::uint32_t pyramid_budget_kvpress(const PyramidRule& rule, const PolicyContext& context, double kept) {
  const double n = context.prompt;
  const double window = rule.window;
  // The sum and the difference are kvpress's: they round as its do.
  const double mean = (window + kept) - window;
  double low = mean / rule.beta;
  double high = mean * 2 - low;
  if (high >= n - window) {
    high = n - window;
    low = mean * 2 - high;
  }
  const bool is_pyramid = n >= high && high >= low && low >= window && context.layers > 1;
  if (!is_pyramid) return static_cast<std::uint32_t>(std::nearbyint(kept));
  const double step = (high - low) / (context.layers - 1);
  return static_cast<std::uint32_t>(std::nearbyint(high - context.layer.value * step));
}

}  // namespace kvroof
