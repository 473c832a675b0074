#include "apps/validate/validate_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "apps/cli/data_folder.hpp"
#include "apps/cli/messages.hpp"
#include "apps/cli/output.hpp"
#include "apps/prediction/intervals.hpp"
#include "apps/replay/replay_points.hpp"
#include "sim/cost/cost.hpp"
#include "sim/cost/engine_profile.hpp"
#include "traces/reader.hpp"

namespace kvroof {
namespace {

struct TimedStep {
  double measured = 0;  // seconds
  Estimate predicted;
};

// A decode step of the recording: what it read is what the engine counted, of its mean sequence.
ResidencySummary summary_of(const StepRecord& step, const ModelShape& shape, const TrafficTypes& types,
                            const ResidencySummary& full) {
  ResidencySummary r = full;
  const std::uint64_t row = row_bytes(shape, types.kv);
  r.decode = {};
  r.decode.attended = step.bytes[Cause::kKvRead] / row;
  r.decode.written = step.bytes[Cause::kKvWrite] / row;
  r.decode.moved = step.bytes[Cause::kCompaction] / (2 * row);  // read and written
  r.decode.state_read = step.bytes[Cause::kScores];
  r.decode_steps = std::max(step.sequences, 1U);
  return r;
}

// Of the rows that were counted: with a residual window they are written in its float16.
KvType counted_type(const TraceManifest& manifest) {
  const KvType cache = cache_type_of(manifest);
  return cache.by_age() ? KvType(cache.rows()) : cache;
}

// Steps with their bytes and times are all that is compared, so a run of the engine need not hold attention.
TraceReader open_steps(const std::filesystem::path& path) {
  TraceReader trace = TraceReader::open(path);
  return of_own_engine(trace.manifest()) ? trace : TraceReader::open_attention(path);
}

// Tokens of the first prompt. Of a run without attention it is told by the rows that its step wrote.
std::uint32_t first_prompt(const TraceReader& trace, const ModelShape& shape) {
  if (has_attention(trace.manifest())) return trace.manifest().sequences.front().prompt;
  const std::uint64_t token = row_bytes(shape, counted_type(trace.manifest())) * shape.kv_heads * shape.layers;
  for (const StepRecord& step : trace.steps()) {
    if (step.phase == "prefill") return static_cast<std::uint32_t>(step.bytes[Cause::kKvWrite] / token);
  }
  return 0;
}

std::vector<TimedStep> timed_steps(const TraceReader& trace, const CostModel& cost, const IntervalGroup& intervals) {
  const ResidencySummary full = full_attention_summary(cost.shape(), first_prompt(trace, cost.shape()), 1);
  std::vector<TimedStep> steps;
  for (const StepRecord& step : trace.steps()) {
    if (step.phase != "decode" || step.end_ns <= step.start_ns) continue;
    const ResidencySummary r = summary_of(step, cost.shape(), cost.types(), full);
    const Reach reach{static_cast<double>(r.decode_steps), static_cast<double>(full.prompt), 1};
    const Prediction p = with_factors(cost.predict(r, r.decode_steps), intervals.at(reach));
    steps.push_back({1e-9 * static_cast<double>(step.end_ns - step.start_ns), p.step});
  }
  return steps;
}

// Of at least one step; of an even number the mean of the two in the middle.
double median_of_steps(std::vector<double> seconds) {
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return seconds.size() % 2 == 1 ? *middle : (*middle + *std::max_element(seconds.begin(), middle)) / 2;
}

// The median measured step of a part of the run, the mean predicted one, and how many lie inside their intervals.
void add_part(Table& table, const std::string& part, std::span<const TimedStep> steps) {
  std::vector<double> measured;
  Estimate mean{};
  double inside80 = 0, inside95 = 0;
  for (const TimedStep& s : steps) {
    measured.push_back(s.measured);
    for (double Estimate::* field :
         {&Estimate::value, &Estimate::low80, &Estimate::high80, &Estimate::low95, &Estimate::high95}) {
      mean.*field += 1e3 * s.predicted.*field / static_cast<double>(steps.size());
    }
    inside80 += s.measured >= s.predicted.low80 && s.measured <= s.predicted.high80 ? 1 : 0;
    inside95 += s.measured >= s.predicted.low95 && s.measured <= s.predicted.high95 ? 1 : 0;
  }
  const double median = 1e3 * median_of_steps(std::move(measured)), n = static_cast<double>(steps.size());
  const auto row = [&](const char* number, const char* share, double times) {
    const auto text = [&](double x) { return fmt::format(fmt::runtime(number), x); };
    const auto part_of = [&](double x) { return fmt::format(fmt::runtime(share), times * x); };
    return std::vector<std::string>{part, std::to_string(steps.size()), text(median), text(mean.value),
                                    text(mean.low80), text(mean.high80), text(mean.low95), text(mean.high95),
                                    part_of(mean.value / median - 1), part_of(inside80 / n), part_of(inside95 / n)};
  };
  table.rows.push_back(row("{:.4g}", "{:.1f} %", 100));
  table.raw_rows.push_back(row("{}", "{}", 1));
}

// The steps of one machine say nothing of the predictions for another.
void require_recorded_on(const Device& device, const TraceReader& trace) {
  const std::string& backend = trace.manifest().backend;
  const bool gpu = backend == "cuda", cpu = backend == "fast" || backend == "reference";
  if (device.kind == DeviceKind::kCpu ? !gpu : !cpu) return;
  throw usage_error(fmt::format("{}: recorded on a {} (backend {}), but {} is a {}", trace.path().string(),
                                gpu ? "GPU" : "CPU", backend, device.name, gpu ? "CPU" : "GPU"))
      .note(gpu ? "--device takes the GPU that ran it"
                : "`kvroof calibrate --backend cpu -o cpu.yaml` measures this machine; `kvroof replay` predicts a GPU");
}

// A run of one new token has none but the prompt's step, which makes it.
Error nothing_to_compare(const std::string& path, const TraceReader& trace) {
  const bool decodes = std::ranges::any_of(trace.steps(), [](const StepRecord& s) { return s.phase == "decode"; });
  if (decodes) return usage_error(fmt::format("{}: no decode step has a time, as in imported tensors", path));
  return usage_error(
             fmt::format("{}: the run has no decode step to compare: its prompt gives the first new token", path))
      .note("`kvroof record --max-tokens 128` makes some");
}

}  // namespace

int validate_trace(const Arguments& arguments) {
  if (!arguments.has("device")) {
    throw usage_error("validate of a recorded run needs --device, the one that ran it: a name, or a calibrated file")
        .note("`kvroof calibrate -o F.yaml` makes such a file of this machine's GPU, with --backend cpu of its CPU");
  }
  const TraceReader trace = open_steps(arguments.positional[0]);
  const TraceManifest& manifest = trace.manifest();
  const std::filesystem::path catalog = data_folder() / "catalog";
  const Device device = find_device(arguments.get<std::string>("device"), catalog);
  require_recorded_on(device, trace);
  const EngineProfile engine = default_engine_profile(device.kind, catalog);
  const CostModel cost(shape_of(manifest), TrafficTypes{manifest.weight_type, counted_type(manifest)}, device, engine);
  const std::vector<TimedStep> steps = timed_steps(trace, cost, interval_group(device, cost, "step"));
  if (steps.empty()) throw nothing_to_compare(arguments.positional[0], trace);
  Table table;
  table.columns = {{"decode steps", "part", false}, {"steps", "steps"},       {"measured (median) ms", "measured_ms"},
                   {"predicted ms", "predicted_ms"}, {"80 % low", "low80_ms"}, {"high", "high80_ms"},
                   {"95 % low", "low95_ms"},         {"high", "high95_ms"},    {"error", "error"},
                   {"inside 80 %", "inside80"},      {"inside 95 %", "inside95"}};
  add_part(table, "all", steps);
  const std::size_t quarter = std::max<std::size_t>(steps.size() / 4, 1);
  add_part(table, "first quarter", std::span(steps).first(quarter));
  add_part(table, "last quarter", std::span(steps).last(quarter));
  write_table(arguments, table);
  if (!arguments.quiet && format_of(arguments) == Format::kTable) {
    say("bytes of each step as the engine counted them{}\n",
        has_attention(manifest) ? "; recording costs time itself, up to a tenth" : "");
    const double weights = static_cast<double>(weight_bytes(cost.shape(), manifest.weight_type).value) / (1 << 20);
    const auto& cache = device.fact(DeviceField::kL2Mib);
    if (cache && weights < cache->value && device.working_sets.empty()) {
      say(
          "the weights, {:.0f} MiB, fit into the cache of {:.0f} MiB: steps of so small a model are faster than "
          "predicted reads from memory; `kvroof calibrate --backend cpu` measures such sets\n",
          weights, cache->value);
    }
  }
  return 0;
}

}  // namespace kvroof
