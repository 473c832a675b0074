#include "analysis/multiple_choice.hpp"

#include <algorithm>

namespace kvroof {
namespace {

double per_byte(const ChoiceScore& choice) { return choice.log_likelihood / static_cast<double>(choice.bytes); }

template <class Value>
std::size_t index_of_largest(std::span<const ChoiceScore> choices, Value&& value) {
  const auto less = [&](const ChoiceScore& a, const ChoiceScore& b) { return value(a) < value(b); };
  return static_cast<std::size_t>(std::max_element(choices.begin(), choices.end(), less) - choices.begin());
}

}  // namespace

std::size_t likeliest(std::span<const ChoiceScore> choices) {
  return index_of_largest(choices, [](const ChoiceScore& choice) { return choice.log_likelihood; });
}

std::size_t likeliest_for_length(std::span<const ChoiceScore> choices) { return index_of_largest(choices, per_byte); }

}  // namespace kvroof
