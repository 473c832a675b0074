// PM sampling: counters of the whole device at equal intervals, decoded while it goes on.
#include "kernels/cupti/counter_readers.hpp"
#include "kernels/cupti/profiler_library.hpp"

#if defined(KVROOF_CUPTI_HEADERS)

namespace kvroof {
namespace {

class LibrarySampler final : public CounterSampler {
 public:
  LibrarySampler(const ProfilerFunctions& cupti, const SamplingOptions& options) : cupti_(cupti), options_(options) {}
  LibrarySampler(const LibrarySampler&) = delete;
  LibrarySampler& operator=(const LibrarySampler&) = delete;
  ~LibrarySampler() override {
    if (object_ == nullptr) return;
    if (started_) static_cast<void>(stop());
    KVROOF_PARAMS(CUpti_PmSampling_Disable_Params, p);
    p.pPmSamplingObject = object_;
    cupti_.cuptiPmSamplingDisable(&p);
  }

  std::string open() {
    auto counters = open_device_counters(cupti_, sampling_metrics());
    if (!counters) return counters.error();
    counters_ = std::move(counters).value();
    KVROOF_PARAMS(CUpti_PmSampling_Enable_Params, enable);
    std::string why = cupti_.answer("enabling samples", cupti_.cuptiPmSamplingEnable(&enable));
    if (!why.empty()) return why;
    object_ = enable.pPmSamplingObject;
    KVROOF_PARAMS(CUpti_PmSampling_SetConfig_Params, set);
    set.pPmSamplingObject = object_;
    set.configSize = counters_.configuration.size();
    set.pConfig = counters_.configuration.data();
    set.hardwareBufferSize = options_.device_bytes;
    set.samplingInterval = options_.interval_ns;
    set.triggerMode = CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_TIME_INTERVAL;
    set.hwBufferAppendMode = CUPTI_PM_SAMPLING_HARDWARE_BUFFER_APPEND_MODE_KEEP_OLDEST;  // which tells of an overflow
    why = cupti_.answer("configuring samples", cupti_.cuptiPmSamplingSetConfig(&set));
    if (!why.empty()) return why;
    KVROOF_PARAMS(CUpti_PmSampling_GetCounterDataSize_Params, size);
    size.pPmSamplingObject = object_;
    size.pMetricNames = counters_.names.data();
    size.numMetrics = counters_.names.size();
    size.maxSamples = options_.most_samples;
    why = cupti_.answer("sizing counter data", cupti_.cuptiPmSamplingGetCounterDataSize(&size));
    if (!why.empty()) return why;
    image_.resize(size.counterDataSize);
    return clear();
  }

  const ResolvedMetrics& metrics() const override { return counters_.metrics; }

  std::string start() override {
    KVROOF_PARAMS(CUpti_PmSampling_Start_Params, p);
    p.pPmSamplingObject = object_;
    std::string why = cupti_.answer("starting to sample", cupti_.cuptiPmSamplingStart(&p));
    started_ = why.empty();
    return why;
  }
  std::string stop() override {
    started_ = false;
    KVROOF_PARAMS(CUpti_PmSampling_Stop_Params, p);
    p.pPmSamplingObject = object_;
    return cupti_.answer("ending the samples", cupti_.cuptiPmSamplingStop(&p));
  }

  // Until nothing is left: an end of records says so, and an image into which nothing more came. A device that never
  // comes to an end is left alone after as many images as its buffer fills.
  Result<std::vector<CountedValues>> take() override {
    constexpr int kMostImages = 64;
    std::vector<CountedValues> samples;
    for (int image = 0; image < kMostImages; ++image) {
      KVROOF_PARAMS(CUpti_PmSampling_DecodeData_Params, data);
      data.pPmSamplingObject = object_;
      data.pCounterDataImage = image_.data();
      data.counterDataImageSize = image_.size();
      std::string why = cupti_.answer("decoding samples", cupti_.cuptiPmSamplingDecodeData(&data));
      if (why.empty() && data.overflow != 0) {
        why = fmt::format("the device's buffer of {} bytes overflowed: samples were lost", options_.device_bytes);
      }
      std::size_t completed = 0;
      if (why.empty()) why = read(samples, completed);
      if (why.empty()) why = clear();
      if (!why.empty()) return Failure{why};
      if (completed == 0 || data.decodeStopReason == CUPTI_PM_SAMPLING_DECODE_STOP_REASON_END_OF_RECORDS) break;
    }
    return samples;
  }

 private:
  std::string clear() {
    KVROOF_PARAMS(CUpti_PmSampling_CounterDataImage_Initialize_Params, p);
    p.pPmSamplingObject = object_;
    p.counterDataSize = image_.size();
    p.pCounterData = image_.data();
    return cupti_.answer("preparing counter data", cupti_.cuptiPmSamplingCounterDataImageInitialize(&p));
  }

  // Only completed samples are valid, and the very first is not typical of any interval.
  std::string read(std::vector<CountedValues>& samples, std::size_t& completed) {
    KVROOF_PARAMS(CUpti_PmSampling_GetCounterDataInfo_Params, info);
    info.pCounterDataImage = image_.data();
    info.counterDataImageSize = image_.size();
    std::string why = cupti_.answer("decoding samples", cupti_.cuptiPmSamplingGetCounterDataInfo(&info));
    if (!why.empty()) return why;
    completed = info.numCompletedSamples;
    for (std::size_t i = 0; i < completed; ++i) {
      if (!std::exchange(had_first_, true)) continue;
      KVROOF_PARAMS(CUpti_PmSampling_CounterData_GetSampleInfo_Params, sample);
      sample.pPmSamplingObject = object_;
      sample.pCounterDataImage = image_.data();
      sample.counterDataImageSize = image_.size();
      sample.sampleIndex = i;
      why = cupti_.answer("decoding a sample", cupti_.cuptiPmSamplingCounterDataGetSampleInfo(&sample));
      if (!why.empty()) return why;
      auto values = counters_.host->values(image_, i, counters_.metrics.names);
      if (!values) return values.error();
      samples.push_back({{}, sample.startTimestamp, sample.endTimestamp, std::move(values).value()});
    }
    return {};
  }

  ProfilerFunctions cupti_;
  SamplingOptions options_;
  DeviceCounters counters_;
  CUpti_PmSampling_Object* object_ = nullptr;
  Image image_;
  bool started_ = false, had_first_ = false;
};

}  // namespace

Result<std::unique_ptr<CounterSampler>> open_counter_sampler(const CuptiLibrary& library,
                                                             const SamplingOptions& options) {
  const auto functions = find_profiler(library);
  if (!functions) return Failure{functions.error()};
  auto sampler = std::make_unique<LibrarySampler>(functions.value(), options);
  if (std::string why = sampler->open(); !why.empty()) return Failure{why};
  return std::unique_ptr<CounterSampler>(std::move(sampler));
}

}  // namespace kvroof

#else

namespace kvroof {

Result<std::unique_ptr<CounterSampler>> open_counter_sampler(const CuptiLibrary&, const SamplingOptions&) {
  return failure("this build has no CUPTI: its headers were not found (KVROOF_CUPTI_INCLUDE)");
}

}  // namespace kvroof

#endif
