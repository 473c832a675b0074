// Intervals from measurements: how far like rows of other published tables lie from their predictions.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "sim/cost/cost.hpp"

namespace kvroof {

// How large the work is whose time or memory is predicted; 0: not stated, or not of this kind of work.
struct Reach {
  double sequences = 0;  // at once
  double tokens = 0;     // of a sequence: prompt and output
  double devices = 0;
};

// What a prediction is alike in with measured ones.
struct RowKind {
  std::string memory;  // of the device: hbm, gddr
  std::string engine;  // a profile of the catalog; kernels by themselves: "kernel"
  std::string metric;  // step, prompt, first token, whole, saturated, memory, product, attention
  std::string device;  // of the catalog
  Reach reach;
};

// One measured row: how far it lies from its prediction, in half-widths (80 %) of the prior interval, on a log scale.
struct Residual {
  RowKind kind;
  std::string group;  // the published table that it is of
  double score = 0;
  double log_error = 0;  // |ln(measured ÷ predicted)|
};
Residual residual_of(const RowKind& kind, const std::string& group, const Estimate& predicted, double measured);

// Factors on the logarithmic half-width of the prior 80 % interval, and the least that results.
struct IntervalFactors {
  double factor80 = 1, factor95 = 1.9600 / 1.2816;
  std::string from;    // which rows, and how many; or that there are none and the priors stand
  std::string beyond;  // what lies outside those rows, and how much wider that makes the interval; empty: nothing
  double least80 = 0, least95 = 0;  // logarithmic half-widths
  [[nodiscard]] std::string text() const { return beyond.empty() ? from : from + "; " + beyond; }
};

// The factors of like rows, and the least and the largest work among those.
struct IntervalGroup {
  IntervalFactors inside;
  Reach low, high;
  // Wider for work beyond them; see kWiderPerDoubling.
  [[nodiscard]] IntervalFactors at(const Reach& reach) const;
};

// Split-conformal prediction (Vovk et al. 2005; Lei et al. 2018) with scores relative to the prior width: the smallest
// factor that holds 80 % (95 %) of the scores of like rows and of one more, or the largest where they are too few for
// that. Alike are, as soon as there are enough of at least two tables: the same device, engine and metric; the same
// memory, engine and metric; the same memory and metric; the same metric; all rows.
// Of rows of the same engine and memory the scores count: their priors are this prediction's. Of others the errors
// themselves: that their priors were too narrow is no reason to multiply another's; its interval is the prior one, or
// as wide as those errors.
// Tables count alike, whatever their rows, but for the square root of these: neighbours in one table err alike.
// Work larger or smaller than all of those rows has wider intervals: see kWiderPerDoubling.
class IntervalTable {
 public:
  explicit IntervalTable(std::vector<Residual> residuals) : residuals_(std::move(residuals)) {}
  // Without the rows of `left_out`: for a row of that table itself.
  [[nodiscard]] IntervalFactors factors(const RowKind& kind, const std::string& left_out = {}) const {
    return group(kind, left_out).at(kind.reach);
  }
  // Those that all work of this kind shares, whatever its reach.
  [[nodiscard]] IntervalGroup group(const RowKind& kind, const std::string& left_out = {}) const;

 private:
  std::vector<Residual> residuals_;
};

// The logarithmic width grows by this share for each doubling of sequences, tokens or devices beyond the measured ones,
// the axis that lies farthest out deciding. A judgement: no shipped table goes on beyond the others by much.
inline constexpr double kWiderPerDoubling = 0.2;

// The estimate with its bounds moved to those factors; but for a load that is not stated, which they know nothing of.
Estimate with_factors(const Estimate& estimate, const IntervalFactors& factors);
// Its step time, and the throughput that follows.
Prediction with_factors(Prediction prediction, const IntervalFactors& factors);
// The largest batch, and those of ledgers that need as much more or less as the factors on memory say.
Estimate largest_batch_estimate(const CostModel& cost, const ResidencySummary& residency,
                                const IntervalFactors& memory);

}  // namespace kvroof
