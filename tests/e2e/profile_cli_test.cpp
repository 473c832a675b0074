#include "tests/support/profile.hpp"
#include "tests/support/run_program.hpp"

using namespace kvroof;
using namespace kvroof::test;

TEST_CASE("inspect says what a trace of a profiler's records alone holds, and replay refuses it in one sentence") {
  const TemporaryFolder folder;
  const std::string trace = folder.file("run.kvt");
  write_profile_trace(trace);
  const Ran ran = run_program("inspect " + trace);
  CHECK(ran.code == 0);
  CHECK(ran.out.find("none: a profiler's records alone") != std::string::npos);
  CHECK(ran.out.find("NVIDIA H200") != std::string::npos);
  CHECK(ran.out.find("4 kernels, 1 copies and fills, 4 calls, 2 ranges in 0.0016 ms") != std::string::npos);
  const std::vector<std::string> verbs = {"replay " + trace + " --policy full",
                                          "analyze " + trace + " -o " + folder.file("a")};
  for (const std::string& verb : verbs) {
    const Ran refused = run_program(verb);
    INFO(refused.err);
    CHECK(refused.code == 2);
    CHECK(refused.err.starts_with("error: " + trace +
                                  " holds a profiler's records alone, no queries, keys and values\n"));
  }
}
