#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/catch.hpp"
#include "tests/support/run_program.hpp"

using namespace kvroof::test;
using nlohmann::json;

TEST_CASE("replay --row-cache makes rows, says what they change, and reads them later with the same answer") {
  const TemporaryFolder folder;
  const std::string trace = folder.file("run.kvt"), rows = folder.file("rows");
  const std::string demo = std::string(KVROOF_SOURCE_DIR) + "/models/demo";
  std::string prompt(900, ' ');  // some hundred tokens: enough to evict most of, and no more
  std::ifstream(demo + "/prompts/python-c-tuple.txt").read(prompt.data(), static_cast<std::streamsize>(prompt.size()));
  std::ofstream(folder.file("prompt.txt")) << prompt;
  REQUIRE(run_program("record --model " + demo + " --prompt-file " + folder.file("prompt.txt") +
                      " -n 32 --ignore-eos -o " + trace)
              .code == 0);
  const std::string words = "replay " + trace + " --policy h2o --budget 0.2,0.5 --format json --row-cache " + rows;
  const Ran made = run_program(words);
  REQUIRE(made.code == 0);
  CHECK_THAT(made.err, ContainsSubstring("making attention rows of "));
  json first = json::parse(made.out);
  REQUIRE(first["row_cache"]["points"].size() == 2);
  for (const json& point : first["row_cache"]["points"]) {
    CHECK(point["same_share"] >= 0.99);
    CHECK(point["same_tokens"] <= point["tokens"]);
  }
  const Ran read = run_program(words);
  REQUIRE(read.code == 0);
  CHECK_THAT(read.err, !ContainsSubstring("making"));
  json second = json::parse(read.out);
  CHECK_FALSE(second.contains("row_cache"));
  CHECK(second["points"] == first["points"]);
  const Ran checked = run_program(words.substr(0, words.find(" --format")) + " --row-cache-check --row-cache " + rows);
  CHECK_THAT(checked.out, ContainsSubstring("rows of one byte a weight keep 9"));
  const Ran alone = run_program("replay " + trace + " --policy h2o --budget 0.5 --row-cache-check");
  CHECK(alone.code == 2);
  CHECK_THAT(alone.err, ContainsSubstring("add --row-cache"));
}

TEST_CASE("replay --row-cache serves policies that add up all rows, and refuses others before it makes a folder") {
  const TemporaryFolder folder;
  const std::string trace = folder.file("run.kvt"), rows = folder.file("rows");
  const std::string demo = std::string(KVROOF_SOURCE_DIR) + "/models/demo";
  REQUIRE(run_program("record --model " + demo + " --prompt hello -n 8 --ignore-eos -o " + trace).code == 0);
  const auto replayed = [&](const std::string& policies) {
    return run_program("replay " + trace + " --policy " + policies + " --quality none --row-cache " + rows);
  };
  for (const char* policy : {"tova:budget=0.5", "snapkv:budget=0.5", "scissorhands:budget=0.5", "a2sf:budget=0.5",
                             "keyformer:budget=0.5:noise=query", "keyformer:budget=0.5:damping=0.9",
                             "oracle:budget=2"}) {
    const Ran refused = replayed("h2o:budget=0.5," + std::string(policy));
    CHECK(refused.code == 2);
    CHECK_THAT(refused.err, ContainsSubstring(std::string(policy).substr(0, 4)) && ContainsSubstring("--row-cache"));
    CHECK_FALSE(std::filesystem::exists(rows));
  }
  const Ran served = replayed("h2o:budget=0.5,keyformer:budget=0.5,observed-attention:budget=0.5,window:budget=0.5,"
                              "a2sf:budget=0.5:forgetting=1,keyformer:budget=0.5:score=shared");
  CHECK(served.code == 0);
  CHECK_THAT(served.out, ContainsSubstring("rows of one byte a weight keep "));
}
