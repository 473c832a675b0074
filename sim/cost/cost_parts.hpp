// What a predicted time is added up from, term by term; for the sources of the cost model alone.
#pragma once

#include <algorithm>
#include <cmath>

#include "sim/cost/cost.hpp"

namespace kvroof {

constexpr double square(double x) { return x * x; }
inline constexpr double kActivationBytes = 2;  // an element of what devices exchange

// Seconds of one step by term and by limit, and the absolute half-width of each term.
struct CostModel::Parts {
  std::array<double, kCostTerms> seconds{};
  std::array<double, kCostTerms> width_squared{};
  std::array<double, kLimits> limits{};
  double least = 0;  // seconds that the sum cannot be below, by the datasheet
  // What others do on the machine slows all parts at once: half-widths add up, not their squares.
  bool together = false;

  void add(CostTerm term, Limit limit, double s, double spread) {
    const auto t = static_cast<std::size_t>(term);
    seconds[t] += s;
    width_squared[t] = together ? square(std::sqrt(width_squared[t]) + s * spread)
                                : width_squared[t] + square(s * spread);
    limits[static_cast<std::size_t>(limit)] += s;
  }
  // What is done so many times beside this. The same constants make both, so that half-widths add up.
  void add_times(double times, const Parts& other) {
    for (std::size_t i = 0; i < seconds.size(); ++i) {
      seconds[i] += times * other.seconds[i];
      width_squared[i] = square(std::sqrt(width_squared[i]) + times * std::sqrt(other.width_squared[i]));
    }
    for (std::size_t i = 0; i < limits.size(); ++i) limits[i] += times * other.limits[i];
    least += times * other.least;
  }
  [[nodiscard]] double total() const {
    double sum = 0;
    for (const double s : seconds) sum += s;
    return sum;
  }
  [[nodiscard]] double width_squared_of_all() const {
    double sum = 0;
    for (const double w : width_squared) sum += together ? std::sqrt(w) : w;
    return together ? square(sum) : sum;
  }
  // start + √((bytes / bandwidth)² + (operations / peak)²). Where both take as long, neither hides the other: tables of
  // products of 1 to 8,192 rows on A100 and H100 fit a norm of order 2 to 7.8 and 5.4 %, the larger of both to 10.4 and
  // 5.8 % (half of the shapes fitted).
  // At least the time of a tile: {seconds, spread}.
  void add_roofline(CostTerm term, Limit memory, double calls, Rate start, double bytes, Rate bandwidth, double flops,
                    Rate peak, Rate tile = {}) {
    add(term, Limit::kLaunches, calls * start.value, start.spread);
    const double reading = bytes / bandwidth.value, computing = flops / peak.value;
    const double both = std::hypot(reading, computing);
    if (both < tile.value) return add(term, Limit::kCompute, tile.value, tile.spread);
    if (!(both > 0)) return;
    // Each moves the sum by its share of the squares.
    add(term, memory, square(reading) / both, bandwidth.spread);
    add(term, Limit::kCompute, square(computing) / both, peak.spread);
  }
};

}  // namespace kvroof
