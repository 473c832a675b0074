// Percentiles of simulated requests with intervals: the simulation at the ends of all times, and what measured runs of
// servers are off by.
#pragma once

#include <array>
#include <string>

#include "apps/prediction/intervals.hpp"
#include "sim/serving/simulate.hpp"

namespace kvroof {

// The ends at which all times are read, one simulation each.
inline constexpr std::array kEstimateEnds = {&Estimate::value, &Estimate::low80, &Estimate::high80, &Estimate::low95,
                                             &Estimate::high95};
using Ends = std::array<double, kEstimateEnds.size()>;
using EndSummaries = std::array<ServingSummary, kEstimateEnds.size()>;

// A figure at the five ends of all times. A schedule may come out a little better with slower steps; its interval
// still holds the value.
Estimate estimate_of(const Ends& at);
// Likewise of one that falls where times grow.
Estimate falling_estimate_of(const Ends& at);

// What sets the upper 80 % end of a percentile.
enum class WideBy : std::uint8_t {
  kSteps,     // the times of steps and prompts, by about as much as they may be longer
  kQueues,    // the same, and that with longer steps more requests wait or run at once: wider by half, or more
  kMeasured,  // what measured percentiles are off by
  kCold       // how much later they come in first minutes
};
inline constexpr std::array<std::string_view, 4> kWideByNames = {"steps", "queues", "measured runs", "cold start"};
constexpr std::string_view name_of(WideBy by) { return kWideByNames[static_cast<std::size_t>(by)]; }

// Seconds.
struct LatencyEstimates {
  Estimate mean, p50, p90, p95, p99;
  WideBy p99_wide_by = WideBy::kSteps;
};
struct RequestEstimates {
  LatencyEstimates first_token, token, gap, whole;
};

// What intervals are at least as wide as.
struct LatencyErrors {
  IntervalFactors first_token;  // of measured first tokens under loads of any kind
  ServedErrors served;
  double tokens = 1;            // of an answer, after its first
  double step80 = 0, prompt80 = 0;  // ln(its upper 80 % end ÷ its value) of a mean step, and of a longest prompt
};
RequestEstimates request_estimates(const EndSummaries& summaries, const LatencyErrors& errors);

}  // namespace kvroof
