// The profiler's records of a trace, read one at a time in the order of their times; memory stays flat.
#pragma once

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/core/byte_counters.hpp"
#include "sim/core/error.hpp"
#include "traces/kernel_records.hpp"

namespace kvroof {

enum class WorkKind : std::uint8_t { kKernel, kCopy, kFill };

// What the engine meant by a kernel.
struct KernelMeaning {
  std::uint32_t step = 0;
  std::int32_t layer = -1;
  std::string_view operation;
  std::string_view cause;  // of the first record, for kernels that declare no bytes
  ByteCounters declared;
  std::uint64_t flops = 0;
};

// A piece of device work. Views live as long as the call that hands it over.
struct WorkRow {
  WorkKind kind = WorkKind::kKernel;
  DeviceWork work;
  // Which GPU of the recording its device is, by a number that processes share; empty: the recording does not say.
  std::optional<std::uint32_t> gpu;
  std::string_view name;       // the kernel's short name; the direction of a copy
  std::string_view purpose;    // of a kernel, as its name tells (kernel_kinds.hpp)
  std::uint64_t bytes = 0;     // of copies and fills
  std::optional<KernelMeaning> meaning;
  // Of a kernel with a meaning: when the last such before it in its stream ended. It may have been made ready earlier
  // (programmatic dependent launch), and waited until then.
  std::uint64_t waited_until_ns = 0;

  // What it took beyond that wait; 0 where it has no times.
  [[nodiscard]] std::uint64_t own_ns() const {
    const std::uint64_t start = std::max(work.start_ns, waited_until_ns);
    return work.end_ns > start ? work.end_ns - start : 0;
  }
};

struct KernelCounts {
  std::uint64_t kernels = 0, copies = 0, fills = 0, calls = 0, ranges = 0, memory = 0, operators = 0, counters = 0;
  std::uint64_t processes = 0;              // that launched kernels
  std::uint64_t first_ns = 0, last_ns = 0;  // of the device's work; 0, 0 where no work has times
};

class KernelReader {
 public:
  // kernels.sqlite of a trace (its checksum is the caller's matter). Throws Error (damaged trace) where it cannot be
  // read, as does every function below.
  static KernelReader open(const std::filesystem::path& trace);

  [[nodiscard]] KernelCounts counts() const;
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> notes() const;  // by key
  // Names of devices are views of strings that the reader holds.
  [[nodiscard]] std::vector<DeviceRecord> devices() const;
  // Of the GPU that is this device of a process (DeviceWork); empty: the recording does not name it.
  [[nodiscard]] std::string_view device_name(std::uint32_t process, std::uint32_t device) const;

  // Kernels, copies and fills by their start; those without times come first.
  void for_each_work(const std::function<void(const WorkRow&)>& visit) const;
  void for_each_call(const std::function<void(const CallRecord&)>& visit) const;
  // When a timeline of work that begins at `work_ns` begins: with the first range, the call that launched the first
  // work, or one that was in progress, so that all have their true lengths.
  [[nodiscard]] std::uint64_t timeline_start(std::uint64_t work_ns) const;
  void for_each_range(const std::function<void(const RangeRecord&)>& visit) const;
  // The engine's steps, ascending: their phase and the bytes that it counted.
  void for_each_step(
      const std::function<void(std::uint32_t step, std::string_view phase, const ByteCounters& bytes)>& visit) const;
  // Counters of steps by their first step, then samples by time.
  void for_each_counter(const std::function<void(const CounterRecord&)>& visit) const;
  // Each table as text, a row at a time, ids of strings replaced by the strings: the header first. Tables in the order
  // of their names; those without rows are left out.
  void for_each_table(const std::function<void(std::string_view table)>& begin,
                      const std::function<void(const std::vector<std::string_view>& row)>& row) const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace kvroof
