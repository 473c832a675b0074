// CSV and JSON of `kvroof plan`, `compare`, `simulate` and `replay` say the same of a row.
#include <nlohmann/json.hpp>

#include "tests/catch.hpp"
#include "tests/support/csv_rows.hpp"
#include "tests/support/program_json.hpp"
#include "tests/support/run_program.hpp"

using kvroof::test::check_row;
using kvroof::test::json_of;
using kvroof::test::Ran;
using kvroof::test::Row;
using kvroof::test::rows_of;
using kvroof::test::run_program;
using kvroof::test::TemporaryFolder;
using kvroof::test::unnest;
using nlohmann::json;

TEST_CASE("every number of a CSV row of plan is the JSON's of the same row") {
  const std::pair<std::string, int> asked[] = {
      {"--device h200 --policy keyformer:budget=0.5 --batch 4", 0},
      {"--device h100-sxm --engine vllm --kv int8 --under-load --tpot-ms 30", 0},
      {"--device h100-sxm --engine vllm --draft mtp --speculate 0,1:0.9", 0},
      {"--device l40s --batch 100000", 3}};
  for (const auto& [words, code] : asked) {
    INFO(words);
    json plan = json_of("plan --model llama-3-8b " + words, code);
    for (const json& line : plan["ledger"]) plan[line["name"].get<std::string>() + "_bytes"] = line["bytes"];
    unnest(plan, "speculation");
    plan["chosen"] = true;
    for (const char* key : {"answer", "fits", "version"}) plan.erase(key);
    int chosen = 0;
    for (const Row& row : rows_of("plan --model llama-3-8b " + words, code)) {
      if (row.at("chosen") != "yes") continue;
      check_row(row, plan);
      ++chosen;
    }
    CHECK(chosen == 1);
  }
}

TEST_CASE("every number of a CSV row of compare is the JSON's of the same row") {
  for (const std::string words :
       {"--model llama-3-8b --device h200,l40s,t4,mi300x --by tokens_per_usd",
        "--model llama-3-70b --device h100-sxm --tp 1,4 --kv bf16,int8 --policy full,h2o --budget 0.5 --engine vllm",
        "--model llama-3-8b --device h100-sxm --draft eagle --speculate 0,3:0.7 --under-load --tpot-ms 50"}) {
    INFO(words);
    json points = json_of("compare " + words)["points"];
    const std::vector<Row> rows = rows_of("compare " + words);
    REQUIRE(rows.size() == points.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      unnest(points[i], "speculation");
      check_row(rows[i], points[i]);
    }
  }
}

TEST_CASE("every number of a CSV row of simulate is the JSON's of the same row") {
  const std::string model = "simulate --model llama-3-8b --prompt 1k --output 64 --count 20 --device h100-sxm";
  for (const std::string words :
       {" --clients 4 --policy full,h2o --budget 0.5 --kv bf16", ",rtx-3060 --rate 2 --shared-prefix 512",
        " --rate 2 --replicas 2 --prefill-replicas 0,1", " --rate max --ttft-ms 1000 --tp 1,2",
        " --rate 2 --replicas auto --tpot-ms 50 --draft eagle --speculate 0,3:0.7"}) {
    INFO(words);
    json all = json_of(model + words)["rows"];
    const std::vector<Row> rows = rows_of(model + words);
    REQUIRE(rows.size() == all.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      json& row = all[i];
      const json wide_by = row["p99_wide_by"];
      row.erase("p99_wide_by");
      if (wide_by.is_object()) {
        for (const auto& [name, by] : wide_by.items()) row[name + "_p99_wide_by"] = by;
      }
      for (const char* key : {"transfer_gb_per_s", "transfer_latency_ms", "moved_bytes_mean", "place_wait_ms_mean",
                              "transfer_ms_mean", "link_busy_share"}) {
        if (!row["prefill"].is_object()) continue;
        row[key] = row["prefill"][key];
        row["prefill"].erase(key);
      }
      check_row(rows[i], row);
    }
  }
}

TEST_CASE("a replay's CSV has the interval of a step's time and of the rate that JSON has") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run.kvt");
  const Ran ran = run_program("record --model " + std::string(KVROOF_SOURCE_DIR) +
                              "/models/demo --ids \"5 17 9 30 41 8\" --max-tokens 4 --ignore-eos -o " + run);
  REQUIRE(ran.code == 0);
  const std::string words = "replay " + run + " --policy full --device h200,l40s --batch 1,4";
  const json points = json_of(words)["points"];
  const std::vector<Row> rows = rows_of(words);
  REQUIRE(rows.size() == points.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (const std::string figure : {"step_ms", "tokens_per_s"}) {
      const json& interval = points[i][figure + "_interval"];
      CHECK(std::stod(rows[i].at(figure)) == Approx(interval["value"].get<double>()));
      for (const char* end : {"low80", "high80", "low95", "high95"}) {
        CHECK(std::stod(rows[i].at(figure + "_" + end)) == Approx(interval[end].get<double>()));
      }
    }
  }
}
