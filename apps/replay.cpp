// kvroof replay: a trace × policies × budgets (× models × devices × batches) → what is kept, read, lost, and how long a
// step takes.
#include <fmt/format.h>

#include <optional>

#include "apps/replay_output.hpp"
#include "apps/replay_points.hpp"
#include "apps/replay_request.hpp"
#include "kernels/engine/output_projections.hpp"
#include "kernels/engine/token_kinds.hpp"

namespace kvroof {
namespace {

namespace po = boost::program_options;

constexpr std::string_view kExamples =
    "  kvroof replay run.kvt --policy full,window,h2o,keyformer --budget 0.2,0.5,0.9\n"
    "  kvroof replay run.kvt --policy full,h2o --budget 0.5 --as mpt-7b --prompt 4k --output 4k --device h200,l40s "
    "--batch 1,16,max\n"
    "  kvroof replay run.kvt --policy keyformer:budget=512:tau=1..2 --kept kept.jsonl --kept-steps all";

class Observer final : public ReplayObserver {
 public:
  Observer(const Arguments& arguments, KeptSteps steps, KeptWriter* writer)
      : progress_(arguments, "replaying"), steps_(steps), writer_(writer) {}
  bool wants_kept(StepId step, StepId last) override { return writer_ != nullptr && steps_.contains(step, last); }
  void kept(const KeptSet& set) override { writer_->write(set); }
  void progress(std::uint64_t done, std::uint64_t total) override { progress_.at(done, total); }

 private:
  Progress progress_;
  KeptSteps steps_;
  KeptWriter* writer_;
};

void describe(po::options_description_easy_init add) {
  add("policy", po::value<std::string>()->default_value("full"),
      "policies: name[:key=value]…, separated by commas; with random and oracle among them, each gets its position "
      "between the two");
  add("budget", po::value<std::string>(),
      "budgets for the policies that carry none: 0.5 or 50% (of the prompt), 512 (tokens), 0.5@current");
  add("device", po::value<std::string>(), "devices by name or file: adds times");
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
  add("closed-loop", po::value<std::string>(), "a trace recorded under a policy: how its sets drift from the replay's");
}

void print_notes(std::span<const std::string> notes) {
  for (const std::string& note : notes) fmt::print(stderr, "note: {}\n", note);
}

// A recording that the replay of its own policy does not reproduce casts doubt on one of the two.
void check_reproduction(const std::vector<PointResult>& results) {
  for (const PointResult& result : results) {
    const std::string problem = result.reproduction ? result.reproduction->problem() : std::string();
    if (!problem.empty()) throw Error(fmt::format("{}: {}", result.spec.text(), problem), ExitCode::kGateFailed);
  }
}

int run(const Arguments& arguments) {
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
  std::vector<PointResult> results;
  std::optional<OpenClosedReport> open_closed;
  {
    Observer observer(arguments, steps, writer ? &*writer : nullptr);
    options.observer = &observer;
    results = replay(trace, request.points, options, pool);
    if (closed) open_closed = compare_open_closed(trace, *closed, pool, options);
  }
  const std::vector<ReplayPoint> points = price_points(request, trace.manifest(), results);
  const ReplayAnswer answer{request, trace.manifest(), options.seed,
                            results, points,           open_closed ? &*open_closed : nullptr};
  if (writer) {
    writer->close();
    if (!arguments.quiet) fmt::print(stderr, "{}: {} kept sets\n", request.kept->string(), writer->lines());
  }
  const Format format = format_of(arguments);
  write_result(arguments, format == Format::kJson  ? replay_json(answer)
                          : format == Format::kCsv ? replay_csv(answer)
                                                   : replay_table(answer));
  if (format == Format::kCsv && !arguments.quiet) print_notes(replay_notes(answer));
  check_reproduction(results);
  return 0;
}

}  // namespace

Command replay_command() {
  return {"replay",
          "what policies would have kept, read and lost on a recorded run, and how long a step would take",
          "run.kvt [options]",
          kExamples,
          &describe,
          &run,
          1,
          1};
}

}  // namespace kvroof
