#include "analysis/open_closed_loop.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>

#include "sim/core/dtype.hpp"
#include "sim/core/text.hpp"
#include "sim/model/model_shape.hpp"
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

std::string heads_text(const TraceLayer& l) {
  return fmt::format("{} query heads, {} KV heads, and rows of {} and {} elements", l.query_heads, l.kv_heads,
                     l.k_width, l.v_width);
}

// The first line in which the shapes differ, but for names and types of weights; empty: none.
std::string shape_difference(const TraceManifest& a, const TraceManifest& b) {
  auto ours = shape_from_json(a.model_shape_json), theirs = shape_from_json(b.model_shape_json);
  if (!ours || !theirs) return {};  // imported tensors have none
  ModelShape other = std::move(theirs).value();
  other.name = ours.value().name;
  other.weight_type = ours.value().weight_type;
  const std::string ours_text = shape_to_json(ours.value()), theirs_text = shape_to_json(other);
  const auto x = split(ours_text, '\n'), y = split(theirs_text, '\n');
  for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
    if (x[i] == y[i]) continue;
    const auto field = [](std::string_view line) { return trimmed(line.substr(0, line.find_last_not_of(", ") + 1)); };
    return fmt::format("the models differ: {} in the first, {} in the second", field(x[i]), field(y[i]));
  }
  return x.size() == y.size() ? std::string() : "the models have other kinds of layers";
}

void check_same_model(const TraceReader& open, const TraceReader& closed) {
  const TraceManifest& a = open.manifest();
  const TraceManifest& b = closed.manifest();
  if (a.layers.size() != b.layers.size()) {
    throw unlike(open, closed, fmt::format("the first has {} layers, the second {}", a.layers.size(), b.layers.size()));
  }
  for (std::size_t i = 0; i < a.layers.size(); ++i) {
    const std::string ours = heads_text(a.layers[i]), theirs = heads_text(b.layers[i]);
    if (ours == theirs) continue;
    throw unlike(open, closed, fmt::format("layer {} has {} in the first, {} in the second", i, ours, theirs));
  }
  if (const std::string difference = shape_difference(a, b); !difference.empty()) {
    throw unlike(open, closed, difference);
  }
}

// Keys of the prompt in layer 0, where no eviction has been yet: with the same weights they are equal but for rounding.
std::vector<float> first_keys(const TraceReader& trace) {
  const TraceManifest& m = trace.manifest();
  const LayerKeysValues rows = trace.keys_values(m.sequences.front().id, LayerId(0));
  const std::size_t row = std::size_t{m.layers.front().kv_heads} * m.layers.front().k_width;
  std::vector<float> keys(std::min(rows.tokens, m.sequences.front().prompt) * row);
  convert_to_float(m.kv_type, rows.k.data(), keys);
  return keys;
}

// Rows of unlike weights are as far apart as they are long; a cache of 4 bits moves them by a fraction of that.
void check_same_weights(const TraceReader& open, const TraceReader& closed) {
  constexpr double kFarthest = 0.5;  // of the squared length
  const std::vector<float> ours = first_keys(open), theirs = first_keys(closed);
  double distance = 0, length = 0;
  for (std::size_t i = 0; i < std::min(ours.size(), theirs.size()); ++i) {
    distance += (double{ours[i]} - theirs[i]) * (double{ours[i]} - theirs[i]);
    length += double{ours[i]} * ours[i];
  }
  if (distance <= kFarthest * length) return;
  throw unlike(open, closed, "the keys of equal prompts differ in layer 0, as those of models with other weights do");
}

void check_alike(const TraceReader& open, const TraceReader& closed) {
  const TraceManifest& a = open.manifest();
  const TraceManifest& b = closed.manifest();
  if (a.policy != kFullAttention) throw unlike(open, closed, "the first was not recorded under full attention");
  if (b.policy == kFullAttention) throw unlike(open, closed, "the second was recorded under full attention");
  check_same_model(open, closed);
  if (a.sequences.size() != b.sequences.size()) {
    throw unlike(open, closed, fmt::format("the first has {} sequences, the second {}", a.sequences.size(),
                                           b.sequences.size()));
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
  check_same_weights(open, closed);
}

// What the runs differ in beside the policy, which rounds otherwise; empty: nothing.
std::string rounding_note(const TraceManifest& open, const TraceManifest& closed) {
  std::string text;
  const auto add = [&](const char* what, std::string_view ours, std::string_view theirs) {
    if (ours == theirs) return;
    text += fmt::format("{}{} ({} and {})", text.empty() ? "" : ", ", what, ours, theirs);
  };
  add("back end", open.backend, closed.backend);
  add("type of the weights", name_of(open.weight_type), name_of(closed.weight_type));
  add("type of the cache", name_of(cache_type_of(open)), name_of(cache_type_of(closed)));
  if (text.empty()) return {};
  return fmt::format("open and closed loop differ in more than the policy: {}; what that rounds otherwise looks like "
                     "drift",
                     text);
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

// What the run under the policy had at a step.
class ClosedSets {
 public:
  struct Overlap {
    std::size_t common = 0;  // of the replay's tokens
    std::size_t ours = 0;    // in the replay
    std::size_t held = 0;    // in the closed loop
  };
  virtual ~ClosedSets() = default;
  // Calls for one sequence and layer come together, steps of one head ascending.
  virtual Overlap meet(std::size_t sequence, const KeptSet& open) = 0;
};

// Of a policy that evicts: its recorded evictions, and what a window of the layer hides from the next query, which is
// none of them. Either loop may hold that for as long as it has room.
class HeldSets final : public ClosedSets {
 public:
  explicit HeldSets(const TraceReader& closed) : closed_(closed) {}

  Overlap meet(std::size_t sequence, const KeptSet& open) override {
    enter(closed_.manifest().sequences[sequence], open.layer);
    Head& head = head_of(open.head, closed_.manifest().sequences[sequence].tokens);
    const std::uint32_t tokens = closed_.manifest().sequences[sequence].prompt + open.step.value;
    while (head.next < head.evictions.size() && head.evictions[head.next].step <= open.step.value) {
      head.lose(head.evictions[head.next++].position);
    }
    const std::uint32_t window = closed_.manifest().layers[open.layer.value].window;
    if (window > 0 && tokens >= window) head.hide_before(tokens + 1 - window);
    Overlap overlap;
    for (const TokenPos position : open.positions) {
      overlap.ours += position.value >= head.first ? 1U : 0U;
      overlap.common += head.holds(position.value) ? 1U : 0U;
    }
    const std::size_t shown = tokens - std::min(tokens, head.first);
    overlap.held = shown - std::min(shown, head.gone_shown);
    return overlap;
  }

 private:
  struct Head {
    std::vector<EvictionRecord> evictions;
    std::size_t next = 0;
    std::vector<bool> gone;      // by position
    std::uint32_t first = 0;     // tokens before it are hidden
    std::size_t gone_shown = 0;  // of those that are not

    void lose(std::uint32_t position) {
      if (position >= gone.size() || gone[position]) return;
      gone[position] = true;
      gone_shown += position >= first ? 1U : 0U;
    }
    void hide_before(std::uint32_t position) {
      for (; first < std::min<std::size_t>(position, gone.size()); ++first) gone_shown -= gone[first] ? 1U : 0U;
    }
    [[nodiscard]] bool holds(std::uint32_t position) const { return position >= first && !gone[position]; }
  };

  void enter(const TraceSequence& sequence, LayerId layer) {
    if (entered_ && sequence.id == sequence_ && layer == layer_) return;
    entered_ = true;
    sequence_ = sequence.id;
    layer_ = layer;
    heads_.clear();
    for (const EvictionRecord& e : closed_.evictions(sequence.id, layer)) {
      head_of(e.head, sequence.tokens).evictions.push_back(e);
    }
  }

  Head& head_of(std::uint32_t index, std::uint32_t tokens) {
    while (heads_.size() <= index) heads_.push_back({.evictions = {}, .gone = std::vector<bool>(tokens)});
    return heads_[index];
  }

  const TraceReader& closed_;
  bool entered_ = false;
  std::uint32_t sequence_ = 0;
  LayerId layer_{};
  std::vector<Head> heads_;
};

// Of a policy that reads a part of what it keeps, which no trace has: what a replay of the closed run reads, as the
// engine did. A bit for each step, layer, query head and token.
class ReadSets final : public ClosedSets, public ReplayObserver {
 public:
  ReadSets(const TraceReader& closed, std::span<const PolicySpec> points, ReplayOptions options, ThreadPool& pool)
      : sequences_(closed.manifest().sequences) {
    options.observer = this;
    replay(closed, points, options, pool);
  }

  bool wants_kept(StepId, StepId) override { return true; }
  void kept(const KeptSet& set) override {
    const auto found = std::ranges::find(sequences_, set.sequence, &TraceSequence::id);
    std::vector<bool>& read = reads_[key(static_cast<std::size_t>(found - sequences_.begin()), set)];
    read.resize(found->prompt + set.step.value);
    for (const TokenPos position : set.positions) read[position.value] = true;
  }

  Overlap meet(std::size_t sequence, const KeptSet& open) override {
    const std::vector<bool>& read = reads_[key(sequence, open)];
    Overlap overlap{0, open.positions.size(), static_cast<std::size_t>(std::ranges::count(read, true))};
    for (const TokenPos position : open.positions) {
      overlap.common += position.value < read.size() && read[position.value] ? 1U : 0U;
    }
    return overlap;
  }

 private:
  using Key = std::array<std::size_t, 4>;
  static Key key(std::size_t sequence, const KeptSet& set) {
    return {sequence, set.layer.value, set.head, set.step.value};
  }
  std::vector<TraceSequence> sequences_;
  std::map<Key, std::vector<bool>> reads_;
};

// Walks through the replay's sets beside those of the closed loop.
class Comparison final : public ReplayObserver {
 public:
  Comparison(const TraceReader& open, const TraceReader& closed, ClosedSets& sets, OpenClosedReport& report)
      : open_(open), closed_(closed), closed_sets_(sets), report_(report) {
    report_.layers = static_cast<std::uint32_t>(open.manifest().layers.size());
    for (std::size_t i = 0; i < open.manifest().sequences.size(); ++i) {
      report_.steps = std::max(report_.steps, shared_steps(i));
    }
    report_.overlap.assign(std::size_t{report_.steps + 1} * report_.layers, 0.0);
    sets_.assign(report_.overlap.size(), 0);
    report_.lowest.assign(report_.layers, 1.0);
  }

  bool wants_kept(StepId step, StepId) override { return step.value <= report_.steps; }

  void kept(const KeptSet& set) override {
    const auto& sequences = open_.manifest().sequences;
    const auto found = std::ranges::find(sequences, set.sequence, &TraceSequence::id);
    const auto index = static_cast<std::size_t>(found - sequences.begin());
    if (set.step.value > shared_steps(index)) return;
    const auto [common, ours, held] = closed_sets_.meet(index, set);
    const std::size_t larger = std::max({held, ours, std::size_t{1}});
    const std::size_t cell = std::size_t{set.step.value} * report_.layers + set.layer.value;
    const double overlap = static_cast<double>(common) / static_cast<double>(larger);
    report_.overlap[cell] += overlap;
    ++sets_[cell];
    add_to_step(index, cell, overlap);
    if (common == larger) return;
    if (set.step.value == 0) report_.equal_after_prompt = false;
    const std::uint32_t shared = report_.first_differing_token.value_or(report_.steps + 1);
    if (set.layer.value == 0 && set.step.value < shared) report_.equal_layer0_until_differing = false;
  }

  // Where there were no sets they are equal: after the prompt a policy that reads a part has read nothing.
  void finish() {
    end_step();
    for (std::size_t i = 0; i < sets_.size(); ++i) {
      report_.overlap[i] = sets_[i] == 0 ? 1 : report_.overlap[i] / static_cast<double>(sets_[i]);
    }
  }

 private:
  // The sets of one step of a sequence's layer come one after the other.
  void add_to_step(std::size_t sequence, std::size_t cell, double overlap) {
    if (sequence != step_.sequence || cell != step_.cell) end_step();
    step_ = {sequence, cell, step_.sum + overlap, step_.heads + 1};
  }
  void end_step() {
    if (step_.heads == 0) return;
    double& lowest = report_.lowest[step_.cell % report_.layers];
    lowest = std::min(lowest, step_.sum / static_cast<double>(step_.heads));
    step_ = {};
  }

  [[nodiscard]] std::uint32_t shared_steps(std::size_t index) const {
    const TraceSequence& a = open_.manifest().sequences[index];
    const TraceSequence& b = closed_.manifest().sequences[index];
    return std::min(a.tokens, b.tokens) - a.prompt;
  }

  const TraceReader& open_;
  const TraceReader& closed_;
  ClosedSets& closed_sets_;
  OpenClosedReport& report_;
  std::vector<std::uint64_t> sets_;  // added up in each cell of overlap
  struct Step {
    std::size_t sequence = 0, cell = 0;
    double sum = 0;
    std::uint64_t heads = 0;
  } step_;
};

}  // namespace

double OpenClosedReport::mean_of_layer(std::uint32_t layer) const {
  double sum = 0;
  for (std::uint32_t step = 0; step <= steps; ++step) sum += at(step, layer);
  return sum / (steps + 1);
}

OpenClosedReport compare_open_closed(const TraceReader& open, const TraceReader& closed, ThreadPool& pool,
                                     const ReplayOptions& model, std::span<const PolicySpec> known) {
  check_alike(open, closed);
  OpenClosedReport report;
  report.policy = closed.manifest().policy;
  report.rounding_note = rounding_note(open.manifest(), closed.manifest());
  report.first_differing_token = first_difference(open, closed);
  ReplayOptions options;
  options.seed = closed.manifest().seed;
  options.measure = {false, false};
  options.output_projection = model.output_projection;
  options.token_kinds = model.token_kinds;
  std::vector<PolicySpec> points = parse_policies(report.policy);
  const auto read = std::ranges::find_if(known, [&](const PolicySpec& p) { return same_decisions(p, points.front()); });
  if (read != known.end()) points = {*read};
  const bool selects = policy_info(points.front().name).traits(points.front()).selects;
  std::unique_ptr<ClosedSets> sets;
  if (selects) {
    sets = std::make_unique<ReadSets>(closed, points, options, pool);
  } else {
    sets = std::make_unique<HeldSets>(closed);
  }
  Comparison comparison(open, closed, *sets, report);
  options.observer = &comparison;
  replay(open, points, options, pool);
  comparison.finish();
  return report;
}

}  // namespace kvroof
