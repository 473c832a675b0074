// kvroof replay --as: what it says of the quality of points that the recording measured under other conditions.
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/catch.hpp"
#include "tests/support/run_program.hpp"

using kvroof::test::Ran;
using kvroof::test::run_program;
using kvroof::test::TemporaryFolder;
using nlohmann::json;

namespace {

constexpr const char* kQuality[] = {"recall_mean", "recall_worst1", "position", "output_error"};

// A run of the demo model: a prompt of 64 tokens and 40 decoded ones, without an eviction.
struct Recorded {
  TemporaryFolder folder;
  std::string path = folder.file("run.kvt");
  Recorded() {
    std::string ids;
    for (int i = 0; i < 64; ++i) ids += std::to_string(100 + i * 37 % 900) + " ";
    const Ran ran = run_program("record --model demo --ids \"" + ids + "\" --max-tokens 41 --ignore-eos -o " + path);
    INFO(ran.err);
    REQUIRE(ran.code == 0);
  }
  [[nodiscard]] std::string replay(const std::string& words) const {
    const Ran ran = run_program("replay " + path + " " + words);
    INFO(words << "\n" << ran.err);
    REQUIRE(ran.code == 0);
    return ran.out;
  }
  [[nodiscard]] json as_json(const std::string& words) const { return json::parse(replay(words + " --format json")); }
};

std::string notes_of(const json& answer) { return answer["manifest"]["notes"].dump(); }

}  // namespace

TEST_CASE("a projected prompt that is all window of rule=kvpress is refused although the recorded one was not") {
  const Recorded run;
  const std::string snapkv = "--policy snapkv:budget=0.5:rule=kvpress:window=48 --quality none --as llama-3-8b ";
  CHECK(!run.replay(snapkv + "--prompt 49").empty());
  const Ran ran = run_program("replay " + run.path + " " + snapkv + "--prompt 48");
  CHECK(ran.code == 2);
  CHECK_THAT(ran.err, ContainsSubstring("error: --prompt 48: policy snapkv: rule=kvpress evicts from prompts that are "
                                        "longer than its window; expected at least 49 tokens, found 48"));
}

TEST_CASE("a projection beyond a model's positions is told as plan tells it, and one of no token is refused") {
  const Recorded run;
  const std::string words = "--policy full --as llama-3-8b,llama-3.1-8b --prompt ";
  const std::string beyond = notes_of(run.as_json(words + "9216 --output 100"));
  CHECK_THAT(beyond, ContainsSubstring("9216 + 100 tokens are more than the 8192 positions that llama-3-8b was made"));
  CHECK(beyond.find("llama-3.1-8b was made for") == std::string::npos);
  CHECK(notes_of(run.as_json(words + "8092 --output 100")).find("was made for") == std::string::npos);
  const Ran none = run_program("replay " + run.path + " --as llama-3-8b --output 0");
  CHECK(none.code == 2);
  CHECK_THAT(none.err, ContainsSubstring("--output 0: "));
}

TEST_CASE("a projection on a model that is stored quantised says in which type its weights are taken instead") {
  const Recorded run;
  const std::string words = "--policy full --quality none --prompt 1k --output 100 --device h100-sxm --as ";
  CHECK_THAT(notes_of(run.as_json(words + "gpt-oss-20b")),
             ContainsSubstring("gpt-oss-20b is stored in mxfp4, and its weights are taken in bf16"));
  CHECK_THAT(notes_of(run.as_json(words + "Qwen/Qwen3-8B-AWQ")), ContainsSubstring("qwen3-8b is stored in int4"));
  CHECK(notes_of(run.as_json(words + "qwen3-8b")).find("is stored in") == std::string::npos);
  for (const char* option : {"--dtype fp8", "--kv fp8"}) {
    const Ran ran = run_program("replay " + run.path + " " + words + "qwen3-8b " + option);
    CHECK(ran.code == 2);
    CHECK_THAT(ran.err, ContainsSubstring(std::string("error: ") + option + ": kvroof's own engine"));
    CHECK_THAT(ran.err, ContainsSubstring("`kvroof plan` and `kvroof compare` take it"));
  }
}

TEST_CASE("a policy that evicted nothing from the recording has no quality where its projection evicts") {
  const Recorded run;
  const std::string words = "--policy full,h2o,streaming --budget 200 --as llama-3-8b --output 1k --prompt ";
  const json answer = run.as_json(words + "32k");
  const json& points = answer["points"];
  CHECK(points[0]["recall_mean"] == 1.0);  // full: nothing is evicted on either side
  for (const std::size_t i : {1, 2}) {
    for (const char* key : kQuality) CHECK(points[i][key].is_null());
    CHECK(points[i]["position_bounds"].is_null());
    CHECK(points[i]["kept_tokens"] == 200);
  }
  CHECK_THAT(notes_of(answer), ContainsSubstring("warning: h2o:budget=200, streaming:budget=200: nothing was evicted"));
  // Nor does the projection to a prompt that the budget holds whole: what was measured holds.
  const json whole = run.as_json("--policy h2o --budget 200 --as llama-3-8b --prompt 128");
  CHECK(whole["points"][0]["recall_mean"] == 1.0);
  CHECK(notes_of(whole).find("nothing was evicted") == std::string::npos);

  const std::string csv = run.replay(words + "32k --format csv");
  CHECK_THAT(csv, ContainsSubstring("h2o:budget=200,h2o,200,llama-3-8b,,1,200,"));
  CHECK(csv.find(",,,,") != std::string::npos);
  CHECK_THAT(run.replay(words + "32k"), ContainsSubstring("–"));
  CHECK_THAT(run.replay(words + "32k"), ContainsSubstring("warning: "));
}

TEST_CASE("quality that a budget in tokens has at another share of the prompt is said to be of that share") {
  const Recorded run;
  const json answer = run.as_json("--policy h2o --budget 16 --as llama-3-8b --prompt 256 --output 40");
  CHECK(answer["points"][0]["recall_mean"].is_number());
  CHECK_THAT(answer["manifest"]["notes"][0].get<std::string>(),
             ContainsSubstring("warning: budget 16 is 25 % of the recorded prompt (64 tokens), which quality is of, "
                               "and 6.25 % of the projected one (256 tokens)") &&
                 ContainsSubstring("written as a share, 0.0625, is measured and projected alike"));
  for (const char* alike : {"--budget 0.25 --prompt 256", "--budget 16 --prompt 64", "--budget 16"}) {
    const std::string words = std::string("--policy h2o --output 40 --as llama-3-8b ") + alike;
    INFO(words);
    CHECK(notes_of(run.as_json(words)).find("warning") == std::string::npos);
  }
}

TEST_CASE("CSV names presets and the type of the cache as JSON does, the type in its last column") {
  const Recorded run;
  const std::string words = "--policy scissorhands,scissorhands-4bit --budget 0.5";
  const json points = run.as_json(words)["points"];
  const std::string csv = run.replay(words + " --format csv");
  CHECK_THAT(csv, ContainsSubstring(",limited_by,kv_type\n"));
  CHECK(points[1]["policy"] == "scissorhands-4bit");
  CHECK(points[1]["kv_type"] == "int4g64");
  CHECK_THAT(csv, ContainsSubstring("\nscissorhands:budget=0.5,scissorhands,"));
  const auto type = points[0]["kv_type"].get<std::string>();
  CHECK_THAT(csv, ContainsSubstring("," + type + "\nscissorhands-4bit:budget=0.5,scissorhands-4bit,"));
  CHECK(csv.ends_with(",int4g64\n"));
}

TEST_CASE("CSV says once what makes a step's interval wide") {
  const Recorded run;
  const std::string csv = run.replay("--policy full --device h200 --format csv");
  CHECK_THAT(csv, ContainsSubstring(",step_ms_dominated_by,tokens_per_s,"));
}

TEST_CASE("bytes that a policy moves are in proportion to the batch, to one byte") {
  const Recorded run;
  const json answer = run.as_json("--policy h2o:when=16:budget=0.9 --batch 1,2,3,4,1000000");
  const json& points = answer["points"];
  const auto moved = [&](std::size_t i) { return points[i]["accounting"]["kv"]["moved_bytes"].get<double>(); };
  CHECK(moved(0) > 0);
  const double each = moved(4) / 1e6;
  for (const std::size_t i : {0, 1, 2, 3}) CHECK(std::abs(moved(i) - each * static_cast<double>(i + 1)) <= 1);
}

TEST_CASE("a budget of 1k is 1024 tokens, and serves the policies that carry none") {
  const Recorded run;
  const json points = run.as_json("--policy 'h2o, window:budget=12' --budget 1k")["points"];
  REQUIRE(points.size() == 2);
  CHECK(points[0]["budget_meaning"] == "1024 tokens");
  CHECK(points[1]["point"] == "window:budget=12");
  const Ran refused = run_program("replay " + run.path + " --policy window:budget=12 --budget 0.5");
  CHECK(refused.code == 2);
  CHECK_THAT(refused.err, ContainsSubstring("--budget has no policy to serve: window:budget=12 has a budget of its"));
}
