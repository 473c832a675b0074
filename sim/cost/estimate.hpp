// Predicted numbers with their intervals: what their uncertainty comes from, and what limits them.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace kvroof {

// The terms that a step time is the sum of, each with its own uncertainty; and what else is uncertain: one board beside
// another, memory that no ledger foresees, and how many requests there are at once.
enum class CostTerm : std::uint8_t {
  kLinear, kAttention, kElementwise, kPolicy, kHost, kLinks, kBoard, kMemory, kLoad
};
inline constexpr std::size_t kCostTerms = 6;  // those of a time
inline constexpr std::array<std::string_view, 9> kCostTermNames = {
    "linear", "attention", "elementwise", "policy", "host", "links", "board", "memory", "load"};
constexpr std::string_view name_of(CostTerm term) { return kCostTermNames[static_cast<std::size_t>(term)]; }

// The largest share of a step: reading weights; reading, writing and moving KV; the same of states of layers without a
// cache; arithmetic; start-ups and host; what devices tell each other; or that memory does not suffice.
enum class Limit : std::uint8_t { kWeights, kKv, kStates, kCompute, kLaunches, kLinks, kCapacity };
inline constexpr std::size_t kLimits = 7;
inline constexpr std::array<std::string_view, kLimits> kLimitNames = {"weights",  "KV",    "states",  "compute",
                                                                      "launches", "links", "capacity"};
constexpr std::string_view name_of(Limit limit) { return kLimitNames[static_cast<std::size_t>(limit)]; }

// Normal quantiles: 80 % and 95 % of a distribution lie within 1.2816 and 1.9600 deviations.
inline constexpr double kWidth95 = 1.9600 / 1.2816;

// A prediction with its interval. The widths of the cost model are priors; measured rows move them (analysis).
struct Estimate {
  double value = 0;
  double low80 = 0;
  double high80 = 0;
  double low95 = 0;
  double high95 = 0;
  CostTerm dominated_by = CostTerm::kLinear;  // what contributes most to the width
  double limit = 0;  // the shortest time, or the highest rate, that the datasheet allows; 0: not known
  double unmeasured = 0;  // share of the squared prior width that is a policy's kernels, which no measured row has
  bool is_rate = false;   // else a time
};

// The value with relative half-widths; multiplicative, so that no bound is ever negative.
Estimate around(double value, double half_width80, double half_width95, CostTerm dominated_by);
Estimate scaled(const Estimate& estimate, double factor);
// Tokens per second from seconds per step: the fast end of one is the slow end of the other.
Estimate throughput(const Estimate& step, double tokens);

// The number nearest to x that the estimate's limit allows: no shorter time, no higher rate.
double possible(const Estimate& estimate, double x);

}  // namespace kvroof
