// `kvroof simulate --prefill-replicas`: servers for prompts alone, and whether they pay.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/catch.hpp"
#include "tests/support/program_json.hpp"
#include "tests/support/run_program.hpp"

using kvroof::test::Ran;
using kvroof::test::run_program;
using kvroof::test::simulate;
using kvroof::test::slurp;
using kvroof::test::TemporaryFolder;
using kvroof::test::value;
using nlohmann::json;

namespace {

json rows_of(const std::string& words, int code = 0) { return simulate(words, code)["rows"]; }

bool apart(const json& row) { return row["prefill_replicas"].get<int>() > 0; }

const std::string kLlama = "--model llama-3-8b --device h100-sxm ";
// Keys and values of 32 layers of 8 heads of 128 numbers of two bytes.
constexpr double kRowBytes = 2.0 * 32 * 8 * 128 * 2;

}  // namespace

TEST_CASE("over a link that takes no time, requests that never meet are answered as without servers for prompts") {
  const json rows = rows_of(kLlama + "--prompt 2k --output 256 --rate 0.01 --arrivals constant --count 4 --replicas 2 "
                                     "--prefill-replicas 0,1 --transfer-gbs 1000000 --transfer-ms 0");
  REQUIRE(rows.size() == 2);
  CHECK(rows[0]["prefill"].is_null());
  CHECK(rows[1]["prefill_replicas"] == 1);
  for (const char* metric : {"ttft_ms", "tpot_ms", "e2e_ms"}) {
    for (const char* end : {"value", "low80", "high95"}) {
      CHECK(rows[1][metric]["p50"][end].get<double>() ==
            Approx(rows[0][metric]["p50"][end].get<double>()).epsilon(1e-5));
    }
  }
}

TEST_CASE("what moves are the rows that the policy keeps of the prompt, at the speed of the link") {
  const json rows = rows_of(kLlama + "--policy full,window,h2o --budget 0.5 --prompt 2k --output 64 --rate 0.1 "
                                     "--arrivals constant --count 3 --spread 0 --replicas 2 --prefill-replicas 1 "
                                     "--transfer-gbs 10 --transfer-ms 3");
  const auto moved = [&](int i) { return rows[i]["prefill"]["moved_bytes_mean"].get<double>(); };
  CHECK(moved(0) == Approx(2048 * kRowBytes));
  CHECK(moved(1) == Approx(1024 * kRowBytes));
  CHECK(moved(2) >= 1024 * kRowBytes);  // and a score of 4 bytes of each row of 512
  CHECK(moved(2) < 1.02 * 1024 * kRowBytes);
  CHECK(rows[0]["prefill"]["transfer_ms_mean"].get<double>() == Approx(2048 * kRowBytes / 10e9 * 1e3 + 3));
  // The way is in the gap to the second token, not before the first.
  CHECK(value(rows[1]["ttft_ms"]["p50"]) == Approx(value(rows[0]["ttft_ms"]["p50"])).epsilon(0.05));
  CHECK(value(rows[0]["itl_ms"]["p99"]) > 2048 * kRowBytes / 10e9 * 1e3);
}

TEST_CASE("a link that is too slow is said to limit, and a policy that keeps a quarter makes it suffice") {
  // A cache of 537 MB takes 107 ms of a link of 5 GB/s: 12 a second are more than one server of answers can take.
  const std::string words = kLlama + "--policy full,window --budget 0.25 --engine vllm --prompt 4k --output 64 "
                                     "--rate 12 --arrivals constant --count 500 --replicas 3 --prefill-replicas 2 "
                                     "--transfer-gbs 5 ";
  const json rows = rows_of(words);
  CHECK(value(rows[0]["requests_per_s"]) == Approx(5e9 / (4096 * kRowBytes)).epsilon(0.03));
  CHECK(rows[0]["prefill"]["link_busy_share"].get<double>() > 0.95);
  CHECK(rows[1]["prefill"]["link_busy_share"].get<double>() < 0.5);
  CHECK(value(rows[1]["requests_per_s"]) > 1.1 * value(rows[0]["requests_per_s"]));
  const std::string out = run_program("simulate " + words).out;
  CHECK(out.find("2 prefill + 1 decode of h100-sxm under full: the links are what limits") != std::string::npos);
  CHECK(out.find("under window:budget=0.25: the links") == std::string::npos);
}

TEST_CASE("over two devices each moves its half, and the side of fewer devices takes longest") {
  const std::string words = "--prompt 2k --output 8 --rate 0.1 --arrivals constant --count 2 --spread 0 --replicas 2 "
                            "--prefill-replicas 1 --transfer-gbs 10 --transfer-ms 0 ";
  const auto transfer = [&](const std::string& more) { return rows_of(kLlama + words + more)[0]["prefill"]; };
  for (const char* more : {"", "--prefill-tp 2", "--tp 2 --prefill-tp 1", "--tp 2"}) {
    const json prefill = transfer(more);
    const double devices = std::string(more) == "--tp 2" ? 2 : 1;
    INFO(more);
    CHECK(prefill["moved_bytes_mean"].get<double>() == Approx(2048 * kRowBytes));
    CHECK(prefill["transfer_ms_mean"].get<double>() == Approx(2048 * kRowBytes / 10e9 * 1e3 / devices));
  }
}

TEST_CASE("answers on servers of their own do not wait for prompts") {
  const json rows = rows_of(kLlama + "--engine vllm --prompt 4k --output 128 --rate 12 --count 200 --replicas 4 "
                                     "--prefill-replicas 0,2 --transfer-ms 0");
  // Together the longest gaps hold a prompt of 4,096 tokens, some 100 ms; apart they are those of the caches' way.
  CHECK(value(rows[0]["itl_ms"]["p99"]) > 5 * value(rows[0]["itl_ms"]["p50"]));
  CHECK(value(rows[1]["itl_ms"]["p95"]) < 1.6 * value(rows[1]["itl_ms"]["p50"]));
  CHECK(value(rows[1]["tpot_ms"]["p99"]) < value(rows[0]["tpot_ms"]["p99"]));
  for (const char* metric : {"ttft_ms", "tpot_ms", "itl_ms", "e2e_ms"}) {
    const json& e = rows[1][metric]["p99"];
    INFO(metric);
    CHECK(e["low95"] <= e["low80"]);
    CHECK(e["low80"] < e["value"]);
    CHECK(e["value"] < e["high80"]);
    CHECK(e["high80"] <= e["high95"]);
  }
}

TEST_CASE("the best number of servers for prompts serves no less than any other, and the answer says what that gains") {
  const std::string words =
      kLlama + "--engine vllm --prompt 4k --output 64 --count 150 --ttft-ms 500 --tpot-ms 12 --rate max --replicas 4 ";
  const json best = rows_of(words + "--prefill-replicas auto");
  REQUIRE(best.size() == 2);
  CHECK(apart(best[0]) != apart(best[1]));
  CHECK(value(best[0]["highest_rate_per_s"]) >= value(best[1]["highest_rate_per_s"]));
  const double most = value(best[apart(best[0]) ? 0 : 1]["highest_rate_per_s"]);
  for (const json& row : rows_of(words + "--prefill-replicas 1,2,3")) {
    if (row["problem"].is_null()) CHECK(value(row["highest_rate_per_s"]) <= 1.011 * most);
  }
  const std::string out = run_program("simulate " + words + "--prefill-replicas auto").out;
  const std::string said =
      json::parse(run_program("simulate " + words + "--prefill-replicas auto --format json").out)["answer"];
  CHECK((said.find("; without servers for prompts alone, 4 of") != std::string::npos ||
         said.find("; with servers for prompts alone, ") != std::string::npos));
  CHECK(out.find("KV moved") != std::string::npos);
}

TEST_CASE("the fewest servers of both kinds meet the goals, and with one less no split does") {
  const std::string words = kLlama + "--engine vllm --prompt 4k --output 64 --count 150 --rate 25 --ttft-ms 500 "
                                     "--tpot-ms 12 ";
  const json both = rows_of(words + "--replicas auto --prefill-replicas auto");
  CHECK(both[0]["devices"].get<int>() <= both[1]["devices"].get<int>());
  const json row = both[apart(both[0]) ? 0 : 1];
  const int all = row["replicas"];
  CHECK(row["meets_goals"] == true);
  CHECK(row["prefill_replicas"].get<int>() >= 1);
  CHECK(value(row["fewest_replicas"]) == all);
  REQUIRE(all > 2);
  std::string splits = "1";
  for (int i = 2; i < all - 1; ++i) splits += "," + std::to_string(i);
  const std::string one_less = "--replicas " + std::to_string(all - 1) + " --prefill-replicas " + splits;
  for (const json& less : rows_of(words + one_less, 3)) CHECK(less["meets_goals"] == false);
}

TEST_CASE("servers for prompts may be of another device, and print the same for one thread and for two") {
  const TemporaryFolder folder;
  const std::string words =
      "simulate --model llama-3-8b --device l40s --prefill-device h100-sxm --prompt 2k --output 32 --rate 4 --count 60 "
      "--replicas 3 --prefill-replicas 1 --policy full,h2o --budget 0.5 ";
  const Ran table = run_program(words + "--threads 1 --per-request " + folder.file("r.csv"));
  REQUIRE(table.code == 0);
  CHECK(table.out.find("1 prefill of h100-sxm + 2 decode of l40s") != std::string::npos);
  CHECK(table.out.find("caches move at 32 GB/s a device") != std::string::npos);  // PCIe of an L40S, fourth generation
  CHECK(run_program(words + "--threads 2").out == table.out);
  const std::string csv = slurp(folder.file("r.csv"));
  std::istringstream lines(csv);
  std::string line;
  std::getline(lines, line);
  CHECK(line.ends_with(",prefill_replica,transfer_begun_s,transfer_ended_s,moved_bytes,expert_parallel,kv_type,"
                       "drafts,pipeline_stages,data_parallel,group,conversation,turn"));
  const auto columns = std::count(line.begin(), line.end(), ',');
  while (std::getline(lines, line)) CHECK(std::count(line.begin(), line.end(), ',') == columns);
  const std::string rows = run_program(words + "--format csv").out;
  CHECK(rows.find(",prefill_device,prefill_tensor_parallel,prefill_busy_share,") != std::string::npos);
}

TEST_CASE("answers of one token never leave the servers for prompts") {
  const TemporaryFolder folder;
  const json row = rows_of(kLlama + "--rate 1 --count 5 --output 1 --prompt 2k --spread 0 --replicas 2 "
                                    "--prefill-replicas 1 --per-request " + folder.file("r.csv"))[0];
  std::istringstream lines(slurp(folder.file("r.csv")));
  std::string line;
  std::getline(lines, line);
  CHECK(line.find(",output,replica,placed_s,") != std::string::npos);
  for (int i = 0; i < 5; ++i) {
    std::getline(lines, line);
    CHECK(line.find(",2048,1,,") != std::string::npos);  // no server of answers had it
    CHECK(line.ends_with(",0,0,1,0,,,,1,bf16,none,1,1,,,1"));  // the first server of prompts made it, and nothing moved
  }
  CHECK(row["tpot_ms"].is_null());
  CHECK(row["prefill"]["moved_bytes_mean"] == 0);
  CHECK(row["mean_running"] == 0);
  CHECK(row["busy_share"] == 0);
}

TEST_CASE("what cannot be asked of servers for prompts is said in a sentence") {
  const std::pair<std::string, std::string> wrong[] = {
      {"--replicas 3 --prefill-replicas 3", "one of --replicas 3 at least is for answers; expected at most 2"},
      {"--prefill-replicas 1", "--replicas 1 leaves none for answers"},
      {"--replicas 3 --prefill-replicas few", "--prefill-replicas few"},
      {"--replicas 3 --prefill-replicas auto", "--prefill-replicas auto needs a goal"},
      {"--transfer-gbs 25", "--transfer-gbs needs --prefill-replicas"},
      {"--prefill-tp 2", "--prefill-tp needs --prefill-replicas"},
      {"--replicas 2 --prefill-replicas 1 --prefill-tp 3", "--prefill-tp 3"},
      {"--replicas 2 --prefill-replicas 1 --prefill-device h10", "h10"},
      {"--replicas 2 --prefill-replicas 1 --transfer-gbs 0", "--transfer-gbs 0"},
      {"--replicas 2 --prefill-replicas 1 --transfer-ms -1", "--transfer-ms"}};
  for (const auto& [words, what] : wrong) {
    const Ran ran = run_program("simulate " + kLlama + "--rate 1 --count 5 " + words);
    INFO(words << "\n" << ran.err);
    CHECK(ran.code == 2);
    CHECK(ran.out.empty());
    CHECK(ran.err.starts_with("error:"));
    CHECK(ran.err.find(what) != std::string::npos);
  }
  // A model that fits the servers of answers alone.
  const Ran small = run_program("simulate " + kLlama +
                                "--prefill-device rtx-3060 --rate 1 --count 5 --replicas 2 --prefill-replicas 1");
  CHECK(small.code == 3);
  CHECK(small.out.find("does not fit on a server of prompts") != std::string::npos);
}

TEST_CASE("links that differ between devices are said of each, and are columns of CSV") {
  const std::string words = "simulate --model llama-3-8b --device h100-sxm,l40s --prompt 1k --output 4 --rate 1 "
                            "--count 10 --replicas 2 --prefill-replicas 1 ";
  const std::string out = run_program(words + "--transfer-ms 2").out;
  CHECK(out.find("50 GB/s a device and are there 2 ms (h100-sxm); 32 GB/s") != std::string::npos);
  CHECK(out.find("--transfer-ms)") == std::string::npos);  // it was said
  const std::string csv = run_program(words + "--format csv").out;
  CHECK(csv.find(",transfer_gb_per_s,transfer_latency_ms,") != std::string::npos);
}

TEST_CASE("where no split meets the goals the row is still one of two kinds of servers") {
  const std::string words = kLlama + "--prompt 1k --output 4 --rate 1 --count 1 --replicas auto "
                                     "--prefill-replicas auto --ttft-ms 1";
  const json rows = rows_of(words, 3);
  CHECK(rows[0]["prefill_replicas"] == 0);
  CHECK(rows[1]["prefill_replicas"] == 1);
  CHECK(rows[1]["replicas"] == 2);
  CHECK(rows[1]["problem"].get<std::string>().find("even with 1 server of each kind") != std::string::npos);
}

TEST_CASE("the note on links names every device, also one whose name is part of another's") {
  const Ran ran = run_program("simulate --model llama-3-8b --device h100-sxm,l40s,l4 --rate 1 --count 20 --prompt 1k "
                              "--output 16 --replicas 2 --prefill-replicas 1 --format json");
  CHECK(ran.out.find("(l40s, l4)") != std::string::npos);
}
