// The one accounting, as `kvroof replay` and `kvroof plan` print it.
#include <nlohmann/json.hpp>
#include <string>

#include "tests/catch.hpp"
#include "tests/support/run_program.hpp"

using kvroof::test::Ran;
using kvroof::test::run_program;
using kvroof::test::TemporaryFolder;
using nlohmann::json;

namespace {

// Tensors of 8 query heads and 2 KV heads: 32 tokens of prompt and what follows.
struct Imported {
  TemporaryFolder folder;
  std::string path = folder.file("x.kvt");
  Imported() {
    const std::string golden =
        std::string(KVROOF_SOURCE_DIR) + "/tests/golden/policies/h2o_gqa_sum_n64_h8_kv2.safetensors";
    REQUIRE(run_program("import qkv " + golden + " --prompt 32 -o " + path).code == 0);
  }
};

json points_of(const std::string& words) {
  const Ran ran = run_program("replay " + words + " --format json");
  INFO(ran.err);
  REQUIRE(ran.code == 0);
  return json::parse(ran.out)["points"];
}

}  // namespace

TEST_CASE("replay counts for every policy what it holds, allocates, reads, writes, moves and computes") {
  const Imported run;
  const json points = points_of(run.path + " --policy full,h2o,keyformer:noise=query,snapkv --budget 0.5");
  for (const json& p : points) {
    INFO(p["point"]);
    const json& kv = p["accounting"]["kv"];
    CHECK(kv["resident_bytes"] == p["kv_resident_bytes"]);
    CHECK(kv["read_bytes"] == p["kv_read_bytes"]);
    CHECK(kv["allocated_bytes"] >= kv["resident_bytes"]);
    CHECK(kv["allocated_in_pages_bytes"] >= kv["allocated_bytes"]);
    CHECK(kv["written_bytes"] > 0);
    CHECK(p["accounting"]["attention_flops"] > 0);
  }
  CHECK(points[0]["accounting"]["policy"]["state_bytes"] == 0);
  CHECK(points[0]["accounting"]["prompt"]["fused_attention"] == true);
  const json& h2o = points[1]["accounting"];
  CHECK(h2o["prompt"]["fused_attention"] == false);
  CHECK(h2o["prompt"]["second_pass_flops"] > 0);
  CHECK(h2o["prompt"]["kv_moved_bytes"] > 0);
  CHECK(h2o["policy"]["scoring_flops"] > 0);
  CHECK(h2o["policy"]["noise_flops"] == 0);
  // A comparison for each of the k + 1 slots of each KV head.
  CHECK(h2o["policy"]["selection_flops"] == 2 * 17.0);
  const json& keyformer = points[2]["accounting"]["policy"];
  CHECK(keyformer["noise_flops"] == 8 * 17 * 56.0);  // a draw for each slot and query head
  CHECK(points[3]["accounting"]["prompt"]["fused_attention"] == true);
}

TEST_CASE("a request of four beams holds and reads what four sequences do, and fits a quarter as often") {
  const Imported run;
  const std::string words = run.path + " --policy h2o:budget=0.5 --as llama-2-7b --prompt 2k --output 2k --device h200";
  const json one = points_of(words + " --batch 1,4,max");
  const json beams = points_of(words + " --batch 1,max --beams 4");
  CHECK(beams[0]["batch"] == 1);
  CHECK(beams[0]["accounting"] == one[1]["accounting"]);
  CHECK(beams[0]["step_ms"] == one[1]["step_ms"]);
  CHECK(beams[0]["tokens_per_s"].get<double>() == Approx(one[1]["tokens_per_s"].get<double>() / 4));
  CHECK(beams[1]["batch"] == one[2]["batch"].get<int>() / 4);
}

TEST_CASE("replay --accounting adds a table of bytes and arithmetic below that of the points") {
  const Imported run;
  const Ran ran = run_program("replay " + run.path + " --policy full,h2o --budget 0.5 --accounting");
  REQUIRE(ran.code == 0);
  for (const char* word :
       {"allocated", "in pages", "written", "moved", "policy", "state", "scoring", "noise", "choice", "fused"}) {
    INFO(word);
    CHECK(ran.out.find(word) != std::string::npos);
  }
}

TEST_CASE("what a head holds is allocated in pages of 16 rows") {
  const Imported run;
  const json points = points_of(run.path + " --policy full,window:budget=15,window:budget=16");  // 112 tokens
  const auto kv = [&](int point, const char* key) -> std::uint64_t { return points[point]["accounting"]["kv"][key]; };
  const std::uint64_t row = kv(1, "allocated_bytes") / 16;  // of both heads: 15 rows and the newest
  CHECK(kv(1, "allocated_in_pages_bytes") == 16 * row);
  CHECK(kv(2, "allocated_bytes") == 17 * row);
  CHECK(kv(2, "allocated_in_pages_bytes") == 32 * row);
  CHECK(kv(0, "allocated_in_pages_bytes") == 112 * row);
}

TEST_CASE("a plan has quest read the pages of its budget in all layers but the first two, and all their bounds") {
  const std::string words = "plan --model llama-2-7b --device h200 --prompt 2048 --output 512 --batch 1 --format json";
  const Ran ran = run_program(words + " --policy quest:budget=512");
  REQUIRE(ran.code == 0);
  const json accounting = json::parse(ran.out)["accounting"];
  // A token of a layer has 32 heads with 128 elements of k and of v in 16 bits. 2,049 to 2,560 tokens are there in a
  // step, 2,304.5 in the mean; 32 pages hold 31 · 16 of them and what the newest has, 8.5 of 16 in the mean.
  const double token = 32 * 2 * 128 * 2;
  CHECK(accounting["kv"]["read_bytes"].get<double>() == Approx(token * (2 * 2304.5 + 30 * 504.5)).epsilon(0.001));
  // 129 to 160 pages are there, 144.5 in the mean; the bounds of one are written in each step.
  CHECK(accounting["policy"]["scored_bytes"].get<double>() == Approx(token * 30 * (144.5 + 1)).epsilon(0.001));
  CHECK(accounting["policy"]["state_bytes"].get<double>() == Approx(token * 30 * 160).epsilon(0.001));
  CHECK(accounting["policy"]["page_metadata_bytes"] == accounting["policy"]["state_bytes"]);
}

TEST_CASE("the accounting tells the scales of a quantised cache apart, read and allocated") {
  const Imported run;
  const json kv = points_of(run.path + " --policy window:budget=15 --kv int8")[0]["accounting"]["kv"];
  const double width = kv["allocated_bytes"].get<double>() / 64 - 4;  // 16 rows of k and v of two heads, one scale each
  CHECK(kv["allocated_scale_bytes"] == 64 * 4);
  CHECK(kv["read_scale_bytes"] == 64 * 4);
  CHECK(kv["read_bytes"] == 64 * (width + 4));
  CHECK(points_of(run.path + " --policy h2o:budget=15")[0]["accounting"]["policy"]["page_metadata_bytes"] == 0);
}

TEST_CASE("plan prints the same accounting") {
  const Ran ran = run_program(
      "plan --model mpt-7b --device h200 --policy keyformer:budget=0.5 --prompt 512 --output 512 --batch 4 "
      "--format json");
  REQUIRE(ran.code == 0);
  const json accounting = json::parse(ran.out)["accounting"];
  CHECK(accounting["kv"]["resident_bytes"] == 4ULL * 32 * 2 * 4096 * 2 * 256);
  CHECK(accounting["prompt"]["fused_attention"] == false);
}
