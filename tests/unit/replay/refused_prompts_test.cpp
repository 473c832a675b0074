// A policy that refuses one prompt of a trace refuses the trace.
#include <string>

#include "sim/replay/replay.hpp"
#include "tests/catch.hpp"
#include "tests/support/qkv_trace.hpp"
#include "tests/support/run_program.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

struct Layers final : ReplayObserver {
  void progress(std::uint64_t done, std::uint64_t) override { finished = done; }
  std::uint64_t finished = 0;
};

}  // namespace

TEST_CASE("one prompt that is all window of rule=kvpress refuses a trace before anything of it is replayed") {
  const TemporaryFolder folder;
  Qkv shape;
  shape.tokens = 30;
  TraceOptions written;
  written.prompt = 24;
  written.sequences = 3;
  written.last_prompt = 8;
  write_trace(folder.path() / "x.kvt", random_qkv(shape, 3), written);
  const TraceReader trace = TraceReader::open(folder.path() / "x.kvt");
  ThreadPool pool(1);
  Layers layers;
  ReplayOptions options;
  options.observer = &layers;
  const auto why_not = [&](const std::string& policies) {
    try {
      replay(trace, parse_policies(policies), options, pool);
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::kUsage);
      return std::string(error.what());
    }
    return std::string();
  };
  for (const std::string policy : {"snapkv", "pyramidkv", "adakv"}) {
    INFO(policy);
    const std::string why = why_not("full," + policy + ":compression=0.5:rule=kvpress:window=8");
    CHECK(why.starts_with("sequence 2: policy " + policy + ": rule=kvpress evicts from prompts "));
    CHECK(why.find("at least 9 tokens, found 8") != std::string::npos);
    CHECK(layers.finished == 0);
  }
  // The short prompt is kept whole where the budget is no share.
  CHECK(why_not("snapkv:budget=8:rule=kvpress:window=8").empty());
  CHECK(layers.finished == 3);
  CHECK(why_not("snapkv:compression=0.5:rule=kvpress:window=7,snapkv:budget=4:window=8").empty());
}
