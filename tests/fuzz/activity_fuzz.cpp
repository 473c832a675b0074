// Fuzz target: any bytes as an activity buffer of CUPTI.
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cupti/activity_decoder.hpp"
#include "sim/core/error.hpp"
#include "traces/null_sink.hpp"

namespace {

using namespace kvroof;

// What must hold of every record, whatever the bytes.
class CheckingSink final : public NullSink {
 public:
  using NullSink::add;
  void add(const KernelRecord& r) override { check_work(r.work); }
  void add(const CopyRecord& r) override { check_work(r.work); }
  void add(const FillRecord& r) override { check_work(r.work); }
  void add(const CallRecord& r) override { check(!r.name.empty(), "a call has a name"); }
  void add(const RangeRecord& r) override {
    check(r.end_ns == 0 || r.end_ns >= r.start_ns, "a range ends after its start");
  }

 private:
  static void check_work(const DeviceWork& work) {
    check(work.start_ns <= work.end_ns && (work.start_ns == 0) == (work.end_ns == 0), "a duration or no times");
  }
};

// No address of foreign bytes is trusted.
class NoLookup final : public ActivityLookup {
 public:
  std::string_view text(std::uint64_t) override { return "name"; }
  std::string_view call(bool, std::uint32_t) override { return {}; }
  std::vector<OperatorRecord> meaning(std::uint64_t id, std::uint32_t) override {
    return std::vector<OperatorRecord>(id % 3);
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // A copy of exactly this size: what reads behind it is seen by the address sanitizer.
  const auto* const bytes = reinterpret_cast<const std::byte*>(data);
  const std::vector<std::byte> buffer(bytes, bytes + size);
  CheckingSink sink;
  NoLookup lookup;
  ActivityDecoder decoder(sink, lookup, 1);
  decoder.decode(buffer);
  decoder.decode_record(buffer);
  decoder.finish();
  const ActivityCounts& counts = decoder.counts();
  check(counts.lost_bytes <= 2 * size && counts.cut <= 1 && counts.unknown <= 2, "a buffer is lost at most once");
  check((counts.records + 1) * 24 <= size + 48, "no record is smaller than the smallest");
  return 0;
}
