// The pass over a trace: rows are computed once, a block at a time, and every head of every analysis sees them in
// order.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/analysis.hpp"
#include "sim/core/error.hpp"
#include "sim/replay/finite_values.hpp"
#include "sim/replay/replay.hpp"

namespace kvroof {
namespace {

// The analyses of rows at work on one layer of one sequence.
class LayerPass {
 public:
  LayerPass(ExactRows& rows, const TraceSequence& sequence, const TraceLayer& layer,
            std::span<AnalysisResult* const> results)
      : rows_(rows), sequence_(sequence), layer_(layer), results_(results) {
    const HeadContext context{sequence.prompt, sequence.tokens, layer.v_width};
    for (const AnalysisResult* result : results) {
      for (std::uint32_t head = 0; head < layer.query_heads; ++head) work_.push_back(result->info().start(context));
      prompt_rows_ = prompt_rows_ || result->info().prompt_rows;
      outputs_ = outputs_ || result->info().outputs;
    }
  }

  // `count` rows, all of the prompt or all decoded.
  void block(std::uint32_t first, std::uint32_t count, std::span<const std::byte> q, ThreadPool& pool) {
    const bool decoded = first >= sequence_.prompt;
    if (!decoded && !prompt_rows_) return;
    rows_.compute(first, count, q, {.weights = true, .masses = true, .outputs = decoded && outputs_});
    pool.parallel_for(work_.size(), [&](std::size_t i) {
      const AnalysisInfo& info = results_[i / layer_.query_heads]->info();
      if (!decoded && !info.prompt_rows) return;
      const auto head = static_cast<std::uint32_t>(i % layer_.query_heads);
      for (std::uint32_t at = first; at < first + count; ++at) work_[i]->row(row_of(at, head, decoded && info.outputs));
    });
  }

  void finish(std::uint32_t layer, ThreadPool& pool) {
    std::vector<HeadValues> values(work_.size());
    pool.parallel_for(work_.size(), [&](std::size_t i) { values[i] = work_[i]->finish(); });
    for (std::size_t i = 0; i < work_.size(); ++i) {
      results_[i / layer_.query_heads]->add(layer, static_cast<std::uint32_t>(i % layer_.query_heads), values[i]);
    }
  }

 private:
  [[nodiscard]] HeadRow row_of(std::uint32_t position, std::uint32_t head, bool with_output) const {
    HeadRow row;
    row.query = TokenPos(position);
    row.decoded = position >= sequence_.prompt;
    const std::uint32_t visible = rows_.visible(position);
    row.first = position + 1 - visible;
    row.weights = {rows_.weights(position, head) + row.first, visible};
    row.mass = rows_.mass(position, head);
    row.sink = static_cast<double>(rows_.sink(position, head));
    if (!with_output) return row;
    row.values = rows_.values_of(head);
    row.output = {rows_.output(position, head), layer_.v_width};
    return row;
  }

  ExactRows& rows_;
  const TraceSequence& sequence_;
  const TraceLayer& layer_;
  std::span<AnalysisResult* const> results_;
  std::vector<std::unique_ptr<HeadAnalysis>> work_;  // [results, query heads]
  bool prompt_rows_ = false, outputs_ = false;
};

void run_layer(const TraceReader& trace, const TraceSequence& sequence, std::uint32_t layer, ExactRows& rows,
               std::span<AnalysisResult* const> results, ThreadPool& pool) {
  const TraceLayer& shape = trace.manifest().layers[layer];
  const DType type = trace.manifest().kv_type;
  const LayerKeysValues keys_values = trace.keys_values(sequence.id, LayerId(layer));
  const bool outputs = std::ranges::any_of(results, [](const AnalysisResult* r) { return r->info().outputs; });
  require_finite_keys(trace, sequence, LayerId(layer), shape, keys_values);
  if (outputs) require_finite_values(trace, sequence, LayerId(layer), shape, keys_values);
  const std::uint32_t most = rows_of_block(shape, keys_values);
  rows.start_layer(shape, type, keys_values, most);
  LayerPass pass(rows, sequence, shape, results);
  const std::size_t row_bytes = std::size_t{shape.query_heads} * shape.k_width * size_of(type);
  trace.for_each_query_block(sequence.id, LayerId(layer), [&](std::uint32_t first, std::uint32_t count, auto q) {
    for (std::uint32_t done = 0; done < count;) {
      const std::uint32_t at = first + done;
      std::uint32_t length = std::min(most, count - done);
      if (at < sequence.prompt) length = std::min(length, sequence.prompt - at);
      pass.block(at, length, q.subspan(done * row_bytes, length * row_bytes), pool);
      done += length;
    }
  });
  pass.finish(layer, pool);
}

void check_decoded(const TraceReader& trace, const TraceManifest& manifest) {
  const auto decoded = [](const TraceSequence& s) { return s.tokens > s.prompt; };
  if (std::any_of(manifest.sequences.begin(), manifest.sequences.end(), decoded)) return;
  throw Error(fmt::format("{}: no token was decoded, and the analyses are of decode steps", trace.path().string()))
      .note("record with --max-tokens 2 or more; imported tensors need fewer tokens of --prompt");
}

}  // namespace

std::vector<AnalysisResult> analyze(const TraceReader& trace, std::span<const AnalysisInfo* const> analyses,
                                    const AnalyzeOptions& options, ThreadPool& pool) {
  const TraceManifest manifest = with_whole_prompts(trace);
  check_decoded(trace, manifest);
  const auto layers = static_cast<std::uint32_t>(manifest.layers.size());
  if (options.first_layer >= layers) {
    throw usage_error(fmt::format("--layers {}: the trace has layers 0..{}", options.first_layer, layers - 1));
  }
  const std::uint32_t last = std::min(options.last_layer, layers - 1);
  std::uint32_t heads = 0;
  for (const TraceLayer& layer : manifest.layers) heads = std::max(heads, layer.query_heads);

  std::vector<AnalysisResult> results;
  std::uint64_t replays = 0;
  for (const AnalysisInfo* info : analyses) {
    AnalysisInfo adapted = *info;
    if (info->adapt != nullptr) info->adapt(options, adapted);
    replays += info->replay != nullptr ? 1U : 0U;
    results.emplace_back(std::move(adapted), options.first_layer, last - options.first_layer + 1, heads);
  }
  std::vector<AnalysisResult*> of_rows;
  for (AnalysisResult& result : results) {
    if (result.info().start != nullptr) of_rows.push_back(&result);
  }
  const std::uint64_t replayed = manifest.sequences.size() * layers;
  const std::uint64_t passed = of_rows.empty() ? 0 : manifest.sequences.size() * results.front().layers();
  std::uint64_t done = 0;
  const auto layer_done = [&] {
    if (options.progress) options.progress(++done, passed + replays * replayed);
  };
  ExactRows rows(pool);
  for (const TraceSequence& sequence : manifest.sequences) {
    for (std::uint32_t layer = options.first_layer; layer <= last && !of_rows.empty(); ++layer) {
      try {
        run_layer(trace, sequence, layer, rows, of_rows, pool);
      } catch (const InfiniteLogit& logit) {
        throw place_of_logit(logit, trace, sequence, LayerId(layer));
      }
      layer_done();
    }
  }
  for (AnalysisResult& result : results) {
    if (result.info().replay != nullptr) result.info().replay({trace, options, pool, layer_done}, result);
  }
  return results;
}

}  // namespace kvroof
