// The Range Profiler: user ranges, user replay, one pass. The order of its calls is the one that its header asks for.
#include "kernels/cupti/counter_readers.hpp"
#include "kernels/cupti/profiler_library.hpp"

#if defined(KVROOF_CUPTI_HEADERS)

namespace kvroof {
namespace {

class LibraryRanges final : public RangeCounters {
 public:
  LibraryRanges(const ProfilerFunctions& cupti, std::size_t most_ranges) : cupti_(cupti), most_ranges_(most_ranges) {}
  LibraryRanges(const LibraryRanges&) = delete;
  LibraryRanges& operator=(const LibraryRanges&) = delete;
  ~LibraryRanges() override {
    if (object_ == nullptr) return;
    if (in_range_) static_cast<void>(end());
    if (started_) stop();
    disable();
  }

  std::string open(CUcontext context) {
    auto counters = open_device_counters(cupti_, range_metrics());
    if (!counters) return counters.error();
    counters_ = std::move(counters).value();
    context_ = context;
    std::string why = configure();
    // The header names no largest image, and what fits differs between devices and sets of metrics.
    while (!why.empty() && object_ != nullptr && most_ranges_ >= 2 * kFewestRanges) {
      disable();
      most_ranges_ /= 2;
      why = configure();
    }
    return why.empty() ? begin_counting() : why;
  }

  const ResolvedMetrics& metrics() const override { return counters_.metrics; }
  std::size_t most_ranges() const override { return most_ranges_; }

  std::string begin(const std::string& range) override {
    std::string why = taken_ ? start_again() : std::string();
    if (!why.empty()) return why;
    taken_ = false;
    range_ = range;  // CUPTI is given a pointer to it
    KVROOF_PARAMS(CUpti_RangeProfiler_PushRange_Params, p);
    p.pRangeProfilerObject = object_;
    p.pRangeName = range_.c_str();
    why = cupti_.answer("beginning a range", cupti_.cuptiRangeProfilerPushRange(&p));
    in_range_ = why.empty();
    return why;
  }
  std::string end() override {
    in_range_ = false;
    KVROOF_PARAMS(CUpti_RangeProfiler_PopRange_Params, p);
    p.pRangeProfilerObject = object_;
    return cupti_.answer("ending a range", cupti_.cuptiRangeProfilerPopRange(&p));
  }
  // Counting goes on with the next range: what was counted is not lost where it cannot.
  Result<std::vector<CountedValues>> take() override {
    if (taken_) return std::vector<CountedValues>();
    taken_ = true;
    if (std::string why = stop(); !why.empty()) return Failure{why};
    return decode();
  }

 private:
  std::string enable() {
    KVROOF_PARAMS(CUpti_RangeProfiler_Enable_Params, p);
    p.ctx = context_;
    std::string why = cupti_.answer("enabling ranges", cupti_.cuptiRangeProfilerEnable(&p));
    if (!why.empty()) return why;
    object_ = p.pRangeProfilerObject;
    KVROOF_PARAMS(CUpti_RangeProfiler_GetCounterDataSize_Params, size);
    size.pRangeProfilerObject = object_;
    size.pMetricNames = counters_.names.data();
    size.numMetrics = counters_.names.size();
    size.maxNumOfRanges = most_ranges_;
    size.maxNumRangeTreeNodes = static_cast<std::uint32_t>(most_ranges_);
    why = cupti_.answer("sizing counter data", cupti_.cuptiRangeProfilerGetCounterDataSize(&size));
    if (why.empty()) image_.assign(size.counterDataSize, 0);
    return why;
  }
  void disable() {
    KVROOF_PARAMS(CUpti_RangeProfiler_Disable_Params, p);
    p.pRangeProfilerObject = object_;
    cupti_.cuptiRangeProfilerDisable(&p);
    object_ = nullptr;
  }

  // CUPTI's header does not say whether a range profiler can be configured twice: where it cannot, a new one is made.
  std::string start_again() {
    if (set_image().empty() && begin_counting().empty()) return {};
    disable();
    std::string why = configure();
    return why.empty() ? begin_counting() : why;
  }

  // Without an object afterwards: the device cannot be counted at all.
  std::string configure() {
    std::string why = enable();
    return why.empty() ? set_image() : why;
  }

  // A fresh image and its place in the device's configuration.
  std::string set_image() {
    KVROOF_PARAMS(CUpti_RangeProfiler_CounterDataImage_Initialize_Params, fresh);
    fresh.pRangeProfilerObject = object_;
    fresh.counterDataSize = image_.size();
    fresh.pCounterData = image_.data();
    std::string why =
        cupti_.answer("preparing counter data", cupti_.cuptiRangeProfilerCounterDataImageInitialize(&fresh));
    if (!why.empty()) return why;
    KVROOF_PARAMS(CUpti_RangeProfiler_SetConfig_Params, set);
    set.pRangeProfilerObject = object_;
    set.configSize = counters_.configuration.size();
    set.pConfig = counters_.configuration.data();
    set.counterDataImageSize = image_.size();
    set.pCounterDataImage = image_.data();
    set.range = CUPTI_UserRange;
    set.replayMode = CUPTI_UserReplay;
    set.maxRangesPerPass = most_ranges_;
    set.numNestingLevels = 1;
    set.minNestingLevel = 1;
    set.passIndex = 0;
    set.targetNestingLevel = 1;
    return cupti_.answer("configuring ranges", cupti_.cuptiRangeProfilerSetConfig(&set));
  }

  std::string begin_counting() {
    KVROOF_PARAMS(CUpti_RangeProfiler_Start_Params, p);
    p.pRangeProfilerObject = object_;
    std::string why = cupti_.answer("starting to count", cupti_.cuptiRangeProfilerStart(&p));
    started_ = why.empty();
    return why;
  }

  std::string stop() {
    started_ = false;
    KVROOF_PARAMS(CUpti_RangeProfiler_Stop_Params, p);
    p.pRangeProfilerObject = object_;
    std::string why = cupti_.answer("ending the count", cupti_.cuptiRangeProfilerStop(&p));
    if (why.empty() && p.isAllPassSubmitted == 0) why = "CUPTI wants the same work again, and a step runs only once";
    return why;
  }

  Result<std::vector<CountedValues>> decode() {
    KVROOF_PARAMS(CUpti_RangeProfiler_DecodeData_Params, data);
    data.pRangeProfilerObject = object_;
    std::string why = cupti_.answer("decoding counters", cupti_.cuptiRangeProfilerDecodeData(&data));
    if (!why.empty()) return Failure{why};
    if (data.numOfRangeDropped != 0) return failure("CUPTI dropped {} ranges", data.numOfRangeDropped);
    KVROOF_PARAMS(CUpti_RangeProfiler_GetCounterDataInfo_Params, info);
    info.pCounterDataImage = image_.data();
    info.counterDataImageSize = image_.size();
    why = cupti_.answer("decoding counters", cupti_.cuptiRangeProfilerGetCounterDataInfo(&info));
    if (!why.empty()) return Failure{why};
    std::vector<CountedValues> ranges;
    for (std::size_t i = 0; i < info.numTotalRanges; ++i) {
      KVROOF_PARAMS(CUpti_RangeProfiler_CounterData_GetRangeInfo_Params, range);
      range.pCounterDataImage = image_.data();
      range.counterDataImageSize = image_.size();
      range.rangeIndex = i;
      range.rangeDelimiter = "/";
      why = cupti_.answer("decoding a range", cupti_.cuptiRangeProfilerCounterDataGetRangeInfo(&range));
      if (!why.empty()) return Failure{why};
      auto values = counters_.host->values(image_, i, counters_.metrics.names);
      if (!values) return Failure{values.error()};
      ranges.push_back({range.rangeName != nullptr ? range.rangeName : "", 0, 0, std::move(values).value()});
    }
    return ranges;
  }

  ProfilerFunctions cupti_;
  std::size_t most_ranges_;
  DeviceCounters counters_;
  CUcontext context_ = nullptr;
  CUpti_RangeProfiler_Object* object_ = nullptr;
  Image image_;
  std::string range_;
  bool started_ = false, in_range_ = false;
  bool taken_ = false;  // since the last start
};

}  // namespace

Result<std::unique_ptr<RangeCounters>> open_range_counters(const CuptiLibrary& library, void* context,
                                                           std::size_t most_ranges) {
  const auto functions = find_profiler(library);
  if (!functions) return Failure{functions.error()};
  auto ranges = std::make_unique<LibraryRanges>(functions.value(), most_ranges);
  if (std::string why = ranges->open(static_cast<CUcontext>(context)); !why.empty()) return Failure{why};
  return std::unique_ptr<RangeCounters>(std::move(ranges));
}

}  // namespace kvroof

#else

namespace kvroof {

Result<std::unique_ptr<RangeCounters>> open_range_counters(const CuptiLibrary&, void*, std::size_t) {
  return failure("this build has no CUPTI: its headers were not found (KVROOF_CUPTI_INCLUDE)");
}

}  // namespace kvroof

#endif
