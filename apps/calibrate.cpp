// kvroof calibrate: a device file of what this host, a recorded run or a table of kernels measured.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>

#include "apps/calibrate_from.hpp"
#include "apps/command.hpp"
#include "kernels/cpu/calibration.hpp"
#include "sim/core/suggest.hpp"
#include "sim/device/calibration_version.hpp"
#include "sim/device/device.hpp"

namespace kvroof {
namespace {

namespace po = boost::program_options;
using F = DeviceField;

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  return name;
}

// The value of "key : value" in one of the kernel's text files; empty when it is not there.
std::string kernel_fact(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (line.compare(0, key.size(), key) != 0 || colon == std::string::npos) continue;
    const std::size_t first = line.find_first_not_of(" \t", colon + 1);
    return first == std::string::npos ? std::string() : line.substr(first);
  }
  return {};
}

std::string today() { return fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr))); }

// Four digits: more than such measurements are worth.
double rounded(double x) { return std::strtod(fmt::format("{:.4g}", x).c_str(), nullptr); }

Device to_device(const CpuCalibration& c) {
  const std::string host = host_name();
  const std::string source = fmt::format("kvroof calibrate on {}, {}, {} thread{}, best of repeated runs", host,
                                         today(), c.threads, c.threads == 1 ? "" : "s");
  Device device;
  const std::string model = kernel_fact("/proc/cpuinfo", "model name");
  device.name = "cpu";
  device.title = fmt::format("{} ({})", model.empty() ? "CPU" : model, host);
  device.vendor = kernel_fact("/proc/cpuinfo", "vendor_id");
  device.kind = DeviceKind::kCpu;
  device.memory_type = MemoryType::kDdr;
  // A spread above 2 says no more than that the machine was busy; the format of devices ends there.
  const auto put = [&](F field, double value, double spread) {
    device.fact(field) = Fact{rounded(value), Provenance::kMeasured, source, rounded(std::min(spread, 2.0))};
  };
  const auto share = [](const Measured& part, const Measured& limit) { return std::min(1.0, part.rate / limit.rate); };
  const Measured& weights = c.products.back().weights;  // bf16
  put(F::kUsableMib, std::strtod(kernel_fact("/proc/meminfo", "MemAvailable").c_str(), nullptr) / 1024, 0);
  put(F::kBandwidthGbPerS, c.read.rate / 1e9, c.read.spread);
  put(F::kPeakFp32Tflops, c.multiply_add.rate / 1e12, c.multiply_add.spread);
  put(F::kL2Mib, static_cast<double>(c.cache_bytes) / (1 << 20), 0);
  put(F::kSmCount, c.threads, 0);
  put(F::kLinearFraction, share(weights, c.paired_read), weights.spread);
  put(F::kLinearT0Us, c.linear_start_seconds * 1e6, 0.5);
  put(F::kAttentionFraction, share(c.attention, c.paired_read), c.attention.spread);
  put(F::kAttentionFloorUs, c.attention_start_seconds * 1e6, 0.5);
  put(F::kElementwiseUs, c.elementwise_seconds * 1e6, 0.5);
  put(F::kMatmulFraction, share(c.matmul, c.multiply_add), c.matmul.spread);
  return device;
}

// The curves behind the facts, as comments: for people, and for whoever wonders about a share.
std::string curves(const CpuCalibration& c) {
  std::string text = fmt::format("# Uncached reads of {} MiB, by threads:\n", c.uncached_bytes >> 20);
  for (const ThreadSample& s : c.by_threads) {
    text += fmt::format("#   {:>4} threads  {:8.1f} GB/s   empty parallel loop {:7.2f} us\n", s.threads,
                        s.read.rate / 1e9, s.barrier_seconds * 1e6);
  }
  text += fmt::format("# Reads by working set, {} threads:\n", c.threads);
  for (const SizeSample& s : c.by_size) {
    text += fmt::format("#   {:>9} KiB  {:8.1f} GB/s\n", s.bytes >> 10, s.read.rate / 1e9);
  }
  text += fmt::format("# Copy past the caches, read and written: {:.1f} GB/s\n", c.copy.rate / 1e9);
  text += fmt::format("# Matrix-vector products, share of a read in turn with them ({:.1f} GB/s):\n",
                      c.paired_read.rate / 1e9);
  for (const ProductSample& s : c.products) {
    text += fmt::format("#   {:<5} {:8.1f} GB/s  {:5.1f} %\n", name_of(s.type), s.weights.rate / 1e9,
                        100 * s.weights.rate / c.paired_read.rate);
  }
  return text;
}

nlohmann::ordered_json json_of(const Measured& m, const char* unit) {
  return {{unit, m.rate}, {"relative_spread", m.spread}};
}

// The facts as `kvroof devices show` has them, and the curves behind them.
std::string calibration_json(const CpuCalibration& c, const Device& device) {
  constexpr const char* kBytes = "bytes_per_s";
  nlohmann::ordered_json json = {{"device", device.name},
                                 {"title", device.title},
                                 {"threads", c.threads},
                                 {"cache_bytes", c.cache_bytes},
                                 {"uncached_bytes", c.uncached_bytes}};
  json["facts"] = nlohmann::ordered_json::parse(format_json_rows(device_facts(device)));
  for (const ThreadSample& s : c.by_threads) {
    json["reads_by_threads"].push_back(
        {{"threads", s.threads}, {"read", json_of(s.read, kBytes)}, {"empty_loop_us", s.barrier_seconds * 1e6}});
  }
  for (const SizeSample& s : c.by_size) {
    json["reads_by_size"].push_back({{"bytes", s.bytes}, {"read", json_of(s.read, kBytes)}});
  }
  json["copy"] = json_of(c.copy, kBytes);
  json["read_in_turn"] = json_of(c.paired_read, kBytes);
  for (const ProductSample& s : c.products) {
    json["products"].push_back({{"type", name_of(s.type)}, {"weights", json_of(s.weights, kBytes)}});
  }
  json["attention"] = json_of(c.attention, kBytes);
  json["multiply_add"] = json_of(c.multiply_add, "flops_per_s");
  json["matrix_product"] = json_of(c.matmul, "flops_per_s");
  return json.dump(2) + "\n";
}

std::string file_of(const Device& device) {
  std::string file = fmt::format("calibration: {}\n", kCalibrationVersion) + device_to_yaml(device);
  (void)device_from_yaml(file).or_throw("calibrate: the measurements make no valid device");
  return file;
}

std::string_view title_of(KernelKind kind) {
  constexpr std::array<std::string_view, 3> kTitles = {"matrix products", "attention", "attention calls by themselves"};
  return kTitles[static_cast<std::size_t>(kind)];
}

// What each kind of kernel said, on stderr: the file is the result.
void print_fits(const std::vector<KernelFit>& fits, bool of_run) {
  for (const KernelFit& fit : fits) {
    const std::string_view what = of_run ? "decode steps" : title_of(fit.kind);
    std::vector<std::string> facts;
    for (const F field : fit.facts) facts.emplace_back(device_fields()[static_cast<std::size_t>(field)].key);
    if (!fit.refused.empty()) {
      const std::string set = facts.empty() ? "nothing" : join(facts) + " alone";
      fmt::print(stderr, "{}: {} is set: {}\n", what, set, fit.refused);
      continue;
    }
    fmt::print(stderr, "{}: {} samples set {}; {} off by {:.1f} % on average\n", what, fit.samples, join(facts),
               of_run ? "they are" : "every other one, fitted to the rest, is", 100 * fit.test_error);
  }
}

int run_from(const Arguments& arguments) {
  const auto& path = arguments.get<std::string>("from");
  if (!arguments.has("device")) {
    throw usage_error("--from needs --device: the device that was measured, whose other facts stay as they are");
  }
  std::vector<KernelFit> fits;
  const Device device = calibrated_from(path, arguments.get<std::string>("device"), fits);
  print_fits(fits, device.kind == DeviceKind::kCpu);
  if (std::all_of(fits.begin(), fits.end(), [](const KernelFit& f) { return f.facts.empty(); })) {
    throw Error(fmt::format("{}: its samples determine no fact of {}", path, device.name));
  }
  if (arguments.has("out") || format_of(arguments) == Format::kTable) write_result(arguments, file_of(device));
  if (format_of(arguments) == Format::kJson) fmt::print("{}", format_json_rows(device_facts(device)));
  if (format_of(arguments) == Format::kCsv) fmt::print("{}", format_csv(device_facts(device)));
  return 0;
}

int run_calibrate(const Arguments& arguments) {
  if (arguments.has("from")) return run_from(arguments);
  const std::string& name = arguments.get<std::string>("device");
  if (name != "cpu") {
    const std::vector<std::string> known = {"cpu"};
    throw usage_error(fmt::format("--device {}: calibrate measures the cpu{}; --from F fits other devices to tables of "
                                  "kernels and to recorded traces",
                                  name, did_you_mean(name, known)));
  }
  Progress progress(arguments, "calibrating");
  const CpuCalibration c =
      calibrate_cpu(arguments.threads, [&](unsigned done, unsigned total) { progress.at(done, total); });
  const Device device = to_device(c);
  const std::string file = file_of(device) + curves(c);
  const Format format = format_of(arguments);
  // -o is the device file, whatever is printed.
  if (arguments.has("out") || format == Format::kTable) write_result(arguments, file);
  if (format == Format::kJson) fmt::print("{}", calibration_json(c, device));
  if (format == Format::kCsv) fmt::print("{}", format_csv(device_facts(device)));
  return 0;
}

void describe_calibrate(po::options_description_easy_init add) {
  add("device", po::value<std::string>()->default_value("cpu"),
      "what to measure: cpu; with --from: what was measured, a name or a file");
  add("from", po::value<std::string>(), "fit to these measurements instead: a .csv of kernels, or a recorded trace");
}

}  // namespace

Command calibrate_command() {
  return {"calibrate",
          "measure this host, or fit a device to recorded kernels, and write it as a device file",
          "[--device cpu | --from F --device D] [-o F]",
          "  kvroof calibrate --device cpu -o cpu.yaml\n"
          "  kvroof calibrate --from kernels.csv --device h100-sxm -o mine.yaml\n"
          "  kvroof calibrate --from run.kvt --device cpu.yaml -o fitted.yaml\n"
          "  kvroof calibrate --format json\n"
          "  kvroof replay run.kvt --policy full,h2o --budget 0.5 --device cpu.yaml",
          describe_calibrate,
          run_calibrate};
}

}  // namespace kvroof
