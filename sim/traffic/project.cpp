// Residency on another model's shape and other lengths; docs/method.md, "Projection", has the formulas.
#include <algorithm>
#include <cmath>

#include "sim/traffic/summary.hpp"

namespace kvroof {
namespace {

using u64 = std::uint64_t;

u64 rounded(double x) { return static_cast<u64>(std::llround(std::max(x, 0.0))); }

// Where a count of the target comes from.
struct Scale {
  double heads = 1;   // target storage heads / recorded ones
  double prompt = 1;  // target prompt / recorded prompt
  double causal = 1;  // rows attended by a causal prompt, target / recorded
};

double causal_rows(double n) { return n * (n + 1) / 2; }

// Rows resident in one layer of the recording, as base + rate · step + deviation.
class RowsOverTime {
 public:
  RowsOverTime(const Residency& r, std::uint32_t layer) : r_(r), layer_(layer), base_(resident(0)), rate_(growth()) {}

  // Rows resident after step `step` of `steps` of the target.
  [[nodiscard]] double at(double step, double steps, const Scale& scale) const {
    const double recorded = steps > 0 ? step / steps * r_.steps : 0;
    const auto s = static_cast<std::uint32_t>(std::clamp<long long>(std::llround(recorded), 0, r_.steps));
    const double deviation = resident(s) - base_ - rate_ * s;
    return scale.heads * (scale.prompt * (base_ + deviation) + rate_ * step);
  }

 private:
  [[nodiscard]] double resident(std::uint32_t step) const { return static_cast<double>(r_.at(step, layer_).resident); }

  [[nodiscard]] double lowest(std::uint32_t first, std::uint32_t last) const {
    double low = resident(first);
    for (std::uint32_t s = first; s <= last; ++s) low = std::min(low, resident(s));
    return low;
  }

  // Rows gained a step: 0 for what never exceeds the level after the prompt (a saw-tooth below it included), else the
  // rise of the lower envelope from the first to the second half.
  [[nodiscard]] double growth() const {
    const std::uint32_t half = r_.steps / 2;
    double highest = base_;
    for (std::uint32_t s = 1; s <= r_.steps; ++s) highest = std::max(highest, resident(s));
    if (highest <= base_ + r_.storage_heads || half == 0) {
      return r_.steps > 0 && highest > base_ && highest == resident(r_.steps) ? (highest - base_) / r_.steps : 0;
    }
    return std::max(0.0, (lowest(half + 1, 2 * half) - lowest(1, half)) / half);
  }

  const Residency& r_;
  std::uint32_t layer_;
  double base_;
  double rate_;
};

LayerCounts prompt_counts(const LayerCounts& c, const Scale& scale) {
  LayerCounts t;
  const double rows = scale.heads * scale.prompt;
  const double attended = scale.heads * scale.causal;
  t.attended = rounded(static_cast<double>(c.attended) * attended);
  t.written = rounded(static_cast<double>(c.written) * rows);
  t.moved = rounded(static_cast<double>(c.moved) * rows);
  t.resident = rounded(static_cast<double>(c.resident) * rows);
  t.allocated = rounded(static_cast<double>(c.allocated) * rows);
  t.state_read = rounded(static_cast<double>(c.state_read) * attended);
  t.state_written = rounded(static_cast<double>(c.state_written) * attended);
  t.policy_flops = c.policy_flops * attended;
  return t;
}

// A decode step that starts with `before` rows in the target, like step `c`, which started with `recorded` rows.
LayerCounts decode_counts(const LayerCounts& c, u64 recorded, double before, double after, const Scale& scale) {
  LayerCounts t;
  t.written = rounded(static_cast<double>(c.written) * scale.heads);
  // Selective reading attends to fewer rows than are present; the share stays.
  const auto present = static_cast<double>(recorded + c.written);
  const double share = present > 0 ? static_cast<double>(c.attended) / present : 1;
  t.attended = rounded(share * (before + static_cast<double>(t.written)));
  t.resident = rounded(after);
  t.allocated = rounded(before) + t.written;
  const double attended = c.attended > 0 ? static_cast<double>(t.attended) / static_cast<double>(c.attended) : 1;
  t.state_read = rounded(static_cast<double>(c.state_read) * attended);
  t.state_written = rounded(static_cast<double>(c.state_written) * attended);
  t.policy_flops = c.policy_flops * attended;
  return t;
}

// Rows moved in decode step `step` of the target. A policy that moves rows in most steps moves a share of what it holds
// in each; one that compacts now and then moves a constant number a decoded token, so its total follows the steps.
class MovedRows {
 public:
  MovedRows(const Residency& r, std::uint32_t layer) : r_(r), layer_(layer) {
    std::uint32_t moving = 0;
    for (std::uint32_t s = 1; s <= r.steps; ++s) moving += r.at(s, layer).moved > 0 ? 1U : 0U;
    every_step_ = 2 * moving > r.steps;
  }

  [[nodiscard]] u64 at(std::uint32_t step, std::uint32_t steps, const Scale& scale) const {
    const std::uint32_t s = recorded_step(step, steps);
    if (every_step_) return rounded(static_cast<double>(r_.at(s, layer_).moved) * scale.heads * scale.prompt);
    double moved = 0;
    const std::uint32_t before = step == 1 ? 0 : recorded_step(step - 1, steps);
    for (std::uint32_t i = before + 1; i <= s; ++i) moved += static_cast<double>(r_.at(i, layer_).moved);
    return rounded(moved * scale.heads * steps / r_.steps);
  }

  // The recorded decode step at the same relative time.
  [[nodiscard]] std::uint32_t recorded_step(std::uint32_t step, std::uint32_t steps) const {
    const double relative = static_cast<double>(step) / steps * r_.steps;
    return static_cast<std::uint32_t>(std::clamp<long long>(std::llround(relative), 1, r_.steps));
  }

 private:
  const Residency& r_;
  std::uint32_t layer_;
  bool every_step_ = false;
};

void project_layer(const Residency& from, std::uint32_t source, Residency& to, std::uint32_t target,
                   const Scale& scale) {
  to.at(0, target) = prompt_counts(from.at(0, source), scale);
  const RowsOverTime rows(from, source);
  const MovedRows moved(from, source);
  for (std::uint32_t step = 1; step <= to.steps; ++step) {
    const std::uint32_t s = moved.recorded_step(step, to.steps);
    to.at(step, target) = decode_counts(from.at(s, source), from.at(s - 1, source).resident,
                                        rows.at(step - 1, to.steps, scale), rows.at(step, to.steps, scale), scale);
    to.at(step, target).moved = moved.at(step, to.steps, scale);
  }
}

}  // namespace

Residency project(const Residency& residency, const ModelShape& from, const ModelShape& to, std::uint32_t prompt,
                  std::uint32_t output) {
  if (output > 0 && residency.steps == 0) {
    throw usage_error("the trace has no decoded tokens to project; expected --output 0");
  }
  check(residency.layers > 0 && residency.prompt > 0 && residency.storage_heads > 0, "a residency has cells");
  Residency out = residency;
  out.prompt = prompt;
  out.steps = output;
  out.layers = to.layers;
  const bool per_query_head = residency.storage_heads != from.kv_heads;
  out.storage_heads = per_query_head ? to.heads : to.kv_heads;
  out.kv_heads = to.kv_heads;
  out.cells.assign((std::size_t{output} + 1) * to.layers, LayerCounts{});
  Scale scale;
  scale.heads = static_cast<double>(out.storage_heads) / residency.storage_heads;
  scale.prompt = static_cast<double>(prompt) / residency.prompt;
  scale.causal = causal_rows(prompt) / causal_rows(residency.prompt);
  for (std::uint32_t layer = 0; layer < to.layers; ++layer) {
    // The middle of a layer, as a share of the depth, falls into this layer of the recording.
    const auto source = static_cast<std::uint32_t>((u64{2} * layer + 1) * residency.layers / (u64{2} * to.layers));
    project_layer(residency, source, out, layer, scale);
  }
  return out;
}

}  // namespace kvroof
