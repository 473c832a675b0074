#include "apps/calibrate/calibrate_cpu.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "apps/calibrate/calibration_file.hpp"

namespace kvroof {
namespace {

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

// Four digits: more than such measurements are worth.
double rounded(double x) { return std::strtod(fmt::format("{:.4g}", x).c_str(), nullptr); }

nlohmann::ordered_json json_of(const Measured& m, const char* unit) {
  return {{unit, m.rate}, {"relative_spread", m.spread}};
}

}  // namespace

Device cpu_device(const CpuCalibration& c) {
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
  put(F::kLinearT0Us, c.small_linear_start.seconds * 1e6, c.small_linear_start.spread);
  put(F::kAttentionFraction, share(c.attention, c.paired_read), c.attention.spread);
  put(F::kAttentionFloorUs, c.attention_start.seconds * 1e6, c.attention_start.spread);
  put(F::kElementwiseUs, c.elementwise.seconds * 1e6, c.elementwise.spread);
  put(F::kMatmulFraction, share(c.matmul, c.multiply_add), c.matmul.spread);
  for (const SetSample& s : c.by_working_set) {
    // Both swing with the same machine; products are what most of a step is, and start less often.
    const double spread = std::min(s.product.spread, 2.0);
    device.working_sets.push_back({static_cast<double>(s.bytes) / (1 << 20), rounded(s.product.rate / 1e9),
                                   rounded(s.attention.rate / 1e9), rounded(spread)});
  }
  return device;
}

std::string cpu_curves(const CpuCalibration& c) {
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

void add_cpu_curves(nlohmann::ordered_json& json, const CpuCalibration& c) {
  constexpr const char* kBytes = "bytes_per_s";
  json["threads"] = c.threads;
  json["cache_bytes"] = c.cache_bytes;
  json["uncached_bytes"] = c.uncached_bytes;
  for (const ThreadSample& s : c.by_threads) {
    json["reads_by_threads"].push_back(
        {{"threads", s.threads}, {"read", json_of(s.read, kBytes)}, {"empty_loop_us", s.barrier_seconds * 1e6}});
  }
  for (const SizeSample& s : c.by_size) {
    json["reads_by_size"].push_back({{"bytes", s.bytes}, {"read", json_of(s.read, kBytes)}});
  }
  for (const SetSample& s : c.by_working_set) {
    json["working_sets"].push_back({{"bytes", s.bytes}, {"weights", json_of(s.product, kBytes)},
                                    {"attention", json_of(s.attention, kBytes)}});
  }
  json["copy"] = json_of(c.copy, kBytes);
  json["read_in_turn"] = json_of(c.paired_read, kBytes);
  for (const ProductSample& s : c.products) {
    json["products"].push_back({{"type", name_of(s.type)}, {"weights", json_of(s.weights, kBytes)}});
  }
  json["attention"] = json_of(c.attention, kBytes);
  json["multiply_add"] = json_of(c.multiply_add, "flops_per_s");
  json["matrix_product"] = json_of(c.matmul, "flops_per_s");
}

}  // namespace kvroof
