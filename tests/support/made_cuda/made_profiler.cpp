// CUPTI's profiler without a GPU: answers in the order that the real one asks for, and counts what a test says.
#include <cupti_pmsampling.h>
#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_range_profiler.h>
#include <cupti_target.h>

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <mutex>
#include <string>
#include <vector>

#include "tests/support/made_cuda/made.hpp"

namespace {

struct Range {
  std::string name;
  double moved = 0;
};
struct Sample {
  std::uint64_t start = 0, end = 0;
  double value = 0;
};

// What has been done so far; a call out of order is an invalid operation.
struct State {
  int initialised = 0, hosts = 0;
  bool idle = true;  // waited for since the last kernel
  int configurations = 0;  // since the range profiler was enabled
  bool enabled = false, prepared = false, configured = false, started = false, in_range = false;
  std::size_t most = 0;  // ranges or samples in an image
  std::vector<Range> ranges, submitted, decoded;
  std::vector<Sample> waiting, completed;
  std::size_t taken = 0;  // samples, by earlier calls
  std::size_t images = 0;
  std::string refused;
  CUptiResult refusal = CUPTI_ERROR_UNKNOWN;
  std::size_t passes = 1;
  bool overflow = false, one_pass = true;
};
State g_state;
std::mutex g_waiting;  // the device samples while another thread decodes
std::atomic<bool> g_sampling{false};
int g_object = 0;
constexpr double kBytesOfKernel = 1000;

// What a function answers before it does anything: the test's refusal, a block of another size, or a wrong order.
template <class Params>
CUptiResult check(const char* function, const Params* p, std::size_t size, bool order) {
  if (g_state.refused == function) return g_state.refusal;
  if (const long wished = made::wish(function); wished > 0) return static_cast<CUptiResult>(wished);
  if (p->structSize != size || p->pPriv != nullptr) {
    return made::complain(function, "a block of another size", CUPTI_ERROR_INVALID_PARAMETER);
  }
  return order ? CUPTI_SUCCESS : made::complain(function, "out of order, or with parameters that do not fit");
}
#define MADE_CHECK(Type, order)                                                              \
  if (const CUptiResult r = check(__func__, p, Type##_STRUCT_SIZE, order); r != CUPTI_SUCCESS) return r

template <class Params>
CUptiResult availability(Params* p) {
  if (p->pCounterAvailabilityImage != nullptr && p->counterAvailabilityImageSize != 24) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  p->counterAvailabilityImageSize = 24;
  if (p->pCounterAvailabilityImage != nullptr) std::memset(p->pCounterAvailabilityImage, 7, 24);
  return CUPTI_SUCCESS;
}

// With "sized_ranges", "image_ranges" or "configured_ranges" that call takes no more ranges in an image than so many.
bool too_many(const char* name) {
  const long most = made::wish(name);
  return most > 0 && g_state.most > static_cast<std::size_t>(most);
}

// With "bad_sample" that sample of the run, counted from 1, cannot be read; with "bad_image" that image of it cannot be
// decoded.
bool spoilt(const char* name, std::size_t number) { return made::wish(name) == static_cast<long>(number); }

// With "idle" ranges begin and end only where the driver was asked to wait for the device.
bool idle_as_wished() { return g_state.idle || made::wish("idle") < 0; }

void sample(std::uint64_t start, std::uint64_t end, double value) {
  const std::lock_guard lock(g_waiting);
  if (g_sampling) g_state.waiting.push_back({start, end, value});
}

}  // namespace

// A range counts it, and the sampler has a sample of it.
void made::count_kernel(std::uint64_t start_ns, std::uint64_t end_ns) {
  g_state.idle = false;
  if (g_state.in_range) g_state.ranges.back().moved += kBytesOfKernel;
  if (!g_sampling) return;
  const bool of_device = wish("device_clock") >= 0;  // it is an hour ahead
  const std::uint64_t start = of_device ? start_ns + 3'600'000'000'000 : time_of(start_ns, wish("own_clock") >= 0);
  sample(start, start + (end_ns - start_ns), kBytesOfKernel);
}

extern "C" {

void made_reset() {
  g_state = {};
  g_sampling = false;
}
void made_refuse(const char* function, int result) {
  g_state.refused = function;
  g_state.refusal = static_cast<CUptiResult>(result);
}
// The driver was asked to wait for the device; what it answers.
int made_synchronized() {
  g_state.idle = true;
  return static_cast<int>(std::max(0L, made::wish("cuCtxSynchronize")));
}
void made_passes(std::size_t passes) { g_state.passes = passes; }
void made_one_pass(bool one) { g_state.one_pass = one; }
void made_overflow() { g_state.overflow = true; }
// The device moves so many bytes.
void made_move(double bytes) {
  if (g_state.in_range) g_state.ranges.back().moved += bytes;
}
void made_sample(std::uint64_t start, std::uint64_t end, double value) { sample(start, end, value); }
// 0: everything that was begun has been ended.
int made_open() {
  return g_state.initialised + g_state.hosts + static_cast<int>(g_state.enabled) + static_cast<int>(g_state.started);
}

CUptiResult cuptiProfilerInitialize(CUpti_Profiler_Initialize_Params* p) {
  MADE_CHECK(CUpti_Profiler_Initialize_Params, g_state.initialised == 0);
  ++g_state.initialised;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiProfilerDeInitialize(CUpti_Profiler_DeInitialize_Params* p) {
  MADE_CHECK(CUpti_Profiler_DeInitialize_Params, g_state.initialised == 1 && !g_state.enabled);
  --g_state.initialised;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiProfilerDeviceSupported(CUpti_Profiler_DeviceSupported_Params* p) {
  const bool refused = g_state.refused == __func__ || made::wish(__func__) == 0;
  if (refused) g_state.refused.clear();
  MADE_CHECK(CUpti_Profiler_DeviceSupported_Params, g_state.initialised == 1);
  const auto level = CUPTI_PROFILER_CONFIGURATION_SUPPORTED;
  p->isSupported = p->architecture = p->sli = p->vGpu = p->cmp = p->wsl = p->confidentialCompute = level;
  if (refused) p->isSupported = p->confidentialCompute = CUPTI_PROFILER_CONFIGURATION_UNSUPPORTED;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiDeviceGetChipName(CUpti_Device_GetChipName_Params* p) {
  MADE_CHECK(CUpti_Device_GetChipName_Params, true);
  p->pChipName = "GH100";
  return CUPTI_SUCCESS;
}
CUptiResult cuptiProfilerGetCounterAvailability(CUpti_Profiler_GetCounterAvailability_Params* p) {
  MADE_CHECK(CUpti_Profiler_GetCounterAvailability_Params, g_state.initialised == 1);
  return availability(p);
}
CUptiResult cuptiPmSamplingGetCounterAvailability(CUpti_PmSampling_GetCounterAvailability_Params* p) {
  MADE_CHECK(CUpti_PmSampling_GetCounterAvailability_Params, g_state.initialised == 1);
  return availability(p);
}
CUptiResult cuptiProfilerHostInitialize(CUpti_Profiler_Host_Initialize_Params* p) {
  MADE_CHECK(CUpti_Profiler_Host_Initialize_Params,
             std::strcmp(p->pChipName, "GH100") == 0 && p->pCounterAvailabilityImage != nullptr);
  // The real one opens its host library by name alone, which the loader does not know in a Python package's folder.
  const bool alone = made::wish("package") >= 0 && dlopen("libnvperf_host.so", RTLD_NOW | RTLD_NOLOAD) == nullptr;
  if (alone) return CUPTI_ERROR_NOT_INITIALIZED;
  ++g_state.hosts;
  p->pHostObject = reinterpret_cast<CUpti_Profiler_Host_Object*>(&g_object);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiProfilerHostDeinitialize(CUpti_Profiler_Host_Deinitialize_Params* p) {
  MADE_CHECK(CUpti_Profiler_Host_Deinitialize_Params, g_state.hosts > 0);
  --g_state.hosts;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiProfilerHostGetMetricProperties(CUpti_Profiler_Host_GetMetricProperties_Params* p) {
  MADE_CHECK(CUpti_Profiler_Host_GetMetricProperties_Params, true);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiProfilerHostConfigAddMetrics(CUpti_Profiler_Host_ConfigAddMetrics_Params* p) {
  MADE_CHECK(CUpti_Profiler_Host_ConfigAddMetrics_Params, p->numMetrics > 0);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiProfilerHostGetConfigImageSize(CUpti_Profiler_Host_GetConfigImageSize_Params* p) {
  MADE_CHECK(CUpti_Profiler_Host_GetConfigImageSize_Params, true);
  p->configImageSize = 40;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiProfilerHostGetConfigImage(CUpti_Profiler_Host_GetConfigImage_Params* p) {
  MADE_CHECK(CUpti_Profiler_Host_GetConfigImage_Params, p->configImageSize == 40);
  std::memset(p->pConfigImage, 9, 40);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiProfilerHostGetNumOfPasses(CUpti_Profiler_Host_GetNumOfPasses_Params* p) {
  MADE_CHECK(CUpti_Profiler_Host_GetNumOfPasses_Params, p->pConfigImage[0] == 9);
  p->numOfPasses = made::wish("passes") > 0 ? static_cast<std::size_t>(made::wish("passes")) : g_state.passes;
  return CUPTI_SUCCESS;
}
// Metric j of a range counts j + 1 times what was moved.
CUptiResult cuptiProfilerHostEvaluateToGpuValues(CUpti_Profiler_Host_EvaluateToGpuValues_Params* p) {
  MADE_CHECK(CUpti_Profiler_Host_EvaluateToGpuValues_Params,
             p->rangeIndex < g_state.decoded.size() + g_state.completed.size() && p->pMetricValues != nullptr);
  for (std::size_t j = 0; j < p->numMetrics; ++j) {
    p->pMetricValues[j] = g_state.completed.empty() ? g_state.decoded[p->rangeIndex].moved * double(j + 1)
                                                    : g_state.completed[p->rangeIndex].value;
    if (made::wish("still") > 0) p->pMetricValues[j] = 0;
    if (made::wish("nan") == static_cast<long>(j)) p->pMetricValues[j] = std::numeric_limits<double>::quiet_NaN();
  }
  return CUPTI_SUCCESS;
}

CUptiResult cuptiRangeProfilerEnable(CUpti_RangeProfiler_Enable_Params* p) {
  MADE_CHECK(CUpti_RangeProfiler_Enable_Params, p->ctx != nullptr && !g_state.enabled);
  g_state.enabled = true;
  g_state.configurations = 0;
  p->pRangeProfilerObject = reinterpret_cast<CUpti_RangeProfiler_Object*>(&g_object);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiRangeProfilerDisable(CUpti_RangeProfiler_Disable_Params* p) {
  MADE_CHECK(CUpti_RangeProfiler_Disable_Params, g_state.enabled && !g_state.started);
  g_state.enabled = false;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiRangeProfilerGetCounterDataSize(CUpti_RangeProfiler_GetCounterDataSize_Params* p) {
  MADE_CHECK(CUpti_RangeProfiler_GetCounterDataSize_Params,
             g_state.enabled && p->numMetrics > 0 && p->maxNumRangeTreeNodes >= p->maxNumOfRanges);
  g_state.most = p->maxNumOfRanges;
  p->counterDataSize = 128;
  if (too_many("sized_ranges")) return CUPTI_ERROR_OUT_OF_MEMORY;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiRangeProfilerCounterDataImageInitialize(CUpti_RangeProfiler_CounterDataImage_Initialize_Params* p) {
  MADE_CHECK(CUpti_RangeProfiler_CounterDataImage_Initialize_Params,
             !g_state.started && p->counterDataSize == 128);
  if (too_many("image_ranges")) return CUPTI_ERROR_OUT_OF_MEMORY;
  std::memset(p->pCounterData, 0, 128);
  g_state.prepared = true;
  g_state.decoded.clear();
  return CUPTI_SUCCESS;
}
CUptiResult cuptiRangeProfilerSetConfig(CUpti_RangeProfiler_SetConfig_Params* p) {
  MADE_CHECK(CUpti_RangeProfiler_SetConfig_Params,
             !g_state.started && g_state.prepared && p->configSize == 40 && p->counterDataImageSize == 128 &&
                 p->range == CUPTI_UserRange && p->replayMode == CUPTI_UserReplay && p->numNestingLevels == 1 &&
                 p->maxRangesPerPass == g_state.most && p->passIndex == 0);
  if (too_many("configured_ranges")) return CUPTI_ERROR_OUT_OF_MEMORY;
  if (++g_state.configurations > 1 && made::wish("one_configuration") > 0) return CUPTI_ERROR_INVALID_OPERATION;
  g_state.configured = true;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiRangeProfilerStart(CUpti_RangeProfiler_Start_Params* p) {
  MADE_CHECK(CUpti_RangeProfiler_Start_Params, g_state.configured && !g_state.started);
  g_state.started = true;
  g_state.ranges.clear();
  return CUPTI_SUCCESS;
}
CUptiResult cuptiRangeProfilerStop(CUpti_RangeProfiler_Stop_Params* p) {
  MADE_CHECK(CUpti_RangeProfiler_Stop_Params, g_state.started && !g_state.in_range);
  g_state.started = g_state.configured = false;
  g_state.submitted = g_state.ranges;
  p->isAllPassSubmitted = g_state.one_pass ? 1 : 0;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiRangeProfilerPushRange(CUpti_RangeProfiler_PushRange_Params* p) {
  MADE_CHECK(CUpti_RangeProfiler_PushRange_Params, g_state.started && !g_state.in_range && idle_as_wished());
  g_state.in_range = true;
  g_state.ranges.push_back({p->pRangeName, 0});
  return CUPTI_SUCCESS;
}
CUptiResult cuptiRangeProfilerPopRange(CUpti_RangeProfiler_PopRange_Params* p) {
  MADE_CHECK(CUpti_RangeProfiler_PopRange_Params, g_state.in_range && idle_as_wished());
  g_state.in_range = false;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiRangeProfilerDecodeData(CUpti_RangeProfiler_DecodeData_Params* p) {
  MADE_CHECK(CUpti_RangeProfiler_DecodeData_Params, g_state.enabled && !g_state.started);
  g_state.decoded = g_state.submitted;
  g_state.prepared = false;
  p->numOfRangeDropped = made::wish("dropped_ranges") > 0 ? 1 : 0;
  if (g_state.decoded.size() <= g_state.most) return CUPTI_SUCCESS;
  p->numOfRangeDropped = g_state.decoded.size() - g_state.most;
  g_state.decoded.resize(g_state.most);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiRangeProfilerGetCounterDataInfo(CUpti_RangeProfiler_GetCounterDataInfo_Params* p) {
  MADE_CHECK(CUpti_RangeProfiler_GetCounterDataInfo_Params, p->counterDataImageSize == 128);
  p->numTotalRanges = g_state.decoded.size();
  if (made::wish("silent_loss") > 0 && p->numTotalRanges > 0) --p->numTotalRanges;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiRangeProfilerCounterDataGetRangeInfo(CUpti_RangeProfiler_CounterData_GetRangeInfo_Params* p) {
  MADE_CHECK(CUpti_RangeProfiler_CounterData_GetRangeInfo_Params, p->rangeIndex < g_state.decoded.size());
  p->rangeName = g_state.decoded[p->rangeIndex].name.c_str();
  return CUPTI_SUCCESS;
}

CUptiResult cuptiPmSamplingEnable(CUpti_PmSampling_Enable_Params* p) {
  MADE_CHECK(CUpti_PmSampling_Enable_Params, p->deviceIndex == 0 && !g_state.enabled);
  g_state.enabled = true;
  p->pPmSamplingObject = reinterpret_cast<CUpti_PmSampling_Object*>(&g_object);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiPmSamplingDisable(CUpti_PmSampling_Disable_Params* p) {
  MADE_CHECK(CUpti_PmSampling_Disable_Params, g_state.enabled && !g_state.started);
  g_state.enabled = false;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiPmSamplingSetConfig(CUpti_PmSampling_SetConfig_Params* p) {
  MADE_CHECK(CUpti_PmSampling_SetConfig_Params,
             g_state.enabled && !g_state.started && p->samplingInterval > 0 && p->hardwareBufferSize > 0 &&
                 p->triggerMode == CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_TIME_INTERVAL);
  g_state.configured = true;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiPmSamplingGetCounterDataSize(CUpti_PmSampling_GetCounterDataSize_Params* p) {
  MADE_CHECK(CUpti_PmSampling_GetCounterDataSize_Params, g_state.enabled && p->maxSamples > 0);
  g_state.most = p->maxSamples;
  p->counterDataSize = 256;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiPmSamplingCounterDataImageInitialize(CUpti_PmSampling_CounterDataImage_Initialize_Params* p) {
  MADE_CHECK(CUpti_PmSampling_CounterDataImage_Initialize_Params, p->counterDataSize == 256);
  g_state.completed.clear();
  g_state.prepared = true;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiPmSamplingStart(CUpti_PmSampling_Start_Params* p) {
  MADE_CHECK(CUpti_PmSampling_Start_Params, g_state.configured && !g_state.started);
  g_state.started = g_sampling = true;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiPmSamplingStop(CUpti_PmSampling_Stop_Params* p) {
  MADE_CHECK(CUpti_PmSampling_Stop_Params, g_state.started);
  g_state.started = g_state.configured = g_sampling = false;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiPmSamplingDecodeData(CUpti_PmSampling_DecodeData_Params* p) {
  MADE_CHECK(CUpti_PmSampling_DecodeData_Params, g_state.enabled && g_state.prepared && p->counterDataImageSize == 256);
  g_state.prepared = false;
  if (spoilt("bad_image", g_state.images + 1)) return CUPTI_ERROR_UNKNOWN;
  const std::lock_guard lock(g_waiting);
  if (g_state.overflow || made::wish("overflow") > 0) g_state.waiting.clear();  // it overflowed at once
  while (!g_state.waiting.empty() && g_state.completed.size() < g_state.most) {
    g_state.completed.push_back(g_state.waiting.front());
    g_state.waiting.erase(g_state.waiting.begin());
  }
  const auto full = g_state.images++ % 2 == 0 ? CUPTI_PM_SAMPLING_DECODE_STOP_REASON_OTHER
                                              : CUPTI_PM_SAMPLING_DECODE_STOP_REASON_COUNTER_DATA_FULL;
  p->decodeStopReason = g_state.waiting.empty() ? CUPTI_PM_SAMPLING_DECODE_STOP_REASON_END_OF_RECORDS : full;
  const long most = made::wish("overflow_after");
  const bool late = most > 0 && g_state.taken > static_cast<std::size_t>(most);
  p->overflow = g_state.overflow || late || made::wish("overflow") > 0 ? 1 : 0;
  g_state.taken += g_state.completed.size();
  return CUPTI_SUCCESS;
}
CUptiResult cuptiPmSamplingGetCounterDataInfo(CUpti_PmSampling_GetCounterDataInfo_Params* p) {
  MADE_CHECK(CUpti_PmSampling_GetCounterDataInfo_Params, p->counterDataImageSize == 256);
  p->numTotalSamples = g_state.most;
  p->numPopulatedSamples = g_state.completed.size() + 1;  // the last is still being filled
  p->numCompletedSamples = g_state.completed.size();
  return CUPTI_SUCCESS;
}
CUptiResult cuptiPmSamplingCounterDataGetSampleInfo(CUpti_PmSampling_CounterData_GetSampleInfo_Params* p) {
  MADE_CHECK(CUpti_PmSampling_CounterData_GetSampleInfo_Params, p->sampleIndex < g_state.completed.size());
  if (spoilt("bad_sample", g_state.taken - g_state.completed.size() + p->sampleIndex + 1)) return CUPTI_ERROR_UNKNOWN;
  p->startTimestamp = g_state.completed[p->sampleIndex].start;
  p->endTimestamp = g_state.completed[p->sampleIndex].end;
  return CUPTI_SUCCESS;
}
}
