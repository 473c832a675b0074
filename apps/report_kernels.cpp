// kvroof report-kernels: time and bytes of each operator against the device's limit.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "analysis/device_names.hpp"
#include "analysis/kernel_report.hpp"
#include "apps/command.hpp"
#include "apps/kernel_report_output.hpp"
#include "apps/values.hpp"
#include "traces/kernel_reader.hpp"
#include "traces/reader.hpp"

namespace kvroof {
namespace {

namespace po = boost::program_options;

constexpr std::uint32_t kMostRows = 1'000'000;
constexpr std::uint64_t kProgressRows = 1U << 16;

// --device, else the device that the trace names where the catalog has it.
std::optional<Device> device_of(const Arguments& arguments, const KernelReader& reader) {
  const std::filesystem::path catalog = data_folder() / "catalog";
  if (arguments.has("device")) return find_device(arguments.get<std::string>("device"), catalog);
  for (const DeviceRecord& recorded : reader.devices()) {
    const auto name = catalog_name_of(recorded.name, catalog_device_names(catalog));
    if (name) return find_device(*name, catalog);
  }
  return std::nullopt;
}

KernelReport make_report(const Arguments& arguments, const KernelReader& reader, const KernelCounts& counts) {
  Progress progress(arguments, "reading kernels");
  KernelReportBuilder builder;
  std::uint64_t done = 0;
  const std::uint64_t all = counts.kernels + counts.copies + counts.fills;
  reader.for_each_work([&](const WorkRow& row) {
    builder.add(row);
    if (++done % kProgressRows == 0) progress.at(done, all);
  });
  reader.for_each_counter([&](const CounterRecord& counter) { builder.add(counter); });
  reader.for_each_step([&](std::uint32_t step, const ByteCounters& bytes) { builder.add_step(step, bytes); });
  return builder.finish();
}

void print_limit(const std::optional<Device>& device, const KernelReader& reader) {
  if (device) {
    const auto& fact = device->fact(DeviceField::kBandwidthGbPerS);
    fmt::print(stderr, "limit: {:.6g} GB/s, {} ({})\n", device->bandwidth().value / 1e9, device->name,
               name_of(fact->provenance));
    return;
  }
  const std::vector<DeviceRecord> devices = reader.devices();
  const std::string recorded = devices.empty() ? "no device is recorded"
                                               : fmt::format("the catalog has no device \"{}\"", devices[0].name);
  fmt::print(stderr, "no limit to compare with: {}; --device NAME gives one\n", recorded);
}

// Why no kernel is set against the limit, where none can be.
void print_without_bytes(const KernelReport& report) {
  const CountedBytes& counted = report.all_kernels.counted;
  if (report.all_kernels.bytes > 0 || counted.any() || report.operators.empty()) return;
  fmt::print(stderr,
             "times alone: the recording does not say what a kernel reads and writes, so none is set against the "
             "limit; `kvroof record --cupti trace` of the engine's own runs does, and PyTorch's profiler with "
             "record_shapes=True\n");
}

// The refusal of a profile that was not imported.
void require_imported(const std::filesystem::path& path) {
  const std::string extension = path.extension().string();
  const char* const from = extension == ".json" || extension == ".gz" ? "kineto" : extension == ".sqlite" ? "nsys" : "";
  std::error_code error;
  if (*from == '\0' || !std::filesystem::is_regular_file(path, error)) return;
  throw usage_error(fmt::format("{} is a profile, not a trace", path.string()))
      .note(fmt::format("`kvroof import {} {} -o profile.kvt` makes one of it", from, path.string()));
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
    if (lost || std::find(kTold.begin(), kTold.end(), fact) != kTold.end()) fmt::print(stderr, "{}: {}\n", key, value);
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
  fmt::print(stderr, "counted: DRAM moved {:.6g} MB in {} steps, {:.3f} of what was declared for them; {}\n",
             all.bytes / 1e6, steps, all.ratio(),
             by_operator ? "each operator was launched and counted by itself, rates are those of declared bytes"
                         : "counters cover steps, not operators, whose bytes and rates are the declared ones "
                           "(--by step; `record --ranges operator` counts operators)");
}

RecordedLevel level_of(const KernelReader& reader, const KernelCounts& counts) {
  RecordedLevel recorded;
  for (const auto& [key, value] : reader.notes()) {
    if (key == "level") recorded.level = value;
    if (key == "why") recorded.why = value;
  }
  if (counts.kernels > 0 || recorded.level.empty() || !recorded.why.empty()) return recorded;
  recorded.why = counts.counters > 0 ? "kernels come from `--cupti trace`; `--by step` shows the counters"
                                     : "what was recorded launched no kernel";
  return recorded;
}

int run_report(const Arguments& arguments) {
  const std::filesystem::path path = arguments.positional[0];
  const std::string& by = arguments.get<std::string>("by");
  if (by != "operator" && by != "purpose" && by != "step") {
    throw usage_error(fmt::format("--by {}: expected operator, purpose or step", by));
  }
  const std::uint32_t top = count_value("top", arguments.get<std::string>("top"), 0, kMostRows);
  require_imported(path);
  static_cast<void>(TraceReader::open(path));  // checks seal and checksums
  const KernelReader reader = KernelReader::open(path);
  const KernelCounts counts = reader.counts();
  const RecordedLevel recorded = level_of(reader, counts);
  const KernelReport report = make_report(arguments, reader, counts);
  const bool work = !report.operators.empty() || !report.copies.empty();
  const bool nothing = !work && (counts.counters == 0 || by != "step");
  if (nothing && recorded.level.empty()) {
    throw usage_error(fmt::format("{} has no kernel records{}", path.string(),
                                  counts.counters > 0 ? "; `--by step` shows its counters" : ""))
        .note("they come from `kvroof record --cupti trace`, `kvroof record -- CMD` and `kvroof import nsys|kineto`");
  }
  const KernelAnswer answer{report, device_of(arguments, reader), top, recorded};
  if (nothing && format_of(arguments) != Format::kJson) {
    write_table(arguments, nothing_table(recorded));
    return 0;
  }
  if (!nothing && by == "step" && report.steps.empty() && report.counted.empty()) {
    throw usage_error(fmt::format("{} does not say which step a kernel belongs to", path.string()))
        .note("`kvroof record --cupti trace` of the engine's own runs writes it");
  }
  if (!arguments.quiet && !nothing) {
    print_limit(answer.device, reader);
    print_without_bytes(report);
    print_notes(reader);
    if (by != "step") print_counted(report);
  }
  if (format_of(arguments) == Format::kJson) {
    write_result(arguments, kernel_report_json(answer));
  } else {
    write_table(arguments, by == "step"      ? step_table(answer)
                           : by == "purpose" ? purpose_table(answer)
                                             : operator_table(answer));
  }
  return 0;
}

void describe_report(po::options_description_easy_init add) {
  add("by", po::value<std::string>()->default_value("operator"),
      "rows of the table: operator (or kernel), purpose (gemm, attention, …) or step");
  add("top", po::value<std::string>()->default_value("20"), "so many rows at most (0: all)");
  add("device", po::value<std::string>(), "compare with this device (default: the recorded one)");
}

}  // namespace

Command report_kernels_command() {
  return {"report-kernels",
          "time and bytes of each operator or kernel against the device's limit",
          "run.kvt [--by operator|purpose|step] [--top N] [--device NAME]",
          "  kvroof report-kernels run.kvt\n"
          "  kvroof report-kernels run.kvt --by step --format csv -o steps.csv\n"
          "  kvroof import nsys report.sqlite -o run.kvt && kvroof report-kernels run.kvt --device h100-sxm\n"
          "  kvroof report-kernels run.kvt --by purpose    (gemm, attention, … of a program of others)",
          describe_report,
          run_report,
          1,
          1};
}

}  // namespace kvroof
