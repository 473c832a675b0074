#include "apps/prediction/latency_estimates.hpp"

#include <algorithm>
#include <cmath>

namespace kvroof {
namespace {

// A percentile that is wider than a step by so much is so for other causes than that step.
constexpr double kWiderThanStep = 1.5;

using Figure = double LatencySummary::*;

Estimate simulated(const EndSummaries& summaries, LatencySummary ServingSummary::* which, Figure figure) {
  Ends at{};
  for (std::size_t i = 0; i < at.size(); ++i) at[i] = summaries[i].*which.*figure;
  return estimate_of(at);
}

// The errors of mean, p90 and p99 serve for the median, for p90 and for p95 and p99.
const IntervalFactors& errors_of(const ServedErrors::Of& of, Figure figure) {
  if (figure == &LatencySummary::mean || figure == &LatencySummary::p50) return of.mean;
  return figure == &LatencySummary::p90 ? of.p90 : of.p99;
}

// Measured runs say more of some percentiles than of others, yet no request is faster than one before it: what bounds a
// percentile from below bounds those before it as well, and from above those after it. No interval becomes narrower.
void order(LatencyEstimates& l) {
  const std::array<Estimate*, 4> rising = {&l.p50, &l.p90, &l.p95, &l.p99};
  for (std::size_t i = 1; i < rising.size(); ++i) {
    for (double Estimate::* high : {&Estimate::high80, &Estimate::high95}) {
      rising[i]->*high = std::max(rising[i]->*high, rising[i - 1]->*high);
    }
  }
  for (std::size_t i = rising.size() - 1; i > 0; --i) {
    for (double Estimate::* low : {&Estimate::low80, &Estimate::low95}) {
      rising[i - 1]->*low = std::min(rising[i - 1]->*low, rising[i]->*low);
    }
  }
}

LatencyEstimates latency_of(const EndSummaries& summaries, LatencySummary ServingSummary::* which,
                            const LatencyErrors& errors) {
  const bool first = which == &ServingSummary::first_token;
  const double by_itself = first ? std::max(errors.step80, errors.prompt80) : errors.step80;
  const bool per_token = which == &ServingSummary::token || which == &ServingSummary::gap;
  const double share = per_token ? 1 / errors.tokens : 1;  // of what an answer is late
  LatencyEstimates result;
  const auto of = [&](Figure figure) {
    const Estimate by_times = simulated(summaries, which, figure);
    const bool queues = std::log(by_times.high80 / by_times.value) > kWiderThanStep * by_itself;
    result.p99_wide_by = queues ? WideBy::kQueues : WideBy::kSteps;
    Estimate e = by_times;
    const auto widen = [&](const Estimate& wider, WideBy by) {
      if (wider.high80 > e.high80) result.p99_wide_by = by;
      e = wider;
    };
    if (first) widen(at_least(e, errors.first_token), WideBy::kMeasured);
    widen(at_least(e, errors_of(first ? errors.served.first_token : errors.served.answer, figure)), WideBy::kMeasured);
    const auto& cold = first ? errors.served.cold_first_token : errors.served.cold_answer;
    if (cold) widen(as_late_as(e, errors_of(*cold, figure), share), WideBy::kCold);
    return e;
  };
  result.mean = of(&LatencySummary::mean);
  result.p50 = of(&LatencySummary::p50);
  result.p90 = of(&LatencySummary::p90);
  result.p95 = of(&LatencySummary::p95);
  result.p99 = of(&LatencySummary::p99);  // the last, so that it is the one which p99_wide_by is of
  order(result);
  return result;
}

}  // namespace

Estimate estimate_of(const Ends& at) {
  Estimate e{at[0], std::min(at[1], at[0]), std::max(at[2], at[0])};
  e.low95 = std::min(at[3], e.low80);
  e.high95 = std::max(at[4], e.high80);
  return e;
}

Estimate falling_estimate_of(const Ends& at) { return estimate_of({at[0], at[2], at[1], at[4], at[3]}); }

RequestEstimates request_estimates(const EndSummaries& summaries, const LatencyErrors& errors) {
  const auto of = [&](LatencySummary ServingSummary::* which) { return latency_of(summaries, which, errors); };
  return {of(&ServingSummary::first_token), of(&ServingSummary::token), of(&ServingSummary::gap),
          of(&ServingSummary::whole)};
}

}  // namespace kvroof
