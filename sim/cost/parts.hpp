// What a predicted time is added up from, term by term; for the sources of the cost model alone.
#pragma once

#include <array>

#include "sim/cost/estimate.hpp"

namespace kvroof {

constexpr double square(double x) { return x * x; }

// A constant of a device with the relative half-width (80 %) of what is known of it.
struct Rate {
  double value = 0;
  double spread = 0;
};

// Seconds of one step by term and by limit, and the absolute half-width of each term.
struct Parts {
  std::array<double, kCostTerms> seconds{};
  std::array<double, kCostTerms> width_squared{};
  std::array<double, kLimits> limits{};
  double least = 0;  // seconds that the sum cannot be below, by the datasheet
  // What others do on the machine slows all parts at once: half-widths add up, not their squares.
  bool together = false;

  void add(CostTerm term, Limit limit, double s, double spread);
  // Adds `times` repetitions of `other`. The same constants make both: errors go together, and half-widths add up.
  void add_times(double times, const Parts& other);
  // start + √((bytes / bandwidth)² + (operations / peak)²). Where both take as long, neither hides the other: tables of
  // products of 1 to 8,192 rows on A100 and H100 fit a norm of order 2 to 7.8 and 5.4 %, the larger of both to 10.4 and
  // 5.8 % (half of the shapes fitted).
  // `tile`: the least that the kernel takes, one tile on one multiprocessor, in seconds.
  void add_roofline(CostTerm term, Limit memory, double calls, Rate start, double bytes, Rate bandwidth, double flops,
                    Rate peak, Rate tile = {});

  [[nodiscard]] double total() const;
  // The sum with its interval, and what contributes most to that.
  [[nodiscard]] Estimate estimate() const;
};

}  // namespace kvroof
