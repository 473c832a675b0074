// `kvroof simulate` on servers of several stages and of several groups, against what plan says of the same work.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tests/catch.hpp"
#include "tests/support/csv_rows.hpp"
#include "tests/support/program_json.hpp"
#include "tests/support/run_program.hpp"

using kvroof::test::fields_of;
using kvroof::test::json_of;
using kvroof::test::Ran;
using kvroof::test::run_program;
using kvroof::test::slurp;
using kvroof::test::TemporaryFolder;
using kvroof::test::value;
using nlohmann::json;

namespace {

json row_of(const std::string& words) { return json_of("simulate " + words)["rows"][0]; }

const std::string kStages = "--model llama-3.1-70b --dtype fp8 --engine vllm --device h100-sxm --tp 4 --pp 2 ";
const std::string kGroups = "--model qwen3-30b-a3b --engine vllm --device h100-sxm --dp 4 --ep all ";

}  // namespace

TEST_CASE("on stages and in groups requests that never meet have plan's first token and plan's step of one") {
  for (const std::string& layout : {kStages, kGroups}) {
    const std::string words = layout + "--prompt 2k --output 128 ";
    const json row = row_of(words + "--rate 0.02 --arrivals constant --count 5 --spread 0");
    const json plan = json_of("plan " + words + "--batch 1");
    INFO(layout);
    // From arrival to a place vLLM takes 15.6 ms, which plan has under load alone.
    CHECK(value(row["ttft_ms"]["p50"]) == Approx(15.6 + value(plan["ttft_ms"])).epsilon(1e-6));
    CHECK(value(row["tpot_ms"]["mean"]) == Approx(value(plan["tpot_ms"])).epsilon(0.005));
    CHECK(row["most_running"] == 1);
  }
}

TEST_CASE("clients of a server of stages or groups get the rate that plan computes for them by a formula") {
  for (const std::string& layout : {kStages, kGroups}) {
    const std::string words = layout + "--prompt 512 --output 1k ";
    const json row = row_of(words + "--clients 128 --count 1280 --spread 0.3");
    const json plan = json_of("plan " + words + "--batch 128");
    INFO(layout);
    CHECK(value(row["tokens_per_s"]) == Approx(value(plan["load"]["tokens_per_s"])).epsilon(0.2));
    CHECK(value(row["tpot_ms"]["mean"]) == Approx(value(plan["load"]["tpot_ms"])).epsilon(0.2));
    CHECK(row["most_running"] == 128);
    CHECK(row["busy_share"].get<double>() > 0.85);
    CHECK(row["busy_share"].get<double>() <= 1);
  }
}

TEST_CASE("that clients of groups ask in step is said where nothing drives them apart, and there alone") {
  const auto says = [](const std::string& words) {
    const json all = json_of("simulate " + words + "--prompt 512 --output 64 --count 80 ");
    return all["notes"].dump().find("drive groups apart") != std::string::npos;
  };
  CHECK(says(kGroups + "--clients 16 --spread 0 "));
  CHECK_FALSE(says(kGroups + "--clients 16 "));
  CHECK_FALSE(says(kGroups + "--rate 10 --spread 0 "));
  CHECK_FALSE(says(kStages + "--clients 16 --spread 0 "));
}

TEST_CASE("a row of stages and groups says what it is, counts its devices, and each of its requests its group") {
  const TemporaryFolder folder;
  const std::string words = kGroups + "--pp 1,2 --rate 20 --prompt 512 --output 64 --count 80 ";
  const json all = json_of("simulate " + words + "--per-request " + folder.file("r.csv"));
  REQUIRE(all["rows"].size() == 2);
  for (const int stages : {1, 2}) {
    const json& row = all["rows"][stages - 1];
    CHECK(row["tensor_parallel"] == 1);
    CHECK(row["pipeline_stages"] == stages);
    CHECK(row["data_parallel"] == 4);
    CHECK(row["expert_parallel"] == 4);
  }
  const json paid = json_of("simulate " + words + "--usd-per-hour 3.6")["rows"];
  for (const json& row : paid) {
    const double devices = 4 * row["pipeline_stages"].get<double>();
    CHECK(row["usd_per_million_tokens"]["low"].get<double>() ==
          Approx(devices * 3.6 / 3600 / row["lasting_tokens_per_s"].get<double>() * 1e6));
  }
  std::istringstream requests(slurp(folder.file("r.csv")));
  std::string line;
  std::getline(requests, line);
  const std::vector<std::string> keys = fields_of(line);
  const auto cell = [&](const char* key) {
    return fields_of(line).at(static_cast<std::size_t>(std::ranges::find(keys, key) - keys.begin()));
  };
  std::set<std::string> groups;
  while (std::getline(requests, line)) {
    groups.insert(cell("group"));
    CHECK(cell("data_parallel") == "4");
    CHECK(cell("replica") == "0");
  }
  CHECK(groups == std::set<std::string>{"0", "1", "2", "3"});
  const Ran table = run_program("simulate " + words);
  CHECK(table.out.find("h100-sxm x 8 (--tp 1 --pp 2 --dp 4 --ep 4)") != std::string::npos);
  CHECK(table.out.find("as DeepEP's kernels do") != std::string::npos);
}

TEST_CASE("stages and groups print the same bytes for one thread and for two, and have intervals around each value") {
  for (const std::string& layout : {kStages, kGroups}) {
    const std::string words = "simulate " + layout + "--policy full,h2o --budget 0.5 --rate 6 --prompt 1k --output 128 "
                              "--count 100 --spread 0.5 --ttft-ms 500 ";
    const std::string one = run_program(words + "--threads 1").out;
    CHECK(one.size() > 500);
    CHECK(run_program(words + "--threads 2").out == one);
    for (const json& row : json_of(words)["rows"]) {
      for (const json& e : {row["requests_per_s"], row["attained"], row["ttft_ms"]["p99"], row["tpot_ms"]["p50"]}) {
        CHECK(e["low95"] <= e["low80"]);
        CHECK(e["low80"] <= e["value"]);
        CHECK(e["value"] <= e["high80"]);
        CHECK(e["high80"] <= e["high95"]);
      }
    }
  }
}

TEST_CASE("a search finds the fewest servers of stages that meet the goals, and the highest rate of one") {
  const std::string words = kStages + "--prompt 1k --output 128 --count 200 --ttft-ms 1000 ";
  const json few = row_of(words + "--rate 60 --replicas auto");
  const int replicas = few["replicas"];
  CHECK(few["meets_goals"] == true);
  CHECK(replicas > 1);
  CHECK(json_of("simulate " + words + "--rate 60 --replicas " + std::to_string(replicas - 1), 3)["rows"][0]
            ["meets_goals"] == false);
  const double most = row_of(words + "--rate max")["arrival_rate_per_s"];
  const std::string faster = "--rate " + std::to_string(1.5 * most);
  CHECK(json_of("simulate " + words + faster, 3)["rows"][0]["meets_goals"] == false);
}

TEST_CASE("each group has a prefix cache of its own: four of them compute a prompt that they share four times") {
  // A prompt every two seconds, of one kind, which is answered before the next comes: the first group has them all.
  const std::string words = kGroups + "--prompt 4k --output 16 --shared-prefix 4080:1 --count 16 --arrivals constant "
                                      "--spread 0 ";
  const json alone = row_of(words + "--rate 0.5")["prefix_cache"];
  CHECK(alone["found_share"].get<double>() == Approx(15.0 / 16 * 4080 / 4096).epsilon(0.001));
  // All at once they are shared out over groups, and each computes one of its four.
  const json at_once = row_of(words + "--rate 1000000")["prefix_cache"];
  CHECK(at_once["found_share"].get<double>() == Approx(12.0 / 16 * 4080 / 4096).epsilon(0.001));
}
