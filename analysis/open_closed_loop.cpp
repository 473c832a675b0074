#include "analysis/open_closed_loop.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "sim/policy/policy.hpp"
#include "sim/policy/spec.hpp"
#include "sim/replay/replay.hpp"

namespace kvroof {
namespace {

Error unlike(const TraceReader& open, const TraceReader& closed, std::string_view what) {
  return usage_error(
             fmt::format("{} and {} cannot be compared: {}", open.path().string(), closed.path().string(), what))
      .note("record the same prompts of the same model, once with --policy full and once under the policy");
}

void check_alike(const TraceReader& open, const TraceReader& closed) {
  const TraceManifest& a = open.manifest();
  const TraceManifest& b = closed.manifest();
  if (a.policy != "full") throw unlike(open, closed, "the first was not recorded under full attention");
  if (b.policy == "full") throw unlike(open, closed, "the second was recorded under full attention");
  const PolicySpec closed_policy = parse_policies(b.policy).front();
  if (policy_info(closed_policy.name).traits(closed_policy).selects) {
    throw unlike(open, closed, "the policy of the second evicts nothing, and a trace does not have what it read");
  }
  if (a.layers.size() != b.layers.size() || a.sequences.size() != b.sequences.size()) {
    throw unlike(open, closed, "numbers of layers or sequences differ");
  }
  for (std::size_t i = 0; i < a.sequences.size(); ++i) {
    if (a.sequences[i].prompt != b.sequences[i].prompt) throw unlike(open, closed, "prompts differ in length");
    const auto ours = open.token_ids(a.sequences[i].id);
    const auto theirs = closed.token_ids(b.sequences[i].id);
    const std::uint32_t prompt = a.sequences[i].prompt;
    if (ours.size() < prompt || theirs.size() < prompt ||
        !std::equal(ours.begin(), ours.begin() + prompt, theirs.begin())) {
      throw unlike(open, closed, "prompts differ");
    }
  }
}

// The first decoded token, from 1, that the two runs do not share.
std::optional<std::uint32_t> first_difference(const TraceReader& open, const TraceReader& closed) {
  std::optional<std::uint32_t> first;
  for (std::size_t i = 0; i < open.manifest().sequences.size(); ++i) {
    const auto ours = open.token_ids(open.manifest().sequences[i].id);
    const auto theirs = closed.token_ids(closed.manifest().sequences[i].id);
    const std::uint32_t prompt = open.manifest().sequences[i].prompt;
    for (std::size_t t = prompt; t < std::min(ours.size(), theirs.size()); ++t) {
      if (ours[t] == theirs[t]) continue;
      const auto step = static_cast<std::uint32_t>(t - prompt + 1);
      first = first ? std::min(*first, step) : step;
      break;
    }
  }
  return first;
}

// Walks through the recorded evictions beside the replay's kept sets.
class Comparison final : public ReplayObserver {
 public:
  Comparison(const TraceReader& open, const TraceReader& closed, OpenClosedReport& report)
      : open_(open), closed_(closed), report_(report) {
    report_.layers = static_cast<std::uint32_t>(open.manifest().layers.size());
    for (std::size_t i = 0; i < open.manifest().sequences.size(); ++i) {
      report_.steps = std::max(report_.steps, shared_steps(i));
    }
    report_.overlap.assign(std::size_t{report_.steps + 1} * report_.layers, 0.0);
    sets_.assign(report_.overlap.size(), 0);
  }

  bool wants_kept(StepId step, StepId) override { return step.value <= report_.steps; }

  void kept(const KeptSet& set) override {
    enter(set.sequence, set.layer);
    if (set.step.value > shared_steps(index_)) return;
    Head& closed = head(set.head);
    while (closed.next < closed.evictions.size() && closed.evictions[closed.next].step <= set.step.value) {
      const std::uint32_t position = closed.evictions[closed.next++].position;
      if (position < closed.gone.size()) closed.gone[position] = true;
    }
    std::size_t common = 0;
    for (const TokenPos position : set.positions) common += closed.gone[position.value] ? 0U : 1U;
    const std::size_t tokens = open_.manifest().sequences[index_].prompt + set.step.value;
    const std::size_t held = tokens - std::min(tokens, closed.next);
    const std::size_t larger = std::max({held, set.positions.size(), std::size_t{1}});
    const std::size_t cell = std::size_t{set.step.value} * report_.layers + set.layer.value;
    report_.overlap[cell] += static_cast<double>(common) / static_cast<double>(larger);
    ++sets_[cell];
    if (common == larger) return;
    if (set.step.value == 0) report_.equal_after_prompt = false;
    const std::uint32_t shared = report_.first_differing_token.value_or(report_.steps + 1);
    if (set.layer.value == 0 && set.step.value < shared) report_.equal_layer0_until_differing = false;
  }

  void finish() {
    for (std::size_t i = 0; i < sets_.size(); ++i) report_.overlap[i] /= std::max(1.0, static_cast<double>(sets_[i]));
  }

 private:
  struct Head {
    std::vector<EvictionRecord> evictions;
    std::size_t next = 0;
    std::vector<bool> gone;  // by position
  };

  [[nodiscard]] std::uint32_t shared_steps(std::size_t index) const {
    const TraceSequence& a = open_.manifest().sequences[index];
    const TraceSequence& b = closed_.manifest().sequences[index];
    return std::min(a.tokens, b.tokens) - a.prompt;
  }

  void enter(std::uint32_t sequence, LayerId layer) {
    if (entered_ && sequence == sequence_ && layer == layer_) return;
    entered_ = true;
    sequence_ = sequence;
    layer_ = layer;
    const auto& sequences = open_.manifest().sequences;
    const auto same = [&](const TraceSequence& s) { return s.id == sequence; };
    index_ = static_cast<std::size_t>(std::find_if(sequences.begin(), sequences.end(), same) - sequences.begin());
    heads_.clear();
    for (const EvictionRecord& e : closed_.evictions(closed_.manifest().sequences[index_].id, layer)) {
      head(e.head).evictions.push_back(e);
    }
  }

  Head& head(std::uint32_t index) {
    const std::uint32_t tokens =
        std::max(open_.manifest().sequences[index_].tokens, closed_.manifest().sequences[index_].tokens);
    while (heads_.size() <= index) heads_.push_back({{}, 0, std::vector<bool>(tokens)});
    return heads_[index];
  }

  const TraceReader& open_;
  const TraceReader& closed_;
  OpenClosedReport& report_;
  std::vector<std::uint64_t> sets_;  // added up in each cell of overlap
  bool entered_ = false;
  std::uint32_t sequence_ = 0;
  LayerId layer_{};
  std::size_t index_ = 0;
  std::vector<Head> heads_;
};

}  // namespace

double OpenClosedReport::mean_of_layer(std::uint32_t layer) const {
  double sum = 0;
  for (std::uint32_t step = 0; step <= steps; ++step) sum += at(step, layer);
  return sum / (steps + 1);
}

double OpenClosedReport::lowest_of_layer(std::uint32_t layer) const {
  double lowest = 1;
  for (std::uint32_t step = 0; step <= steps; ++step) lowest = std::min(lowest, at(step, layer));
  return lowest;
}

OpenClosedReport compare_open_closed(const TraceReader& open, const TraceReader& closed, ThreadPool& pool,
                                     const ReplayOptions& model) {
  check_alike(open, closed);
  OpenClosedReport report;
  report.policy = closed.manifest().policy;
  report.first_differing_token = first_difference(open, closed);
  Comparison comparison(open, closed, report);
  ReplayOptions options;
  options.seed = closed.manifest().seed;
  options.measure = {false, false};
  options.output_projection = model.output_projection;
  options.token_kinds = model.token_kinds;
  options.observer = &comparison;
  const std::vector<PolicySpec> points = parse_policies(report.policy);
  replay(open, points, options, pool);
  comparison.finish();
  return report;
}

}  // namespace kvroof
