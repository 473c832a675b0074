// What plan and compare take policies to hold where nobody recorded anything.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "sim/policy/layer_budgets.hpp"
#include "sim/policy/policy.hpp"
#include "tests/catch.hpp"
#include "tests/support/program_json.hpp"
#include "tests/support/run_program.hpp"

using namespace kvroof;
using kvroof::test::has_note;
using kvroof::test::json_of;
using kvroof::test::Ran;
using kvroof::test::run_program;
using nlohmann::json;

namespace {

// By policy; which of all rows are on the front depends on the others.
std::map<std::string, json> rows_of(const json& compared) {
  std::map<std::string, json> rows;
  for (json row : compared["points"]) {
    row.erase("pareto");
    rows[row["policy"].get<std::string>()] = row;
  }
  return rows;
}

// Bytes that a sequence holds in a mean decode step, after 4,096 tokens of a prompt.
double resident_bytes(const std::string& model, const std::string& policy) {
  const json planned = json_of("plan --model " + model + " --device h200 --prompt 4096 --output 2 --batch 1 --policy " +
                               policy);
  return planned["accounting"]["kv"]["resident_bytes"].get<double>();
}

// Twice the rows of one head in a mean decode step of two, with 1,228 tokens a layer on average.
double pyramid_rows(std::uint32_t layers, auto window) {
  PolicyContext context;
  context.layers = layers;
  context.prompt = 4096;
  double rows = 0;
  for (std::uint32_t layer = 0; layer < layers; ++layer) {
    context.layer = LayerId(layer);
    const std::uint32_t kept = pyramid_budget({}, context, 1228);
    for (const std::uint32_t step : {1U, 2U}) rows += std::min<std::uint32_t>(kept + step, window(layer));
  }
  return rows;
}

}  // namespace

TEST_CASE("what compare says of a policy is the same whichever others it is asked about") {
  const std::string words = "compare --model gemma-3-4b --device h200 --engine vllm --prompt 4k --output 16 --batch 4 "
                            "--policy ";
  std::map<std::string, json> alone;
  std::string all;
  for (const PolicyInfo& info : policy_table()) {
    const std::string policy = std::string(info.name) + (info.takes_budget ? ":budget=0.1" : "");
    const Ran ran = run_program(words + policy + " --format json");
    INFO(policy << "\n" << ran.err);
    if (ran.code != 0 && ran.code != 3) {
      const bool needs_file = ran.err.find("file= is missing") != std::string::npos;
      const bool is_bound = info.name.starts_with("oracle") && ran.err.find("is a bound") != std::string::npos;
      CHECK((needs_file || is_bound || ran.err.find("give a recorded run (--trace)") != std::string::npos));
      continue;
    }
    alone.merge(rows_of(json::parse(ran.out)));
    all += (all.empty() ? "" : ",") + policy;
  }
  CHECK(alone.size() > 30);
  const std::map<std::string, json> among = rows_of(json_of(words + all));
  REQUIRE(among.size() == alone.size());
  for (const auto& [policy, row] : alone) {
    INFO(policy);
    CHECK(among.at(policy) == row);
  }
}

TEST_CASE("layers hold what pyramidkv gives each of the model's, and no more than their windows show") {
  // 34 layers, every sixth of which sees everything and the others 1,024 tokens; 4 heads of 256 elements of 2 bytes.
  const double windows =
      pyramid_rows(34, [](std::uint32_t layer) { return layer % 6 == 5 ? 8192U : 1024U; }) * 4 * 256 * 2 * 2 / 2;
  CHECK(resident_bytes("gemma-3-4b", "pyramidkv:budget=0.3") == windows);
  // 32 layers without windows, 8 heads of 128.
  const double none = pyramid_rows(32, [](std::uint32_t) { return 8192U; }) * 8 * 128 * 2 * 2 / 2;
  CHECK(resident_bytes("llama-3.1-8b", "pyramidkv:budget=0.3") == none);
  // Its mean is snapkv's, but for the whole tokens by which layers differ; windows cut off what the first have more.
  CHECK(none / 0.98 > resident_bytes("llama-3.1-8b", "snapkv:budget=0.3"));
  CHECK(none / 1.02 < resident_bytes("llama-3.1-8b", "snapkv:budget=0.3"));
  CHECK(resident_bytes("gemma-3-4b", "snapkv:budget=0.3") > 1.1 * windows);
}

TEST_CASE("a pyramid in tokens is that of its share of the prompt behind windows, also where a long prompt is cut") {
  // 6,553 tokens are more than the windows of five layers in six, 640 fewer in all but the first.
  const std::pair<const char*, const char*> same[] = {{"0.1", "6553"}, {"0.00977", "640"}};
  for (const auto& [share, tokens] : same) {
    INFO(share);
    const auto held = [](const std::string& budget) {
      const json planned = json_of("plan --model gemma-3-27b --device h200 --prompt 64k --output 64 --batch 1 --policy "
                                   "pyramidkv:budget=" + budget);
      return planned["accounting"]["kv"]["resident_bytes"].get<double>();
    };
    CHECK(held(share) == Approx(held(tokens)).epsilon(1e-9));
  }
}

TEST_CASE("budgets that differ from layer to layer have their mean where a prompt is cut, whatever the model's depth") {
  // Shares of layers that are straight lines: of 80 layers as of the few that a long prompt is replayed on.
  const std::string words = "compare --model llama-3.1-70b --tp 4 --device h200 --prompt 64k --output 16 --batch 4 "
                            "--budget 0.1 --policy ";
  const auto largest = [](const json& compared) {
    std::map<std::string, double> batches;
    for (const json& row : compared["points"]) batches[row["policy"]] = row["largest_batch"];
    return batches;
  };
  const auto batches = largest(json_of(words + "snapkv,pyramidkv,h2o,h2o:layers=pyramid,h2o:layers=10/1/1,"
                                       "scissorhands,scissorhands:layers=pyramid"));
  CHECK(batches.at("scissorhands:budget=0.1:layers=pyramid") == batches.at("scissorhands:budget=0.1"));
  CHECK(batches.at("pyramidkv:budget=0.1") == Approx(batches.at("snapkv:budget=0.1")).epsilon(0.02));
  CHECK(batches.at("h2o:budget=0.1:layers=10/1/1") == Approx(batches.at("h2o:budget=0.1")).epsilon(0.02));
  CHECK(batches.at("h2o:budget=0.1:layers=pyramid") == Approx(batches.at("h2o:budget=0.1")).epsilon(0.02));
}

TEST_CASE("a cached share of prompts of a model with states is said to be priced as if these were kept for nothing") {
  const std::string words = " --model granite-4.0-h-small --device h200 --engine vllm --prompt 4k --output 64 "
                            "--cached-prompt ";
  const std::string caveat = "as if they were kept for nothing: an engine keeps them at some places and in its memory, "
                             "and finds less";
  for (const std::string command : {"plan --batch 4", "compare --batch 4", "simulate --rate 1 --count 10"}) {
    INFO(command);
    CHECK(has_note(json_of(command + words + "0.5"), caveat));
    CHECK_FALSE(has_note(json_of(command + words + "0"), caveat));
  }
  CHECK_FALSE(has_note(json_of("plan --batch 4 --model llama-3.1-8b --device h200 --prompt 4k --output 64 "
                               "--cached-prompt 0.5"), caveat));
}
