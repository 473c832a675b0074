// Counters of a device, read over ranges of launches or at equal intervals of time; each kernel runs once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cupti/cupti_library.hpp"
#include "kernels/cupti/metric_sets.hpp"
#include "sim/core/error.hpp"

namespace kvroof {

// A range or a sample; values in the order of the metrics' names.
struct CountedValues {
  std::string range;                          // as it was begun; empty for samples
  std::uint64_t start_ns = 0, end_ns = 0;     // of samples, by CUPTI's clock
  std::vector<double> values;
};

// Functions return why they failed; empty: done. After a failure nothing more is counted.
class RangeCounters {
 public:
  virtual ~RangeCounters() = default;
  [[nodiscard]] virtual const ResolvedMetrics& metrics() const = 0;
  // Ranges that an image holds: no more may be begun between two calls of take().
  [[nodiscard]] virtual std::size_t most_ranges() const = 0;
  // The device is idle at both.
  virtual std::string begin(const std::string& range) = 0;
  virtual std::string end() = 0;
  // The ranges since the last call, in their order. A failure: CUPTI dropped some, or could not read them.
  virtual Result<std::vector<CountedValues>> take() = 0;
};

// `context`: of the driver, current in the calling thread, as is said of open_device_counters. Where CUPTI does not
// make or take an image for `most_ranges`, it is asked for half as many, and so on down to kFewestRanges.
inline constexpr std::size_t kFewestRanges = 16;
Result<std::unique_ptr<RangeCounters>> open_range_counters(const CuptiLibrary& library, void* context,
                                                           std::size_t most_ranges);

struct SamplingOptions {
  std::uint64_t interval_ns = 100'000;
  std::size_t device_bytes = std::size_t{512} << 20;  // raw samples that wait on the device
  std::uint32_t most_samples = 16384;                 // decoded at once
};

// Samples, also where not all could be had.
struct TakenSamples {
  std::vector<CountedValues> samples;
  std::string why;            // empty: all; else the device's buffer overflowed, or CUPTI could not read it
  std::uint64_t dropped = 0;  // samples that the device took and that were not read, as far as CUPTI tells
};

class CounterSampler {
 public:
  virtual ~CounterSampler() = default;
  [[nodiscard]] virtual const ResolvedMetrics& metrics() const = 0;
  virtual std::string start() = 0;
  // What was sampled since the last call.
  virtual TakenSamples take() = 0;
  // Nothing is sampled after; what is left is taken by take().
  virtual std::string stop() = 0;
};

// Of device 0, all of it, whoever uses it.
Result<std::unique_ptr<CounterSampler>> open_counter_sampler(const CuptiLibrary& library,
                                                             const SamplingOptions& options);

}  // namespace kvroof
