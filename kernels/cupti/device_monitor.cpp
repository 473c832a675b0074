#include "kernels/cupti/device_monitor.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>

#include "sim/core/monotonic.hpp"

namespace kvroof {
namespace {

constexpr std::array kNvmlFiles = {"libnvidia-ml.so.1"};
constexpr int kSmClock = 1, kMemoryClock = 2;  // nvmlClockType_t
constexpr int kChipSensor = 0;                 // nvmlTemperatureSensors_t

// Of nvml.h, whose functions return 0 for success. Their numbers and names are the same in every driver since 2012.
struct Nvml {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  const char* (*error_text)(int) = nullptr;
  int (*device_at)(const char* pci_bus, void** device) = nullptr;
  int (*clock)(void* device, int type, unsigned* mhz) = nullptr;
  int (*power)(void* device, unsigned* mw) = nullptr;
  int (*temperature)(void* device, int sensor, unsigned* celsius) = nullptr;

  // Null, or the function that the library lacks.
  const char* find(void* library) {
    const auto is_here = [library](auto& function, const char* name) { return find_function(library, name, function); };
    if (!is_here(init, "nvmlInit_v2")) return "nvmlInit_v2";
    if (!is_here(shutdown, "nvmlShutdown")) return "nvmlShutdown";
    if (!is_here(error_text, "nvmlErrorString")) return "nvmlErrorString";
    if (!is_here(device_at, "nvmlDeviceGetHandleByPciBusId_v2")) return "nvmlDeviceGetHandleByPciBusId_v2";
    if (!is_here(clock, "nvmlDeviceGetClockInfo")) return "nvmlDeviceGetClockInfo";
    if (!is_here(power, "nvmlDeviceGetPowerUsage")) return "nvmlDeviceGetPowerUsage";
    if (!is_here(temperature, "nvmlDeviceGetTemperature")) return "nvmlDeviceGetTemperature";
    return nullptr;
  }
  [[nodiscard]] std::string why(const char* doing, int result) const {
    const char* const text = error_text(result);
    return fmt::format("NVML, {}: {} ({})", doing, text != nullptr ? text : "unknown error", result);
  }
};

class NvmlMonitor final : public DeviceMonitor {
 public:
  explicit NvmlMonitor(const Nvml& nvml) : nvml_(nvml) {}
  NvmlMonitor(const NvmlMonitor&) = delete;
  NvmlMonitor& operator=(const NvmlMonitor&) = delete;
  ~NvmlMonitor() override {
    if (begun_) nvml_.shutdown();
  }

  // Empty, or why not.
  std::string open(const std::string& pci_bus) {
    if (const int result = nvml_.init()) return nvml_.why("starting", result);
    begun_ = true;
    if (const int result = nvml_.device_at(pci_bus.c_str(), &device_)) {
      return nvml_.why(fmt::format("looking for the device at {}", pci_bus).c_str(), result);
    }
    const EnvironmentRecord now = read();
    const bool tells = now.sm_clock_mhz + now.memory_clock_mhz + now.power_mw + now.temperature_c > 0;
    return tells ? "" : fmt::format("NVML tells nothing of the device at {}", pci_bus);
  }

  EnvironmentRecord read() override {
    EnvironmentRecord now;
    now.time_ns = monotonic_ns();
    unsigned value = 0;
    if (nvml_.clock(device_, kSmClock, &value) == 0) now.sm_clock_mhz = value;
    if (nvml_.clock(device_, kMemoryClock, &value) == 0) now.memory_clock_mhz = value;
    if (nvml_.power(device_, &value) == 0) now.power_mw = value;
    if (nvml_.temperature(device_, kChipSensor, &value) == 0) now.temperature_c = value;
    return now;
  }

 private:
  Nvml nvml_;
  void* device_ = nullptr;
  bool begun_ = false;
};

}  // namespace

Result<std::unique_ptr<DeviceMonitor>> open_device_monitor(const Machine& machine, const std::string& pci_bus) {
  std::unique_ptr<DeviceMonitor> opened;
  const TakeLibrary take = [&](void* library, const std::string& path) {
    Nvml nvml;
    if (const char* const lacking = nvml.find(library)) return fmt::format("{} has no {}", path, lacking);
    auto monitor = std::make_unique<NvmlMonitor>(nvml);
    std::string why = monitor->open(pci_bus);
    if (why.empty()) opened = std::move(monitor);
    return why;
  };
  if (std::string why = open_library(machine, kNvmlFiles, RTLD_NOW | RTLD_LOCAL, take); !why.empty()) {
    return Failure{why};
  }
  return opened;
}

// CUDA_VISIBLE_DEVICES may make any GPU the first one, and NVML does not heed it.
Result<std::string> pci_bus_of_device() {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) return failure("there is no NVIDIA driver");
  auto* const init = function_of<int(unsigned)>(driver, "cuInit");
  auto* const bus = function_of<int(char*, int, int)>(driver, "cuDeviceGetPCIBusId");
  if (init == nullptr || bus == nullptr) return failure("the driver does not say which device is its first");
  init(0);  // where it fails, so does the question
  std::array<char, 32> text{};
  if (const int result = bus(text.data(), static_cast<int>(text.size()), 0)) {
    return failure("which device is the first: the driver answers {}", result);
  }
  return std::string(text.data());
}

}  // namespace kvroof
