// Fuzz target: any bytes as the spool of a recorded process.
#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/cupti/profile_spool.hpp"
#include "sim/core/error.hpp"

namespace {

using namespace kvroof;

// Reads every text, so that one outside the bytes is seen by the address sanitizer.
class ReadingSink final : public ProfileSink {
 public:
  void add(const KernelRecord& r) override { read(r.mangled_name); }
  void add(const CopyRecord&) override { ++records; }
  void add(const FillRecord&) override { ++records; }
  void add(const CallRecord& r) override { read(r.name); }
  void add(const RangeRecord& r) override { read(r.text); }
  void add(const MemoryRecord&) override { ++records; }
  void add(const PoolRecord&) override { ++records; }
  void add(const OverheadRecord&) override { ++records; }
  void add(const EnvironmentRecord&) override { ++records; }
  void add(const DeviceRecord& r) override { read(std::string(r.name) + std::string(r.chip) + std::string(r.uuid)); }
  void add(const ProcessRecord& r) override { read(r.name); }
  void add(const OperatorRecord& r) override { read(std::string(r.name) + std::string(r.cause)); }
  void add(const CounterRecord& r) override { read(r.name); }
  void note(std::string_view key, std::string_view value) override { read(std::string(key) + std::string(value)); }
  std::uint64_t records = 0, sum = 0;

 private:
  void read(std::string_view text) {
    ++records;
    for (const char c : text) sum += static_cast<unsigned char>(c);
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  ReadingSink sink;
  const auto counts = kvroof::parse_spool(bytes, sink);
  if (!counts) {
    kvroof::check(!counts.error().empty() && counts.error().size() < 1000, "a refusal is one sentence");
    return 0;
  }
  kvroof::check(counts.value().records == sink.records && counts.value().kernels <= sink.records,
                "what is counted was handed over");
  return 0;
}
