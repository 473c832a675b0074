// What CUPTI can count on a chip and in how many passes: asked of the library alone, without driver or device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cupti/cupti_library.hpp"
#include "sim/core/error.hpp"

namespace kvroof {

// How counters are read: over a range of launches, or at equal intervals of time (PM sampling). The names of what a
// chip counts are the same in both; which of them it gives, and in how many passes, is not.
enum class CounterMode : std::uint8_t { kRange, kSampling };

// One chip (GH100, …) in one mode.
class MetricCatalog {
 public:
  virtual ~MetricCatalog() = default;
  virtual bool has(const std::string& metric) const = 0;
  // How often the same work would have to run for all of them; a metric that the chip lacks is a failure.
  virtual Result<std::size_t> passes(const std::vector<std::string>& metrics) const = 0;
};

// `library` outlives the catalog. A failure is one sentence: CUPTI does not know the chip, or lacks libnvperf_host.so.
Result<std::unique_ptr<MetricCatalog>> open_metric_catalog(const CuptiLibrary& library, const std::string& chip,
                                                           CounterMode mode);

}  // namespace kvroof
