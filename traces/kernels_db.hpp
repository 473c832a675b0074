// kernels.sqlite of a trace as it is written: engine steps with clock times, and what a profiler saw.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "traces/kernel_records.hpp"
#include "traces/writer.hpp"

namespace kvroof {

// Takes records of a profiler, from one thread at a time, into a file beside its final name. Memory stays flat: only
// different names are held. Records reach the file in transactions of 100,000, or with flush(): a process that is
// killed loses at most the open one. Every function may throw Error.
class KernelDatabase final : public ProfileSink {
 public:
  enum class From : std::uint8_t { kNothing, kStaged };  // kStaged: go on with what a killed writer left (kernels_left)

  // Stages the file `path`.part; `path` itself appears with complete().
  explicit KernelDatabase(const std::filesystem::path& path, From from = From::kNothing);
  // What was staged stays there where it holds records, for a repair.
  ~KernelDatabase() override;

  void add(const KernelRecord& record) override;
  void add(const CopyRecord& record) override;
  void add(const FillRecord& record) override;
  void add(const CallRecord& record) override;
  void add(const RangeRecord& record) override;
  void add(const MemoryRecord& record) override;
  void add(const PoolRecord& record) override;
  void add(const OverheadRecord& record) override;
  void add(const EnvironmentRecord& record) override;
  void add(const DeviceRecord& record) override;
  void add(const ProcessRecord& record) override;
  void add(const OperatorRecord& record) override;
  void add(const CounterRecord& record) override;
  void note(std::string_view key, std::string_view value) override;
  void flush() override;

  // Adds the engine's steps (one whose two times are 0 has none: NULL), makes the file durable and renames it.
  void complete(std::span<const StepRecord> steps);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Where a database is staged that will be `path`.
std::filesystem::path staged_kernels_db(const std::filesystem::path& path);

// A whole file without records of a profiler. Throws Error.
void write_kernels_db(const std::filesystem::path& path, std::span<const StepRecord> steps);

// Start and end of each step in nanoseconds, in the order of steps; 0, 0 where unknown.
Result<std::vector<std::pair<std::uint64_t, std::uint64_t>>> read_step_times(const std::filesystem::path& path);

}  // namespace kvroof
