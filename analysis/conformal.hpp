// Intervals from measurements: how far like rows of other published tables lie from their predictions.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "sim/cost/cost.hpp"

namespace kvroof {

// What a prediction is alike in with measured ones.
struct RowKind {
  std::string memory;  // of the device: hbm, gddr
  std::string engine;  // a profile of the catalog; kernels by themselves: "kernel"
  std::string metric;  // step, first token, whole, saturated, memory, product, attention
};

// One measured row: how far it lies from its prediction, in half-widths (80 %) of the prior interval, on a log scale.
struct Residual {
  RowKind kind;
  std::string group;  // the published table that it is of
  double score = 0;
};
double residual_score(const Estimate& predicted, double measured);

// Factors on the logarithmic half-width of the prior 80 % interval.
struct IntervalFactors {
  double factor80 = 1, factor95 = 1.9600 / 1.2816;
  std::string from;  // which rows, and how many; or that there are none and the priors stand
};

// Split-conformal prediction (Vovk et al. 2005; Lei et al. 2018) with scores relative to the prior width: the smallest
// factor that holds 80 % (95 %) of the scores of like rows and of one more, or the largest where they are too few for
// that. Alike are, as soon as there are enough of at least two tables: the same memory, engine and metric; the same
// memory and metric; the same metric; all rows.
// Tables count alike, whatever their rows, but for the square root of these: neighbours in one table err alike.
class IntervalTable {
 public:
  explicit IntervalTable(std::vector<Residual> residuals) : residuals_(std::move(residuals)) {}
  // Never below those of the priors where the like rows are of another engine or memory. Without the rows of
  // `left_out`: for a row of that table itself.
  [[nodiscard]] IntervalFactors factors(const RowKind& kind, const std::string& left_out = {}) const;

 private:
  std::vector<Residual> residuals_;
};

// The estimate with its bounds moved to those factors.
Estimate with_factors(const Estimate& estimate, const IntervalFactors& factors);

}  // namespace kvroof
