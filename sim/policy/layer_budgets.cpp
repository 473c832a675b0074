#include "sim/policy/layer_budgets.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "sim/core/error.hpp"
#include "sim/core/text.hpp"

namespace kvroof {
namespace {

constexpr double kLargestShare = 1e6;
constexpr std::string_view kPersistence = "persistence";

bool is_persistence(std::string_view layers) { return layers.starts_with(kPersistence); }

Error bad_layers(const PolicySpec& spec, std::string_view text, std::string_view expected) {
  return usage_error(fmt::format("policy {}: layers=`{}`: expected {}", spec.name, shown(text), expected));
}

std::vector<double> numbers_of(const PolicySpec& spec, std::string_view all, std::string_view list, double most,
                               std::string_view expected) {
  std::vector<double> numbers;
  for (const std::string_view one : split(list, '/')) {
    const double value = parse_decimal(one).value_or(0);
    if (!(value > 0) || value > most) throw bad_layers(spec, all, expected);
    numbers.push_back(value);
  }
  return numbers;
}

// The list stretched over the layers.
std::vector<double> stretched(std::span<const double> list, std::uint32_t layers) {
  std::vector<double> shares(layers, list.front());
  for (std::uint32_t layer = 0; layers > 1 && layer < layers && list.size() > 1; ++layer) {
    const double at = static_cast<double>(layer) * static_cast<double>(list.size() - 1) / (layers - 1);
    const auto left = std::min(static_cast<std::size_t>(at), list.size() - 2);
    const double right_part = at - static_cast<double>(left);
    shares[layer] = list[left] * (1 - right_part) + list[left + 1] * right_part;
  }
  return shares;
}

// `total` in proportion to the shares, none above `most`; total ≤ most · shares.size().
std::vector<double> proportional(std::span<const double> shares, double total, double most) {
  std::vector<double> parts(shares.size(), -1);  // −1: not at its most
  for (;;) {
    double rest = total;
    double sum = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) (parts[i] < 0 ? sum : rest) += parts[i] < 0 ? shares[i] : -parts[i];
    bool capped = false;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (parts[i] >= 0 || shares[i] * rest / sum < most) continue;
      parts[i] = most;
      capped = true;
    }
    if (capped) continue;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (parts[i] < 0) parts[i] = shares[i] * rest / sum;
    }
    return parts;
  }
}

}  // namespace

std::vector<double> layer_shares(const PolicySpec& spec) {
  constexpr double kSlope = 0.95;
  const std::string_view text = spec.find("layers").value_or("uniform");
  if (text == "uniform") return {};
  if (text == "pyramid") return {1 + kSlope, 1 - kSlope};
  if (text == "funnel") return {1 - kSlope, 1 + kSlope};
  if (!is_persistence(text)) {
    return numbers_of(spec, text, text, kLargestShare,
                      "uniform, pyramid, funnel, shares above 0 as in 2/1/0.5, or persistence/ and ratios");
  }
  const std::string_view rest = text.substr(kPersistence.size());
  constexpr std::string_view kExpected =
      "persistence/ and the layers' ratios above 0 and up to 1, as in persistence/0.97/0.9; `kvroof analyze` measures "
      "them";
  if (!rest.starts_with('/')) throw bad_layers(spec, text, kExpected);
  std::vector<double> shares = numbers_of(spec, text, rest.substr(1), 1, kExpected);
  for (double& share : shares) share = 1 / share;
  return shares;
}

std::vector<double> layer_shares(const PolicySpec& spec, std::uint32_t layers) {
  std::vector<double> shares = layer_shares(spec);
  if (shares.empty()) return shares;
  const bool ratios = is_persistence(spec.find("layers").value_or(""));
  const auto invert = [&] {
    for (double& share : shares) share = 1 / share;
  };
  if (ratios) invert();
  shares = stretched(shares, layers);
  if (ratios) invert();
  return shares;
}

std::uint32_t layer_budget(std::span<const double> shares, const PolicyContext& context, std::uint32_t budget,
                           std::uint32_t tokens) {
  if (shares.empty() || context.layers < 2 || budget >= tokens) return budget;
  const std::uint64_t total = std::uint64_t{context.layers} * (budget - 1);  // beside one each
  const double most = std::max(context.prompt, budget) - 1;
  const std::vector<double> parts = proportional(stretched(shares, context.layers), static_cast<double>(total), most);
  std::vector<std::uint32_t> budgets;
  for (const double part : parts) budgets.push_back(static_cast<std::uint32_t>(part));
  std::vector<std::uint32_t> order(parts.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::stable_sort(order, std::ranges::greater(), [&](std::uint32_t i) { return parts[i] - budgets[i]; });
  const std::uint64_t given = std::accumulate(budgets.begin(), budgets.end(), std::uint64_t{0});
  for (std::uint64_t i = 0; i < total - given; ++i) ++budgets[order[i]];
  return 1 + budgets[context.layer.value];
}

void read_layers(const PolicySpec& spec, PolicyTraits& traits) {
  traits.layer_shares = layer_shares(spec);
  if (!traits.layer_shares.empty()) traits.capacities = Capacities::kByLayer;
}

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
  const bool is_pyramid = n >= high && high >= low && low >= window;
  if (!is_pyramid) return static_cast<std::uint32_t>(std::nearbyint(kept));
  const double step = context.layers > 1 ? (high - low) / (context.layers - 1) : 0;
  return static_cast<std::uint32_t>(std::nearbyint(high - context.layer.value * step));
}

}  // namespace kvroof
