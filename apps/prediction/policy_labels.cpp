#include "apps/prediction/policy_labels.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace kvroof {
namespace {

constexpr std::size_t kWidestPolicy = 12;  // of a table; longer ones are numbered and listed below it

}  // namespace

const std::string& short_name(const PolicySpec& spec) { return spec.preset.empty() ? spec.name : spec.preset; }

std::string name_without_budget(const PolicySpec& spec) {
  std::string text = short_name(spec);
  for (const auto& [key, value] : spec.params) text += ":" + key + "=" + value;
  return text;
}

std::string budget_text(const PolicySpec& spec) {
  return spec.budget.kind == Budget::Kind::kUnlimited ? "–" : spec.budget.text;
}

std::string PolicyLabels::of(const PolicySpec& spec) {
  const std::string full = name_without_budget(spec);
  if (full.size() <= kWidestPolicy || spec.params.empty()) return full;
  const auto known = std::find(long_.begin(), long_.end(), full);
  const auto number = known - long_.begin() + 1;
  if (known == long_.end()) long_.push_back(full);
  return fmt::format("{}[{}]", short_name(spec), number);
}

std::vector<std::string> PolicyLabels::footnotes() const {
  std::vector<std::string> notes;
  for (const std::string& full : long_) notes.push_back(fmt::format("[{}] {}", notes.size() + 1, full));
  return notes;
}

}  // namespace kvroof
