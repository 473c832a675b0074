// One run of the engine on a device, watched in one of CUPTI's modes. A run never fails because it cannot be watched.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/cupti/activity_api.hpp"
#include "kernels/engine/backend.hpp"
#include "kernels/engine/session.hpp"
#include "traces/kernel_records.hpp"

namespace kvroof {

// In this order: start, attach, the steps of a session, finish; nothing throws but what the sink does.
class RunProfile : public StepWatcher {
 public:
  // Before the device is used for the first time in the process.
  virtual void start() = 0;
  // Why nothing will be recorded, as far as that is known; empty: it will.
  [[nodiscard]] virtual std::string problem() const = 0;
  // The back end is there and has not run. Sink and back end outlive finish(); records reach the sink from one thread.
  virtual void attach(Backend& backend, ProfileSink& sink) = 0;
  // After the last step, before the back end goes. Empty: all was recorded; otherwise why nothing was.
  virtual std::string finish() = 0;
  // After finish: what the recording lacks; empty: nothing.
  [[nodiscard]] virtual std::string lost() const { return {}; }
};

// Kernels, copies, fills, clocks and power, each kernel with what the engine meant by it. `device`: whoever gives
// records where CUPTI does not (kernels/cuda/device_activity.hpp), or null. CUPTI allows it once in a process.
std::unique_ptr<RunProfile> make_trace_profile(ActivityApi* device);
// What the Range Profiler counts as one. An operator is launched by itself, the device idle before and after it.
enum class CountedRange : std::uint8_t { kStep, kOperator };
// Counters of ranges, and of the device every 100 us (PM sampling). An emulator has neither.
std::unique_ptr<RunProfile> make_counter_profile(bool emulated, CountedRange range = CountedRange::kStep);
std::unique_ptr<RunProfile> make_sampling_profile(bool emulated);

}  // namespace kvroof
