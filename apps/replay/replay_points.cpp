#include "apps/replay/replay_points.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "apps/cli/data_folder.hpp"
#include "apps/cli/shared_options.hpp"
#include "apps/prediction/intervals.hpp"
#include "sim/cost/engine_profile.hpp"
#include "sim/policy/held_tokens.hpp"

namespace kvroof {
namespace {

// The tokens that a head of this point may hold: those there are, or as many as its budget and its schedule say.
Room room_of(const PointResult& result) {
  const bool reads_less_than_held = result.traits.selects && !result.traits.bound;
  if (reads_less_than_held) {
    return [](std::uint32_t prompt, std::uint32_t step) { return std::uint64_t{prompt} + step; };
  }
  const auto with = [&result](const Budget& budget) -> TokensAt {
    return [&result, budget](std::uint32_t prompt, std::uint32_t step, std::uint32_t window) {
      return tokens_after_eviction(result.spec, result.traits, budget, prompt, step, window);
    };
  };
  const Budget& budget = result.spec.budget;
  const bool grows_on = result.traits.schedule == Schedule::kPrefillOnly || budget.kind == Budget::Kind::kUnlimited;
  return {with(budget), with(result.replayed.value_or(budget)), grows_on ? 1 : result.traits.interval};
}

// The tokens that a head reads in a step, where the budget says so and not what it holds.
Room reads_of(const PointResult& result) {
  const Budget& budget = result.spec.budget;
  if (!result.traits.selects || result.traits.bound || budget.kind == Budget::Kind::kUnlimited) return {};
  const auto with = [](const Budget& of) -> TokensAt {
    return [of](std::uint32_t prompt, std::uint32_t step, std::uint32_t) {
      const std::uint64_t tokens = std::uint64_t{prompt} + step;
      return std::min<std::uint64_t>(tokens, of.tokens(prompt, static_cast<std::uint32_t>(tokens)));
    };
  };
  return {with(budget), with(result.replayed.value_or(budget)), 1};
}

// One model on all devices, ready to price any residency.
struct PricedModel {
  std::string name;  // empty: as recorded
  ModelShape shape;
  TrafficTypes types;
  std::vector<CostModel> costs;  // one a device
};

// The same model with each type of the cache that a point asks for.
class PricedModels {
 public:
  PricedModels(const ReplayRequest& request, std::string name, const ModelShape& shape, DType weights)
      : request_(request), name_(std::move(name)), shape_(shape), weights_(weights) {}

  // Valid until the next call.
  const PricedModel& with(KvType kv) {
    for (const PricedModel& model : models_) {
      if (model.types.kv == kv) return model;
    }
    PricedModel& model = models_.emplace_back(PricedModel{name_, shape_, {weights_, kv}, {}});
    for (const Device& device : request_.devices) {
      const EngineProfile engine = default_engine_profile(device.kind, data_folder() / "catalog");
      model.costs.emplace_back(shape_, model.types, device, engine);
    }
    return model;
  }

 private:
  const ReplayRequest& request_;
  std::string name_;
  const ModelShape& shape_;
  DType weights_;
  std::vector<PricedModel> models_;
};

// What holds without a device.
ReplayPoint sized_point(const PricedModel& model, const PointResult& result, const ResidencySummary& summary,
                        std::uint64_t batch, std::uint32_t beams) {
  ReplayPoint point;
  point.result = &result;
  point.model = model.name;
  point.batch = batch;
  point.accounting = account(model.shape, model.types, summary, batch * beams);
  point.kv = model.types.kv;
  return point;
}

// Sequences of so many beams each, in whole numbers.
Estimate shared(Estimate sequences, std::uint64_t beams) {
  for (double* x : {&sequences.value, &sequences.low80, &sequences.high80, &sequences.low95, &sequences.high95}) {
    *x = std::floor(*x / static_cast<double>(beams));
  }
  return sequences;
}

// Whether decode steps attend to all tokens of all sequences, given as prompt and decoded tokens, or to the best of all
// that an index chooses from.
bool attends_to_all(const ResidencySummary& summary, const ModelShape& shape, std::span<const ProjectedLengths> all) {
  double full = 0;
  for (const ProjectedLengths& sequence : all) {
    LayerCounts decode = full_attention_summary(shape, sequence.prompt, sequence.output).decode;
    if (shape.index) decode.attended = decode.indexed;
    const auto others = static_cast<double>(decode.attended_other);
    full += (static_cast<double>(decode.attended) - others) / shape.kv_heads * summary.storage_heads;
    if (others > 0) full += others * other_group(shape, shape.kv_heads) / other_group(shape, summary.storage_heads);
  }
  constexpr double kRounding = 1e-6;  // of rows, which a projection has in whole numbers
  const std::uint64_t attended = shape.index ? summary.decode.indexed : summary.decode.attended;
  return static_cast<double>(attended) >= full * (1 - kRounding);
}

// A recording that the policy left whole says nothing of one that it would not.
bool measures(const PointResult& result, const ModelShape& own, const ResidencySummary& projected,
              const ModelShape& shape, const ReplayRequest& request) {
  std::vector<ProjectedLengths> recorded, lengths;
  for (const ResidencyLog& log : decoding(result.residency)) {
    recorded.push_back({log.head().prompt, log.head().steps});
    lengths.push_back({request.prompt.value_or(log.head().prompt), request.output.value_or(log.head().steps)});
  }
  return attends_to_all(projected, shape, lengths) || !attends_to_all(summarise(result.residency), own, recorded);
}

void price_point(const PricedModel& model, const ReplayRequest& request, const PointResult& result,
                 ResidencySummary summary, std::vector<ReplayPoint>& points) {
  summary.beams = request.beams;
  if (model.costs.empty()) {
    for (const BatchChoice& batch : request.batches)
      points.push_back(sized_point(model, result, summary, batch.value_or(1), request.beams));
  }
  for (std::size_t d = 0; d < model.costs.size(); ++d) {
    const std::uint64_t largest = model.costs[d].memory().largest_batch(summary) / request.beams;
    const auto memory = interval_group(request.devices[d], model.costs[d], "memory");
    const Estimate room = shared(largest_batch_estimate(model.costs[d], summary, memory.inside), request.beams);
    const IntervalGroup intervals = interval_group(request.devices[d], model.costs[d], "step");
    const double tokens = static_cast<double>(summary.prompt) + summary.steps;
    for (const BatchChoice& batch : request.batches) {
      ReplayPoint point = sized_point(model, result, summary, batch ? *batch : largest, request.beams);
      point.device = request.devices[d].name;
      point.batch_is_max = !batch;
      point.largest_batch = largest;
      point.largest_batch_interval = room;
      point.limited_by = name_of(Limit::kCapacity);
      if (point.batch > 0) {
        const Prediction prediction = model.costs[d].predict(summary, point.batch * request.beams);
        point.limited_by = name_of(prediction.limited_by);
        const IntervalFactors factors =
            intervals.at({static_cast<double>(point.batch * request.beams), tokens, 1});
        point.interval_from = factors.text();
        if (prediction.fits) {
          point.prediction = with_factors(prediction, factors);
          point.prediction->tokens_per_s = throughput(point.prediction->step, static_cast<double>(point.batch));
        }
      }
      points.push_back(std::move(point));
    }
  }
}

}  // namespace

ModelShape shape_of(const TraceManifest& manifest) {
  if (!manifest.model_shape_json.empty()) {
    return shape_from_json(manifest.model_shape_json).or_throw("the trace's model shape", ExitCode::kDamagedTrace);
  }
  const TraceLayer& layer = manifest.layers.front();
  ModelShape shape;
  shape.name = "imported tensors";
  shape.layers = static_cast<std::uint32_t>(manifest.layers.size());
  shape.heads = layer.query_heads;
  shape.kv_heads = layer.kv_heads;
  shape.head_dim = layer.k_width;
  shape.v_head_dim = layer.v_width;
  shape.weight_type = manifest.kv_type;
  return shape;
}

KvType cache_of(const PolicySpec& spec, const TraceManifest& manifest) {
  if (spec.kv) return *spec.kv;
  const KvType recorded = cache_type_of(manifest);
  return kv_problem(spec, recorded).empty() ? recorded : KvType(manifest.kv_type);
}

std::vector<std::reference_wrapper<const ResidencyLog>> decoding(std::span<const ResidencyLog> sequences) {
  const auto decoded = [](const ResidencyLog& log) { return log.head().steps > 0; };
  const bool any = std::ranges::any_of(sequences, decoded);
  std::vector<std::reference_wrapper<const ResidencyLog>> found;
  for (const ResidencyLog& log : sequences) {
    if (!any || decoded(log)) found.emplace_back(log);
  }
  return found;
}

std::vector<double> kept_by_layer(std::span<const ResidencyLog> sequences) {
  const auto logs = decoding(sequences);
  std::vector<double> kept;
  for (std::uint32_t i = 0; !logs.empty() && i < logs.front().get().head().layers; ++i) {
    double tokens = 0, steps = 0;
    for (const ResidencyLog& log : logs) {
      const Residency layer = log.expand_layer(i);
      for (std::uint32_t step = layer.steps > 0 ? 1 : 0; step <= layer.steps; ++step, ++steps) {
        tokens += static_cast<double>(layer.at(step, 0).resident) / layer.rows_of_token(0);
      }
    }
    kept.push_back(tokens / steps);
  }
  return kept;
}

ResidencySummary summarise(std::span<const ResidencyLog> sequences) {
  SummarySum sum;
  for (const ResidencyLog& log : sequences) {
    for (std::uint32_t layer = 0; layer < log.head().layers; ++layer)
      sum.add(kvroof::summarise(log.expand_layer(layer)));
    sum.end_sequence(log.head().prompt, log.head().steps, log.head().layers);
  }
  return sum.mean();
}

// What `make` says of each layer of the projection, in their order, to `use`. Layers that take their counts from one
// layer of the recording and are of one kind are alike, so that it is asked once for all of them.
template <class Make, class Use>
static void for_each_layer(const Residency& recorded, const ModelShape& to, const Make& make, const Use& use) {
  std::map<std::uint64_t, decltype(make(0U))> of_kind;  // of one layer of the recording
  std::uint32_t before = 0;
  for (std::uint32_t layer = 0; layer < to.layers; ++layer) {
    const std::uint32_t source = source_layer(layer, to, recorded);
    if (std::exchange(before, source) != source) of_kind.clear();
    auto [made, fresh] = of_kind.try_emplace(to.cache_kind(layer));
    if (fresh) made->second = make(layer);
    use(made->second);
  }
}

ResidencySummary summarise_as(const PointResult& result, const ModelShape& from, const ModelShape& to,
                              std::optional<std::uint32_t> prompt, std::optional<std::uint32_t> output) {
  SummarySum sum;
  const Room room = room_of(result);
  const Room reads = reads_of(result);
  // Of sequences that keep their lengths, one without decoded tokens is projected as what it is: a prompt.
  std::vector<std::reference_wrapper<const ResidencyLog>> sequences(result.residency.begin(), result.residency.end());
  if (output) sequences = decoding(result.residency);
  for (const ResidencyLog& log : sequences) {
    const Residency recorded = log.expand();
    const ProjectedLengths lengths{prompt.value_or(recorded.prompt), output.value_or(recorded.steps)};
    const auto layer_of = [&](std::uint32_t layer) {
      return kvroof::summarise(project_layer(recorded, from, to, lengths, room, layer, reads));
    };
    for_each_layer(recorded, to, layer_of, [&](const ResidencySummary& layer) { sum.add(layer); });
    sum.end_sequence(lengths.prompt, lengths.output, to.layers);
  }
  return sum.mean();
}

std::vector<LayerCounts> step_counts_as(const PointResult& result, const ModelShape& from, const ModelShape& to,
                                        std::uint32_t prompt, std::uint32_t output) {
  const Room room = room_of(result);
  const Room reads = reads_of(result);
  std::vector<LayerCounts> steps;
  for (const ResidencyLog& log : decoding(result.residency)) {
    const Residency recorded = log.expand();
    const std::size_t first = steps.size();
    steps.resize(first + output);
    const auto layer_of = [&](std::uint32_t layer) {
      return project_layer(recorded, from, to, {prompt, output}, room, layer, reads);
    };
    for_each_layer(recorded, to, layer_of, [&](const Residency& projected) {
      for (std::uint32_t s = 0; s < output; ++s) {
        for (std::uint32_t cell = 0; cell < projected.layers; ++cell) steps[first + s] += projected.at(s + 1, cell);
      }
    });
  }
  return steps;
}

std::vector<ReplayPoint> price_points(const ReplayRequest& request, const TraceManifest& manifest,
                                      std::span<const PointResult> results, std::span<const PointResult> all) {
  const ModelShape own = shape_of(manifest);
  std::vector<ReplayPoint> points;
  if (request.models.empty()) {
    const DType weights = request.weights.value_or(manifest.weight_type);
    PricedModels models(request, "", own, weights);
    for (const PointResult& result : results) {
      const PricedModel& model = models.with(cache_of(result.spec, manifest));
      price_point(model, request, result, summarise(result.residency), points);
    }
  }
  for (const ModelShape& shape : request.models) {
    const DType weights = request.weights.value_or(shape.weight_type);
    PricedModels models(request, shape.name, shape, weights);
    for (const PointResult& result : results) {
      const PricedModel& model = models.with(result.spec.kv.value_or(weights));
      const ResidencySummary summary = summarise_as(result, own, shape, request.prompt, request.output);
      const std::size_t first = points.size();
      price_point(model, request, result, summary, points);
      const bool measured = measures(result, own, summary, shape, request);
      for (ReplayPoint& point : std::span(points).subspan(first)) point.measured = measured;
    }
  }
  for (const PointResult& result : results) {
    const std::optional<BoundRecalls> bounds = bounds_of(result, all);
    for (ReplayPoint& point : points) {
      if (point.result == &result && point.measured) point.bounds = bounds;
    }
  }
  return points;
}

}  // namespace kvroof
