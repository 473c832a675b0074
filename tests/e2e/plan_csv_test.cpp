// What programs read of `kvroof plan` and `kvroof compare` as CSV.
#include <map>
#include <nlohmann/json.hpp>

#include "tests/catch.hpp"
#include "tests/support/program_json.hpp"
#include "tests/support/run_program.hpp"

using kvroof::test::json_of;
using kvroof::test::Ran;
using kvroof::test::run_program;
using nlohmann::json;

namespace {

using Row = std::map<std::string, std::string>;

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  return fields;
}

std::vector<Row> rows_of(const std::string& words, int code = 0) {
  const Ran ran = run_program(words + " --format csv");
  INFO(ran.err);
  REQUIRE(ran.code == code);
  std::istringstream text(ran.out);
  std::string line;
  std::getline(text, line);
  const std::vector<std::string> keys = fields_of(line);
  std::vector<Row> rows;
  while (std::getline(text, line)) {
    const std::vector<std::string> fields = fields_of(line);
    REQUIRE(fields.size() == keys.size());
    Row& row = rows.emplace_back();
    for (std::size_t c = 0; c < keys.size(); ++c) row[keys[c]] = fields[c];
  }
  return rows;
}

void check_interval(const Row& row, const std::string& key, const json& interval) {
  INFO(key);
  CHECK(std::stod(row.at(key)) == Approx(interval["value"].get<double>()));
  for (const char* end : {"low80", "high80", "low95", "high95"}) {
    CHECK(std::stod(row.at(key + "_" + end)) == Approx(interval[end].get<double>()));
  }
}

// Every value of a JSON object is a cell: nested keys are joined by _, an estimate is one with an interval.
void check_cells(const Row& row, const std::string& key, const json& value) {
  INFO(key);
  if (value.is_object() && value.contains("low80")) {
    check_interval(row, key, value);
    CHECK(row.at(key + "_dominated_by") == value["dominated_by"]);
  } else if (value.is_object()) {
    for (const auto& [name, part] : value.items()) check_cells(row, key.empty() ? name : key + "_" + name, part);
  } else if (value.is_boolean()) {
    CHECK(row.at(key) == (value.get<bool>() ? "yes" : "no"));
  } else if (value.is_number()) {
    CHECK(std::stod(row.at(key)) == Approx(value.get<double>()));
  } else if (value.is_null()) {
    CHECK((row.count(key) == 0 || row.at(key).empty()));  // an object that there is none of has its keys as cells
  } else {
    CHECK(row.at(key) == value);
  }
}

// JSON has the value of some figures beside their interval; in a row the figure's own cells are both.
json with_intervals_in_place(json object) {
  for (const char* key : {"tpot_ms", "tokens_per_s", "largest_batch"}) {
    const std::string interval = std::string(key) + "_interval";
    if (!object.contains(interval)) continue;
    if (!object[interval].is_null()) object[key] = object[interval];
    object.erase(interval);
  }
  return object;
}

}  // namespace

TEST_CASE("a row of compare has every value of its point in JSON under the same key") {
  const std::string words = "compare --model llama-3-8b --device h200,l40s,t4,mi300x --by tokens_per_usd";
  const std::vector<Row> rows = rows_of(words);
  const json all = json_of(words);
  REQUIRE(rows.size() == 4);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    json point = with_intervals_in_place(all["points"][i]);
    point.erase("batches");  // the points of a picture
    for (const char* key : {"model", "prompt", "output"}) point[key] = all[key];
    check_cells(rows[i], "", point);
  }
}

TEST_CASE("the chosen row of a plan has every value of its JSON under the same key") {
  const std::string words = "plan --model llama-3-8b --device h200 --policy keyformer:budget=0.5 --batch 4";
  json plan = with_intervals_in_place(json_of(words));
  for (const json& line : plan["ledger"]) plan[line["name"].get<std::string>() + "_bytes"] = line["bytes"];
  plan["meets_goals"] = plan["fits"];
  for (const char* key : {"answer", "fits", "ledger", "searched", "remedies", "notes", "version"}) plan.erase(key);
  const std::vector<Row> rows = rows_of(words);
  REQUIRE(rows.size() == 1);
  check_cells(rows[0], "", plan);
}

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
    check_interval(row, "tpot_ms", searched["tpot_ms"]);
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
