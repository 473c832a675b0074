#include "kernels/cupti/metric_catalog.hpp"

#include <fmt/format.h>

#if defined(KVROOF_CUPTI_HEADERS)

#include <cupti.h>
#include <cupti_profiler_host.h>
#include <dlfcn.h>

namespace kvroof {
namespace {

#define KVROOF_HOST_FUNCTIONS(F)          \
  F(cuptiProfilerHostInitialize)          \
  F(cuptiProfilerHostDeinitialize)        \
  F(cuptiProfilerHostGetMetricProperties) \
  F(cuptiProfilerHostConfigAddMetrics)    \
  F(cuptiProfilerHostGetConfigImageSize)  \
  F(cuptiProfilerHostGetConfigImage)      \
  F(cuptiProfilerHostGetNumOfPasses)      \
  F(cuptiGetResultString)

struct HostFunctions {
#define KVROOF_MEMBER(name) decltype(&::name) name = nullptr;
  KVROOF_HOST_FUNCTIONS(KVROOF_MEMBER)
#undef KVROOF_MEMBER
};

// Null, or the function that the library lacks.
const char* find_functions(void* library, HostFunctions& functions) {
#define KVROOF_FIND(name)                                                      \
  functions.name = reinterpret_cast<decltype(&::name)>(dlsym(library, #name)); \
  if (functions.name == nullptr) return #name;
  KVROOF_HOST_FUNCTIONS(KVROOF_FIND)
#undef KVROOF_FIND
  return nullptr;
}

CUpti_ProfilerType type_of(CounterMode mode) {
  return mode == CounterMode::kRange ? CUPTI_PROFILER_TYPE_RANGE_PROFILER : CUPTI_PROFILER_TYPE_PM_SAMPLING;
}

// A host object of CUPTI; metrics once added stay, so each question about a set takes a new one.
class HostObject {
 public:
  HostObject(const HostFunctions& cupti, const std::string& chip, CounterMode mode) : cupti_(cupti) {
    CUpti_Profiler_Host_Initialize_Params params{};
    params.structSize = CUpti_Profiler_Host_Initialize_Params_STRUCT_SIZE;
    params.profilerType = type_of(mode);
    params.pChipName = chip.c_str();
    result_ = cupti_.cuptiProfilerHostInitialize(&params);
    if (result_ == CUPTI_SUCCESS) host_ = params.pHostObject;
  }
  HostObject(const HostObject&) = delete;
  HostObject& operator=(const HostObject&) = delete;
  ~HostObject() {
    if (host_ == nullptr) return;
    CUpti_Profiler_Host_Deinitialize_Params params{};
    params.structSize = CUpti_Profiler_Host_Deinitialize_Params_STRUCT_SIZE;
    params.pHostObject = host_;
    cupti_.cuptiProfilerHostDeinitialize(&params);
  }

  CUptiResult result() const { return result_; }
  CUpti_Profiler_Host_Object* get() const { return host_; }

 private:
  const HostFunctions& cupti_;
  CUpti_Profiler_Host_Object* host_ = nullptr;
  CUptiResult result_ = CUPTI_SUCCESS;
};

class LibraryCatalog final : public MetricCatalog {
 public:
  LibraryCatalog(const HostFunctions& functions, std::string chip, CounterMode mode)
      : cupti_(functions), chip_(std::move(chip)), mode_(mode), host_(cupti_, chip_, mode_) {}

  CUptiResult opened() const { return host_.result(); }

  bool has(const std::string& metric) const override {
    CUpti_Profiler_Host_GetMetricProperties_Params params{};
    params.structSize = CUpti_Profiler_Host_GetMetricProperties_Params_STRUCT_SIZE;
    params.pHostObject = host_.get();
    params.pMetricName = metric.c_str();
    return cupti_.cuptiProfilerHostGetMetricProperties(&params) == CUPTI_SUCCESS;
  }

  Result<std::size_t> passes(const std::vector<std::string>& metrics) const override {
    const HostObject host(cupti_, chip_, mode_);
    if (host.result() != CUPTI_SUCCESS) return answer(host.result());
    std::vector<const char*> names;
    for (const std::string& metric : metrics) names.push_back(metric.c_str());
    CUpti_Profiler_Host_ConfigAddMetrics_Params add{};
    add.structSize = CUpti_Profiler_Host_ConfigAddMetrics_Params_STRUCT_SIZE;
    add.pHostObject = host.get();
    add.ppMetricNames = names.data();
    add.numMetrics = names.size();
    if (const auto result = cupti_.cuptiProfilerHostConfigAddMetrics(&add)) return answer(result);
    return passes_of(host);
  }

 private:
  Result<std::size_t> passes_of(const HostObject& host) const {
    CUpti_Profiler_Host_GetConfigImageSize_Params size{};
    size.structSize = CUpti_Profiler_Host_GetConfigImageSize_Params_STRUCT_SIZE;
    size.pHostObject = host.get();
    if (const auto result = cupti_.cuptiProfilerHostGetConfigImageSize(&size)) return answer(result);
    std::vector<std::uint8_t> image(size.configImageSize);
    CUpti_Profiler_Host_GetConfigImage_Params get{};
    get.structSize = CUpti_Profiler_Host_GetConfigImage_Params_STRUCT_SIZE;
    get.pHostObject = host.get();
    get.configImageSize = image.size();
    get.pConfigImage = image.data();
    if (const auto result = cupti_.cuptiProfilerHostGetConfigImage(&get)) return answer(result);
    CUpti_Profiler_Host_GetNumOfPasses_Params passes{};
    passes.structSize = CUpti_Profiler_Host_GetNumOfPasses_Params_STRUCT_SIZE;
    passes.configImageSize = image.size();
    passes.pConfigImage = image.data();
    if (const auto result = cupti_.cuptiProfilerHostGetNumOfPasses(&passes)) return answer(result);
    return passes.numOfPasses;
  }

  Failure answer(CUptiResult result) const {
    const char* text = nullptr;
    cupti_.cuptiGetResultString(result, &text);
    return failure("CUPTI cannot count this on {}: {} ({})", chip_, text != nullptr ? text : "unknown error",
                   static_cast<int>(result));
  }

  HostFunctions cupti_;
  std::string chip_;
  CounterMode mode_;
  HostObject host_;
};

}  // namespace

Result<std::unique_ptr<MetricCatalog>> open_metric_catalog(const CuptiLibrary& library, const std::string& chip,
                                                           CounterMode mode) {
  HostFunctions functions;
  if (const char* lacking = find_functions(library.handle, functions)) {
    return failure("{} has no {}: it cannot say what {} counts", library.path, lacking, chip);
  }
  auto catalog = std::make_unique<LibraryCatalog>(functions, chip, mode);
  if (catalog->opened() != CUPTI_SUCCESS) {
    return failure("{} knows no chip {}, or libnvperf_host.so is not beside it (result {})", library.path, chip,
                   static_cast<int>(catalog->opened()));
  }
  return std::unique_ptr<MetricCatalog>(std::move(catalog));
}

}  // namespace kvroof

#else

namespace kvroof {

Result<std::unique_ptr<MetricCatalog>> open_metric_catalog(const CuptiLibrary&, const std::string&, CounterMode) {
  return failure("this build has no CUPTI: its headers were not found (KVROOF_CUPTI_INCLUDE)");
}

}  // namespace kvroof

#endif
