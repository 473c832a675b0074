#include "analysis/conformal.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace kvroof {
namespace {

// Neighbours in one table err alike. Rows that were served otherwise are of another table in any case.
constexpr std::size_t kEnoughTables = 2, kEnoughOtherTables = 1;
// What one board alone shows of an engine says nothing of how it does on others.
constexpr std::size_t kEnoughDevices = 2;

using Tables = std::map<std::string, std::vector<const Residual*>>;

struct Weighted {
  double value = 0, weight = 0;
};

// The smallest value that `share` of the weight does not exceed, with one more of that weight above all.
double quantile(const std::vector<Weighted>& sorted, double share, double one_more) {
  double total = 0;
  for (const Weighted& w : sorted) total += w.weight;
  double below = 0;
  for (const Weighted& w : sorted) {
    below += w.weight;
    if (below >= share * (total + one_more) * (1 - 1e-12)) return w.value;
  }
  return sorted.back().value;
}

// What holds 80 and 95 % of the rows, and of one more of mean weight, or of one more table.
std::pair<double, double> quantiles(const Tables& tables, double Residual::* what, bool new_table) {
  std::vector<Weighted> values;
  double total = 0;
  for (const auto& [name, rows] : tables) {
    const auto size = static_cast<double>(rows.size());
    const double weight = 1 / (new_table ? size : std::sqrt(size));
    for (const Residual* row : rows) values.push_back({row->*what, weight});
    total += size * weight;
  }
  const double one_more = new_table ? 1 : total / static_cast<double>(values.size());
  std::sort(values.begin(), values.end(), [](const Weighted& a, const Weighted& b) { return a.value < b.value; });
  return {quantile(values, 0.80, one_more), quantile(values, 0.95, one_more)};
}

}  // namespace

std::string architecture_family(std::string_view architecture) {
  const std::size_t last = architecture.find_last_not_of("0123456789");
  return std::string(architecture.substr(0, last + 1));
}

std::string prompt_metric(double tokens) {
  constexpr double kShort = 512;
  return tokens < kShort ? "short prompt" : "prompt";
}

namespace {

bool reads_no_weights(const RowKind& kind) {
  return kind.metric == "memory" || kind.metric == "attention" || kind.metric == "states" ||
         kind.metric == "element-wise";
}

}  // namespace

void set_weights(RowKind& kind, const ModelShape& shape, const Deployment& deployment) {
  if (reads_no_weights(kind)) return;
  kind.weights = deployment.weights.quantised() ? std::string(deployment.weights.name) : "16 bit";
  kind.experts = shape.experts > 0 && kind.metric != "product";
  kind.states = shape.state.layers > 0 && kind.metric != "product";
}

Residual residual_of(const RowKind& kind, const std::string& group, const Estimate& predicted, double measured) {
  const double off = std::log(measured / predicted.value), error = std::abs(off);
  const double slower = predicted.is_rate ? -off : off;
  return {kind, group, error / std::log(predicted.high80 / predicted.value), error, 0, slower};
}

namespace {

struct Axis {
  const char* name;
  double Reach::* of;
};
constexpr std::array<Axis, 3> kAxes = {
    {{"sequences at once", &Reach::sequences}, {"tokens of a sequence", &Reach::tokens}, {"devices", &Reach::devices}}};

void see(IntervalGroup& group, const Reach& reach) {
  for (const Axis& axis : kAxes) {
    const double x = reach.*axis.of;
    if (!(x > 0)) continue;
    double& least = group.low.*axis.of;
    least = least > 0 ? std::min(least, x) : x;
    group.high.*axis.of = std::max(group.high.*axis.of, x);
  }
}

// What is not known for several reasons adds up in squares.
void widen(IntervalFactors& factors, const std::string& what, double wider) {
  factors.wider = std::sqrt(factors.wider * factors.wider + wider * wider - 1);
  factors.beyond += fmt::format("{}{}: {:.2f} times as wide", factors.beyond.empty() ? "" : "; ", what, wider);
}

// By an engine on a GPU: neither a kernel by itself nor memory.
bool is_served(const RowKind& kind) {
  return kind.memory != name_of(MemoryType::kDdr) && kind.metric != "product" && !reads_no_weights(kind);
}

// Sets how far the rows are off that are like the kind in having experts or not.
void set_middle(IntervalFactors& factors, const RowKind& kind, const Tables& tables) {
  constexpr std::size_t kEnoughForMiddle = 3;
  constexpr double kHardlyOff = 1.25;
  if (!is_served(kind)) return;
  std::vector<Weighted> slower;
  for (const auto& [name, rows] : tables) {
    const double weight = 1 / std::sqrt(static_cast<double>(rows.size()));
    for (const Residual* row : rows) {
      if (row->kind.experts == kind.experts) slower.push_back({row->slower, weight});
    }
  }
  if (slower.size() < kEnoughForMiddle) return;
  std::ranges::sort(slower, {}, &Weighted::value);
  const double middle = std::exp(quantile(slower, 0.5, 0));
  if (std::max(middle, 1 / middle) < kHardlyOff) return;
  factors.middle = middle;
  factors.from += fmt::format(", of which the {} of models {} experts took {:.2f} times as long as predicted",
                              slower.size(), kind.experts ? "with" : "without", middle);
}

// Widens for what none of the rows has.
void widen_unseen(IntervalFactors& factors, const RowKind& kind, const Tables& tables) {
  std::set<std::string> weights;
  bool experts = false, states = false;
  for (const auto& [name, rows] : tables) {
    for (const Residual* row : rows) {
      if (!row->kind.weights.empty()) weights.insert(row->kind.weights);
      experts = experts || row->kind.experts;
      states = states || row->kind.states;
    }
  }
  const auto unseen = [&](const std::string& what) { widen(factors, what, kWiderUnseen); };
  if (!kind.weights.empty() && !weights.empty() && weights.count(kind.weights) == 0) {
    unseen(fmt::format("weights in {}, measured were {}", kind.weights, fmt::join(weights, ", ")));
  }
  if (kind.experts && !experts) unseen("a mixture of experts, measured were none");
  if (kind.states && !states) unseen("layers with a state, measured were none");
}

}  // namespace

IntervalFactors IntervalGroup::at(const Reach& reach) const {
  IntervalFactors factors = inside;
  double farthest = 0;
  std::string beyond;
  for (const Axis& axis : kAxes) {
    const double x = reach.*axis.of, least = low.*axis.of, most = high.*axis.of;
    if (!(x > 0) || !(least > 0)) continue;
    const double doublings = std::max(std::log2(x / most), std::log2(least / x));
    if (doublings <= std::max(farthest, 1e-9)) continue;
    farthest = doublings;
    beyond = fmt::format("{:.0f} {}, measured were {:.0f} to {:.0f}", x, axis.name, least, most);
  }
  if (farthest <= 0) return factors;
  widen(factors, beyond, 1 + kWiderPerDoubling * farthest);
  return factors;
}

std::string IntervalTable::want_of_rows(const RowKind& kind) const {
  if (!is_served(kind)) return {};
  std::set<std::string> devices;
  for (const Residual& r : residuals_) {
    if (is_served(r.kind) && r.kind.engine == kind.engine) devices.insert(r.kind.device);
  }
  if (devices.contains(kind.device) || devices.size() >= kEnoughDevices) return {};
  if (devices.empty()) return fmt::format("no measured row of engine {}", kind.engine);
  return fmt::format("engine {} was measured on {} alone", kind.engine, *devices.begin());
}

IntervalGroup IntervalTable::group(const RowKind& kind, const LeftOut& left_out) const {
  struct Level {
    std::string name;
    std::size_t tables, devices;  // that it needs
    std::function<bool(const RowKind&)> alike;
  };
  const auto served_alike = [&](const RowKind& k) { return k.engine == kind.engine && k.metric == kind.metric; };
  const auto akin = [&](const RowKind& k) {
    return k.memory == kind.memory && k.family == kind.family && !kind.family.empty();
  };
  const std::array<Level, 5> levels = {
      {{fmt::format("{}, {}, {}", kind.device, kind.engine, kind.metric), kEnoughTables, 1,
        [&](const RowKind& k) { return k.device == kind.device && served_alike(k); }},
       {fmt::format("{} ({}), {}, {}", kind.family, kind.memory, kind.engine, kind.metric), kEnoughTables,
        kEnoughDevices, [&](const RowKind& k) { return akin(k) && served_alike(k); }},
       {fmt::format("{}, {}, {}", kind.memory, kind.engine, kind.metric), kEnoughTables, kEnoughDevices,
        [&](const RowKind& k) { return k.memory == kind.memory && served_alike(k); }},
       {fmt::format("{}, {}", kind.memory, kind.metric), kEnoughOtherTables, 1,
        [&](const RowKind& k) { return k.memory == kind.memory && k.metric == kind.metric; }},
       {kind.metric, kEnoughOtherTables, 1, [&](const RowKind& k) { return k.metric == kind.metric; }}}};
  for (const Level& level : levels) {
    Tables tables;
    std::set<std::string> devices;
    std::size_t rows = 0;
    IntervalGroup group;
    for (const Residual& r : residuals_) {
      if ((left_out && left_out(r)) || !level.alike(r.kind)) continue;
      if (r.kind.states && !kind.states) continue;  // kernels that the model does not have
      see(group, r.kind.reach);
      tables[r.group].push_back(&r);
      devices.insert(r.kind.device);
      ++rows;
    }
    if (rows < sampling_.enough || tables.size() < level.tables || devices.size() < level.devices) continue;
    IntervalFactors& inside = group.inside;
    inside.from = fmt::format("{}: {} rows", level.name, rows);
    const auto holding = [&](double Residual::* what) { return quantiles(tables, what, sampling_.new_table); };
    set_middle(inside, kind, tables);
    std::tie(inside.factor80, inside.factor95) = holding(&Residual::score);
    if (!left_out && is_served(kind)) widen(inside, "this is none of the measured rows", kWiderNew);
    if (const std::string want = want_of_rows(kind); !want.empty()) {
      inside.never_narrower = true;
      widen(inside, want, kWiderUnseen);
    }
    widen_unseen(inside, kind, tables);
    std::tie(inside.error80, inside.error95) = holding(&Residual::log_error);
    std::tie(inside.late80, inside.late95) = holding(&Residual::late);
    return group;
  }
  IntervalGroup priors;
  priors.inside.from = "priors";
  return priors;
}

Estimate with_factors(const Estimate& e, const IntervalFactors& f) {
  const double width = std::log(e.high80 / e.value);
  if (!(width > 0) || e.dominated_by == CostTerm::kLoad) return e;
  const auto moved = [&](double prior80, double times, double factor, double error) {
    const double prior = prior80 * times;
    return f.wider * std::clamp(prior80 * factor, f.never_narrower ? prior : 0, std::max(prior, error));
  };
  // Measured rows speak of all but a policy's kernels: what narrows the rest is no reason to narrow these.
  const double known = width * std::sqrt(1 - e.unmeasured), policy = width * std::sqrt(e.unmeasured);
  const auto width_at = [&](double times, double factor, double error) {
    return std::max(moved(width, times, factor, error), std::hypot(moved(known, times, factor, error), policy * times));
  };
  const double log80 = width_at(1, f.factor80, f.error80);
  const double log95 = width_at(kWidth95, f.factor95, f.error95);
  const double w80 = std::exp(log80), w95 = std::exp(std::max(log80, log95));
  return {e.value,
          possible(e, e.value / w80),
          possible(e, e.value * w80),
          possible(e, e.value / w95),
          possible(e, e.value * w95),
          e.dominated_by,
          e.limit,
          e.unmeasured,
          e.is_rate};
}

Estimate at_least(Estimate e, const IntervalFactors& errors) {
  const auto widen = [&](double error, double& low, double& high) {
    if (!std::isfinite(error)) return;
    low = std::min(low, e.value * std::exp(-errors.wider * error));
    high = std::max(high, e.value * std::exp(errors.wider * error));
  };
  widen(errors.error80, e.low80, e.high80);
  widen(errors.error95, e.low95, e.high95);
  return e;
}

Estimate as_late_as(Estimate e, const IntervalFactors& errors, double share) {
  e.high80 = std::max(e.high80, e.value + share * errors.late80);
  e.high95 = std::max({e.high80, e.high95, e.value + share * errors.late95});
  return e;
}

Prediction with_factors(Prediction p, const IntervalFactors& f) {
  p.step = with_factors(p.step, f);
  p.tokens_per_s = throughput(p.step, static_cast<double>(p.batch) * p.tokens_a_step);
  return p;
}

Estimate largest_batch_estimate(const CostModel& cost, const ResidencySummary& residency,
                                const IntervalFactors& memory) {
  const Estimate needed = with_factors(cost.memory().ledger(residency, 1).needed(), memory);
  const auto at = [&](double bytes) {
    return static_cast<double>(cost.memory().largest_batch(residency, bytes / needed.value));
  };
  return {.value = static_cast<double>(cost.memory().largest_batch(residency)),
          .low80 = at(needed.high80),
          .high80 = at(needed.low80),
          .low95 = at(needed.high95),
          .high95 = at(needed.low95),
          .dominated_by = CostTerm::kMemory};
}

}  // namespace kvroof
