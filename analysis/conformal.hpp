// Intervals from measurements: how far like rows of other published tables lie from their predictions.
#pragma once

#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
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
  // step, prompt, short prompt, first token, whole, saturated, memory; of kernels: product, attention, states,
  // element-wise.
  std::string metric;
  std::string device;  // of the catalog
  Reach reach;
  std::string weights{};  // how they are stored: 16 bit, fp8, nvfp4 …; empty: none are read
  bool experts = false;   // a mixture of them
  bool states = false;    // layers that hold a state in place of a cache
  std::string family{};   // of the device's architecture: architecture_family(); empty: not stated
};

// Architectures of one line of a vendor's, whose kernels are alike: CDNA of CDNA2, CDNA3 and CDNA4, Hopper of itself.
std::string architecture_family(std::string_view architecture);

// The metric of prompts by themselves, of so many tokens in all. Short ones take as long to read weights, launch and
// wait for the host as to compute, and are off by other causes than long ones, which are arithmetic.
std::string prompt_metric(double tokens);

// What weights a model has as deployed; memory holds their bytes whatever they are.
void set_weights(RowKind& kind, const ModelShape& shape, const Deployment& deployment);

// One measured row: how far it lies from its prediction, in half-widths (80 %) of the prior interval, on a log scale.
struct Residual {
  RowKind kind;
  std::string group;  // the published table that it is of
  double score = 0;
  double log_error = 0;  // |ln(measured ÷ predicted)|
  double late = 0;       // measured − predicted, where it is told: seconds
  double slower = 0;     // ln(measured ÷ predicted) of a time, the other way round of a rate
};
Residual residual_of(const RowKind& kind, const std::string& group, const Estimate& predicted, double measured);

// What measured rows say of an interval, in logarithmic half-widths: `wider` times the prior width times the factor;
// at most as wide as the errors of those rows, or the prior itself where that is wider.
struct IntervalFactors {
  static constexpr double kNoLimit = std::numeric_limits<double>::infinity();
  double factor80 = 1, factor95 = kWidth95;  // on the prior 80 % width
  std::string from;    // which rows, and how many; or that there are none and the priors stand
  std::string beyond;  // what lies outside those rows, and how much wider that makes the interval; empty: nothing
  double error80 = kNoLimit, error95 = kNoLimit;
  double late80 = 0, late95 = 0;  // seconds that those rows are later than predicted, where they tell
  double wider = 1;
  // How many times as long as predicted those rows took in the middle, of models with experts and of others by
  // themselves; 1: they are few, or hardly off.
  double middle = 1;
  bool never_narrower = false;  // than the prior
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
// that. Alike are, as soon as there are enough: the same device, engine and metric; the same family of architectures,
// memory, engine and metric; the same memory, engine and metric (all three of at least two tables, and the last two of
// two devices); the same memory and metric; the same metric. Rows of models with states are alike to such models only.
// That the rows' priors were too narrow is no reason to multiply a wide one, so their errors count as well: the
// interval is at most as wide as those or the prior, whichever is more. Rows of another metric say nothing: then the
// priors stand.
// Tables count alike, whatever their rows, but for the square root of these: neighbours in one table err alike.
// Work larger or smaller than all of those rows, or of a kind that they lack, has wider ones: see kWiderPerDoubling
// and kWiderUnseen.
class IntervalTable {
 public:
  // Which rows are as if they had not been measured, for one of the table's own; empty: what is priced is none of them.
  using LeftOut = std::function<bool(const Residual&)>;

  // How a prediction is drawn: like one more row, or, `new_table`, like one more table of rows that err alike, each
  // table counting as one (hierarchical conformal prediction, Lee, Barber & Willett 2023).
  struct Sampling {
    std::size_t enough = 12;  // rows that a group needs
    bool new_table = false;
  };

  explicit IntervalTable(std::vector<Residual> residuals) : IntervalTable(std::move(residuals), Sampling()) {}
  IntervalTable(std::vector<Residual> residuals, Sampling sampling)
      : residuals_(std::move(residuals)), sampling_(sampling) {}
  [[nodiscard]] IntervalFactors factors(const RowKind& kind, const LeftOut& left_out = {}) const {
    return group(kind, left_out).at(kind.reach);
  }
  // Those that all work of this kind shares, whatever its reach.
  [[nodiscard]] IntervalGroup group(const RowKind& kind, const LeftOut& left_out = {}) const;

 private:
  // What the table lacks of an engine on that device; empty: nothing.
  [[nodiscard]] std::string want_of_rows(const RowKind& kind) const;

  std::vector<Residual> residuals_;
  Sampling sampling_;
};

// Where nothing is left out the interval is no measured row's: constants were chosen with most rows of the table in
// view, and new ones lie farther off. Of three blind tests 80 and 95 % of the rows of the first two asked for 1.8 to
// 2.5 times the width under engines that had rows (docs/method.md); causes that all three showed are mended since.
inline constexpr double kWiderNew = 1.5;

// Where no like row has weights of that type, or none is of a mixture of experts: other kernels run. And where the
// table has no row of the engine on that device nor of two others, left out or not: no constant of its profile was held
// against a measurement there; then the interval is no narrower than the prior either. A judgement; three blind tests
// are in its favour.
inline constexpr double kWiderUnseen = 1.5;

// The logarithmic width grows by this share for each doubling of sequences, tokens or devices beyond the measured ones,
// the axis that lies farthest out deciding. A judgement: no shipped table goes on beyond the others by much.
inline constexpr double kWiderPerDoubling = 0.2;

// The estimate with its bounds moved to those factors; but for a load that is not stated, which they know nothing of.
Estimate with_factors(const Estimate& estimate, const IntervalFactors& factors);
// At least as wide as those rows are off; as it is where none are known.
Estimate at_least(Estimate estimate, const IntervalFactors& errors);
// The upper ends at least as many seconds above the value as those rows are late, times `share`. That does not grow
// beyond those rows: what makes them late (kernels that are compiled, say) is no part of the work.
Estimate as_late_as(Estimate estimate, const IntervalFactors& errors, double share);
// Its step time, and the throughput that follows.
Prediction with_factors(Prediction prediction, const IntervalFactors& factors);
// The largest batch, and those of ledgers that need as much more or less as the factors on memory say.
Estimate largest_batch_estimate(const CostModel& cost, const ResidencySummary& residency,
                                const IntervalFactors& memory);

}  // namespace kvroof
