// kvroof replay --quality: what is measured changes no byte of what is kept, read and priced.
#include <array>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/catch.hpp"
#include "tests/support/run_program.hpp"

using kvroof::test::Ran;
using kvroof::test::run_program;
using kvroof::test::slurp;
using kvroof::test::TemporaryFolder;
using nlohmann::json;

namespace {

struct Measured {
  std::string out, kept;
};

Measured replay_with(const std::string& options,
                     const std::string& policies = "h2o:budget=0.25,random:budget=0.25,oracle:budget=0.25") {
  const TemporaryFolder folder;
  const std::string trace = folder.file("x.kvt");
  const std::string kept = folder.file("kept.jsonl");
  const std::string tensors =
      std::string(KVROOF_SOURCE_DIR) + "/tests/golden/policies/h2o_gqa_sum_n64_h8_kv2.safetensors";
  REQUIRE(run_program("import qkv " + tensors + " --prompt 40 -o " + trace).code == 0);
  const Ran ran =
      run_program("replay " + trace + " --policy " + policies + " --kept " + kept + " --kept-steps all " + options);
  INFO(ran.err);
  REQUIRE(ran.code == 0);
  return {ran.out, slurp(kept)};
}

const std::array<const char*, 4> kQuality = {"recall_mean", "recall_worst1", "position", "output_error"};

}  // namespace

TEST_CASE("what each layer keeps is in JSON, and its mean is what all keep") {
  const json even = json::parse(replay_with("--format json").out);
  for (std::size_t i = 0; i < even["points"].size(); ++i) {
    const json& kept = even["policies"][i]["kept_by_layer"];
    REQUIRE(kept.size() == even["manifest"]["trace"]["layers"]);
    double mean = 0;
    for (const json& tokens : kept) mean += tokens.get<double>() / static_cast<double>(kept.size());
    CHECK(mean == Approx(even["points"][i]["kept_tokens"].get<double>()));
  }
  // A quarter of 40 tokens, and in the steady state one a step more or less.
  CHECK(even["policies"][0]["kept_by_layer"][0].get<double>() == Approx(10).margin(1));
}

TEST_CASE("replay --quality none measures nothing and changes nothing else") {
  const Measured all = replay_with("--format json");
  const Measured none = replay_with("--format json --quality none");
  CHECK(none.kept == all.kept);
  json with = json::parse(all.out);
  json without = json::parse(none.out);
  CHECK(without["manifest"]["options"]["quality"] == "none");
  for (const json& policy : without["policies"]) CHECK_FALSE(policy.contains("layers"));
  for (std::size_t i = 0; i < with["points"].size(); ++i) {
    for (const char* key : kQuality) {
      CHECK(with["points"][i][key].is_number());
      CHECK(without["points"][i][key].is_null());
      with["points"][i].erase(key);
      without["points"][i].erase(key);
    }
    CHECK(with["points"][i]["position_bounds"].is_object());
    CHECK(without["points"][i]["position_bounds"].is_null());
    with["points"][i].erase("position_bounds");
    without["points"][i].erase("position_bounds");
  }
  CHECK(with["points"] == without["points"]);
}

TEST_CASE("every replay says where a policy lies between random and oracle, whether these were asked for or not") {
  const json all = json::parse(replay_with("--format json").out)["points"];
  const Measured own = replay_with("--format json", "h2o:budget=0.25,duo:retrieval=0:sinks=2:recent=8");
  const json points = json::parse(own.out)["points"];
  REQUIRE(points.size() == 2);
  CHECK(points[0] == all[0]);
  CHECK(points[0]["position"].get<double>() > 0);
  CHECK(points[0]["position"].get<double>() < 1);
  CHECK(points[0]["position_bounds"]["random"] == all[1]["recall_mean"]);
  CHECK(points[0]["position_bounds"]["oracle"] == all[2]["recall_mean"]);
  // A policy without a budget: two sinks and eight recent tokens beside the query's own, as a quarter of 40 are.
  CHECK(points[1]["position_bounds"]["budget"] == "10");
  CHECK(points[1]["position_bounds"]["oracle"] == all[2]["recall_mean"]);
  CHECK(own.kept.find("random") == std::string::npos);
  CHECK(replay_with("", "h2o:budget=0.25").out.find("position") != std::string::npos);
}

TEST_CASE("full attention lies nowhere between random and oracle, in layers with a sliding window neither") {
  const TemporaryFolder folder;
  const std::string trace = folder.file("run.kvt"), folders = std::string(KVROOF_SOURCE_DIR) + "/tests/golden/models/";
  std::string ids;
  for (int i = 0; i < 40; ++i) ids += std::to_string(3 + i * 7 % 60) + " ";
  REQUIRE(run_program("record --model " + folders + "gemma2 --ids '" + ids + "' --max-tokens 9 --ignore-eos -o " +
                      trace).code == 0);
  REQUIRE(run_program("inspect " + trace).out.find("window") != std::string::npos);
  const Ran ran = run_program("replay " + trace + " --policy full,window --budget 4 --format json");
  REQUIRE(ran.code == 0);
  const json points = json::parse(ran.out)["points"];
  CHECK(points[0]["recall_mean"] == 1.0);
  CHECK(points[0]["position"].is_null());
  CHECK(points[0]["position_bounds"].is_null());
  CHECK(points[1]["position"].is_number());
}

TEST_CASE("replay --quality recall has the recall of --quality all and no output error") {
  json with = json::parse(replay_with("--format json --quality all").out);
  json without = json::parse(replay_with("--format json --quality recall").out);
  for (std::size_t i = 0; i < with["points"].size(); ++i) {
    CHECK(without["points"][i]["output_error"].is_null());
    with["points"][i].erase("output_error");
    without["points"][i].erase("output_error");
  }
  CHECK(with["points"] == without["points"]);
}

TEST_CASE("the table says what was not measured") {
  const auto says = [](const std::string& options, const std::string& note) {
    return replay_with(options).out.find(note) != std::string::npos;
  };
  CHECK(says("--quality none", "--quality none: recall and output error were not measured"));
  CHECK(says("--quality recall", "--quality recall: output error was not measured"));
  CHECK_FALSE(says("--quality all", "not measured"));
}

TEST_CASE("an unknown --quality is refused with the words that are known") {
  const Ran ran = run_program("replay none.kvt --policy full --quality recal");
  CHECK(ran.code == 2);
  CHECK(ran.out.empty());
  CHECK(ran.err.find("--quality recal: expected none, recall or all") != std::string::npos);
}
