#include "kernels/cupti/profiler_library.hpp"

#if defined(KVROOF_CUPTI_HEADERS)

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <mutex>
#include <utility>

#include "kernels/libraries/libraries.hpp"

namespace kvroof {
namespace {

// CUPTI opens its host library by name alone, and in a Python package it lies where the loader never looks: CUPTI takes
// what the process has loaded by that name, so it is loaded from beside CUPTI, or else from wherever it is found.
void load_host_library(const std::string& cupti) {
  constexpr const char* kFile = "libnvperf_host.so";
  if (dlopen(kFile, RTLD_NOW | RTLD_NOLOAD) != nullptr) return;
  const std::filesystem::path beside = std::filesystem::path(cupti).parent_path() / kFile;
  if (dlopen(beside.c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr) return;
  for (const std::string& path : find_library(this_host(), kFile)) {
    if (dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr) return;
  }
}

const char* remedy_for(CUptiResult result) {
  switch (result) {
    case CUPTI_ERROR_INSUFFICIENT_PRIVILEGES: return "; counters need root or CAP_PERFMON: `kvroof doctor` says more";
    case CUPTI_ERROR_HARDWARE_BUSY: return "; another profiler or a monitor such as DCGM holds the counters";
    default: return "";
  }
}

CUpti_ProfilerType type_of(CounterMode mode) {
  return mode == CounterMode::kRange ? CUPTI_PROFILER_TYPE_RANGE_PROFILER : CUPTI_PROFILER_TYPE_PM_SAMPLING;
}

// Which part of its configuration keeps a device from being counted.
std::string unsupported(const CUpti_Profiler_DeviceSupported_Params& p) {
  const std::array<std::pair<CUpti_Profiler_Support_Level, const char*>, 6> parts = {
      {{p.architecture, "its architecture"}, {p.sli, "SLI"}, {p.vGpu, "a virtual GPU"},
       {p.confidentialCompute, "confidential computing"}, {p.cmp, "a mining processor"}, {p.wsl, "WSL"}}};
  for (const auto& [level, what] : parts) {
    if (level != CUPTI_PROFILER_CONFIGURATION_SUPPORTED) return fmt::format("the device cannot be counted: {}", what);
  }
  return "the device cannot be counted";
}

std::string check_supported(const ProfilerFunctions& cupti, CounterMode mode) {
  KVROOF_PARAMS(CUpti_Profiler_DeviceSupported_Params, p);
  p.cuDevice = 0;
  p.api = mode == CounterMode::kRange ? CUPTI_PROFILER_RANGE_PROFILING : CUPTI_PROFILER_PM_SAMPLING;
  if (std::string why = cupti.answer("asking what the device supports", cupti.cuptiProfilerDeviceSupported(&p));
      !why.empty()) {
    return why;
  }
  return p.isSupported == CUPTI_PROFILER_CONFIGURATION_SUPPORTED ? std::string() : unsupported(p);
}

// Asked twice: for its size and for itself. Permissions show here first.
template <class Params, class Ask>
Result<Image> availability_of(const ProfilerFunctions& cupti, Params params, const Ask& ask) {
  std::string why = cupti.answer("asking which counters are free", ask(&params));
  if (!why.empty()) return Failure{why};
  Image image(params.counterAvailabilityImageSize);
  params.pCounterAvailabilityImage = image.data();
  why = cupti.answer("asking which counters are free", ask(&params));
  if (!why.empty()) return Failure{why};
  image.resize(params.counterAvailabilityImageSize);
  return image;
}

Result<Image> availability_of(const ProfilerFunctions& cupti, CounterMode mode) {
  if (mode == CounterMode::kRange) {
    KVROOF_PARAMS(CUpti_Profiler_GetCounterAvailability_Params, p);
    return availability_of(cupti, p, cupti.cuptiProfilerGetCounterAvailability);
  }
  KVROOF_PARAMS(CUpti_PmSampling_GetCounterAvailability_Params, p);
  return availability_of(cupti, p, cupti.cuptiPmSamplingGetCounterAvailability);
}

// A question about a set takes a host object of its own.
class LibraryCatalog final : public MetricCatalog {
 public:
  LibraryCatalog(const ProfilerFunctions& cupti, std::string chip, CounterMode mode, Image availability)
      : cupti_(cupti),
        chip_(std::move(chip)),
        mode_(mode),
        availability_(std::move(availability)),
        host_(cupti_, chip_, mode_, availability_) {}

  [[nodiscard]] CUptiResult result() const { return host_.result(); }
  bool has(const std::string& metric) const override { return host_.has(metric); }
  Result<std::size_t> passes(const std::vector<std::string>& metrics) const override {
    const HostObject host(cupti_, chip_, mode_, availability_);
    if (host.result() != CUPTI_SUCCESS) return Failure{cupti_.answer("opening " + chip_, host.result())};
    const Result<Image> image = host.configure(metrics);
    if (!image) return Failure{image.error()};
    return host.passes(image.value());
  }

 private:
  ProfilerFunctions cupti_;
  std::string chip_;
  CounterMode mode_;
  Image availability_;
  HostObject host_;
};

std::mutex g_use_mutex;
std::weak_ptr<ProfilerUse> g_use;

Result<std::shared_ptr<ProfilerUse>> use_profiler(const ProfilerFunctions& cupti) {
  const std::lock_guard lock(g_use_mutex);
  if (auto use = g_use.lock()) return use;
  auto use = std::make_shared<ProfilerUse>(cupti);
  if (const std::string why = use->begin(); !why.empty()) return Failure{why};
  g_use = use;
  return use;
}

}  // namespace

std::string ProfilerFunctions::answer(std::string_view doing, CUptiResult result) const {
  if (result == CUPTI_SUCCESS) return {};
  const char* text = nullptr;
  cuptiGetResultString(result, &text);
  return fmt::format("CUPTI, {}: {} ({}){}", doing, text != nullptr ? text : "unknown error",
                     static_cast<int>(result), remedy_for(result));
}

Result<ProfilerFunctions> find_profiler(const CuptiLibrary& library) {
  ProfilerFunctions functions;
#define KVROOF_FIND(name)                                      \
  if (!find_function(library.handle, #name, functions.name)) \
    return failure("{} has no {}: it counts nothing", library.path, #name);
  KVROOF_PROFILER_FUNCTIONS(KVROOF_FIND)
#undef KVROOF_FIND
  load_host_library(library.path);
  return functions;
}

HostObject::HostObject(const ProfilerFunctions& cupti, const std::string& chip, CounterMode mode,
                       const Image& availability)
    : cupti_(cupti) {
  KVROOF_PARAMS(CUpti_Profiler_Host_Initialize_Params, p);
  p.profilerType = type_of(mode);
  p.pChipName = chip.c_str();
  p.pCounterAvailabilityImage = availability.empty() ? nullptr : availability.data();
  result_ = cupti_.cuptiProfilerHostInitialize(&p);
  if (result_ == CUPTI_SUCCESS) host_ = p.pHostObject;
}

HostObject::~HostObject() {
  if (host_ == nullptr) return;
  KVROOF_PARAMS(CUpti_Profiler_Host_Deinitialize_Params, p);
  p.pHostObject = host_;
  cupti_.cuptiProfilerHostDeinitialize(&p);
}

bool HostObject::has(const std::string& metric) const {
  KVROOF_PARAMS(CUpti_Profiler_Host_GetMetricProperties_Params, p);
  p.pHostObject = host_;
  p.pMetricName = metric.c_str();
  return cupti_.cuptiProfilerHostGetMetricProperties(&p) == CUPTI_SUCCESS;
}

Result<Image> HostObject::configure(const std::vector<std::string>& metrics) const {
  constexpr const char* kDoing = "choosing counters";
  std::vector<const char*> names;
  for (const std::string& metric : metrics) names.push_back(metric.c_str());
  KVROOF_PARAMS(CUpti_Profiler_Host_ConfigAddMetrics_Params, add);
  add.pHostObject = host_;
  add.ppMetricNames = names.data();
  add.numMetrics = names.size();
  if (const auto r = cupti_.cuptiProfilerHostConfigAddMetrics(&add)) return Failure{cupti_.answer(kDoing, r)};
  KVROOF_PARAMS(CUpti_Profiler_Host_GetConfigImageSize_Params, size);
  size.pHostObject = host_;
  if (const auto r = cupti_.cuptiProfilerHostGetConfigImageSize(&size)) return Failure{cupti_.answer(kDoing, r)};
  Image image(size.configImageSize);
  KVROOF_PARAMS(CUpti_Profiler_Host_GetConfigImage_Params, get);
  get.pHostObject = host_;
  get.configImageSize = image.size();
  get.pConfigImage = image.data();
  if (const auto r = cupti_.cuptiProfilerHostGetConfigImage(&get)) return Failure{cupti_.answer(kDoing, r)};
  return image;
}

Result<std::size_t> HostObject::passes(const Image& configuration) const {
  KVROOF_PARAMS(CUpti_Profiler_Host_GetNumOfPasses_Params, p);
  p.configImageSize = configuration.size();
  p.pConfigImage = const_cast<std::uint8_t*>(configuration.data());
  if (const auto r = cupti_.cuptiProfilerHostGetNumOfPasses(&p)) return Failure{cupti_.answer("counting passes", r)};
  return p.numOfPasses;
}

Result<std::vector<double>> HostObject::values(const Image& counters, std::size_t index,
                                               const std::vector<std::string>& metrics) const {
  std::vector<const char*> names;
  for (const std::string& metric : metrics) names.push_back(metric.c_str());
  std::vector<double> values(names.size());
  KVROOF_PARAMS(CUpti_Profiler_Host_EvaluateToGpuValues_Params, p);
  p.pHostObject = host_;
  p.pCounterDataImage = counters.data();
  p.counterDataImageSize = counters.size();
  p.rangeIndex = index;
  p.ppMetricNames = names.data();
  p.numMetrics = names.size();
  p.pMetricValues = values.data();
  if (const auto r = cupti_.cuptiProfilerHostEvaluateToGpuValues(&p)) {
    return Failure{cupti_.answer("reading values", r)};
  }
  return values;
}

std::string ProfilerUse::begin() {
  KVROOF_PARAMS(CUpti_Profiler_Initialize_Params, p);
  std::string why = cupti_.answer("starting the profiler", cupti_.cuptiProfilerInitialize(&p));
  begun_ = why.empty();
  return why;
}

ProfilerUse::~ProfilerUse() {
  if (!begun_) return;
  KVROOF_PARAMS(CUpti_Profiler_DeInitialize_Params, p);
  cupti_.cuptiProfilerDeInitialize(&p);
}

Result<std::unique_ptr<MetricCatalog>> make_catalog(const ProfilerFunctions& cupti, const std::string& chip,
                                                    CounterMode mode, const Image& availability) {
  auto catalog = std::make_unique<LibraryCatalog>(cupti, chip, mode, availability);
  if (catalog->result() != CUPTI_SUCCESS) return Failure{cupti.answer("opening chip " + chip, catalog->result())};
  return std::unique_ptr<MetricCatalog>(std::move(catalog));
}

Result<DeviceCounters> open_device_counters(const ProfilerFunctions& cupti, const MetricSet& set) {
  DeviceCounters opened;
  auto use = use_profiler(cupti);
  if (!use) return Failure{use.error()};
  opened.use = std::move(use).value();
  if (std::string why = check_supported(cupti, set.mode); !why.empty()) return Failure{why};
  KVROOF_PARAMS(CUpti_Device_GetChipName_Params, chip);
  if (const auto r = cupti.cuptiDeviceGetChipName(&chip)) return Failure{cupti.answer("asking for the chip", r)};
  const std::string name = chip.pChipName;
  auto availability = availability_of(cupti, set.mode);
  if (!availability) return Failure{availability.error()};
  opened.availability = std::move(availability).value();
  const auto catalog = make_catalog(cupti, name, set.mode, opened.availability);
  if (!catalog) return Failure{catalog.error()};
  auto metrics = resolve_metrics(set, *catalog.value());
  if (!metrics) return Failure{metrics.error()};
  opened.metrics = std::move(metrics).value();
  opened.host = std::make_unique<HostObject>(cupti, name, set.mode, opened.availability);
  if (opened.host->result() != CUPTI_SUCCESS) return Failure{cupti.answer("opening " + name, opened.host->result())};
  auto image = opened.host->configure(opened.metrics.names);
  if (!image) return Failure{image.error()};
  opened.configuration = std::move(image).value();
  for (const std::string& metric : opened.metrics.names) opened.names.push_back(metric.c_str());
  return opened;
}

}  // namespace kvroof

#endif
