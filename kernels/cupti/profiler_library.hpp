// CUPTI's profiler by name: what counters a chip has, what a device lets us read, and values out of counter data.
// Empty where CUPTI's headers are not.
#pragma once

#if defined(KVROOF_CUPTI_HEADERS)

#include <cupti.h>
#include <cupti_pmsampling.h>
#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_range_profiler.h>
#include <cupti_target.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cupti/cupti_library.hpp"
#include "kernels/cupti/metric_catalog.hpp"
#include "kernels/cupti/metric_sets.hpp"
#include "sim/core/error.hpp"

namespace kvroof {

// A parameter block of CUPTI, which says its own size.
#define KVROOF_PARAMS(Type, name) \
  Type name{};                    \
  name.structSize = Type##_STRUCT_SIZE

#define KVROOF_PROFILER_FUNCTIONS(F)            \
  F(cuptiGetResultString)                       \
  F(cuptiProfilerInitialize)                    \
  F(cuptiProfilerDeInitialize)                  \
  F(cuptiProfilerDeviceSupported)               \
  F(cuptiDeviceGetChipName)                     \
  F(cuptiProfilerGetCounterAvailability)        \
  F(cuptiProfilerHostInitialize)                \
  F(cuptiProfilerHostDeinitialize)              \
  F(cuptiProfilerHostGetMetricProperties)       \
  F(cuptiProfilerHostConfigAddMetrics)          \
  F(cuptiProfilerHostGetConfigImageSize)        \
  F(cuptiProfilerHostGetConfigImage)            \
  F(cuptiProfilerHostGetNumOfPasses)            \
  F(cuptiProfilerHostEvaluateToGpuValues)       \
  F(cuptiRangeProfilerEnable)                   \
  F(cuptiRangeProfilerDisable)                  \
  F(cuptiRangeProfilerGetCounterDataSize)       \
  F(cuptiRangeProfilerCounterDataImageInitialize) \
  F(cuptiRangeProfilerSetConfig)                \
  F(cuptiRangeProfilerStart)                    \
  F(cuptiRangeProfilerStop)                     \
  F(cuptiRangeProfilerPushRange)                \
  F(cuptiRangeProfilerPopRange)                 \
  F(cuptiRangeProfilerDecodeData)               \
  F(cuptiRangeProfilerGetCounterDataInfo)       \
  F(cuptiRangeProfilerCounterDataGetRangeInfo)  \
  F(cuptiPmSamplingGetCounterAvailability)      \
  F(cuptiPmSamplingEnable)                      \
  F(cuptiPmSamplingDisable)                     \
  F(cuptiPmSamplingSetConfig)                   \
  F(cuptiPmSamplingGetCounterDataSize)          \
  F(cuptiPmSamplingCounterDataImageInitialize)  \
  F(cuptiPmSamplingStart)                       \
  F(cuptiPmSamplingStop)                        \
  F(cuptiPmSamplingDecodeData)                  \
  F(cuptiPmSamplingGetCounterDataInfo)          \
  F(cuptiPmSamplingCounterDataGetSampleInfo)

struct ProfilerFunctions {
#define KVROOF_MEMBER(name) decltype(&::name) name = nullptr;
  KVROOF_PROFILER_FUNCTIONS(KVROOF_MEMBER)
#undef KVROOF_MEMBER
  // Empty: it was done. Otherwise what was being done and CUPTI's answer, with a remedy where there is one.
  [[nodiscard]] std::string answer(std::string_view doing, CUptiResult result) const;
};

// A failure names the function that the library lacks.
Result<ProfilerFunctions> find_profiler(const CuptiLibrary& library);

using Image = std::vector<std::uint8_t>;

// A host object of CUPTI for a chip. `availability`: of the device's counters; empty: all of the chip's.
class HostObject {
 public:
  HostObject(const ProfilerFunctions& cupti, const std::string& chip, CounterMode mode, const Image& availability = {});
  HostObject(const HostObject&) = delete;
  HostObject& operator=(const HostObject&) = delete;
  ~HostObject();

  [[nodiscard]] CUptiResult result() const { return result_; }  // of its making; nothing below is asked after a failure
  [[nodiscard]] bool has(const std::string& metric) const;
  // Metrics stay once added, so that each set takes an object of its own.
  [[nodiscard]] Result<Image> configure(const std::vector<std::string>& metrics) const;
  [[nodiscard]] Result<std::size_t> passes(const Image& configuration) const;
  // Of a range or a sample of a counter data image, in the order of the metrics.
  [[nodiscard]] Result<std::vector<double>> values(const Image& counters, std::size_t index,
                                                   const std::vector<std::string>& metrics) const;

 private:
  const ProfilerFunctions& cupti_;
  CUpti_Profiler_Host_Object* host_ = nullptr;
  CUptiResult result_ = CUPTI_SUCCESS;
};

// The chip's counters; with `availability` as far as a device gives them.
Result<std::unique_ptr<MetricCatalog>> make_catalog(const ProfilerFunctions& cupti, const std::string& chip,
                                                    CounterMode mode, const Image& availability);

// The profiler is initialised while anyone uses it: CUPTI does not count, and a second end crashes.
class ProfilerUse {
 public:
  explicit ProfilerUse(const ProfilerFunctions& cupti) : cupti_(cupti) {}
  ProfilerUse(const ProfilerUse&) = delete;
  ProfilerUse& operator=(const ProfilerUse&) = delete;
  ~ProfilerUse();
  std::string begin();

 private:
  ProfilerFunctions cupti_;
  bool begun_ = false;
};

// What a device counts in a mode, in one pass.
struct DeviceCounters {
  std::shared_ptr<ProfilerUse> use;
  Image availability;  // CUPTI's header does not say whether the host object copies it
  std::unique_ptr<HostObject> host;
  ResolvedMetrics metrics;
  Image configuration;
  std::vector<const char*> names;  // of the metrics
};

// Of device 0, whose context is the thread's current one. A failure says why nothing can be counted: what the device
// or its configuration does not support, a permission, another profiler, a set of more than one pass.
Result<DeviceCounters> open_device_counters(const ProfilerFunctions& cupti, const MetricSet& set);

}  // namespace kvroof

#endif
