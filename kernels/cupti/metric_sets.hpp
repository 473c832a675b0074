// The counters that a recording asks a GPU for: two sets, each of one pass, since a decode step cannot be repeated.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cupti/metric_catalog.hpp"
#include "sim/core/error.hpp"

namespace kvroof {

struct Metric {
  std::string_view quantity;                  // ours, the same on every chip
  std::array<std::string_view, 2> preferred;  // CUPTI's names, the first that the chip has; empty: no second
};

struct MetricSet {
  CounterMode mode;
  std::span<const Metric> metrics;
};

// Bytes of DRAM and L2, cycles of DRAM and SMs, instructions and time of a range.
const MetricSet& range_metrics();
// Bytes and load of DRAM, bytes of L2, cycles of SMs and of the graphics engine of an interval.
const MetricSet& sampling_metrics();

struct ResolvedMetrics {
  std::vector<std::string_view> quantities;
  std::vector<std::string> names;           // CUPTI's, one for each quantity
  std::vector<std::string_view> lacking;    // quantities that the chip does not count, or not in the same pass
};

// The names of the set on a chip, as many from its beginning as one pass reads. A failure: the chip counts none of
// them, or not even the first in one pass.
Result<ResolvedMetrics> resolve_metrics(const MetricSet& set, const MetricCatalog& catalog);

}  // namespace kvroof
