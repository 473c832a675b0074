#include "apps/calibrate/calibrate_cuda.hpp"

#include <fmt/format.h>

#include <cmath>

#include "analysis/device_names.hpp"
#include "apps/calibrate/calibration_file.hpp"
#include "apps/cli/command.hpp"
#include "apps/cli/data_folder.hpp"
#include "kvroof_version.hpp"

namespace kvroof {
namespace {

void refuse_impossible_streams(const Device& device, const CudaCalibration& c) {
  for (const CudaStream& s : c.streams) {
    if (s.rate <= kAboveLimit * device.bandwidth().value) continue;
    const double mib = static_cast<double>(s.bytes) / (1 << 20), percent = 100 * s.rate / device.bandwidth().value;
    throw Error(fmt::format("calibration: a {} of {:.4g} MiB reached {:.1f} GB/s, {:.1f} % of what {} can",
                            s.kind, mib, s.rate / 1e9, percent, device.name))
        .note("the device's bandwidth_gb_per_s is too low, or the data lay in a cache");
  }
}

constexpr const char* kNameOfFile = "the file's `name:` has to consist of words of the driver's name, joined by `-`";

// Boards and parts of boards that have one name with the device.
void refuse_other_board(const Device& device, const CudaBoard& gpu) {
  constexpr double kOtherMemory = 0.1;  // what drivers keep for themselves is less
  const auto& cores = device.fact(DeviceField::kSmCount);
  if (cores && gpu.multiprocessors > 0 && cores->value != gpu.multiprocessors) {
    throw usage_error(fmt::format("{}: the GPU here has {} multiprocessors, the device {:g}: it is another board, or a "
                                  "part of one", gpu.name, gpu.multiprocessors, cores->value));
  }
  const double has = static_cast<double>(gpu.total_bytes), stated = static_cast<double>(device.usable_memory().value);
  if (has > 0 && std::abs(has / stated - 1) > kOtherMemory) {
    throw usage_error(fmt::format("{}: the GPU here has {:.1f} GiB of memory, the device {:.1f}: it is another board, "
                                  "or a part of one", gpu.name, has / (1 << 30), stated / (1 << 30)));
  }
}

std::string source_of(const CudaCalibration& c) {
  std::string clocks;
  if (c.sm_clock_khz > 0) {
    clocks = fmt::format("clocks up to {} and {} MHz (memory), ", c.sm_clock_khz / 1000, c.memory_clock_khz / 1000);
  }
  const std::string driver =
      c.driver > 0 ? fmt::format("driver of CUDA {}.{}, ", c.driver / 1000, c.driver % 1000 / 10) : "";
  const std::string library = c.library.empty() ? "" : " and, for more than one token, of " + c.library;
  return fmt::format("kvroof calibrate on {}, {}{}{}, kernels of kvroof {}{}", c.device, driver, clocks, today(),
                     kVersion, library);
}

}  // namespace

Device calibrated_device(const CudaBoard& gpu, const std::optional<std::string>& base) {
  const std::filesystem::path catalog = data_folder() / "catalog";
  const auto known = catalog_name_of(gpu.name, catalog);
  if (!base && !known) {
    throw usage_error(fmt::format("the GPU here, {}, is not in the catalog: its bandwidth and peak are needed",
                                  gpu.name))
        .note("write a device file with its datasheet's facts, as catalog/devices/h200.yaml, for --device; "
              "--backend cpu measures the CPU")
        .note(kNameOfFile);
  }
  Device device = find_device(base.value_or(known.value_or("")), catalog);
  // A board that the catalog knows goes by its name there: the name of another may be a part of it.
  const bool same = known ? *known == device.name : name_of_words(gpu.name, {device.name}).has_value();
  if (!same) {
    throw usage_error(fmt::format("--device {}: the GPU here is {}{}: a calibration is of one device", *base, gpu.name,
                                  known ? ", in the catalog " + *known : ""))
        .note(kNameOfFile);
  }
  refuse_other_board(device, gpu);
  return device;
}

std::vector<KernelFit> fit_calibration(Device& device, const CudaCalibration& measured) {
  refuse_impossible_streams(device, measured);
  std::vector<KernelSample> samples;
  for (const CudaSample& s : measured.samples) {
    const KernelKind kind = s.attention ? KernelKind::kAttention : KernelKind::kProduct;
    samples.push_back({kind, s.bytes, s.flops, s.seconds, s.what});
  }
  return fit_kernels(device, samples, source_of(measured));
}

std::string cuda_curves(const CudaCalibration& c, const Device& device) {
  const auto share = [&](double rate) { return 100 * rate / device.bandwidth().value; };
  std::string text = fmt::format("# An empty kernel in a train of them: {:.2f} us\n", c.empty_kernel_seconds * 1e6);
  text += fmt::format("# Streams of cold memory, share of {} GB/s:\n", device.value(DeviceField::kBandwidthGbPerS));
  for (const CudaStream& s : c.streams) {
    text += fmt::format("#   {:<5} {:>9} KiB  {:8.1f} GB/s  {:5.1f} %\n", s.kind, s.bytes >> 10, s.rate / 1e9,
                        share(s.rate));
  }
  text += "# Kernels on cold data:\n";
  for (const CudaSample& s : c.samples) {
    text += fmt::format("#   {:<66} {:10.2f} us  {:8.1f} GB/s  {:5.1f} %  {:8.2f} TFLOP/s\n", s.what, s.seconds * 1e6,
                        s.bytes / s.seconds / 1e9, share(s.bytes / s.seconds), s.flops / s.seconds / 1e12);
  }
  return text;
}

void add_cuda_curves(nlohmann::ordered_json& json, const CudaCalibration& c) {
  json["gpu"] = c.device;
  json["cuda_driver"] = c.driver;
  json["sm_clock_khz"] = c.sm_clock_khz;
  json["memory_clock_khz"] = c.memory_clock_khz;
  json["empty_kernel_us"] = c.empty_kernel_seconds * 1e6;
  json["library"] = c.library;
  json["cut"] = c.cut;
  for (const CudaStream& s : c.streams) {
    json["streams"].push_back(
        {{"kind", s.kind}, {"bytes", s.bytes}, {"bytes_per_s", s.rate}, {"relative_spread", s.spread}});
  }
  for (const CudaSample& s : c.samples) {
    json["kernels"].push_back({{"what", s.what}, {"bytes", s.bytes}, {"flops", s.flops}, {"us", s.seconds * 1e6}});
  }
}

}  // namespace kvroof
