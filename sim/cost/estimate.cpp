#include "sim/cost/estimate.hpp"

#include <algorithm>

namespace kvroof {

Estimate around(double value, double half_width80, double half_width95, CostTerm dominated_by) {
  const double h80 = 1 + half_width80, h95 = 1 + half_width95;
  return {.value = value,
          .low80 = value / h80,
          .high80 = value * h80,
          .low95 = value / h95,
          .high95 = value * h95,
          .dominated_by = dominated_by};
}

Estimate scaled(const Estimate& estimate, double factor) {
  Estimate e = estimate;
  for (double* x : {&e.value, &e.low80, &e.high80, &e.low95, &e.high95, &e.limit}) *x *= factor;
  return e;
}

Estimate throughput(const Estimate& step, double tokens) {
  if (!(step.value > 0)) return {};
  return {.value = tokens / step.value,
          .low80 = tokens / step.high80,
          .high80 = tokens / step.low80,
          .low95 = tokens / step.high95,
          .high95 = tokens / step.low95,
          .dominated_by = step.dominated_by,
          .limit = step.limit > 0 ? tokens / step.limit : 0,
          .unmeasured = step.unmeasured,
          .is_rate = true};
}

double possible(const Estimate& e, double x) {
  if (!(e.limit > 0)) return x;
  return e.is_rate ? std::min(x, e.limit) : std::max(x, e.limit);
}

}  // namespace kvroof
