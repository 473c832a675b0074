#include <nlohmann/json.hpp>

#include "tests/catch.hpp"
#include "tests/support/run_program.hpp"

using namespace kvroof::test;
using nlohmann::json;

TEST_CASE("replay --row-cache makes rows, says what they change, and reads them later with the same answer") {
  const TemporaryFolder folder;
  const std::string trace = folder.file("run.kvt"), rows = folder.file("rows");
  const std::string demo = std::string(KVROOF_SOURCE_DIR) + "/models/demo";
  REQUIRE(run_program("record --model " + demo + " --prompt-file " + demo + "/prompts/python-c-tuple.txt " +
                      "-n 32 --ignore-eos -o " + trace)
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
