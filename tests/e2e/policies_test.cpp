// kvroof policies, as a user meets it.
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/catch.hpp"
#include "tests/support/csv_rows.hpp"
#include "tests/support/run_program.hpp"

using kvroof::test::Ran;
using kvroof::test::run_program;
using kvroof::test::TemporaryFolder;

namespace {

std::string written(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
  return path;
}

}  // namespace

TEST_CASE("kvroof policies lists the policies, and as JSON what each takes and costs") {
  const Ran text = run_program("policies");
  CHECK(text.code == 0);
  const Ran ran = run_program("policies --format json");
  REQUIRE(ran.code == 0);
  const auto all = nlohmann::json::parse(ran.out);
  for (const char* name : {"adakv", "full", "h2o", "keyformer", "observed-attention", "oracle", "pyramidkv", "random",
                           "scissorhands", "snapkv", "streaming", "tova", "window"}) {
    INFO(name);
    CHECK(("\n" + text.out).find("\n" + std::string(name) + " ") != std::string::npos);
    CHECK(std::ranges::count_if(all, [&](const auto& policy) { return policy["policy"] == name; }) == 1);
  }
}

TEST_CASE("kvroof policies has the same names in CSV as in JSON, presets with the cache that they stand for") {
  const auto all = nlohmann::json::parse(run_program("policies --format json").out);
  const auto rows = kvroof::test::rows_of("policies");
  REQUIRE(rows.size() == all.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    INFO(rows[i].at("policy"));
    CHECK(all[i]["policy"] == rows[i].at("policy"));
    CHECK(all[i]["summary"] == rows[i].at("summary"));
    CHECK((all[i]["kv_type"].is_null() ? "" : all[i]["kv_type"].get<std::string>()) == rows[i].at("kv_type"));
  }
  CHECK(rows.back().at("policy") == "scissorhands-4bit");
  CHECK(rows.back().at("kv_type") == "int4g64");
}

TEST_CASE("kvroof policies show says what a specification needs: bytes of state, rows, unit of storage") {
  const auto shown = nlohmann::json::parse(run_program("policies show h2o:budget=0.5:group=none --format json").out);
  CHECK(shown["policy"] == "h2o:budget=0.5:group=none");
  CHECK(shown["state_bytes_per_slot"] == 4);
  CHECK(shown["attention_rows"] == "softmax weights");
  CHECK(shown["stores_for_each"] == "query head");
  CHECK(shown["parameters"][0]["default"] == "0.5");
  CHECK(run_program("policies show keyformer").out.find("Keyformer: Adnan et al.") != std::string::npos);
}

TEST_CASE("kvroof policies answers typos with the nearest name") {
  const Ran name = run_program("policies show keyfomer");
  CHECK(name.code == 2);
  CHECK(name.err.starts_with("error: unknown policy `keyfomer`; did you mean keyformer?\n"));
  const Ran word = run_program("policies shw h2o");
  CHECK(word.code == 2);
  CHECK(word.err.find("did you mean show?") != std::string::npos);
}

TEST_CASE("a file of gates says which heads keep everything, in a run, its recording and its replay") {
  const TemporaryFolder folder;
  const std::string trace = folder.file("x.kvt");
  const std::string tensors = KVROOF_SOURCE_DIR "/tests/golden/policies/h2o_gqa_sum_n64_h8_kv2.safetensors";
  REQUIRE(run_program("import qkv " + tensors + " --prompt 32 -o " + trace).code == 0);
  const std::string heads = written(folder.file("heads.tsv"), "# one layer of 2 KV heads\n0.9\t0.1\n");
  const Ran ran = run_program("replay " + trace + " --format json --policy full,duo:sinks=2:recent=6:heads=" + heads);
  REQUIRE(ran.code == 0);
  const auto points = nlohmann::json::parse(ran.out)["points"];
  const double all = points[0]["kept_tokens"];
  CHECK(points[1]["kept_tokens"].get<double>() == Approx((all + 8) / 2));
}

TEST_CASE("a plan for a prompt that is all window of rule=kvpress gets one sentence and exit code 2") {
  const Ran ran = run_program("plan --model llama-2-7b --device h200 --prompt 40 --output 8 --policy "
                              "snapkv:budget=0.5:rule=kvpress");
  CHECK(ran.code == 2);
  CHECK(ran.out.empty());
  CHECK(ran.err.find("at least 65 tokens, found 40") != std::string::npos);
}

TEST_CASE("a file of head values that cannot be followed gets one sentence and exit code 2") {
  const TemporaryFolder folder;
  const std::string ragged = written(folder.file("ragged"), "1 2\n1\n");
  const std::string many = written(folder.file("many"), "1 2 3\n1 2 3\n");
  const std::string tensors = KVROOF_SOURCE_DIR "/tests/golden/policies/h2o_gqa_sum_n64_h8_kv2.safetensors";
  const std::string trace = folder.file("x.kvt");
  REQUIRE(run_program("import qkv " + tensors + " --prompt 32 -o " + trace).code == 0);
  struct Refused {
    std::string words;
    const char* sentence;
  };
  for (const Refused& r :
       {Refused{"replay " + trace + " --policy duo:heads=" + folder.file("none"), "cannot open"},
        Refused{"replay " + trace + " --policy duo:heads=" + ragged, "line 2 has 1 numbers, the first line 2"},
        Refused{"replay " + trace + " --policy adakv:budget=9:heads=" + many, "2 layers of 3 heads, the model 1 of 2"},
        Refused{"plan --model llama-2-7b --device h200 --policy duo", "give a recorded run (--trace)"}}) {
    INFO(r.words);
    const Ran ran = run_program(r.words);
    CHECK(ran.code == 2);
    CHECK(ran.out.empty());
    CHECK(ran.err.find(r.sentence) != std::string::npos);
  }
}
