// kvroof report-kernels: time and bytes of each operator against the device's limit.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "analysis/device_names.hpp"
#include "analysis/kernel_report.hpp"
#include "analysis/range_report.hpp"
#include "analysis/roofline.hpp"
#include "apps/cli/command.hpp"
#include "apps/cli/data_folder.hpp"
#include "apps/cli/messages.hpp"
#include "apps/cli/output.hpp"
#include "apps/cli/progress.hpp"
#include "apps/cli/shared_options.hpp"
#include "apps/cli/values.hpp"
#include "apps/traces/kernel_report_output.hpp"
#include "apps/traces/recorded_level.hpp"
#include "sim/core/counted.hpp"
#include "sim/core/files.hpp"
#include "sim/core/suggest.hpp"
#include "traces/kernel_reader.hpp"
#include "traces/reader.hpp"

namespace kvroof {
namespace {

namespace po = boost::program_options;

constexpr std::uint32_t kMostRows = 1'000'000;
constexpr std::uint64_t kProgressRows = 1U << 16;

// What kernels took on each device of each process, in ns.
using DeviceTimes = std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t>;

// Names of the GPUs that kernels ran on, those with most of their time first; of a recording without kernels, all.
std::vector<std::string> busy_devices(const KernelReader& reader, const DeviceTimes& times) {
  std::map<std::string, std::uint64_t> by_name;
  for (const auto& [device, ns] : times) by_name[std::string(reader.device_name(device.first, device.second))] += ns;
  by_name.erase("");
  std::vector<std::string> names;
  for (const auto& [name, ns] : by_name) names.push_back(name);
  std::ranges::stable_sort(names, std::greater(), [&](const std::string& name) { return by_name[name]; });
  if (names.empty()) {
    for (const DeviceRecord& recorded : reader.devices()) names.emplace_back(recorded.name);
  }
  return names;
}

// --device, else the first of the recorded ones that the catalog has.
std::optional<Device> device_of(const Arguments& arguments, const std::vector<std::string>& recorded) {
  const std::filesystem::path catalog = data_folder() / "catalog";
  if (arguments.has("device")) return find_device(arguments.get<std::string>("device"), catalog);
  for (const std::string& device : recorded) {
    const auto name = catalog_name_of(device, catalog);
    if (name) return find_device(*name, catalog);
  }
  return std::nullopt;
}

KernelReport make_report(const Arguments& arguments, const KernelReader& reader, const KernelCounts& counts,
                         RooflineBuilder& roofline, DeviceTimes& times) {
  Progress progress(arguments, "reading kernels");
  KernelReportBuilder builder;
  std::uint64_t done = 0;
  const std::uint64_t all = counts.kernels + counts.copies + counts.fills;
  reader.for_each_work([&](const WorkRow& row) {
    builder.add(row);
    if (row.kind == WorkKind::kKernel) times[{row.work.process, row.work.device}] += row.own_ns();
    if (arguments.has("svg")) roofline.add(row);
    if (++done % kProgressRows == 0) progress.at(done, all);
  });
  reader.for_each_counter([&](const CounterRecord& counter) { builder.add(counter); });
  reader.for_each_step(
      [&](std::uint32_t step, std::string_view, const ByteCounters& bytes) { builder.add_step(step, bytes); });
  return builder.finish();
}

void print_limit(const std::optional<Device>& device, const std::vector<std::string>& recorded) {
  if (device) {
    const auto& fact = device->fact(DeviceField::kBandwidthGbPerS);
    say("limit: {:.6g} GB/s, {} ({})\n", device->bandwidth().value / 1e9, device->name,
        name_of(fact->provenance));
    if (recorded.size() > 1) {
      say("kernels of several devices are set against that one: {}\n", join(recorded, ", "));
    }
    return;
  }
  const std::string why = recorded.empty() ? "no device is recorded"
                                           : fmt::format("the catalog has no device \"{}\"", recorded[0]);
  say("no limit to compare with: {}; --device NAME gives one\n", why);
}

// Why no kernel is set against the limit, where none can be.
void print_without_bytes(const KernelReport& report) {
  const CountedBytes& counted = report.all_kernels.counted;
  if (report.all_kernels.bytes > 0 || counted.any() || report.operators.empty()) return;
  say(
      "times alone: the recording does not say what a kernel reads and writes, so none is set against the "
      "limit; `kvroof record --cupti trace` of the engine's own runs does, and PyTorch's profiler with "
      "record_shapes=True\n");
}

// Where processes may share a GPU, each waits for the other's work, which is then no idle time.
void print_unknown_gpus(const KernelReport& report) {
  if (report.without_gpu == 0) return;
  say("the recording does not say which GPU {} of its processes ran on: each is timed as if it had one of its own\n",
      report.without_gpu);
}

// The refusal of a profile that was not imported.
void require_imported(const std::filesystem::path& path) {
  const std::string extension = path.extension().string();
  const bool report = extension == ".nsys-rep", nsys = report || extension == ".sqlite";
  std::error_code error;
  if ((!nsys && extension != ".json" && extension != ".gz") || !std::filesystem::is_regular_file(path, error)) return;
  const std::string file = report ? std::filesystem::path(path).replace_extension(".sqlite").string() : path.string();
  const std::string exported = fmt::format("`nsys export --type sqlite {}` makes {} of it, and ", path.string(), file);
  throw usage_error(fmt::format("{} is a profile, not a trace", path.string()))
      .note(fmt::format("{}`kvroof import {} {} -o profile.kvt` makes one of {}", report ? exported : "",
                        nsys ? "nsys" : "kineto", file, report ? "that" : "it"));
}

// What a reader of the table must know of its recording.
void print_notes(const KernelReader& reader) {
  constexpr std::array<std::string_view, 8> kTold = {
      "emulated",      "why",          "ended_early", "graphs_unexplained", "kernels_unexplained",
      "meanings_lost", "whole_graphs", "left_out"};
  for (const auto& [key, value] : reader.notes()) {
    // Notes of a process are "process 4711: dropped".
    const std::size_t colon = key.find(": ");
    const std::string_view fact = std::string_view(key).substr(colon == std::string::npos ? 0 : colon + 2);
    const bool lost = fact == "dropped" && value != "0";
    if (lost || std::find(kTold.begin(), kTold.end(), fact) != kTold.end()) say("{}: {}\n", key, value);
  }
}

// What the counters say of all operators, and what they cover.
void print_counted(const KernelReport& report) {
  CountedBytes all;
  std::uint64_t steps = 0;
  for (const CountedSteps& c : report.counted) {
    if (!c.counted.comparable()) continue;
    all += c.counted;
    steps += c.steps;
  }
  if (steps == 0) return;
  const bool by_operator = report.all_kernels.counted.comparable();
  if (by_operator) all = report.all_kernels.counted;
  say("counted: DRAM moved {:.6g} MB in {}, {:.3f} of what was declared for them; {}\n",
      all.bytes / 1e6, counted(steps, "step"), all.ratio(),
      by_operator ? "each operator was launched and counted by itself, rates are those of declared bytes"
                  : "counters cover steps, not operators, whose bytes and rates are the declared ones "
                    "(--by step; `record --ranges operator` counts operators)");
}

std::map<std::uint32_t, std::string> phases_of(const KernelReader& reader) {
  std::map<std::uint32_t, std::string> phases;
  reader.for_each_step([&](std::uint32_t step, std::string_view phase, const ByteCounters&) { phases[step] = phase; });
  return phases;
}

bool is_emulated(const KernelReader& reader) {
  const auto notes = reader.notes();
  return std::any_of(notes.begin(), notes.end(), [](const auto& note) { return note.first == "emulated"; });
}

// The picture of --svg. Throws Error (usage) where it would be empty.
std::string roofline_of(const std::filesystem::path& path, const std::optional<Device>& device,
                        const Roofline& roofline, bool emulated) {
  if (!device) {
    throw usage_error("--svg: the roof is not known, as the recording names no device of the catalog")
        .note("--device NAME gives one");
  }
  if (roofline.marks.empty()) {
    throw usage_error(fmt::format("--svg: no kernel of {} has declared operations, so none has a place in the picture",
                                  path.string()))
        .note("`kvroof record --cupti trace` of the engine's own runs declares them, and PyTorch's profiler with "
              "record_shapes=True for products in 16 bits");
  }
  const Roof roof{device->bandwidth().value, device->peak(DType::kBF16).value};
  const std::string name = (path / "").parent_path().filename().string();  // of run.kvt/ as of run.kvt
  return roofline_svg(fmt::format("{}{} against the roof of {} ({})", name, emulated ? " (emulated)" : "", device->name,
                                  name_of(device->fact(DeviceField::kBandwidthGbPerS)->provenance)),
                      roof, roofline);
}

void print_left_out(const Roofline& roofline) {
  if (roofline.left_out.empty()) return;
  say("picture: without declared operations, {:.3g} % of the kernels' time, and left out: {}\n",
      100 * roofline.left_out_share, join(roofline.left_out, ", "));
}

// Throws Error (usage) where the recording has none.
RangeReport ranges_of(const std::filesystem::path& path, const KernelCounts& counts) {
  if (counts.ranges == 0) {
    throw usage_error(fmt::format("{} has no ranges of the application", path.string()))
        .note("they are NVTX's of a program under `kvroof record -- CMD` or `kvroof import nsys`, and PyTorch's "
              "record_function under `kvroof import kineto`");
  }
  RangeReportBuilder builder;
  for_each_range_and_work(
      path, [&](const ThreadRange& range) { builder.add(range); },
      [&](const LaunchedWork& work) { builder.add(work); });
  return builder.finish();
}

// What --by names.
struct View {
  std::string_view name;
  Table (*table)(const KernelAnswer& answer);
};
constexpr std::array kViews = {View{"operator", operator_table}, View{"purpose", purpose_table},
                               View{"step", step_table}, View{"range", range_table}};

int run_report(const Arguments& arguments) {
  const std::filesystem::path path = arguments.positional[0];
  const std::string& by = arguments.get<std::string>("by");
  const auto* const view = std::ranges::find(kViews, by, &View::name);
  if (view == kViews.end()) {
    throw usage_error(fmt::format("--by {}: expected operator, purpose, step or range", by));
  }
  const std::uint32_t top = count_value("top", arguments.get<std::string>("top"), 0, kMostRows);
  const std::string svg = svg_file(arguments);
  require_imported(path);
  static_cast<void>(TraceReader::open(path));  // checks seal and checksums
  const KernelReader reader = KernelReader::open(path);
  const KernelCounts counts = reader.counts();
  const RecordedLevel recorded = recorded_level(reader, counts);
  RooflineBuilder drawn(phases_of(reader));
  DeviceTimes times;
  const KernelReport report = make_report(arguments, reader, counts, drawn, times);
  const std::vector<std::string> devices = busy_devices(reader, times);
  const bool work = !report.operators.empty() || !report.copies.empty();
  const bool nothing = !work && (counts.counters == 0 || by != "step");
  if (nothing && recorded.level.empty()) {
    throw usage_error(fmt::format("{} has no kernel records{}", path.string(),
                                  counts.counters > 0 ? "; `--by step` shows its counters" : ""))
        .note("they come from `kvroof record --cupti trace`, `kvroof record -- CMD` and `kvroof import nsys|kineto`");
  }
  // A program that reads steps wants each of them.
  const bool all_steps = !arguments.has("top") && format_of(arguments) != Format::kTable;
  KernelAnswer answer{report, device_of(arguments, devices), top, all_steps ? 0 : top, recorded};
  if (by == "range" && !nothing) answer.ranges = ranges_of(path, counts);
  if (!svg.empty()) {
    const Roofline roofline = drawn.finish(top);
    write_text_file(svg, roofline_of(path, answer.device, roofline, is_emulated(reader)));
    if (!arguments.quiet) print_left_out(roofline);
  }
  if (nothing && format_of(arguments) != Format::kJson) {
    write_table(arguments, nothing_table(recorded));
    return 0;
  }
  if (!nothing && by == "step" && report.steps.empty() && report.counted.empty()) {
    throw usage_error(fmt::format("{} does not say which step a kernel belongs to", path.string()))
        .note("`kvroof record --cupti trace` of the engine's own runs writes it");
  }
  if (!arguments.quiet && !nothing) {
    print_limit(answer.device, devices);
    print_without_bytes(report);
    print_unknown_gpus(report);
    print_notes(reader);
    if (by != "step") print_counted(report);
  }
  if (format_of(arguments) == Format::kJson) {
    write_result(arguments, kernel_report_json(answer));
  } else {
    Table table = view->table(answer);
    if (format_of(arguments) == Format::kTable) table = for_people(std::move(table));
    write_table(arguments, table);
  }
  return 0;
}

void describe_report(po::options_description_easy_init add) {
  add("by", po::value<std::string>()->default_value("operator"),
      "rows of the table: operator (or kernel), purpose (gemm, attention, …), step, or range: what the application's "
      "ranges (NVTX) launched");
  add("top", po::value<std::string>()->default_value("20"),
      "so many rows, and the others as one (0: all; of steps in csv and json all, unless given)");
  add("device", po::value<std::string>(), "compare with this device (default: the recorded one)");
  add("svg", po::value<std::string>(), "write the roofline of the operators to this file");
}

}  // namespace

Command report_kernels_command() {
  return {"report-kernels",
          "time and bytes of each operator or kernel against the device's limit",
          "run.kvt [--by operator|purpose|step|range] [--top N] [--device NAME] [--svg F]",
          "  kvroof report-kernels run.kvt\n"
          "  kvroof report-kernels run.kvt --by step --format csv -o steps.csv\n"
          "  kvroof report-kernels run.kvt --device h100-sxm --svg roofline.svg\n"
          "  kvroof import nsys report.sqlite -o run.kvt && kvroof report-kernels run.kvt --device h100-sxm\n"
          "  kvroof report-kernels run.kvt --by purpose    (gemm, attention, … of a program of others)\n"
          "  kvroof report-kernels run.kvt --by range      (what each NVTX range of a program launched)",
          describe_report,
          run_report,
          1,
          1};
}

}  // namespace kvroof
