#include "kernels/cupti/metric_catalog.hpp"

#include "kernels/cupti/profiler_library.hpp"

namespace kvroof {

#if defined(KVROOF_CUPTI_HEADERS)

Result<std::unique_ptr<MetricCatalog>> open_metric_catalog(const CuptiLibrary& library, const std::string& chip,
                                                           CounterMode mode) {
  const auto functions = find_profiler(library);
  if (!functions) return Failure{functions.error()};
  auto catalog = make_catalog(functions.value(), chip, mode, {});
  if (catalog) return catalog;
  return failure("{} knows no chip {}, or libnvperf_host.so is not beside it: {}", library.path, chip,
                 catalog.error());
}

#else

Result<std::unique_ptr<MetricCatalog>> open_metric_catalog(const CuptiLibrary&, const std::string&, CounterMode) {
  return failure("this build has no CUPTI: its headers were not found (KVROOF_CUPTI_INCLUDE)");
}

#endif

}  // namespace kvroof
