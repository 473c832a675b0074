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
  TakenSamples take() override {
    constexpr int kMostImages = 64;
    TakenSamples taken;
    for (int image = 0; image < kMostImages; ++image) {
      KVROOF_PARAMS(CUpti_PmSampling_DecodeData_Params, data);
      data.pPmSamplingObject = object_;
      data.pCounterDataImage = image_.data();
      data.counterDataImageSize = image_.size();
      taken.why = cupti_.answer("decoding samples", cupti_.cuptiPmSamplingDecodeData(&data));
      if (!taken.why.empty()) break;  // how many were in the image nobody tells
      const std::size_t completed = read(taken);
      // The buffer keeps the oldest: what it gives before it overflows is whole.
      if (taken.why.empty() && data.overflow != 0) {
        taken.why = fmt::format("the device's buffer of {} bytes overflowed: samples were lost", options_.device_bytes);
      }
      if (taken.why.empty()) taken.why = clear();
      const bool ended = data.decodeStopReason == CUPTI_PM_SAMPLING_DECODE_STOP_REASON_END_OF_RECORDS;
      if (!taken.why.empty() || completed == 0 || ended) break;
    }
    return taken;
  }

 private:
  std::string clear() {
    KVROOF_PARAMS(CUpti_PmSampling_CounterDataImage_Initialize_Params, p);
    p.pPmSamplingObject = object_;
    p.counterDataSize = image_.size();
    p.pCounterData = image_.data();
    return cupti_.answer("preparing counter data", cupti_.cuptiPmSamplingCounterDataImageInitialize(&p));
  }

  // How many the image has. Only completed samples are valid, and the very first is not typical of any interval. One
  // that cannot be read is dropped with all behind it.
  std::size_t read(TakenSamples& taken) {
    KVROOF_PARAMS(CUpti_PmSampling_GetCounterDataInfo_Params, info);
    info.pCounterDataImage = image_.data();
    info.counterDataImageSize = image_.size();
    taken.why = cupti_.answer("decoding samples", cupti_.cuptiPmSamplingGetCounterDataInfo(&info));
    if (!taken.why.empty()) return 0;
    for (std::size_t i = 0; i < info.numCompletedSamples; ++i) {
      if (!std::exchange(had_first_, true)) continue;
      taken.why = read(i, taken.samples);
      if (taken.why.empty()) continue;
      taken.dropped = info.numCompletedSamples - i;
      taken.why += fmt::format("; {} samples of its image were dropped", taken.dropped);
      break;
    }
    return info.numCompletedSamples;
  }
  std::string read(std::size_t index, std::vector<CountedValues>& samples) {
    KVROOF_PARAMS(CUpti_PmSampling_CounterData_GetSampleInfo_Params, sample);
    sample.pPmSamplingObject = object_;
    sample.pCounterDataImage = image_.data();
    sample.counterDataImageSize = image_.size();
    sample.sampleIndex = index;
    std::string why = cupti_.answer("decoding a sample", cupti_.cuptiPmSamplingCounterDataGetSampleInfo(&sample));
    if (!why.empty()) return why;
    auto values = counters_.host->values(image_, index, counters_.metrics.names);
    if (!values) return values.error();
    samples.push_back({{}, sample.startTimestamp, sample.endTimestamp, std::move(values).value()});
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
