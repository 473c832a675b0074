// kvroof replay: a trace × policies × budgets (× models × devices × batches) → what is kept, read, lost, and how long a
// step takes.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "apps/cli/messages.hpp"
#include "apps/cli/output.hpp"
#include "apps/cli/progress.hpp"
#include "apps/replay/replay_output.hpp"
#include "apps/replay/replay_points.hpp"
#include "apps/replay/replay_request.hpp"
#include "apps/replay/replay_svg.hpp"
#include "kernels/engine/output_projections.hpp"
#include "kernels/engine/token_kinds.hpp"
#include "sim/core/bytes_text.hpp"
#include "sim/core/counted.hpp"
#include "sim/core/files.hpp"

namespace kvroof {
namespace {

namespace po = boost::program_options;

constexpr std::string_view kExamples =
    "  kvroof replay run.kvt --policy full,window,h2o,keyformer --budget 0.2,0.5,0.9\n"
    "  kvroof replay run.kvt --policy full,h2o --budget 0.5 --as mpt-7b --prompt 4k --output 4k --device h200,l40s "
    "--batch 1,16,max\n"
    "  kvroof replay run.kvt --policy keyformer:budget=512:tau=1..2 --kept kept.jsonl --kept-steps all";

// Writes sets, and compares them with those of exact rows.
class Observer final : public ReplayObserver {
 public:
  Observer(const Arguments& arguments, KeptSteps steps, KeptWriter* writer, RowCacheComparison* comparison)
      : progress_(arguments, "replaying"), steps_(steps), writer_(writer), comparison_(comparison) {}
  bool wants_kept(StepId step, StepId last) override {
    last_ = last;
    return writes(step) || (comparison_ != nullptr && comparison_->wants(step));
  }
  void kept(const KeptSet& set) override {
    if (writes(set.step)) writer_->write(set);
    if (comparison_ != nullptr && comparison_->wants(set.step)) comparison_->compare(set);
  }
  void progress(std::uint64_t done, std::uint64_t total) override { progress_.at(done, total); }

 private:
  [[nodiscard]] bool writes(StepId step) const { return writer_ != nullptr && steps_.contains(step, last_); }

  Progress progress_;
  KeptSteps steps_;
  KeptWriter* writer_;
  RowCacheComparison* comparison_;
  StepId last_{};  // of the sequence at hand
};

// The replay that the rows of one byte are compared with.
class ExactObserver final : public ReplayObserver {
 public:
  ExactObserver(const Arguments& arguments, RowCacheComparison& comparison)
      : progress_(arguments, "replaying exact rows"), comparison_(comparison) {}
  bool wants_kept(StepId step, StepId) override { return comparison_.wants(step); }
  void kept(const KeptSet& set) override { comparison_.add_exact(set); }
  void progress(std::uint64_t done, std::uint64_t total) override { progress_.at(done, total); }

 private:
  Progress progress_;
  RowCacheComparison& comparison_;
};

void describe_replay(po::options_description_easy_init add) {
  add("policy", po::value<std::string>()->default_value("full"),
      "policies: name[:key=value]…, separated by commas");
  add("budget", po::value<std::string>(),
      "budgets for the policies that carry none: 0.5 or 50% (of the prompt), 512 or 4k (tokens), 0.5@current");
  add("device", po::value<std::string>(), "devices by name or file, with a fact changed by :fact=value: adds times");
  add("batch", po::value<std::string>()->default_value("1"), "batch sizes; max: the largest that fits");
  add("beams", po::value<std::string>()->default_value("1"),
      "sequences of a request: each beam holds a cache of its own, its prompt included");
  add("accounting", po::bool_switch(),
      "a second table: bytes held, allocated, written and moved, policy state, arithmetic");
  add("quality", po::value<std::string>()->default_value("all"),
      "none | recall | all: what is measured of the quality; less takes less time, and what is kept and read is the "
      "same");
  add("as", po::value<std::string>(), "project on these models, by name, config.json or folder");
  add("prompt", po::value<std::string>(), "with --as: prompt tokens (default: as recorded)");
  add("output", po::value<std::string>(), "with --as: generated tokens (default: as recorded)");
  add("kv", po::value<std::string>(),
      "KV cache as f32 | f16 | bf16 | int8 | int4 | int4g64 | kivi2 | kivi4 (default: as recorded; with --as, as the "
      "weights): bytes, and of quantised ones what rounding does to outputs and to what policies see");
  add("dtype", po::value<std::string>(), "type of the weights: f32 | f16 | bf16 (default: the model's)");
  add("kept", po::value<std::string>(), "write what each policy kept to this file, as JSON lines");
  add("kept-steps", po::value<std::string>()->default_value("last"), "last | all | A..B; 0 is after the prompt");
  add("row-cache", po::value<std::string>(),
      "folder of attention rows at one byte a weight, made there at first and read later in place of q · k: sweeps "
      "take less time, and what they change is printed");
  add("row-cache-check", po::bool_switch(), "compare with exact rows, as the replay that makes them does");
  add("svg", po::value<std::string>(),
      "write a picture to this file: recall and output error against what a step reads, and against tokens/s");
  add("closed-loop", po::value<std::string>(), "a trace recorded under a policy: how its sets drift from the replay's");
}

// Random and oracle at the budgets of these points: recall alone, and no kept sets.
void add_bounds(const Arguments& arguments, const TraceReader& trace, ReplayOptions options, ThreadPool& pool,
                std::vector<PointResult>& results) {
  const std::vector<PolicySpec> bounds = missing_bounds(results);
  if (bounds.empty()) return;
  Observer observer(arguments, {}, nullptr, nullptr);
  options.observer = &observer;
  options.measure.output_error = false;
  for (PointResult& bound : replay(trace, bounds, options, pool)) results.push_back(std::move(bound));
}

struct Replayed {
  std::vector<PointResult> results;  // of the points, then of the bounds
  std::optional<RowCacheCheck> row_cache;
};

Replayed run_points(const Arguments& arguments, const ReplayRequest& request, const TraceReader& trace, KeptSteps steps,
                    KeptWriter* writer, ReplayOptions options, ThreadPool& pool) {
  Replayed replayed;
  std::optional<RowCache> cache;
  if (request.row_cache) cache.emplace(trace, *request.row_cache);
  std::optional<RowCacheComparison> comparison;
  std::vector<PointResult> exact;
  if (cache && (cache->missing_bytes() > 0 || request.check_row_cache)) {
    if (cache->missing_bytes() > 0 && !arguments.quiet) {
      say("{}: making attention rows of {}\n", request.row_cache->string(),
          bytes_text(cache->missing_bytes()));
    }
    comparison.emplace(trace.manifest(), request.points);
    ExactObserver observer(arguments, *comparison);
    options.observer = &observer;
    exact = replay(trace, request.points, options, pool);
  }
  Observer observer(arguments, steps, writer, comparison ? &*comparison : nullptr);
  options.observer = &observer;
  options.row_cache = cache ? &*cache : nullptr;
  replayed.results = replay(trace, request.points, options, pool);
  if (comparison) {
    replayed.row_cache = comparison->finish(exact, replayed.results);
    // Whether a recording is reproduced, exact rows alone can tell.
    for (std::size_t p = 0; p < exact.size(); ++p) replayed.results[p].reproduction = exact[p].reproduction;
  }
  add_bounds(arguments, trace, options, pool, replayed.results);
  return replayed;
}

void print_notes(std::span<const std::string> notes) {
  for (const std::string& note : notes) say("note: {}\n", note);
}

// A recording that the replay of its own policy does not reproduce casts doubt on one of the two.
void check_reproduction(std::span<const PointResult> results) {
  for (const PointResult& result : results) {
    const std::string problem = result.reproduction ? result.reproduction->problem() : std::string();
    if (!problem.empty()) throw Error(fmt::format("{}: {}", result.spec.text(), problem), ExitCode::kGateFailed);
  }
}

int run_replay(const Arguments& arguments) {
  const ReplayRequest request = replay_request(arguments);
  const TraceReader trace = TraceReader::open_attention(request.trace);
  std::optional<TraceReader> closed;
  if (request.closed_loop) closed = TraceReader::open_attention(*request.closed_loop);
  std::string clipped;
  const KeptSteps steps = recorded_steps(request.kept_steps, trace.manifest(), clipped);
  std::vector<std::string> notes = policy_notes(request.points, trace.manifest());
  if (!clipped.empty()) notes.insert(notes.begin(), clipped);
  if (!arguments.quiet) print_notes(notes);
  std::optional<KeptWriter> writer;
  if (request.kept) writer.emplace(*request.kept, request.points);

  ThreadPool pool(arguments.threads);
  ReplayOptions options;
  options.seed = request.seed.value_or(trace.manifest().seed);
  options.measure = request.measure;
  options.output_projection = output_projections_of(trace.manifest());
  options.token_kinds = token_kinds_of(trace);
  const Replayed replayed = run_points(arguments, request, trace, steps, writer ? &*writer : nullptr, options, pool);
  std::optional<OpenClosedReport> open_closed;
  if (closed) open_closed = compare_open_closed(trace, *closed, pool, options, request.points);
  const std::span<const PointResult> asked = std::span(replayed.results).first(request.points.size());
  const std::vector<ReplayPoint> points = price_points(request, trace.manifest(), asked, replayed.results);
  const ReplayAnswer answer{request, trace.manifest(), options.seed,
                            asked,   points,           open_closed ? &*open_closed : nullptr,
                            replayed.row_cache ? &*replayed.row_cache : nullptr};
  if (!request.svg.empty()) write_text_file(request.svg, replay_svg(answer));
  if (writer) {
    writer->close();
    if (!arguments.quiet) say("{}: {}\n", request.kept->string(), counted(writer->lines(), "kept set"));
  }
  const Format format = format_of(arguments);
  write_result(arguments, format == Format::kJson  ? replay_json(answer)
                          : format == Format::kCsv ? replay_csv(answer)
                                                   : replay_table(answer));
  if (format == Format::kCsv && !arguments.quiet) print_notes(replay_notes(answer));
  check_reproduction(asked);
  return 0;
}

}  // namespace

Command replay_command() {
  return {"replay",
          "what policies would have kept, read and lost on a recorded run, and how long a step would take",
          "run.kvt [options]",
          kExamples,
          describe_replay,
          &run_replay,
          1,
          1};
}

}  // namespace kvroof
