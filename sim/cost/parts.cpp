#include "sim/cost/parts.hpp"

#include <algorithm>
#include <cmath>

namespace kvroof {
namespace {

// Two boards of one product, clocks, temperature: a relative half-width (80 %), a prior (docs/method.md).
constexpr double kChipSpread = 0.05;

}  // namespace

void Parts::add(CostTerm term, Limit limit, double s, double spread) {
  const auto t = static_cast<std::size_t>(term);
  seconds[t] += s;
  width_squared[t] =
      together ? square(std::sqrt(width_squared[t]) + s * spread) : width_squared[t] + square(s * spread);
  limits[static_cast<std::size_t>(limit)] += s;
}

void Parts::add_times(double times, const Parts& other) {
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    seconds[i] += times * other.seconds[i];
    width_squared[i] = square(std::sqrt(width_squared[i]) + times * std::sqrt(other.width_squared[i]));
  }
  for (std::size_t i = 0; i < limits.size(); ++i) limits[i] += times * other.limits[i];
  least += times * other.least;
}

void Parts::add_roofline(CostTerm term, Limit memory, double calls, Rate start, double bytes, Rate bandwidth,
                         double flops, Rate peak, Rate tile) {
  add(term, Limit::kLaunches, calls * start.value, start.spread);
  const double reading = bytes / bandwidth.value, computing = flops / peak.value;
  const double both = std::hypot(reading, computing);
  if (both < tile.value) return add(term, Limit::kCompute, tile.value, tile.spread);
  if (!(both > 0)) return;
  // Each moves the sum by its share of the squares.
  add(term, memory, square(reading) / both, bandwidth.spread);
  add(term, Limit::kCompute, square(computing) / both, peak.spread);
}

double Parts::total() const {
  double sum = 0;
  for (const double s : seconds) sum += s;
  return sum;
}

Estimate Parts::estimate() const {
  const double all = total();
  const double board = square(kChipSpread * all);
  double of_terms = 0;
  for (const double w : width_squared) of_terms += together ? std::sqrt(w) : w;
  const double squared = board + (together ? square(of_terms) : of_terms);
  const auto widest = std::max_element(width_squared.begin(), width_squared.end());
  const auto dominated_by =
      *widest > board ? static_cast<CostTerm>(widest - width_squared.begin()) : CostTerm::kBoard;
  const double width = all > 0 ? std::sqrt(squared) / all : 0;
  Estimate e = around(all, width, width * kWidth95, dominated_by);
  e.limit = least;
  if (squared > 0) e.unmeasured = width_squared[static_cast<std::size_t>(CostTerm::kPolicy)] / squared;
  return e;
}

}  // namespace kvroof
