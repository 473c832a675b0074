// Where a GPU's time went: by operator or kernel, by engine step and cause, and between pieces of work.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "analysis/duration_spread.hpp"
#include "sim/core/byte_counters.hpp"
#include "traces/kernel_reader.hpp"

namespace kvroof {

// DRAM bytes that counters saw, and what the engine declared for the same work.
struct CountedBytes {
  double bytes = 0;
  std::uint64_t declared = 0;
  bool reads = false, writes = false;  // are in them
  void add(double moved, bool is_write);
  CountedBytes& operator+=(const CountedBytes& other);
  [[nodiscard]] bool any() const { return reads || writes; }
  // Whether the two can be compared.
  [[nodiscard]] bool comparable() const { return reads && writes && declared > 0; }
  [[nodiscard]] double ratio() const { return bytes / static_cast<double>(declared); }
};

// All launches of one name.
struct WorkTotals {
  std::string name;
  std::string purpose;      // of kernels that the engine said nothing of, as their names tell (kernel_kinds.hpp)
  std::uint64_t calls = 0;
  std::uint64_t timed = 0;  // of them with times: the others add to calls and bytes alone
  std::uint64_t total_ns = 0, min_ns = 0, max_ns = 0;
  DurationSpread spread;
  std::uint64_t bytes = 0;  // that the engine declared for kernels; moved by copies and fills
  std::uint64_t flops = 0;  // 0: not known
  std::uint64_t known = 0;  // of the calls: those whose bytes are known
  CountedBytes counted;     // of launches that were counted one by one, perhaps in another run

  void add(std::uint64_t duration_ns, bool has_times);
  WorkTotals& operator+=(const WorkTotals& other);  // keeps its name
  [[nodiscard]] double mean_ns() const;
  [[nodiscard]] double median_ns() const;
  [[nodiscard]] double bytes_per_second() const;  // 0 where no time was measured
  [[nodiscard]] double flops_per_byte() const;    // 0 where either is not known
};

// An engine step. The time of a kernel is shared among its causes as the bytes are that it declared for each.
struct StepTotals {
  std::uint32_t step = 0;
  std::uint64_t kernels = 0;
  std::array<double, kCauses> cause_ns{};
  ByteCounters declared;
  [[nodiscard]] double of(Cause cause) const { return cause_ns[static_cast<std::size_t>(cause)]; }
  [[nodiscard]] double policy_ns() const { return of(Cause::kScores) + of(Cause::kCompaction); }
  [[nodiscard]] double kv_ns() const { return of(Cause::kKvRead) + of(Cause::kKvWrite); }
  [[nodiscard]] double total_ns() const;
  StepTotals& operator+=(const StepTotals& other);  // of what is summed
};

struct CountedSteps {
  std::uint32_t first_step = 0, steps = 0;
  CountedBytes counted;
};

struct KernelReport {
  // By time, the longest first. The name is the operator's where the engine said what it meant, else the kernel's.
  // Those that were counted and of which no kernel was recorded have no calls.
  std::vector<WorkTotals> operators;
  std::vector<WorkTotals> purposes;  // the same kernels by purpose, those that the engine meant by operator
  std::vector<WorkTotals> copies;    // and fills, by their direction
  WorkTotals all_kernels;
  std::vector<StepTotals> steps;  // those with declared kernels, ascending
  std::vector<CountedSteps> counted;
  double policy_ns = 0;  // of all steps: scores and compaction, what the eviction policy itself costs
  std::uint64_t policy_bytes = 0;
  std::uint64_t elapsed_ns = 0;  // from the first to the last work of each GPU, added up
  std::uint64_t idle_ns = 0, gaps = 0, longest_gap_ns = 0;  // of it with nothing running
  // Processes of which the recording does not say which GPUs they had, where there are others: each counts as one with
  // GPUs of its own.
  std::uint64_t without_gpu = 0;
};

// Takes work in the order of its starts; memory grows with names, steps and devices alone.
class KernelReportBuilder {
 public:
  void add(const WorkRow& row);
  void add(const CounterRecord& counter);
  // What the engine itself counted for a step, kernels or not.
  void add_step(std::uint32_t step, const ByteCounters& bytes) { engine_steps_[step] = bytes; }
  [[nodiscard]] KernelReport finish();

 private:
  [[nodiscard]] std::uint64_t declared_of(std::uint32_t first_step, std::uint32_t steps) const;
  struct Span {
    std::uint64_t first_ns = 0, last_ns = 0;
  };
  using Totals = std::map<std::string, WorkTotals, std::less<>>;
  static WorkTotals& named(Totals& totals, std::string_view name);
  WorkTotals& kernels_of(const WorkRow& row);
  void add_meaning(const KernelMeaning& meaning, std::uint64_t duration_ns);
  void add_span(const WorkRow& row);

  KernelReport report_;
  Totals operators_, purposes_, copies_;
  std::map<std::uint32_t, StepTotals> steps_;
  // By whether the GPU is known, the process where it is not, and the number of the GPU or of the process's device.
  std::map<std::tuple<bool, std::uint32_t, std::uint32_t>, Span> devices_;
  std::map<std::uint32_t, ByteCounters> engine_steps_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, CountedBytes> counted_;  // by first step and number of steps
};

}  // namespace kvroof
