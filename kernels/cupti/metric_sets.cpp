#include "kernels/cupti/metric_sets.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace kvroof {
namespace {

// Consumer Blackwell has no dram__bytes_*; its frame buffer partitions count the same bytes.
constexpr Metric kDramRead = {"dram_read_bytes", {"dram__bytes_read.sum", "fbpa__dram_read_bytes.sum"}};
constexpr Metric kDramWrite = {"dram_write_bytes", {"dram__bytes_write.sum", "fbpa__dram_write_bytes.sum"}};
constexpr Metric kDuration = {"duration_ns", {"gpu__time_duration.sum", ""}};
constexpr Metric kL2Bytes = {"l2_bytes", {"lts__t_bytes.sum", ""}};
constexpr Metric kSmActive = {"sm_cycles_active", {"sm__cycles_active.avg", ""}};
constexpr Metric kSmElapsed = {"sm_cycles_elapsed", {"sm__cycles_elapsed.max", ""}};

// sm__throughput (8 passes on GH100) is sm_cycles_active / sm_cycles_elapsed here; hits of L2 (2 passes) are left out.
constexpr std::array kRangeMetrics = {
    kDramRead,
    kDramWrite,
    kDuration,
    Metric{"dram_cycles_elapsed", {"dram__cycles_elapsed.sum", ""}},
    Metric{"dram_cycles_active", {"dram__cycles_active.sum", ""}},
    kL2Bytes,
    Metric{"l2_read_sectors", {"lts__t_sectors_op_read.sum", ""}},
    Metric{"l2_write_sectors", {"lts__t_sectors_op_write.sum", ""}},
    kSmActive,
    kSmElapsed,
    Metric{"instructions", {"smsp__inst_executed.sum", ""}},
    Metric{"warps_active", {"sm__warps_active.sum", ""}},
};

constexpr std::array kSamplingMetrics = {
    kDramRead,
    kDramWrite,
    Metric{"dram_percent_of_peak", {"dram__throughput.avg.pct_of_peak_sustained_elapsed", ""}},
    kDuration,
    kL2Bytes,
    kSmActive,
    kSmElapsed,
    Metric{"graphics_cycles_active", {"gr__cycles_active.sum", ""}},
};

}  // namespace

const MetricSet& range_metrics() {
  static const MetricSet set = {CounterMode::kRange, kRangeMetrics};
  return set;
}

const MetricSet& sampling_metrics() {
  static const MetricSet set = {CounterMode::kSampling, kSamplingMetrics};
  return set;
}

Result<ResolvedMetrics> resolve_metrics(const MetricSet& set, const MetricCatalog& catalog) {
  ResolvedMetrics resolved;
  for (const Metric& metric : set.metrics) {
    const auto found = std::find_if(metric.preferred.begin(), metric.preferred.end(), [&](std::string_view name) {
      return !name.empty() && catalog.has(std::string(name));
    });
    if (found == metric.preferred.end()) {
      resolved.lacking.push_back(metric.quantity);
      continue;
    }
    resolved.quantities.push_back(metric.quantity);
    resolved.names.emplace_back(*found);
  }
  if (resolved.names.empty()) return failure("this device has none of the {} counters", set.metrics.size());
  // Bytes of DRAM are first, and one direction without the other is worth nothing.
  const auto kept = std::count_if(resolved.quantities.begin(), resolved.quantities.end(), [](std::string_view q) {
    return q == kDramRead.quantity || q == kDramWrite.quantity;
  });
  const std::size_t fewest = std::max<std::size_t>(1, static_cast<std::size_t>(kept));
  while (true) {
    const auto passes = catalog.passes(resolved.names);
    if (passes && passes.value() == 1) return resolved;
    if (resolved.names.size() == fewest) {
      if (!passes) return Failure{passes.error()};
      return failure("this device reads {} {} in {} passes, and a decode step can run only once",
                     fmt::join(resolved.names, " and "), fewest == 1 ? "alone" : "together", passes.value());
    }
    // What a device's free counters do not read in one pass, or not at all, goes from the end.
    resolved.lacking.push_back(resolved.quantities.back());
    resolved.quantities.pop_back();
    resolved.names.pop_back();
  }
}

}  // namespace kvroof
