// `kvroof simulate`: requests one by one, against what plan says of the same work, and against its own goals.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

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

const std::string kLlama = "--model llama-3-8b --device h100-sxm ";

}  // namespace

TEST_CASE("requests that never meet have plan's first token and plan's step of a batch of one") {
  const std::string lengths = "--prompt 2k --output 256 ";
  const json row = simulate(kLlama + lengths + "--rate 0.01 --arrivals constant --count 5 --spread 0")["rows"][0];
  const json plan = json::parse(run_program("plan " + kLlama + lengths + "--batch 1 --format json").out);
  CHECK(value(row["ttft_ms"]["p50"]) == Approx(value(plan["ttft_ms"])).epsilon(1e-6));
  CHECK(value(row["ttft_ms"]["p99"]) == Approx(value(plan["ttft_ms"])).epsilon(1e-6));
  CHECK(value(row["tpot_ms"]["mean"]) == Approx(value(plan["tpot_ms"])).epsilon(0.005));
  // 255 further tokens, the gaps between which are counted in classes of 1 %.
  CHECK(value(row["e2e_ms"]["p50"]) ==
        Approx(value(row["ttft_ms"]["p50"]) + 255 * value(row["tpot_ms"]["p50"])).epsilon(1e-6));
  CHECK(value(row["itl_ms"]["p50"]) == Approx(value(row["tpot_ms"]["p50"])).epsilon(0.006));
  CHECK(row["most_running"] == 1);
}

TEST_CASE("clients that ask again get the rate that plan computes for them by a formula") {
  // The formula has prompts read the weights beside answers, which costs some of the rate where prompts are many.
  for (const char* work : {"--prompt 1k --output 1k ", "--prompt 4k --output 256 "}) {
    const json row = simulate(kLlama + work + "--engine vllm --clients 32 --count 640 --spread 0.3")["rows"][0];
    const json plan =
        json::parse(run_program("plan " + kLlama + work + "--engine vllm --batch 32 --format json").out);
    INFO(work);
    CHECK(value(row["tokens_per_s"]) == Approx(value(plan["load"]["tokens_per_s"])).epsilon(0.2));
    CHECK(value(row["tpot_ms"]["mean"]) == Approx(value(plan["load"]["tpot_ms"])).epsilon(0.2));
    CHECK(row["most_running"] == 32);
  }
}

TEST_CASE("a simulation prints the same bytes for one thread and for two, and other ones for another seed") {
  const std::string words = "simulate " + kLlama + "--policy full,h2o --budget 0.5 --rate 6 --count 100 --spread 0.5 ";
  const std::string one = run_program(words + "--threads 1").out;
  CHECK(one.size() > 500);
  CHECK(run_program(words + "--threads 2").out == one);
  CHECK(run_program(words + "--seed 7").out != one);
}

TEST_CASE("every interval holds its value, the wider one the narrower") {
  const json row = simulate(kLlama + "--rate 6 --count 200 --engine vllm --spread 0.5 --ttft-ms 500")["rows"][0];
  std::vector<json> estimates = {row["requests_per_s"], row["tokens_per_s"], row["attained"]};
  for (const char* metric : {"ttft_ms", "tpot_ms", "itl_ms", "e2e_ms"}) {
    for (const json& estimate : row[metric]) estimates.push_back(estimate);
  }
  for (const json& e : estimates) {
    CHECK(e["low95"] <= e["low80"]);
    CHECK(e["low80"] <= e["value"]);
    CHECK(e["value"] <= e["high80"]);
    CHECK(e["high80"] <= e["high95"]);
  }
}

TEST_CASE("a percentile and all its bounds are no less than those of a percentile before it") {
  const std::string lengths = "--prompt 1k --output 64 --spread 0.5 ";
  const json row = simulate(kLlama + lengths + "--rate 4 --count 200 --engine vllm")["rows"][0];
  for (const char* metric : {"ttft_ms", "tpot_ms", "itl_ms", "e2e_ms"}) {
    for (const char* bound : {"low95", "low80", "value", "high80", "high95"}) {
      INFO(metric << " " << bound);
      const json& of = row[metric];
      CHECK(of["p50"][bound] <= of["p90"][bound]);
      CHECK(of["p90"][bound] <= of["p95"][bound]);
      CHECK(of["p95"][bound] <= of["p99"][bound]);
    }
  }
}

TEST_CASE("a short run whose servers keep up says at which rate its requests came") {
  // Five requests in steps of a second come within four, and are answered soon after: 5 ÷ 4 a second.
  const std::string words = kLlama + "--engine vllm --prompt 128 --output 4 --arrivals constant --rate 1 --count ";
  CHECK(simulate(words + "5")["notes"].dump().find("of --rate 1: the 5 requests came at 1.00 a second") !=
        std::string::npos);
  CHECK(simulate(words + "500")["notes"].dump().find("servers keep up") == std::string::npos);
}

TEST_CASE("the highest rate meets the goals, and half as much again does not") {
  const std::string words =
      kLlama + "--prompt 1k --output 128 --count 200 --ttft-ms 300 --tpot-ms 20 --attainment 0.95 ";
  const json most = simulate(words + "--rate max")["rows"][0];
  const double rate = most["arrival_rate_per_s"];
  CHECK(most["meets_goals"] == true);
  CHECK(value(most["attained"]) >= 0.95);
  const json& e = most["highest_rate_per_s"];
  CHECK(value(e) == rate);
  CHECK(e["low80"].get<double>() < rate);  // slower steps serve fewer
  CHECK(e["high80"].get<double>() > rate);
  CHECK(simulate(words + "--rate " + std::to_string(1.5 * rate), 3)["rows"][0]["meets_goals"] == false);
}

TEST_CASE("of rows that serve alike the answer is about the one whose first tokens come sooner") {
  // A board of less arithmetic and more bandwidth is done a little earlier with the last answer, not with first tokens.
  const std::string slow = "h100-sxm:peak_bf16_tflops=0.3x:bandwidth_gb_per_s=1.5x";
  const json all = simulate("--model llama-3-8b --device " + slow + ",h100-sxm --prompt 2k --output 1k --rate 0.02 "
                            "--arrivals constant --count 20");
  const json& rows = all["rows"];
  REQUIRE(value(rows[0]["tokens_per_s"]) > value(rows[1]["tokens_per_s"]));
  REQUIRE(value(rows[0]["tokens_per_s"]) < 1.01 * value(rows[1]["tokens_per_s"]));
  REQUIRE(value(rows[0]["ttft_ms"]["p50"]) > value(rows[1]["ttft_ms"]["p50"]));
  CHECK(all["answer"].get<std::string>().starts_with("h100-sxm under full"));
}

TEST_CASE("a long search tells a terminal what it tries, and nothing of it is in the result") {
  const std::string words = kLlama + "--prompt 1k --output 16 --count 50 --ttft-ms 300 --rate max --replicas 2";
  const Ran plain = run_program("simulate " + words);
  CHECK(plain.err.empty());
  const TemporaryFolder folder;
  const std::string program = "KVROOF_BACKEND=fast " + std::string(KVROOF_PROGRAM);
  const Ran seen = run_program("-qec '" + program + " simulate " + words + " -o " + folder.file("out") + "' /dev/null",
                               "script");
  CHECK(seen.out.find("trial 3: ") != std::string::npos);
  CHECK(seen.out.find(" requests/s on 2 servers") != std::string::npos);
  CHECK(slurp(folder.file("out")) == plain.out);
}

TEST_CASE("a search that has no answer says why") {
  const std::string words = kLlama + "--engine vllm --prompt 1k --output 64 --count 10 ";
  const auto problem = [&](const std::string& more) { return simulate(words + more, 3)["rows"][0]["problem"]; };
  CHECK(problem("--rate max --ttft-ms 20000") ==
        "the goals are met however fast the 10 requests come; more of them have a highest rate");
  CHECK(problem("--rate max --ttft-ms 1 --attainment 0.999") ==
        "fewer than 99.9 % of the requests meet the goals, however slowly they come");
  CHECK(problem("--rate 5 --replicas auto --ttft-ms 1") ==
        "fewer than 90 % of the requests meet the goals, even with 10 servers");
}

TEST_CASE("an interval of the highest rate is open where short steps keep up with any rate") {
  // Ten prompts of 1,024 tokens at once take some 230 ms, and their intervals are wide.
  const std::string words = kLlama + "--engine vllm --prompt 1k --output 64 --count 10 --rate max --ttft-ms 220 ";
  const json e = simulate(words)["rows"][0]["highest_rate_per_s"];
  CHECK(e["value"].is_number());
  CHECK(e["high95"].is_null());
  const std::string said = simulate(words)["answer"];
  CHECK(said.find(" or more) with 90 % of the requests") != std::string::npos);
}

TEST_CASE("as few replicas as meet the goals are found: one less does not") {
  const std::string words = kLlama + "--prompt 2k --output 128 --count 200 --rate 40 --ttft-ms 500 ";
  const json found = simulate(words + "--replicas auto")["rows"][0];
  const int replicas = found["replicas"];
  CHECK(replicas > 1);
  CHECK(found["meets_goals"] == true);
  CHECK(value(found["fewest_replicas"]) == replicas);
  CHECK(found["fewest_replicas"]["low80"] <= replicas);
  CHECK(found["fewest_replicas"]["high80"] > replicas);
  CHECK(simulate(words + "--replicas " + std::to_string(replicas - 1), 3)["rows"][0]["meets_goals"] == false);
}

TEST_CASE("under a policy that keeps half, memory holds more sequences and the device serves more") {
  const std::string words = "--model llama-3-8b --device l40s --prompt 8k --output 512 --clients 200 --count 400 ";
  const json rows = simulate(words + "--policy full,h2o --budget 0.5")["rows"];
  REQUIRE(rows.size() == 2);
  CHECK(rows[1]["most_running"].get<double>() > 1.6 * rows[0]["most_running"].get<double>());
  CHECK(value(rows[1]["tokens_per_s"]) > value(rows[0]["tokens_per_s"]));
  for (const json& row : rows) CHECK(row["most_cache_share"].get<double>() <= 1);
}

TEST_CASE("what a prefix cache has of prompts is not computed") {
  const std::string words = kLlama + "--prompt 8k --output 16 --rate 0.01 --arrivals constant --count 3 ";
  const double all = value(simulate(words)["rows"][0]["ttft_ms"]["p50"]);
  const double half = value(simulate(words + "--cached-prompt 0.5")["rows"][0]["ttft_ms"]["p50"]);
  CHECK(half < 0.7 * all);
  CHECK(half > 0.5 * all);  // its queries meet the cached keys
  CHECK(value(simulate(words + "--cached-prompt 1")["rows"][0]["ttft_ms"]["p50"]) < 0.1 * all);
}

TEST_CASE("a trace of requests is served as it comes, and each request has a line of its own") {
  const TemporaryFolder folder;
  std::ofstream(folder.file("azure.csv")) << "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
                                             "2023-11-16 18:15:46.6805900,374,44\r\n"
                                             "2023-11-16 18:15:47.6805900,396,109\r\n"
                                             "2023-11-16 18:15:48.6805900,1200,0\r\n";
  const json all =
      simulate(kLlama + "--requests " + folder.file("azure.csv") + " --per-request " + folder.file("r.csv"));
  CHECK(all["requests"] == 2);
  CHECK(all["rows"][0]["arrival_rate_per_s"] == Approx(1));
  const std::string csv = slurp(folder.file("r.csv"));
  CHECK(std::count(csv.begin(), csv.end(), '\n') == 3);
  CHECK(csv.find("h100-sxm,full,bf16,1,1,1.000000,396,109,0,") != std::string::npos);
  // Its own rate, or another.
  CHECK(simulate(kLlama + "--rate 4 --requests " + folder.file("azure.csv"))["rows"][0]["arrival_rate_per_s"] ==
        Approx(4));
}

TEST_CASE("tables, CSV and pictures of a simulation say what JSON says") {
  const TemporaryFolder folder;
  const std::string words = kLlama + "--rate 5 --count 50 --ttft-ms 1000 ";
  const json row = simulate(words)["rows"][0];
  const Ran csv = run_program("simulate " + words + "--format csv --svg " + folder.file("p.svg"));
  REQUIRE(csv.code == 0);
  const std::string header = csv.out.substr(0, csv.out.find('\n'));
  CHECK(header.starts_with("model,device,engine,policy,"));
  for (const char* column : {"ttft_p99_ms_high95", "tpot_p50_ms", "itl_mean_ms", "e2e_p90_ms_low80", "preemptions"}) {
    CHECK(header.find(column) != std::string::npos);
  }
  // Intervals of a simulation mix the terms of many steps.
  CHECK_FALSE(row["ttft_ms"]["p50"].contains("dominated_by"));
  CHECK(header.find("dominated_by") == std::string::npos);
  CHECK(slurp(folder.file("p.svg")).find("first token within (ms)") != std::string::npos);
  const Ran table = run_program("simulate " + words);
  CHECK(table.out.find("in time") != std::string::npos);
  CHECK(table.out.find("h100-sxm under full answers") != std::string::npos);
}

TEST_CASE("the curve of a picture ends where all requests have their first token") {
  const TemporaryFolder folder;
  run_program("simulate " + kLlama + "--rate 20 --count 1603 --prompt 100 --output 1 --svg " + folder.file("p.svg"));
  const std::string svg = slurp(folder.file("p.svg"));
  // The line of 100 % is the last of the grid; the last point of the curve is before its end.
  const std::size_t grid = svg.find("y1=\"", svg.rfind("class=\"grid\"")) + 4;
  const std::size_t curve = svg.find(" d=\"M"), end = svg.find('"', curve + 4);
  REQUIRE(curve != std::string::npos);
  CHECK(std::stod(svg.substr(svg.rfind(',', end) + 1)) == std::stod(svg.substr(grid)));
}

TEST_CASE("answers of one token have no time between tokens") {
  const std::string words = kLlama + "--rate 1 --count 1 --output 1 ";
  const json all = simulate(words);
  CHECK(all["rows"][0]["tpot_ms"].is_null());
  CHECK(all["rows"][0]["itl_ms"].is_null());
  CHECK(value(all["rows"][0]["ttft_ms"]["p50"]) > 0);
  CHECK(all["notes"][0] == "1 drawn request of 2048 + 1 tokens");
  CHECK(run_program("simulate " + words).out.find("0 (0 to 0)") == std::string::npos);
}

TEST_CASE("what cannot be simulated is said in a sentence") {
  const TemporaryFolder folder;
  std::ofstream(folder.file("bad.csv")) << "arrival_s,prompt,output\n0,ten,5\n";
  std::ofstream(folder.file("once.csv")) << "arrival_s,prompt,output\n0,10,5\n0,10,5\n";
  std::ofstream(folder.file("lengths.csv")) << "num_prefill_tokens,num_decode_tokens\n10,5\n";
  const std::pair<std::string, std::string> wrong[] = {
      {kLlama, "--rate is missing: requests a second, or max; or --requests FILE, or --clients N"},
      {"--model llama-3-8b --rate 1", "--device is missing"},
      {kLlama + "--rate fast", "--rate fast: expected a number from 1e-06 to 1000000, or max"},
      {kLlama + "--rate 0", "--rate 0"},
      {kLlama + "--rate max", "--rate max needs a goal: --ttft-ms, --tpot-ms or both"},
      {kLlama + "--rate 1 --replicas auto", "--replicas auto needs a goal"},
      {kLlama + "--rate max --replicas auto --ttft-ms 100", "one of the two must be a number"},
      {kLlama + "--rate 1 --clients 4", "--clients and --rate"},
      {kLlama + "--clients 4 --arrivals constant", "--clients and --arrivals"},
      {kLlama + "--rate 1 --attainment 0.5", "--attainment needs a goal"},
      {kLlama + "--rate 1 --replicas few", "--replicas few: expected a count from 1 to 4096, or auto"},
      {kLlama + "--rate 1 --arrivals bursty", "--arrivals bursty: expected poisson, constant or gamma:SHAPE"},
      {kLlama + "--rate 1 --count 0", "--count 0"},
      {kLlama + "--rate 1 --attainment 2", "--attainment 2"},
      {kLlama + "--rate 1 --cached-prompt 1.5", "--cached-prompt 1.5"},
      {kLlama + "--rate 1 --cached-prompt trace", "nothing says which prompts begin alike"},
      {kLlama + "--rate 1 --svg p.png", "the picture is an SVG"},
      {kLlama + "--requests " + folder.file("none.csv"), "none.csv"},
      {kLlama + "--requests " + folder.file("bad.csv"), "line 2: prompt 'ten': expected a number of tokens"},
      {kLlama + "--requests " + folder.file("bad.csv") + " --prompt 4k", "the file says how long requests are"},
      {kLlama + "--requests " + folder.file("once.csv") + " --arrivals constant", "the file says when requests come"},
      {kLlama + "--requests " + folder.file("lengths.csv"), "lengths.csv does not say when requests come"},
      {kLlama + "--rate 2 --requests " + folder.file("once.csv"), "arrive at once, so they have no rate"},
      {"--model gpt2 --device h100-sxm --rate 1 --prompt 1k --output 512", "learned positions"}};
  for (const auto& [words, what] : wrong) {
    const Ran ran = run_program("simulate " + words);
    INFO(words << "\n" << ran.err);
    CHECK(ran.code == 2);
    CHECK(ran.out.empty());
    CHECK(ran.err.starts_with("error:"));
    CHECK(ran.err.find(what) != std::string::npos);
  }
  // What does not fit is no mistake of the command line.
  const Ran large = run_program("simulate --model llama-3-70b --device rtx-4090 --rate 1");
  CHECK(large.code == 3);
  CHECK(large.out.find("does not fit") != std::string::npos);
}

TEST_CASE("A file of lengths alone is simulated at a rate that is drawn, or by clients") {
  const TemporaryFolder folder;
  std::ofstream file(folder.file("lengths.csv"));
  file << "num_prefill_tokens,num_decode_tokens\n";
  for (int i = 0; i < 50; ++i) file << 100 + i << ",5\n";
  file.close();
  const auto arrivals = [&](const std::string& load) {
    const std::string out = folder.file("requests.csv");
    const Ran ran = run_program("simulate " + kLlama + "--requests " + folder.file("lengths.csv") + load +
                                " --per-request " + out);
    INFO(ran.err);
    REQUIRE(ran.code == 0);
    CHECK(ran.out.find("50 requests") != std::string::npos);
    return slurp(out);
  };
  const std::string even = arrivals(" --rate 2 --arrivals constant");
  CHECK(even.find(",0.500000,") != std::string::npos);
  CHECK(even.find(",24.500000,") != std::string::npos);  // the fiftieth
  CHECK(arrivals(" --rate 2") != even);
  CHECK_FALSE(arrivals(" --clients 3").empty());
}

TEST_CASE("where one of its files cannot be written simulate writes none") {
  const TemporaryFolder folder;
  const std::string picture = folder.file("p.svg");
  const Ran ran = run_program("simulate " + kLlama + "--rate 4 --count 10 --svg " + picture + " --per-request " +
                              folder.file("nowhere/r.csv"));
  CHECK(ran.code == 1);
  CHECK(ran.out.empty());
  CHECK(ran.err.find("nowhere/r.csv: cannot be written: No such file or directory") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(picture));
}
