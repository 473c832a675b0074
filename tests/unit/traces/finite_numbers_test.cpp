#include "traces/finite_numbers.hpp"

#include "tests/catch.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/small_trace.hpp"
#include "traces/import_profile.hpp"
#include "traces/null_sink.hpp"

using namespace kvroof;
using namespace kvroof::test;

TEST_CASE("Infinite numbers in a profile of PyTorch are no values, wherever the blocks of the file end") {
  const TemporaryFolder folder;
  const std::string file = folder.file("trace.json");
  // PyTorch 1.8 divides the bytes of a copy by its time of 0 us. A name is text, whatever words are in it.
  const std::string events =
      R"j({"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD (Pinned -> Device)", "ts": 5, "dur": 0, "args": )j"
      R"j({"bytes": 200, "memory bandwidth (GB/s)": inf}}, {"ph": "X", "cat": "kernel", "name": "a \"inf: nan, NaN", )j"
      R"j("ts": 7, "dur": 2, "args": {"blocks per SM": Infinity, "occupancy": nan, "stream": 3, "x": [-inf,NaN]}}, )j"
      R"j({"ph": "X", "cat": "kernel", "name": "k", "ts": 5, "dur": -Infinity}]})j";
  const std::string begin = R"({"traceEvents": [)";
  constexpr std::size_t kBlock = 1U << 18;  // of the reader
  for (std::size_t cut = 0; cut < events.size(); ++cut) {
    write_file(file, begin + std::string(kBlock - begin.size() - cut, ' ') + events);
    struct : NullSink {
      using NullSink::add;
      void add(const KernelRecord& record) override { kernel = record.mangled_name; }
      std::string kernel;
    } sink;
    const auto counts = read_kineto(file, sink);
    INFO(cut);
    REQUIRE(counts);
    CHECK((counts.value().copies == 1 && counts.value().kernels == 1 && counts.value().left_out.timeless == 1));
    CHECK(sink.kernel == "a \"inf: nan, NaN");
  }
  for (const std::string word : {"in", "-", "infinity", "nane", "nul"}) {
    write_file(file, begin + R"({"dur": )" + word + "}]}");
    NullSink sink;
    INFO(word);
    CHECK(read_kineto(file, sink).error().find(" of the JSON: `") != std::string::npos);
  }
}
