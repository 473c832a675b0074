// A sink that keeps nothing and holds importers to what they promise.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "sim/core/error.hpp"
#include "traces/null_sink.hpp"

namespace kvroof::test {

class CheckingSink : public NullSink {
 public:
  using NullSink::add;
  void add(const KernelRecord& r) override {
    check_work(r.work);
    check(!r.mangled_name.empty(), "a kernel has a name");
  }
  void add(const CopyRecord& r) override { check_work(r.work); }
  void add(const FillRecord& r) override { check_work(r.work); }
  void add(const CallRecord& r) override { check(r.start_ns <= r.end_ns, "a call ends after its start"); }
  void add(const RangeRecord& r) override {
    check(r.end_ns == 0 || r.start_ns <= r.end_ns, "a range ends after its start");
  }

 private:
  static void check_work(const DeviceWork& w) { check(w.start_ns <= w.end_ns, "work ends after its start"); }
};

// What a fuzz target does with any bytes: reads them as a profile of this kind.
template <class Read>
void read_as_profile(const std::uint8_t* data, std::size_t size, Read read) {
  static const std::filesystem::path file =
      std::filesystem::temp_directory_path() / fmt::format("kvroof-fuzz-{}", getpid());
  std::ofstream(file, std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  CheckingSink sink;
  const auto counts = read(file, sink);
  std::filesystem::remove(file);
  check(counts || (!counts.error().empty() && counts.error().find('\n') == std::string::npos),
        "a refusal is one sentence");
}

}  // namespace kvroof::test
