// Activity buffers of CUPTI, raw bytes, to profile records. Needs no CUPTI, and reads nothing outside the buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "traces/kernel_records.hpp"

namespace kvroof {

// What a record points to instead of holding it. The bytes of a record prove nothing: whoever answers decides which
// addresses it trusts.
class ActivityLookup {
 public:
  virtual ~ActivityLookup() = default;
  // The text at an address of this process; empty where there is none.
  virtual std::string_view text(std::uint64_t address) = 0;
  // The name of a function of the runtime or of the driver; empty where it is not known.
  virtual std::string_view call(bool driver, std::uint32_t function) = 0;
  // What the engine meant by the launch that it pushed this id for: a record for each cause of its bytes, once for a
  // correlation. The correlation is filled in after.
  virtual std::vector<OperatorRecord> meaning(std::uint64_t external_id, std::uint32_t correlation) = 0;
};

struct ActivityCounts {
  std::uint64_t records = 0;       // handed to the sink, or known and not of interest
  std::uint64_t kernels = 0;
  std::uint64_t unknown = 0;       // records of a kind whose size is not known: with them the rest of a buffer is lost
  std::uint64_t lost_bytes = 0;    // behind unknown kinds, and of records that the end of a buffer cuts
  std::uint64_t cut = 0;           // records that the end of a buffer cuts
  std::uint64_t without_time = 0;  // device work with no times, or with an end before its start
  std::uint64_t open_ranges = 0;   // ranges whose other end never came; they are left out
};

// One process, many buffers, in any order. Sink and lookup must outlive it.
class ActivityDecoder {
 public:
  ActivityDecoder(ProfileSink& sink, ActivityLookup& lookup, std::uint32_t process)
      : sink_(sink), lookup_(lookup), process_(process) {}

  // Walks a buffer by the sizes of the records of CUPTI 13.0.
  void decode(std::span<const std::byte> buffer);
  // One record, from its first byte to the next one's (or the buffer's end): fields behind its end are 0.
  void decode_record(std::span<const std::byte> record);
  // After the last buffer.
  void finish();
  [[nodiscard]] const ActivityCounts& counts() const { return counts_; }

 private:
  using Record = std::span<const std::byte>;
  template <class Fields>
  DeviceWork work(Record record);
  void settle(DeviceWork& work);
  void kernel(Record record);
  void copy(Record record);
  void fill(Record record);
  void graph(Record record);
  void call(Record record, bool driver);
  void external(Record record);
  void marker(Record record);
  void memory(Record record);
  void pool(Record record);
  void overhead(Record record);
  void environment(Record record);
  void device(Record record);

  struct HalfRange {
    bool has_start = false;
    std::uint64_t time_ns = 0;
    std::uint32_t process = 0, thread = 0;
    std::string text;
  };
  void join(std::uint32_t id, const HalfRange& first, const HalfRange& second);

  ProfileSink& sink_;
  ActivityLookup& lookup_;
  std::uint32_t process_;
  ActivityCounts counts_;
  std::map<std::uint32_t, HalfRange> ranges_;  // by the marker's id, until the other half comes
  std::map<std::uint32_t, EnvironmentRecord> environments_;  // by device: clocks, power, temperature come one by one
};

}  // namespace kvroof
