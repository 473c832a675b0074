// Pipeline stages and groups of experts in plan and compare.
#include <nlohmann/json.hpp>

#include "tests/catch.hpp"
#include "tests/support/run_program.hpp"

using kvroof::test::Ran;
using kvroof::test::run_program;
using nlohmann::json;

namespace {

json answer_of(const std::string& words) {
  const Ran ran = run_program(words + " --format json");
  INFO(ran.err);
  REQUIRE(ran.code == 0);
  return json::parse(ran.out);
}

void refused(const std::string& words, const std::string& why) {
  const Ran ran = run_program(words);
  INFO(ran.err);
  CHECK(ran.code == 2);
  CHECK(ran.err.find(why) != std::string::npos);
}

const std::string kWork =
    " --model llama-3.1-70b --dtype fp8 --engine vllm --device h100-sxm --prompt 2k --output 256 ";

}  // namespace

TEST_CASE("a plan searches stages beside devices that share layers, and says of each layout what it says alone") {
  const json p = answer_of("plan" + kWork + "--tp 2,4 --pp 1,2");
  REQUIRE(p["searched"].size() == 4);
  for (const json& s : p["searched"]) {
    const int tensor = s["tensor_parallel"], stages = s["pipeline_stages"];
    INFO(tensor << " " << stages);
    const json alone =
        answer_of("plan" + kWork + "--tp " + std::to_string(tensor) + " --pp " + std::to_string(stages));
    CHECK(s["tokens_per_s"] == alone["tokens_per_s"]);
    CHECK(s["tokens_per_s_a_device"]["value"].get<double>() ==
          Approx(alone["tokens_per_s"]["value"].get<double>() / (tensor * stages)));
    // Half of the layers leave more than twice the room for the cache.
    const json& one = p["searched"][tensor == 2 ? 0 : 2];
    if (stages == 2) CHECK(s["largest_batch"].get<int>() > 2 * one["largest_batch"].get<int>());
  }
  const Ran table = run_program("plan" + kWork + "--tp 2,4 --pp 1,2");
  CHECK(table.out.find("--tp 4 --pp 2") != std::string::npos);
}

TEST_CASE("compare names stages and groups of experts, and counts their devices") {
  const json r = answer_of("compare --model deepseek-v3 --engine sglang --device h200 --tp 8 --pp 1,2 --ep 1,tp");
  REQUIRE(r["points"].size() == 4);
  for (const json& point : r["points"]) {
    const double devices = point["tensor_parallel"].get<double>() * point["pipeline_stages"].get<double>();
    CHECK(point["tokens_per_s_a_device"].get<double>() * devices ==
          Approx(point["tokens_per_s"].get<double>()));
    CHECK((point["expert_parallel"] == 1 || point["expert_parallel"] == 8));
  }
  const Ran table = run_program("compare --model deepseek-v3 --engine sglang --device h200 --tp 8 --pp 2 --ep tp");
  CHECK(table.out.find("16 × ") != std::string::npos);
  CHECK(table.out.find("(--tp 8 --pp 2 --ep 8)") != std::string::npos);
}

TEST_CASE("layouts that a model or a simulation has no room for are refused in a sentence") {
  refused("plan" + kWork + "--pp 81", "--tp 1 --pp 81: 80 layers cannot be spread over 81 stages");
  refused("plan" + kWork + "--tp 2 --ep tp", "--tp 2 --ep 2: llama-3.1-70b has no experts");
  refused("plan" + kWork + "--ep most", "--ep most: expected a count from 1 to 1024, or tp");
  refused("plan" + kWork + "--pp 0", "--pp 0: expected a count from 1 to 1024");
  refused("simulate" + kWork + "--rate 1 --pp 2", "--pp 2: stages are not simulated");
}
