// The picture of kvroof replay holds every number of its JSON answer.
#include <fmt/format.h>

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

const std::string kGolden =
    std::string(KVROOF_SOURCE_DIR) + "/tests/golden/policies/h2o_gqa_sum_n64_h8_kv2.safetensors";

struct Imported {
  TemporaryFolder folder;
  std::string path = folder.file("x.kvt");
  std::string svg = folder.file("x.svg");
  Imported() { REQUIRE(run_program("import qkv " + kGolden + " --prompt 64 -o " + path).code == 0); }
};

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t times = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++times;
  return times;
}

}  // namespace

TEST_CASE("the picture of replay marks recall, output error and tokens a second of every point of its answer") {
  const Imported trace;
  const Ran ran = run_program("replay " + trace.path + " --policy full,h2o,window --budget 0.25,0.5 --as llama-3-8b "
                              "--prompt 2k --output 64 --device h200,l40s --batch 1,max --format json --svg " +
                              trace.svg);
  INFO(ran.err);
  REQUIRE(ran.code == 0);
  const json answer = json::parse(ran.out);
  const std::string svg = slurp(trace.svg);
  REQUIRE(answer["points"].size() == 5 * 2 * 2);
  for (const json& point : answer["points"]) {
    const std::string policy = point["point"];
    const double recall = point["recall_mean"], error = point["output_error"];
    INFO(policy);
    CHECK(count(svg, fmt::format("<title>{}: recall {:.3f}, ", policy, recall)) == 1);
    CHECK(count(svg, fmt::format("<title>{}: output error {:.3f}, ", policy, error)) == 1);
    CHECK(count(svg, fmt::format("<title>{}, batch {}: recall {:.3f}, {:.0f} tokens/s (", policy,
                                 point["batch"].get<int>(), recall, point["tokens_per_s"].get<double>())) == 1);
  }
  for (const char* title : {"What that buys on h200: llama-3-8b, batch 1<", "on l40s: llama-3-8b, the largest batch"}) {
    CHECK(count(svg, title) == 1);
  }
  // At each of the two budgets what any policy could reach, once.
  CHECK(count(svg, "<title>oracle:budget=") == 2);
  CHECK(count(svg, "<title>random:budget=") == 2);
}

TEST_CASE("a bound that is asked for as a policy is marked once at a budget in the picture of replay") {
  const Imported trace;
  REQUIRE(run_program("replay " + trace.path + " --policy h2o,oracle --budget 0.5 --svg " + trace.svg).code == 0);
  const std::string svg = slurp(trace.svg);
  CHECK(count(svg, "<title>oracle:budget=0.5: recall ") == 1);
  CHECK(count(svg, "<title>random:budget=0.5: recall ") == 1);
}

TEST_CASE("a picture of recall that is not measured is refused, and no file is made") {
  const Imported trace;
  const Ran ran = run_program("replay " + trace.path + " --quality none --svg " + trace.svg);
  CHECK(ran.code == 2);
  CHECK(ran.err.find("--svg: the picture is of recall, which --quality none does not measure") != std::string::npos);
  CHECK(slurp(trace.svg).empty());
}

TEST_CASE("without an output error the picture of replay has no chart of it, and without a device none of rates") {
  const Imported trace;
  const std::string words = " --policy h2o --budget 0.5 --quality recall --svg ";
  REQUIRE(run_program("replay " + trace.path + words + trace.svg).code == 0);
  const std::string svg = slurp(trace.svg);
  CHECK(count(svg, "What is left of the attention") == 1);
  CHECK(count(svg, "What it changes in the output") == 0);
  CHECK(count(svg, "What that buys") == 0);
}
