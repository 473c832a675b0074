#include "sim/replay/joined_layers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "sim/core/dtype.hpp"
#include "sim/core/error.hpp"

namespace kvroof {
namespace {

bool are_alike(const TraceLayer& a, const TraceLayer& b) {
  return a.query_heads == b.query_heads && a.kv_heads == b.kv_heads && a.k_width == b.k_width &&
         a.v_width == b.v_width && a.scale == b.scale && a.softcap == b.softcap && a.window == b.window &&
         a.alibi_slopes.empty() == b.alibi_slopes.empty() && a.alibi_rounded_scale == b.alibi_rounded_scale &&
         a.attention_sinks.empty() == b.attention_sinks.empty();
}

// Rows of one layer, [rows, width bytes], into those of all, [rows, layers, width bytes].
void interleave(std::span<const std::byte> rows, std::size_t width, std::size_t layers, std::byte* to) {
  for (std::size_t at = 0; at < rows.size(); at += width, to += layers * width) {
    std::copy_n(rows.data() + at, width, to);
  }
}

struct Part {
  std::vector<PolicySpec> points;
  std::vector<std::uint32_t> numbers;  // among all points
  std::uint32_t place = 0, parts = 1;  // of so many that are replayed one after another
};

// A part of the points, told of to the observer of all.
class PartObserver : public ReplayObserver {
 public:
  PartObserver(ReplayObserver* to, const Part& part)
      : to_(to), numbers_(part.numbers), place_(part.place), parts_(part.parts) {}

  bool wants_kept(StepId step, StepId last) override { return to_ != nullptr && to_->wants_kept(step, last); }
  void kept(const KeptSet& of_part) override {
    KeptSet set = of_part;
    set.point = numbers_[set.point];
    to_->kept(set);
  }
  void quality(const QualityValue& of_part) override {
    if (to_ == nullptr) return;
    QualityValue value = of_part;
    value.point = numbers_[value.point];
    to_->quality(value);
  }
  // Each part is as much of the whole, so that what was told never becomes less.
  void progress(std::uint64_t done, std::uint64_t total) override {
    if (to_ != nullptr) to_->progress(place_ * total + done, parts_ * total);
  }

 private:
  ReplayObserver* to_;
  std::vector<std::uint32_t> numbers_;  // by point of the part
  std::uint64_t place_, parts_;
};

LayerSource layers_of(const TraceReader& trace) {
  return {[&trace](std::uint32_t sequence, LayerId layer) { return trace.keys_values(sequence, layer); },
          [&trace](std::uint32_t sequence, LayerId layer, const auto& visit) {
            trace.for_each_query_block(sequence, layer, visit);
          }};
}

LayerSource copies_of_layer(const TraceReader& trace) {
  return {[&trace](std::uint32_t sequence, LayerId) { return trace.keys_values(sequence, LayerId(0)); },
          [&trace](std::uint32_t sequence, LayerId, const auto& visit) {
            trace.for_each_query_block(sequence, LayerId(0), visit);
          }};
}

TraceManifest with_copies(TraceManifest manifest, std::span<const std::uint32_t> windows) {
  check(manifest.layers.size() == 1, "a trace of one layer has copies of it");
  manifest.layers.resize(windows.size(), manifest.layers.front());
  for (std::size_t layer = 0; layer < windows.size(); ++layer) manifest.layers[layer].window = windows[layer];
  return manifest;
}

// Heads of the one layer become those of the layers.
class JoinedObserver final : public PartObserver {
 public:
  JoinedObserver(const TraceManifest& manifest, const Part& part, const ReplayOptions& options)
      : PartObserver(options.observer, part), query_heads_(manifest.layers.front().query_heads) {
    const auto layers = static_cast<std::uint32_t>(manifest.layers.size());
    std::uint64_t values = 0;
    for (const TraceSequence& s : manifest.sequences) values += s.tokens - s.prompt;
    for (const PolicySpec& point : part.points) {
      const bool by_query_head = policy_info(point.name).traits(point).unit == StorageUnit::kQueryHead;
      storage_heads_.push_back(by_query_head ? query_heads_ : manifest.layers.front().kv_heads);
      stats_.emplace_back(values * query_heads_ * layers, layers, options.measure.output_error);
    }
  }

  void kept(const KeptSet& joined) override {
    KeptSet set = joined;
    set.layer = LayerId(joined.head / storage_heads_[joined.point]);
    set.head = joined.head % storage_heads_[joined.point];
    PartObserver::kept(set);
  }
  void quality(const QualityValue& joined) override {
    QualityValue value = joined;
    value.layer = LayerId(joined.query_head / query_heads_);
    value.query_head = joined.query_head % query_heads_;
    stats_[joined.point].add(value.layer.value, value.quality.recall, value.quality.output_error, value.sequence);
    PartObserver::quality(value);
  }
  [[nodiscard]] std::optional<Quality> quality_of(std::size_t point) const { return stats_[point].finish(); }

 private:
  std::vector<std::uint32_t> storage_heads_;  // of a layer, by point
  std::uint32_t query_heads_;                 // of a layer
  std::vector<QualityStats> stats_;
};

void check_alike(const TraceReader& trace, const TraceManifest& manifest, const PolicySpec& point) {
  for (std::size_t i = 1; i < manifest.layers.size(); ++i) {
    if (are_alike(manifest.layers[i], manifest.layers.front())) continue;
    throw usage_error(fmt::format(
        "policy {} keeps one set for all layers, and layer {} of {} differs from layer 0 in heads, widths, scale, "
        "soft-cap, window or sinks",
        point.text(), i, trace.path().string()));
  }
}

// Before anything is replayed, so that a short prompt at the end of a long trace is no surprise.
void check_prompts(const TraceManifest& manifest, std::span<const PolicySpec> points) {
  for (const PolicySpec& point : points) {
    for (const TraceSequence& sequence : manifest.sequences) {
      const std::string why = refused_prompt(point, sequence.prompt);
      if (!why.empty()) throw usage_error(fmt::format("sequence {}: {}", sequence.id, why));
    }
  }
}

// One layer; heads are numbered through the layers.
TraceManifest joined(TraceManifest manifest) {
  TraceLayer all = manifest.layers.front();
  const auto layers = static_cast<std::uint32_t>(manifest.layers.size());
  all.query_heads *= layers;
  all.kv_heads *= layers;
  for (const auto of_head : {&TraceLayer::alibi_slopes, &TraceLayer::attention_sinks}) {
    (all.*of_head).clear();
    for (const TraceLayer& layer : manifest.layers) {
      (all.*of_head).insert((all.*of_head).end(), (layer.*of_head).begin(), (layer.*of_head).end());
    }
  }
  manifest.layers.assign(1, std::move(all));
  return manifest;
}

LayerKeysValues joined_keys_values(const TraceReader& trace, std::uint32_t sequence, std::size_t layers) {
  LayerKeysValues all;
  for (std::uint32_t i = 0; i < layers; ++i) {
    const LayerKeysValues part = trace.keys_values(sequence, LayerId(i));
    all.tokens = part.tokens;
    all.k.resize(layers * part.k.size());
    all.v.resize(layers * part.v.size());
    const std::size_t k_width = part.k.size() / part.tokens;
    const std::size_t v_width = part.v.size() / part.tokens;
    interleave(part.k, k_width, layers, all.k.data() + i * k_width);
    interleave(part.v, v_width, layers, all.v.data() + i * v_width);
  }
  return all;
}

// [tokens, layers, width bytes].
std::vector<std::byte> joined_queries(const TraceReader& trace, std::uint32_t sequence, std::size_t layers,
                                      std::size_t width) {
  std::vector<std::byte> all;
  for (std::uint32_t i = 0; i < layers; ++i) {
    trace.for_each_query_block(
        sequence, LayerId(i), [&](std::uint32_t first, std::uint32_t rows, std::span<const std::byte> q) {
          all.resize(std::max(all.size(), (std::size_t{first} + rows) * layers * width));
          interleave(q, width, layers, all.data() + (std::size_t{first} * layers + i) * width);
        });
  }
  return all;
}

LayerSource joined_layers_of(const TraceReader& trace, const TraceManifest& manifest) {
  const std::size_t layers = manifest.layers.size();
  const TraceLayer& layer = manifest.layers.front();
  const std::size_t width = std::size_t{layer.query_heads} * layer.k_width * size_of(manifest.kv_type);
  return {[&trace, layers](std::uint32_t sequence, LayerId) { return joined_keys_values(trace, sequence, layers); },
          [&trace, layers, width](std::uint32_t sequence, LayerId, const auto& visit) {
            const std::vector<std::byte> q = joined_queries(trace, sequence, layers, width);
            visit(0, static_cast<std::uint32_t>(q.size() / layers / width), q);
          }};
}

// All heads hold the same tokens, so that every layer has its even share of each count.
ResidencyLog split(const ResidencyLog& log, std::uint32_t layers) {
  const Residency joined = log.expand();
  Residency head = log.head();
  head.layers = layers;
  head.storage_heads /= layers;
  head.kv_heads /= layers;
  head.layer_windows.assign(layers, log.head().layer_windows.front());
  ResidencyLog split(std::move(head));
  for (std::uint32_t layer = 0; layer < layers; ++layer) {
    for (std::uint32_t step = 0; step <= joined.steps; ++step) {
      split.append(layer, joined.at(step, 0) / layers);
    }
  }
  return split;
}

std::vector<PointResult> run_joined(const TraceReader& trace, const TraceManifest& manifest, const Part& part,
                                    const ReplayOptions& options, const RunPoints& run) {
  check_alike(trace, manifest, part.points.front());
  JoinedObserver observer(manifest, part, options);
  ReplayOptions of_part = options;
  of_part.observer = &observer;
  of_part.row_cache = nullptr;
  std::vector<PointResult> results = run(joined(manifest), joined_layers_of(trace, manifest), part.points, of_part);
  for (std::size_t p = 0; p < results.size(); ++p) {
    if (results[p].quality) results[p].quality = observer.quality_of(p);
    for (ResidencyLog& log : results[p].residency) {
      log = split(log, static_cast<std::uint32_t>(manifest.layers.size()));
    }
  }
  return results;
}

}  // namespace

std::vector<PointResult> replay_parts(const TraceReader& trace, std::span<const PolicySpec> points,
                                      const ReplayOptions& options, const RunPoints& run) {
  Part by_layer, by_model;
  for (std::uint32_t p = 0; p < points.size(); ++p) {
    const bool of_model = policy_info(points[p].name).traits(points[p]).scope == Scope::kModel;
    Part& part = of_model ? by_model : by_layer;
    part.points.push_back(points[p]);
    part.numbers.push_back(p);
  }
  const TraceManifest manifest = with_whole_prompts(trace);
  check_prompts(manifest, points);
  if (!options.windows_of_copies.empty()) {
    check(by_model.points.empty(), "copies of a layer are replayed one by one");
    return run(with_copies(manifest, options.windows_of_copies), copies_of_layer(trace), points, options);
  }
  if (by_model.points.empty()) return run(manifest, layers_of(trace), points, options);
  std::vector<std::optional<PointResult>> all(points.size());
  const auto take = [&](const Part& part, std::vector<PointResult> results) {
    for (std::size_t p = 0; p < results.size(); ++p) all[part.numbers[p]] = std::move(results[p]);
  };
  if (!by_layer.points.empty()) {
    by_model.place = 1;
    by_model.parts = by_layer.parts = 2;
    PartObserver observer(options.observer, by_layer);
    ReplayOptions of_part = options;
    if (options.observer != nullptr) of_part.observer = &observer;
    take(by_layer, run(manifest, layers_of(trace), by_layer.points, of_part));
  }
  take(by_model, run_joined(trace, manifest, by_model, options, run));
  std::vector<PointResult> results;
  for (std::optional<PointResult>& result : all) results.push_back(std::move(*result));
  return results;
}

}  // namespace kvroof
