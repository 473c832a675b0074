#include "sim/replay/replay.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>

#include "sim/replay/decode_tasks.hpp"
#include "sim/replay/empty_residency.hpp"
#include "sim/replay/finite_values.hpp"
#include "sim/replay/joined_layers.hpp"
#include "sim/replay/look_ahead.hpp"
#include "sim/replay/model_facts.hpp"
#include "sim/replay/prompt_sharing.hpp"

namespace kvroof {

// A recording that was interrupted among its prompts lists sequences that never began: there is nothing to replay.
TraceManifest with_whole_prompts(const TraceReader& trace) {
  TraceManifest manifest = trace.manifest();
  std::erase_if(manifest.sequences, [](const TraceSequence& s) { return s.tokens < s.prompt; });
  if (manifest.sequences.empty()) {
    throw Error(fmt::format("{}: no sequence was recorded to the end of its prompt", trace.path().string()),
                ExitCode::kDamagedTrace);
  }
  return manifest;
}

namespace {

// Work that the points of a block share.
struct Task {
  std::size_t point;
  std::uint32_t head;
};

class Replayer {
 public:
  // `source` has the layers that `manifest` tells of.
  Replayer(const TraceReader& trace, TraceManifest manifest, LayerSource source, std::span<const PolicySpec> points,
           const ReplayOptions& options, ThreadPool& pool);
  std::vector<PointResult> run();

 private:
  void start_results();
  void run_layer(std::size_t sequence, std::uint32_t layer);
  [[nodiscard]] std::uint32_t block_length(std::uint32_t position, std::uint32_t rows) const;
  void start_points(const TraceSequence& sequence, std::uint32_t layer);
  void finish_points();
  void run_rows(std::uint32_t first, std::uint32_t rows, std::span<const std::byte> q);
  void compute_rows(std::uint32_t first, std::uint32_t rows, std::span<const std::byte> q, RowsWanted wanted);
  void run_prompt_block(std::uint32_t first, std::uint32_t rows, std::span<const std::byte> q);
  void finish_prompt();
  void run_decode_block(std::uint32_t first, std::uint32_t rows, std::span<const std::byte> q);
  void drain_quality(std::size_t point, std::uint32_t row, StepId step);
  void show_prompt_kept();
  void show_kept(std::size_t point, std::uint32_t head, StepId step, std::span<const TokenPos> positions);
  [[nodiscard]] StepId last_step() const { return StepId(at_->tokens - at_->prompt); }
  [[nodiscard]] bool is_recorded(const PolicySpec& spec) const;
  [[nodiscard]] ResidencyLog& log(std::size_t point) { return results_[point].residency[sequence_]; }

  const TraceReader& trace_;
  const TraceManifest manifest_;  // of the sequences that are replayed
  LayerSource source_;
  std::span<const PolicySpec> points_;
  const ReplayOptions& options_;
  ThreadPool& pool_;
  ExactRows rows_;
  NoisyKinds noisy_;
  CacheViews caches_;
  std::vector<PointResult> results_;
  std::vector<QualityStats> stats_;
  std::vector<PointScratch> scratch_;
  // Of the layer at hand.
  std::size_t sequence_ = 0;
  std::uint32_t layer_ = 0;
  const TraceSequence* at_ = nullptr;
  std::uint32_t block_rows_ = 1;
  std::vector<std::unique_ptr<PointLayer>> layers_;           // one a point
  std::vector<std::unique_ptr<RecordedEvictions>> recorded_;  // one a point; null unless it is the recorded policy
  std::vector<Task> prompt_tasks_;
  RotaryRule rotary_;
  LayerTensors tensors_;
  std::vector<std::byte> queries_;  // of the last prompt rows, as many as a point needs
  std::uint32_t queries_from_ = 0;  // the first of them
  std::uint32_t first_prompt_row_ = 0;  // that any point observes
  bool prompt_weights_ = false, decode_rows_ = false, decode_weights_ = false;
  bool projects_ = false;  // whether a point needs the output projection
  bool asks_kinds_ = false;  // or the kinds of its tokens
  bool foresees_ = false;  // or the attention of later rows
  std::unique_ptr<FutureAttention> future_;
  std::vector<TokenKind> token_kinds_;  // of the sequence, by position
  std::vector<BlockRecord> records_;  // one a point
  PromptSharing sharing_;
  DecodeTasks decode_tasks_;
  std::vector<TokenPos> kept_;
};

Replayer::Replayer(const TraceReader& trace, TraceManifest manifest, LayerSource source,
                   std::span<const PolicySpec> points, const ReplayOptions& options, ThreadPool& pool)
    : trace_(trace),
      manifest_(std::move(manifest)),
      source_(std::move(source)),
      points_(points),
      options_(options),
      pool_(pool),
      rows_(pool),
      noisy_(pool),
      caches_(pool) {
  check(!manifest_.layers.empty(), "a trace has layers");
  require_served(points);
  const TraceLayer& first = manifest_.layers.front();
  for (std::size_t i = 1; i < manifest_.layers.size(); ++i) {
    const TraceLayer& layer = manifest_.layers[i];
    if (layer.query_heads != first.query_heads || layer.kv_heads != first.kv_heads) {
      throw Error(fmt::format("{}: layer {} has {} query and {} KV heads, layer 0 {} and {}; expected layers alike",
                              trace.path().string(), i, layer.query_heads, layer.kv_heads, first.query_heads,
                              first.kv_heads));
    }
  }
  for (const PolicySpec& spec : points) {
    if (!meets_recorded_rows(manifest_, spec)) caches_.add(spec);
    if (caches_.of(spec) == nullptr) noisy_.add(policy_info(spec.name).traits(spec));
  }
  scratch_.resize(points.size());
  records_.resize(points.size());
}

bool Replayer::is_recorded(const PolicySpec& spec) const {
  if (caches_.of(spec) != nullptr || options_.row_cache != nullptr) return false;  // not the recording's logits
  return is_compared(manifest_, spec, options_.seed);
}

void Replayer::start_results() {
  const auto layers = static_cast<std::uint32_t>(manifest_.layers.size());
  const TraceLayer& shape = manifest_.layers.front();
  std::uint64_t values = 0;
  for (const TraceSequence& sequence : manifest_.sequences) {
    values += std::uint64_t{sequence.tokens - sequence.prompt} * layers * shape.query_heads;
  }
  for (const PolicySpec& spec : points_) {
    PointResult result{spec, policy_info(spec.name).traits(spec), {}, {}, {}};
    projects_ = projects_ || result.traits.needs.has(HostNeed::kOutputProjection);
    foresees_ = foresees_ || result.traits.needs.has(HostNeed::kFuture);
    asks_kinds_ = asks_kinds_ || result.traits.needs.has(HostNeed::kTokenKinds);
    for (const TraceSequence& sequence : manifest_.sequences) {
      result.residency.emplace_back(empty_residency(spec, result.traits, manifest_, sequence));
    }
    if (is_recorded(spec)) result.reproduction.emplace().exact = manifest_.backend == "reference";
    results_.push_back(std::move(result));
    stats_.emplace_back(options_.measure.recall ? values : 0, layers, options_.measure.output_error);
  }
}

std::vector<PointResult> Replayer::run() {
  start_results();
  const std::uint64_t total = manifest_.sequences.size() * manifest_.layers.size();
  std::uint64_t done = 0;
  for (std::size_t sequence = 0; sequence < manifest_.sequences.size(); ++sequence) {
    if (asks_kinds_) token_kinds_ = token_kinds_of(options_, manifest_.sequences[sequence]);
    for (std::uint32_t layer = 0; layer < manifest_.layers.size(); ++layer) {
      try {
        run_layer(sequence, layer);
      } catch (const InfiniteLogit& logit) {
        throw place_of_logit(logit, trace_, manifest_.sequences[sequence], LayerId(layer));
      }
      if (options_.observer != nullptr) options_.observer->progress(++done, total);
    }
  }
  for (std::size_t p = 0; p < results_.size(); ++p) {
    if (options_.measure.recall) results_[p].quality = stats_[p].finish();
  }
  return std::move(results_);
}

void Replayer::run_layer(std::size_t sequence, std::uint32_t layer) {
  sequence_ = sequence;
  layer_ = layer;
  at_ = &manifest_.sequences[sequence];
  const TraceLayer& shape = manifest_.layers[layer];
  const LayerKeysValues keys_values = source_.keys_values(at_->id, LayerId(layer));
  require_finite_keys(trace_, *at_, LayerId(layer), shape, keys_values);
  if (reads_values(points_, options_.measure)) require_finite_values(trace_, *at_, LayerId(layer), shape, keys_values);
  block_rows_ = rows_of_block(shape, keys_values);
  rows_.start_layer(shape, manifest_.kv_type, keys_values, block_rows_);
  tensors_ = {&shape, manifest_.kv_type, &keys_values, {}};
  start_points(*at_, layer);
  if (options_.row_cache != nullptr && options_.row_cache->start_layer(at_->id, LayerId(layer), shape, at_->tokens)) {
    first_prompt_row_ = 0;  // all rows are made
    decode_rows_ = true;
  }
  if (decode_rows_ || first_prompt_row_ < at_->prompt) {
    caches_.start_layer(shape, manifest_.kv_type, keys_values, block_rows_);
    if (reads_values(points_, options_.measure)) require_held_values(trace_, *at_, LayerId(layer), shape, caches_);
  }
  const std::size_t row_bytes = std::size_t{shape.query_heads} * shape.k_width * size_of(manifest_.kv_type);
  const auto visit = [&](std::uint32_t first, std::uint32_t rows, std::span<const std::byte> q) {
    for (std::uint32_t done = 0; done < rows;) {
      const std::uint32_t count = block_length(first + done, rows - done);
      run_rows(first + done, count, q.subspan(done * row_bytes, count * row_bytes));
      done += count;
    }
  };
  source_.query_blocks(at_->id, LayerId(layer), visit);
  finish_points();
}

// Rows from `position` on that can be run together: a block ends with the prompt, and where rows begin to be observed.
std::uint32_t Replayer::block_length(std::uint32_t position, std::uint32_t rows) const {
  const std::uint32_t most = std::min(rows, block_rows_);
  if (position >= at_->prompt) return most;
  const std::uint32_t end = position < first_prompt_row_ ? first_prompt_row_ : at_->prompt;
  return std::min(most, end - position);
}

void Replayer::start_points(const TraceSequence& sequence, std::uint32_t layer) {
  const TraceLayer& shape = manifest_.layers[layer];
  PolicyContext context;
  context.sequence = sequence.id;
  context.layer = LayerId(layer);
  context.layers = static_cast<std::uint32_t>(manifest_.layers.size());
  context.head_dim = shape.k_width;
  context.prompt = sequence.prompt;
  context.requested_new_tokens = sequence.requested_new_tokens;
  context.window = shape.window;
  context.seed = options_.seed;
  context.scale = shape.scale;
  rotary_ = recorded_rotation(shape.rotary);
  if (shape.rotary.style != "none") {
    context.rotation = {&rotary_, shape.rotary.first, rotary_.takes_long(sequence.prompt)};
  }
  queries_.clear();
  queries_from_ = sequence.prompt;
  recorded_.clear();
  prompt_tasks_.clear();
  sharing_.start();
  first_prompt_row_ = sequence.prompt;
  prompt_weights_ = decode_rows_ = decode_weights_ = false;
  if (projects_) context.output_projection = output_projection_of(options_, shape, LayerId(layer));
  if (asks_kinds_) context.token_kinds = &token_kinds_;
  if (foresees_) future_ = look_ahead(trace_, sequence, LayerId(layer), block_rows_, rows_);
  context.future = future_.get();
  noisy_.start_layer(context, shape, sequence.tokens, block_rows_);
  for (std::size_t p = 0; p < points_.size(); ++p) {
    layers_.push_back(std::make_unique<PointLayer>(points_[p], context, tensors_, options_.measure, scratch_[p]));
    PointLayer& point = *layers_.back();
    point.read_from(caches_.of(points_[p]));
    point.look_at(noisy_.of(point.traits()));
    recorded_.emplace_back();
    if (results_[p].reproduction) {
      recorded_.back() =
          std::make_unique<RecordedEvictions>(trace_.evictions(sequence.id, LayerId(layer)), point.storage_heads());
      point.follow(recorded_.back().get());
    }
    const PointNeeds needs = point.needs();
    first_prompt_row_ = std::min(first_prompt_row_, needs.first_prompt_row);
    prompt_weights_ = prompt_weights_ || needs.prompt_weights;
    decode_rows_ = decode_rows_ || needs.decode_rows;
    decode_weights_ = decode_weights_ || needs.decode_weights;
    queries_from_ = std::min(queries_from_, sequence.prompt - std::min(sequence.prompt, needs.queries));
    const std::uint32_t parts = point.traits().streams_prompt ? 1 : point.storage_heads();
    const std::uint32_t tasks = sharing_.add(points_, point) ? parts : 0;
    for (std::uint32_t head = 0; head < tasks; ++head) prompt_tasks_.push_back({p, head});
    BlockRecord& record = records_[p];
    record.quality.resize(options_.measure.recall ? std::size_t{block_rows_} * shape.query_heads : 0);
    record.wants_kept.assign(block_rows_, false);
    record.kept.resize(std::size_t{block_rows_} * point.kept_heads());
  }
}

void Replayer::finish_points() {
  for (std::size_t p = 0; p < points_.size(); ++p) {
    if (!recorded_[p]) continue;
    *results_[p].reproduction += recorded_[p]->finish();
  }
  layers_.clear();
}

void Replayer::run_rows(std::uint32_t first, std::uint32_t rows, std::span<const std::byte> q) {
  if (first >= at_->prompt) {
    run_decode_block(first, rows, q);
    return;
  }
  if (first + rows > queries_from_) {
    const std::uint32_t skipped = queries_from_ > first ? queries_from_ - first : 0;
    const std::span<const std::byte> wanted = q.subspan(q.size() / rows * skipped);
    queries_.insert(queries_.end(), wanted.begin(), wanted.end());
  }
  run_prompt_block(first, rows, q);
  if (first + rows == at_->prompt) finish_prompt();
}

void Replayer::compute_rows(std::uint32_t first, std::uint32_t rows, std::span<const std::byte> q, RowsWanted wanted) {
  if (options_.row_cache == nullptr) return rows_.compute(first, rows, q, wanted);
  options_.row_cache->compute(rows_, first, rows, q, wanted, pool_);
}

void Replayer::run_prompt_block(std::uint32_t first, std::uint32_t rows, std::span<const std::byte> q) {
  if (first >= first_prompt_row_) {
    compute_rows(first, rows, q, {.weights = prompt_weights_});
    caches_.compute(first, rows, q);
  }
  pool_.parallel_for(prompt_tasks_.size(), [&](std::size_t i) {
    const Task& task = prompt_tasks_[i];
    PointLayer& point = *layers_[task.point];
    if (point.traits().streams_prompt) {
      point.stream_prompt(rows_, first, rows, log(task.point), layer_);
    } else {
      point.observe_prompt(rows_, first, rows, HeadId(task.head));
    }
  });
}

void Replayer::finish_prompt() {
  tensors_.queries = queries_;
  sharing_.share(layers_, pool_);
  pool_.parallel_for(layers_.size(), [&](std::size_t p) {
    if (!layers_[p]->traits().streams_prompt) layers_[p]->finish_prompt(log(p), layer_);
  });
  show_prompt_kept();
}

void Replayer::run_decode_block(std::uint32_t first, std::uint32_t rows, std::span<const std::byte> q) {
  const bool measured = options_.measure.recall;
  if (decode_rows_) {
    compute_rows(first, rows, q,
                 {.exponentials = decode_weights_,
                  .masses = measured,
                  .outputs = measured && options_.measure.output_error});
    caches_.compute(first, rows, q);
    noisy_.compute(rows_);
  }
  const StepId first_step(first + 1 - at_->prompt);
  for (std::uint32_t row = 0; row < rows && options_.observer != nullptr; ++row) {
    const bool wanted = options_.observer->wants_kept(StepId(first_step.value + row), last_step());
    for (BlockRecord& record : records_) record.wants_kept[row] = wanted;
  }
  for (std::size_t p = 0; p < layers_.size(); ++p) {
    layers_[p]->start_block(decode_rows_ ? &rows_ : nullptr, first, rows, records_[p]);
  }
  decode_tasks_.run(layers_, pool_);
  for (std::size_t p = 0; p < layers_.size(); ++p) layers_[p]->end_block(log(p), layer_);
  for (std::uint32_t row = 0; row < rows; ++row) {
    const StepId step(first_step.value + row);
    for (std::size_t p = 0; p < layers_.size(); ++p) {
      if (measured) drain_quality(p, row, step);
      if (!records_[p].wants_kept[row]) continue;
      const std::uint32_t heads = layers_[p]->kept_heads();
      for (std::uint32_t h = 0; h < heads; ++h) show_kept(p, h, step, records_[p].kept[std::size_t{row} * heads + h]);
    }
  }
}

void Replayer::drain_quality(std::size_t point, std::uint32_t row, StepId step) {
  const std::uint32_t heads = manifest_.layers[layer_].query_heads;
  for (std::uint32_t head = 0; head < heads; ++head) {
    const HeadQuality& value = records_[point].quality[std::size_t{row} * heads + head];
    stats_[point].add(layer_, value.recall, value.output_error, at_->id);
    if (options_.observer == nullptr) continue;
    options_.observer->quality({static_cast<std::uint32_t>(point), at_->id, step, LayerId(layer_), head, value});
  }
}

void Replayer::show_prompt_kept() {
  if (options_.observer == nullptr || !options_.observer->wants_kept(StepId(0), last_step())) return;
  for (std::size_t p = 0; p < layers_.size(); ++p) {
    if (layers_[p]->traits().selects) continue;  // nothing has been read yet
    for (std::uint32_t head = 0; head < layers_[p]->kept_heads(); ++head) {
      layers_[p]->kept(head, kept_);
      show_kept(p, head, StepId(0), kept_);
    }
  }
}

void Replayer::show_kept(std::size_t point, std::uint32_t head, StepId step, std::span<const TokenPos> positions) {
  const PolicyTraits& traits = layers_[point]->traits();
  options_.observer->kept({static_cast<std::uint32_t>(point), at_->id, step, LayerId(layer_), head,
                           traits.selects || traits.unit == StorageUnit::kQueryHead, positions});
}

}  // namespace

std::vector<PointResult> replay(const TraceReader& trace, std::span<const PolicySpec> points,
                                const ReplayOptions& options, ThreadPool& pool) {
  return replay_parts(trace, points, options,
                      [&](TraceManifest manifest, LayerSource source, std::span<const PolicySpec> part,
                          const ReplayOptions& part_options) {
                        return Replayer(trace, std::move(manifest), std::move(source), part, part_options, pool).run();
                      });
}

}  // namespace kvroof
