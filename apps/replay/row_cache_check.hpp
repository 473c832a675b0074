// What attention rows of one byte a weight change: the sets that points keep, beside those of the exact rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "sim/replay/replay.hpp"

namespace kvroof {

struct RowCacheCheck {
  struct Point {
    std::uint64_t tokens = 0, same = 0;     // kept with the rows of one byte, and of these with the exact ones as well
    std::uint64_t sets = 0, same_sets = 0;  // heads after a step
    std::optional<double> recall_difference;  // of the means, where it was measured
    [[nodiscard]] double same_share() const {
      return tokens == 0 ? 1.0 : static_cast<double>(same) / static_cast<double>(tokens);
    }
  };
  std::uint32_t steps = 0;  // of the longest sequence, that were compared: evenly spread
  std::vector<Point> points;

  // One sentence.
  [[nodiscard]] std::string text(const std::vector<PolicySpec>& specs) const;
};

nlohmann::ordered_json row_cache_json(const RowCacheCheck& check, const std::vector<PolicySpec>& specs);

// Policies that choose by sums over all rows keep 99.9 % of the tokens in the mean of budgets, and those that see no
// rows all of them.
bool uses_row_cache(const PolicySpec& spec);
// The others, but for those with one set for the model, which read exact rows in a replay of their own.
bool needs_exact_rows(const PolicySpec& spec);

// Compares the sets of two replays of the same points, at as many steps as 256 MiB hold the sets of.
class RowCacheComparison {
 public:
  RowCacheComparison(const TraceManifest& manifest, const std::vector<PolicySpec>& points);

  [[nodiscard]] bool wants(StepId step) const { return step.value % stride_ == 0; }
  // Every set that is wanted, of the replay with exact rows and then of the other, in the order of a replay.
  void add_exact(const KeptSet& set);
  void compare(const KeptSet& set);
  [[nodiscard]] RowCacheCheck finish(const std::vector<PointResult>& exact, const std::vector<PointResult>& coded);

 private:
  std::uint32_t stride_ = 1;
  RowCacheCheck check_;
  std::vector<bool> uses_rows_;  // by point
  std::vector<std::uint32_t> tokens_;   // of all exact sets, one after the other
  std::vector<std::uint32_t> lengths_;
  std::size_t next_set_ = 0, next_token_ = 0;
};

}  // namespace kvroof
