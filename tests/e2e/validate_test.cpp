// The scoreboard of published measurements, held to what is claimed of it.
#include <map>
#include <nlohmann/json.hpp>

#include "tests/catch.hpp"
#include "tests/support/run_program.hpp"

using kvroof::test::Ran;
using kvroof::test::run_program;
using nlohmann::json;

TEST_CASE("published times are met as closely as the README says, with constants from other sources") {
  const Ran ran = run_program("validate --format json");
  REQUIRE(ran.code == 0);
  std::map<std::string, json> groups;
  for (const json& group : json::parse(ran.out)) groups[group["group"]] = group;
  const auto within = [&](const std::string& name, std::size_t rows, double error) {
    INFO(name);
    REQUIRE(groups.count(name) == 1);
    CHECK(groups[name]["rows"] == rows);
    CHECK(groups[name]["mean_error"].get<double>() <= error);
  };
  const std::string gpt = "FasterTransformer total_latency, GPT-20B, A100-SXM4-80GB, output ";
  within(gpt + "200", 14, 0.03);
  within(gpt + "20", 17, 0.05);
  within(gpt + "8", 9, 0.05);
  for (const char* model : {"Llama2 7B", "Llama3 8B", "Mistral 7B"}) {
    within(std::string("calm decode_tokens_per_s, ") + model + ", RTX 4090", 2, 0.04);
  }
  within("matrix product, A100-SXM4-80GB", 28, 0.07);
  within("matrix product, H100-SXM-80GB", 28, 0.07);
  within("TensorRT-LLM tpot_mean_or_median, Llama-3.1-8B-Instruct, H100-SXM-80GB", 42, 0.06);
}

TEST_CASE("every published row is predicted, or it is said why not") {
  const Ran table = run_program("validate");
  CHECK(table.out.find(" of 743 rows are predicted") != std::string::npos);
  CHECK(table.out.find("saturated server: no queue is modelled") != std::string::npos);
  const Ran rows = run_program("validate --rows --format json");
  REQUIRE(rows.code == 0);
  CHECK(json::parse(rows.out).size() >= 180);
  CHECK(run_program("validate nothing.csv").code == 2);
  CHECK(run_program(std::string("validate ") + KVROOF_SOURCE_DIR + "/README.md").code == 1);
}
