#include "kernels/cupti/step_clock.hpp"

#include <algorithm>

namespace kvroof {

std::optional<std::uint64_t> same_moment(const StepTimes& from, const StepTimes& to, std::uint64_t time_ns) {
  const auto after = std::upper_bound(from.begin(), from.end(), time_ns,
                                      [](std::uint64_t time, const auto& step) { return time < step.first; });
  if (after == from.begin()) return std::nullopt;
  const auto index = static_cast<std::size_t>(after - from.begin()) - 1;
  const auto [start, end] = from[index];
  if (time_ns >= end || index >= to.size()) return std::nullopt;
  const double share = static_cast<double>(time_ns - start) / static_cast<double>(end - start);
  const auto [other_start, other_end] = to[index];
  return other_start + static_cast<std::uint64_t>(share * static_cast<double>(other_end - other_start));
}

}  // namespace kvroof
