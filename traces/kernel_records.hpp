// What a profiler saw: kernels, copies, launches, ranges, counters. Every recorder and importer hands these to a sink.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace kvroof {

// Views in these records need to live only for the call that hands them over. Times are nanoseconds of one clock, and
// start = end = 0 says that the profiler gave none. Codes are those of CUPTI 13.

// Where device work ran, and the call that launched it (0: unknown).
struct DeviceWork {
  std::uint64_t start_ns = 0, end_ns = 0;
  std::uint32_t device = 0, context = 0, stream = 0;
  std::uint32_t correlation = 0;   // of the launching call; all kernels of one graph launch share it
  std::uint64_t graph_node = 0;    // tells the kernels of one graph apart
  std::uint32_t process = 0;
};

struct KernelRecord {
  DeviceWork work;
  std::string_view mangled_name;  // or the demangled one where a profiler gave no other
  std::array<std::uint32_t, 3> grid{1, 1, 1}, block{1, 1, 1};
  std::uint32_t registers = 0;           // per thread
  std::uint32_t static_shared = 0, dynamic_shared = 0, shared_executed = 0;  // bytes per block
  std::uint32_t local_per_thread = 0;    // bytes
  std::uint64_t local_total = 0;         // bytes
  std::uint64_t grid_id = 0;
  std::string_view demangled_name{};  // of an importer whose profiler gave both; empty: what the other stands for
};

struct CopyRecord {
  DeviceWork work;
  std::uint64_t bytes = 0;
  std::uint32_t kind = 0;                      // CUpti_ActivityMemcpyKind: 1 host to device, 2 back, 8 on the device
  std::uint32_t source_kind = 0, target_kind = 0;  // CUpti_ActivityMemoryKind
};

struct FillRecord {
  DeviceWork work;
  std::uint64_t bytes = 0;
  std::uint32_t value = 0;
  std::uint32_t memory_kind = 0;
};

// A call of the runtime or the driver.
struct CallRecord {
  std::uint64_t start_ns = 0, end_ns = 0;
  std::uint32_t process = 0, thread = 0;
  std::uint32_t correlation = 0;
  std::uint32_t result = 0;
  bool driver = false;
  std::string_view name;
};

// A range or mark of the application (NVTX). end_ns = 0: a mark.
struct RangeRecord {
  std::uint64_t start_ns = 0, end_ns = 0;
  std::uint32_t process = 0, thread = 0;
  std::string_view text;
  // Begun and ended by an id (nvtxRangeStart), not pushed and popped on a thread. CUPTI does not tell: false.
  bool by_id = false;
};

// A pool that allocations in the order of a stream (cudaMallocAsync) are taken from, as it is after the operation.
struct PoolState {
  std::uint32_t type = 0;  // CUpti_ActivityMemoryPoolType, kLocalPool or kImportedPool; 0: no pool
  std::uint64_t address = 0;
  // Of a local pool: bytes that it keeps when they are freed, that it holds, that allocations of it have.
  std::uint64_t release_threshold = 0, bytes = 0, used_bytes = 0;
  std::uint64_t owner = 0;  // of an imported pool: the pid whose it is
};
inline constexpr std::uint32_t kLocalPool = 1, kImportedPool = 2;

struct MemoryRecord {
  std::uint64_t time_ns = 0;
  std::uint32_t process = 0, device = 0, context = 0;
  std::uint64_t address = 0, bytes = 0;
  std::uint32_t memory_kind = 0;
  bool release = false;
  PoolState pool{};
  std::uint64_t code_address = 0;  // of the caller; 0: not known
  std::uint32_t correlation = 0;   // of the call; 0: none
  std::int64_t stream = -1;        // of one in the order of a stream; -1: of none
  std::string_view name{};         // of a variable of the program; empty: of none
};

// A pool is made, destroyed, or gives memory back to the device.
struct PoolRecord {
  std::uint64_t time_ns = 0;
  std::uint32_t process = 0, device = 0, correlation = 0;
  std::uint32_t operation = 0;    // CUpti_ActivityMemoryPoolOperationType: 1 created, 2 destroyed, 3 trimmed
  std::uint64_t least_bytes = 0;  // of a trim: what the pool may keep
  PoolState pool{};
};
inline constexpr std::uint32_t kPoolTrimmed = 3;

// Time that the profiler itself cost.
struct OverheadRecord {
  std::uint64_t start_ns = 0, end_ns = 0;
  std::uint32_t kind = 0;  // CUpti_ActivityOverheadKind
};

// A device's clocks, power and temperature at a moment.
struct EnvironmentRecord {
  std::uint64_t time_ns = 0;
  std::uint32_t device = 0;
  std::uint32_t sm_clock_mhz = 0, memory_clock_mhz = 0, power_mw = 0, temperature_c = 0;
};

// A GPU as a process numbers it: `device` of two processes may be two GPUs, or the same one twice.
struct DeviceRecord {
  std::uint32_t device = 0;
  std::string_view name{}, chip{};
  std::uint64_t memory_bytes = 0, l2_bytes = 0;
  std::uint32_t multiprocessors = 0, compute_major = 0, compute_minor = 0;
  std::uint32_t process = 0;   // 0: every process numbers it so
  std::string_view uuid{};     // "GPU-…"; empty: not known, and devices of the same number are one GPU
};

// A program that was recorded. Of the programs of one pid, which the same pid by exec or a later process may be, each
// but the first has a number that is no pid: from kFirstProcessNumber on, above every pid of Linux.
struct ProcessRecord {
  std::uint32_t process = 0;
  std::string_view name{};
  std::uint32_t pid = 0;  // 0: the process's number
};
inline constexpr std::uint32_t kFirstProcessNumber = (1U << 22U) + 1;

// What the engine meant by a kernel: that of this launching call and this graph node (0 outside graphs). A record whose
// correlation is 0 holds for every launch of its node that has no record of its own. A kernel that moves bytes for
// several causes has a record for each, one after another.
// Of what no step of this engine meant: an operator of another framework.
inline constexpr std::uint32_t kNoStep = UINT32_MAX;
struct OperatorRecord {
  std::uint64_t graph_node = 0;
  std::uint32_t correlation = 0;
  std::uint32_t step = 0;
  std::int32_t layer = -1;  // -1: outside the layers
  std::string_view name;    // qkv, attention, output, …
  std::string_view cause;   // weights | kv_read | kv_write | scores | compaction | activations
  std::uint64_t declared_bytes = 0;
  std::uint64_t declared_flops = 0;  // 0: not known
  std::int32_t sequence = -1;        // -1: of several
};

// A counter over the steps [first_step, first_step + steps), or, with steps = 0, a sample at time_ns. With an operator
// it is of one launch of it within the step.
struct CounterRecord {
  std::uint32_t first_step = 0, steps = 0;
  std::uint64_t time_ns = 0;
  std::uint32_t device = 0;
  std::string_view name;  // a metric's name, such as dram__bytes_read.sum
  double value = 0;
  std::int32_t layer = -1;           // of the operator; -1: outside the layers
  std::string_view operation{};      // qkv, attention, …; empty: all that ran
  std::uint64_t declared_bytes = 0;  // by the engine, for the launch of the operator
};

class ProfileSink {
 public:
  virtual ~ProfileSink() = default;
  virtual void add(const KernelRecord& record) = 0;
  virtual void add(const CopyRecord& record) = 0;
  virtual void add(const FillRecord& record) = 0;
  virtual void add(const CallRecord& record) = 0;
  virtual void add(const RangeRecord& record) = 0;
  virtual void add(const MemoryRecord& record) = 0;
  virtual void add(const PoolRecord& record) = 0;
  virtual void add(const OverheadRecord& record) = 0;
  virtual void add(const EnvironmentRecord& record) = 0;
  virtual void add(const DeviceRecord& record) = 0;
  virtual void add(const ProcessRecord& record) = 0;
  virtual void add(const OperatorRecord& record) = 0;
  virtual void add(const CounterRecord& record) = 0;
  // A fact about the recording: "level" = none | trace | counters | pm, "why" = why not more, "dropped" = records
  // lost, …; of a key that is given twice the last value counts.
  virtual void note(std::string_view key, std::string_view value) = 0;
  // What was added so far may be brought where a kill of the process cannot take it away.
  virtual void flush() {}
};

}  // namespace kvroof
