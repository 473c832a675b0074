// kvroof export: a trace as a file for other tools.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>

#include "apps/cli/command.hpp"
#include "apps/cli/data_folder.hpp"
#include "apps/cli/messages.hpp"
#include "apps/cli/output.hpp"
#include "apps/cli/shared_options.hpp"
#include "apps/cli/unfinished_file.hpp"
#include "apps/replay/replay_points.hpp"
#include "apps/traces/export_timeline.hpp"
#include "apps/traces/recorded_level.hpp"
#include "sim/core/files.hpp"
#include "sim/core/suggest.hpp"

namespace fs = std::filesystem;
namespace po = boost::program_options;

namespace kvroof {
namespace {

// `why`: an errno; 0: not known.
[[noreturn]] void cannot_write(const fs::path& path, int why) {
  throw Error(fmt::format("{}: cannot be written: {}", path.string(),
                          why == 0 ? "disk full, or not allowed" : std::strerror(why)));
}

bool is_simulated(const Arguments& arguments) {
  return arguments.has("policy") || arguments.has("device") || arguments.has("budget");
}

std::vector<TimelineStep> simulate(const Arguments& arguments, const TraceReader& trace, const PolicySpec& policy,
                                   const Device& device, std::uint64_t start_ns) {
  ThreadPool pool(arguments.threads);
  ReplayOptions options;
  options.seed = arguments.has("seed") ? arguments.seed : trace.manifest().seed;
  options.measure = {.recall = false, .output_error = false};
  const std::vector<PointResult> results = replay(trace, std::span(&policy, 1), options, pool);
  return simulated_steps(trace.manifest(), results.front(), device, start_ns);
}

// Only tensors have what a simulated run needs; of a recording its notes say why it is empty.
Error empty_timeline(const TraceReader& trace, const KernelReader& kernels, const KernelCounts& counts) {
  const std::string path = trace.path().string();
  if (has_attention(trace.manifest())) {
    return usage_error(fmt::format("{}: nothing in it has a time, as in imported tensors", path))
        .note("--policy P --device D draws a simulated run of it");
  }
  const RecordedLevel recorded = recorded_level(kernels, counts);
  if (recorded.level.empty()) return usage_error(fmt::format("{}: nothing in it has a time", path));
  return usage_error(
      fmt::format("{}: nothing was recorded that has a time: level {}, {}", path, recorded.level, recorded.why));
}

void write_timeline(const Arguments& arguments, const TraceReader& trace, Timeline& to) {
  const KernelReader kernels = KernelReader::open(trace.path());
  const KernelCounts counts = kernels.counts();
  const std::vector<TimelineStep> steps = recorded_steps(trace);
  std::uint64_t zero = counts.first_ns;
  if (!steps.empty()) zero = counts.last_ns == 0 ? steps[0].start_ns : std::min(zero, steps[0].start_ns);
  if (zero > 0) zero = kernels.timeline_start(zero);
  const std::string name = (trace.path() / "").parent_path().filename().string();  // of run.kvt/ as of run.kvt
  const std::uint64_t records = counts.kernels + counts.copies + counts.fills + counts.calls + counts.ranges +
                                counts.memory + counts.counters;
  if (!is_simulated(arguments) && records == 0 && steps.empty()) throw empty_timeline(trace, kernels, counts);
  const bool resident_known = std::ranges::all_of(steps, [](const auto& s) { return s.resident_bytes.has_value(); });
  if (!resident_known && !arguments.quiet) {
    say("note: the trace does not say what the cache held after a step, as those of older versions and of other "
        "recorders: KV resident is left out\n");
  }
  TimelineExport timeline(to, zero);
  timeline.run("recorded: " + name, steps, &kernels);
  if (!is_simulated(arguments)) return;
  const Device device = find_device(arguments.get<std::string>("device"), data_folder() / "catalog");
  const std::vector<PolicySpec> policies = policy_points(arguments);
  require_scores(policies);
  if (trace.manifest().model_shape_json.empty() && !arguments.quiet) say("note: {}\n", kAttentionAlone);
  for (const PolicySpec& policy : policies) {
    const std::uint64_t start = steps.empty() ? zero : steps[0].start_ns;
    timeline.run(fmt::format("simulated: {} on {}", policy.text(), device.name),
                 simulate(arguments, trace, policy, device, start), nullptr);
  }
}

void export_timeline(const Arguments& arguments, const TraceReader& trace, const fs::path& out, bool perfetto) {
  const std::string temporary = temporary_name(out);
  try {
    std::optional<UnfinishedFile> unfinished;
    if (temporary != out) unfinished.emplace(temporary);  // first: a signal may come as soon as the file is there
    errno = 0;
    std::ofstream file(temporary, std::ios::binary);
    if (!file) cannot_write(out, errno);
    const auto timeline = perfetto ? perfetto_timeline(file) : chrome_timeline(file);
    write_timeline(arguments, trace, *timeline);
    timeline->finish();
    errno = 0;
    file.close();
    if (!file || std::rename(temporary.c_str(), out.c_str()) != 0) cannot_write(out, errno);
  } catch (...) {
    if (temporary != out) std::remove(temporary.c_str());
    throw;
  }
}

// A file for each table that has rows, in a folder that was not there.
void export_tables(const TraceReader& trace, const fs::path& out) {
  std::error_code error;
  if (fs::exists(out, error)) {
    throw usage_error(fmt::format("{} exists already", out.string())).note("choose another name, or remove it first");
  }
  const UnfinishedFolder unfinished(out);
  if (!fs::create_directory(out, error)) cannot_write(out, error.value());
  try {
    std::ofstream file;
    const auto end_table = [&] {
      errno = 0;
      if (file.is_open()) file.close();
      if (!file) cannot_write(out, errno);
    };
    KernelReader::open(trace.path())
        .for_each_table(
            [&](std::string_view table) {
              end_table();
              file.open(out / (std::string(table) + ".csv"), std::ios::binary);
            },
            [&](const std::vector<std::string_view>& row) {
              for (std::size_t c = 0; c < row.size(); ++c) file << (c > 0 ? "," : "") << csv_field(row[c]);
              file << '\n';
            });
    end_table();
  } catch (...) {
    fs::remove_all(out, error);
    throw;
  }
}

int run_export(const Arguments& arguments) {
  const std::vector<std::string> known = {"perfetto", "chrome", "csv"};
  const std::string& kind = arguments.positional[0];
  if (std::find(known.begin(), known.end(), kind) == known.end()) {
    throw usage_error(fmt::format("export {}: this kind is not known{}", kind, did_you_mean(kind, known)))
        .note("`kvroof export perfetto|chrome|csv run.kvt -o F`");
  }
  if (arguments.positional.size() < 2) throw usage_error(fmt::format("export {}: the trace is missing", kind));
  if (!arguments.has("out")) throw usage_error("-o F is missing: where the result goes");
  const bool simulated = is_simulated(arguments);
  if (kind == "csv" && simulated) {
    throw usage_error("export csv takes neither --policy, --budget nor --device: it writes what was recorded");
  }
  if (simulated && !arguments.has("device")) {
    throw usage_error("--device NAME is missing: what the simulated run runs on");
  }
  const fs::path path = arguments.positional[1];
  const TraceReader trace = simulated ? TraceReader::open_attention(path) : TraceReader::open(path);
  const fs::path out = arguments.get<std::string>("out");
  if (kind == "csv") {
    export_tables(trace, out);
  } else {
    export_timeline(arguments, trace, out, kind == "perfetto");
  }
  return 0;
}

void describe_export(po::options_description_easy_init add) {
  add("policy", po::value<std::string>()->default_value("full"), "simulate the run under these policies beside it");
  add("budget", po::value<std::string>(),
      "for a policy that carries none: 0.5 or 50% (of the prompt), 512 or 4k (tokens)");
  add("device", po::value<std::string>(), "on this device");
}

}  // namespace

Command export_command() {
  return {"export",
          "a trace for other tools: a timeline for Perfetto or Chrome, tables as CSV",
          "perfetto|chrome|csv run.kvt -o F [--policy P --device NAME]",
          "  kvroof export perfetto run.kvt -o run.pftrace    (open it at ui.perfetto.dev)\n"
          "  kvroof export perfetto run.kvt --policy h2o --budget 0.5 --device h200 -o both.pftrace\n"
          "  kvroof export csv run.kvt -o tables/",
          describe_export,
          run_export,
          1,
          2,
          "table",
          "the file, or the folder of the tables"};
}

}  // namespace kvroof
