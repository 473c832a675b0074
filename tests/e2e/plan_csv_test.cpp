// What programs read of `kvroof plan` and `kvroof compare` as CSV.
#include <nlohmann/json.hpp>

#include "tests/catch.hpp"
#include "tests/support/csv_rows.hpp"
#include "tests/support/program_json.hpp"
#include "tests/support/run_program.hpp"

using kvroof::test::check_interval;
using kvroof::test::json_of;
using kvroof::test::Row;
using kvroof::test::rows_of;
using kvroof::test::run_program;
using nlohmann::json;

TEST_CASE("rows of compare name device, count, types and engine apart, and have the intervals of its JSON") {
  const std::string words =
      "compare --model llama-3-70b --prompt 2k --output 256 --tp 1,4 --dtype bf16,fp8 --kv bf16,fp8 --engine vllm "
      "--policy full,h2o --budget 0.5 --device h100-sxm,h200";
  const std::vector<Row> rows = rows_of(words);
  const json points = json_of(words)["points"];
  REQUIRE(rows.size() == 2 * 2 * 2 * 2 * 2);
  REQUIRE(points.size() == rows.size());
  bool nothing_fits = false;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    const json& point = points[i];
    INFO(point);
    for (const char* key : {"device", "policy", "weight_type", "kv_type", "limited_by", "step_limited_by"}) {
      CHECK(row.at(key) == point[key]);
    }
    CHECK((row.at("device") == "h100-sxm" || row.at("device") == "h200"));
    CHECK(row.at("model") == "llama-3-70b");
    CHECK(row.at("engine") == "vllm");
    CHECK(row.at("prompt") == "2048");
    CHECK(row.at("output") == "256");
    CHECK(std::stoi(row.at("tensor_parallel")) == point["tensor_parallel"]);
    CHECK(std::stoi(row.at("batch")) == point["batch"]);
    if (point["batch"] == 0) {
      nothing_fits = true;
      for (const char* key : {"tpot_ms", "tpot_ms_low80", "tokens_per_s_high95", "usd_per_million_tokens_low"}) {
        CHECK(row.at(key).empty());
      }
      continue;
    }
    check_interval(row, "tpot_ms", point["tpot_ms_interval"]);
    check_interval(row, "ttft_ms", point["ttft_ms"]);
    check_interval(row, "tokens_per_s", point["tokens_per_s_interval"]);
    CHECK(std::stod(row.at("usd_per_million_tokens_low")) ==
          Approx(point["usd_per_million_tokens"]["low"].get<double>()));
    CHECK(std::stod(row.at("usd_per_million_tokens_high")) ==
          Approx(point["usd_per_million_tokens"]["high"].get<double>()));
  }
  CHECK(nothing_fits);  // 70b in bf16 on one device of 80 GB
}

TEST_CASE("rows of a plan are all that it searched, one of them chosen") {
  const std::string words =
      "plan --model llama-3-70b --prompt 2k --output 256 --device h100-sxm --dtype bf16,fp8 --tp 1,4 --tpot-ms 40";
  const std::vector<Row> rows = rows_of(words);
  const json plan = json_of(words);
  REQUIRE(rows.size() == 4);
  REQUIRE(plan["searched"].size() == 4);
  int chosen = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    const json& searched = plan["searched"][i];
    INFO(searched);
    CHECK(row.at("weight_type") == searched["weight_type"]);
    CHECK(std::stoi(row.at("tensor_parallel")) == searched["tensor_parallel"]);
    CHECK(std::stoi(row.at("largest_batch")) == searched["largest_batch"]);
    CHECK(std::stoi(row.at("longest_prompt")) == searched["longest_prompt"]);
    CHECK((row.at("meets_goals") == "yes") == searched["meets_goals"]);
    // Nobody holds 70 billion parameters of 16 bits on one board: there is no step to be timed.
    const bool fits = std::stoi(row.at("largest_batch")) > 0;
    CHECK(fits == (i > 0));
    if (fits) check_interval(row, "tpot_ms", searched["tpot_ms"]);
    if (!fits) {
      for (const char* key : {"tpot_ms", "ttft_ms", "tokens_per_s"}) {
        CHECK(searched[key].is_null());
        CHECK(row.at(key).empty());
      }
    }
    if (row.at("chosen") != "yes") continue;
    ++chosen;
    CHECK(row.at("weight_type") == plan["weight_type"]);
    CHECK(std::stoi(row.at("tensor_parallel")) == plan["tensor_parallel"]);
    CHECK(row.at("engine") == plan["engine"]);
    CHECK(std::stoi(row.at("prompt")) == plan["prompt"]);
    check_interval(row, "ttft_ms", plan["ttft_ms"]);
    CHECK(std::stoull(row.at("capacity_bytes")) == plan["capacity_bytes"]);
  }
  CHECK(chosen == 1);
}

TEST_CASE("tokens_per_usd is at the highest listed price, and a note says so") {
  const json all = json_of("compare --model llama-3-8b --device h200,l40s --by tokens_per_usd");
  for (const json& point : all["points"]) {
    CHECK(point["tokens_per_usd"].get<double>() ==
          Approx(1e6 / point["usd_per_million_tokens"]["high"].get<double>()));
  }
  CHECK(all["notes"].dump().find("tokens_per_usd is at the highest") != std::string::npos);
}

TEST_CASE("a cache that was not asked for is called by its type, 16 bits beside quantised weights") {
  const std::string words = " --model llama-3-8b --device h200 --kv auto --policy h2o:budget=0.5 --dtype ";
  const auto says = [](const std::string& page, const std::string& title) {
    return page.find("h2o:budget=0.5, KV " + title) != std::string::npos;
  };
  for (const std::string type : {"int4", "bf16"}) CHECK(says(run_program("compare" + words + type).out, "bf16"));
  CHECK(says(run_program("compare" + words + "f32").out, "f32"));
  CHECK(says(run_program("compare" + words + "f32,int4").out, "by default"));
}

TEST_CASE("the picture of compare marks each that serves something with a mark of its own, also beyond 26") {
  const std::string words =
      "compare --model llama-3-70b --prompt 2k --output 256 --device h100-sxm,h200,b200,l40s,t4 --tp 4,8 "
      "--policy full,h2o,keyformer,window --budget 0.5 --dtype bf16";
  const std::string page = run_program(words).out;
  const json points = json_of(words)["points"];
  std::string marks;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    if (line.size() > 9 && line.starts_with("       ") && line[7] != ' ' && line[8] == ' ') marks += line[7];
  }
  const auto serving =
      std::count_if(points.begin(), points.end(), [](const json& point) { return point["batch"] > 0; });
  REQUIRE(serving > 26);
  REQUIRE(serving < static_cast<long>(points.size()));
  CHECK(marks == std::string("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz").substr(0, serving));
}

TEST_CASE("caches of other types add columns, and every row has its values under their names") {
  const auto rows = [](const std::string& types) {
    return rows_of("plan --model llama-3-8b --device h100-sxm --engine vllm --kv " + types);
  };
  const std::vector<Row> plain = rows("bf16"), coded = rows("int8");
  for (const std::string types : {"bf16,int8", "int8,bf16"}) {
    for (const Row& row : rows(types)) {
      const Row& alone = row.at("kv_type") == "int8" ? coded.at(0) : plain.at(0);
      for (const auto& [key, value] : alone) {
        INFO(types << " " << key);
        if (key != "chosen") CHECK(row.at(key) == value);
      }
    }
  }
  CHECK(std::stoull(coded[0].at("kv_codes_bytes")) + std::stoull(coded[0].at("kv_scales_bytes")) ==
        std::stoull(coded[0].at("kv_allocated_bytes")));
}
