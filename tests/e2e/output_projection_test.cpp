// Policies that weigh v by the model's output projection: a replay reads it from the folder that the trace names.
#include <nlohmann/json.hpp>

#include "tests/catch.hpp"
#include "tests/support/run_program.hpp"

using namespace kvroof::test;

TEST_CASE("replay under criticalkv decides as the engine did, with the output projection of the recorded model") {
  const TemporaryFolder folder;
  const std::string trace = folder.file("run.kvt");
  std::string ids;
  for (int i = 0; i < 64; ++i) ids += std::to_string(100 + i * 37 % 900) + " ";
  const Ran recorded = run_program("record --model " KVROOF_SOURCE_DIR "/models/demo --ids \"" + ids +
                                   "\" --max-tokens 5 --ignore-eos --policy criticalkv:budget=0.5 --backend reference "
                                   "-o " + trace);
  INFO(recorded.err);
  REQUIRE(recorded.code == 0);
  const Ran replayed = run_program("replay " + trace + " --policy criticalkv:budget=0.5 --format json");
  INFO(replayed.err);
  REQUIRE(replayed.code == 0);
  const auto reproduction = nlohmann::json::parse(replayed.out)["policies"][0]["reproduction"];
  CHECK(reproduction["differences"] == 0);
  CHECK(reproduction["decisions"].get<int>() > 0);
}

TEST_CASE("replay refuses criticalkv on a trace that names no model folder, in one sentence") {
  const TemporaryFolder folder;
  const std::string trace = folder.file("x.kvt");
  const std::string tensors = KVROOF_SOURCE_DIR "/tests/golden/policies/h2o_gqa_sum_n64_h8_kv2.safetensors";
  REQUIRE(run_program("import qkv " + tensors + " --prompt 64 -o " + trace).code == 0);
  const Ran ran = run_program("replay " + trace + " --policy criticalkv:budget=0.6");
  CHECK(ran.code == 2);
  CHECK(ran.out.empty());
  CHECK(ran.err.starts_with("error: the trace names no model folder, and a policy that weighs v"));
}
