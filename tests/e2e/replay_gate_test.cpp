// The gate of kvroof replay: a recording under a policy must be what the replay of that policy decides.
#include <nlohmann/json.hpp>

#include "tests/catch.hpp"
#include "tests/support/qkv_trace.hpp"
#include "tests/support/run_program.hpp"

using namespace kvroof::test;

TEST_CASE("a recording that the replay of its policy does not reproduce fails with exit code 3, after the results") {
  const TemporaryFolder folder;
  Qkv shape;
  shape.tokens = 12;
  TraceOptions options;
  options.prompt = 10;
  options.source = "engine";
  options.policy = "window:budget=9";
  options.evictions = {{0, 0, 0, 0, 0}, {0, 0, 0, 1, 0}, {0, 1, 0, 0, 1},
                       {0, 1, 0, 1, 5}, {0, 2, 0, 0, 2}, {0, 2, 0, 1, 1}};  // token 5 goes in place of 1
  write_trace(folder.path() / "x.kvt", random_qkv(shape, 5), options);
  const Ran ran = run_program("replay " + folder.file("x.kvt") + " --policy full,window:budget=9 --format json");
  CHECK(ran.code == 3);
  CHECK(ran.err ==
        "error: window:budget=9: 1 of 6 recorded evictions differ from the replay's by more than rounding; the first: "
        "layer 0, step 1, head 1: the replay gives up token 1, the recording token 5\n");
  const nlohmann::json reproduction = nlohmann::json::parse(ran.out)["policies"][1]["reproduction"];
  CHECK(reproduction ==
        nlohmann::json{{"decisions", 6}, {"differences", 1}, {"beyond_rounding", 1}, {"holds", false}});
  // The same policy, written otherwise.
  CHECK(run_program("replay " + folder.file("x.kvt") + " --policy window --budget 09").code == 3);
  // Who does not replay the recorded policy does not ask for the comparison, and is told that there is none.
  const std::string not_compared = "the evictions that were recorded under window:budget=9 are not compared";
  for (const char* words : {" --policy full,h2o:budget=9", " --policy window:budget=8",
                            " --policy window:budget=9 --seed 1"}) {
    INFO(words);
    const Ran other = run_program("replay " + folder.file("x.kvt") + words + " --format json");
    CHECK(other.code == 0);
    CHECK(nlohmann::json::parse(other.out)["manifest"]["notes"].dump().find(not_compared) != std::string::npos);
  }
  CHECK(ran.out.find(not_compared) == std::string::npos);
}

TEST_CASE("of a recording under a policy that evicts nothing no eviction is said to be reproduced") {
  const TemporaryFolder folder;
  Qkv shape;
  shape.tokens = 24;
  TraceOptions options;
  options.prompt = 20;
  options.source = "engine";
  options.policy = "quest:budget=8:page=4";
  write_trace(folder.path() / "x.kvt", random_qkv(shape, 5), options);
  const Ran ran = run_program("replay " + folder.file("x.kvt") + " --policy quest:budget=8:page=4 --format json");
  CHECK(ran.code == 0);
  CHECK(ran.out.find("recorded evictions") == std::string::npos);
  CHECK_FALSE(nlohmann::json::parse(ran.out)["policies"][0].contains("reproduction"));
}
