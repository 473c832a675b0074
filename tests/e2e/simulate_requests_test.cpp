// Which requests `kvroof simulate` draws or takes, and of which its times are.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "tests/catch.hpp"
#include "tests/support/program_json.hpp"
#include "tests/support/run_program.hpp"

using kvroof::test::has_note;
using kvroof::test::json_of;
using kvroof::test::Ran;
using kvroof::test::run_program;
using kvroof::test::simulate;
using kvroof::test::slurp;
using kvroof::test::TemporaryFolder;
using nlohmann::json;

namespace {

const std::string kLlama = "--model llama-3-8b --device h100-sxm --engine vllm ";

// Milliseconds until the first token of each request of a file of --per-request.
std::vector<double> first_tokens(const std::string& path) {
  std::istringstream lines(slurp(path));
  std::string line;
  std::getline(lines, line);
  const auto column_of = [&](const std::string& name) {
    const std::string before = line.substr(0, line.find(name));
    return std::count(before.begin(), before.end(), ',');
  };
  const auto arrival = column_of("arrival_s"), first = column_of("first_token_s");
  std::vector<double> times;
  while (std::getline(lines, line)) {
    std::vector<std::string> cells;
    std::istringstream row(line);
    for (std::string cell; std::getline(row, cell, ',');) cells.push_back(cell);
    times.push_back((std::stod(cells[static_cast<std::size_t>(first)]) -
                     std::stod(cells[static_cast<std::size_t>(arrival)])) * 1e3);
  }
  return times;
}

double p95(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[(times.size() * 95 + 99) / 100 - 1];
}

}  // namespace

TEST_CASE("times of clients are without their first requests, which all come at once, unless --count says how many") {
  const TemporaryFolder folder;
  const std::string words = kLlama + "--clients 256 --prompt 2k --output 64 ";
  const json answer = simulate(words + "--per-request " + folder.file("all.csv"));
  CHECK(answer["requests"] == 5 * 256);
  CHECK(answer["warm_up_requests"] == 256);
  CHECK(has_note(answer, "times of requests are without the first of each of the 256 clients"));
  const std::vector<double> all = first_tokens(folder.file("all.csv"));
  REQUIRE(all.size() == 5 * 256);
  const double of_the_rest = p95({all.begin() + 256, all.end()});
  CHECK(answer["rows"][0]["ttft_ms"]["p95"]["value"].get<double>() == Approx(of_the_rest).epsilon(1e-3));
  CHECK(p95(all) > 1.2 * of_the_rest);
  // A benchmark of so many counts them all.
  const json benchmark = simulate(words + "--count 1280");
  CHECK(benchmark["warm_up_requests"] == 0);
  CHECK_FALSE(has_note(benchmark, "are without the first"));
  CHECK(benchmark["rows"][0]["ttft_ms"]["p95"]["value"].get<double>() == Approx(p95(all)).epsilon(1e-3));
}

TEST_CASE("lengths vary by a tenth unless it is said otherwise, and none is beyond the model's positions") {
  const json drawn = simulate(kLlama + "--rate 2 --count 50 --prompt 7k --output 64");
  CHECK(drawn["notes"][0] == "50 drawn requests of 7168 + 64 tokens, spread 0.1");
  const TemporaryFolder folder;
  const std::string near = "--rate 2 --count 50 --prompt 8100 --output 64 --per-request " + folder.file("near.csv");
  CHECK_FALSE(has_note(simulate(kLlama + near), "positions that llama-3-8b was made for"));
  CHECK(has_note(simulate(kLlama + near + " --spread 0.1"), "positions that llama-3-8b was made for"));
  // One request, or one client, meets nobody.
  CHECK(simulate(kLlama + "--rate 1 --count 1")["notes"][0] == "1 drawn request of 2048 + 512 tokens");
  CHECK(simulate(kLlama + "--clients 1 --count 3")["notes"][0].get<std::string>().starts_with(
      "3 drawn requests of 2048 + 512 tokens;"));
}

TEST_CASE("what follows from requests that are all alike is said, and not where they differ") {
  const std::string clients = "--clients 16 --prompt 1k --output 64 ", servers = "--rate 40 --replicas 2 --output 64 ";
  CHECK(has_note(simulate(kLlama + clients + "--spread 0"), "clients that were answered together ask together"));
  CHECK_FALSE(has_note(simulate(kLlama + clients), "are all alike"));
  CHECK(has_note(simulate(kLlama + servers + "--count 100 --spread 0"), "the next ones all go there"));
  CHECK_FALSE(has_note(simulate(kLlama + servers + "--count 100"), "are all alike"));
  CHECK_FALSE(has_note(simulate(kLlama + "--rate 5 --count 100 --spread 0"), "are all alike"));
}

TEST_CASE("of a file the first requests may be taken alone") {
  const TemporaryFolder folder;
  std::ofstream(folder.file("r.csv")) << "arrival_s,prompt,output\n0,100,10\n1,200,10\n2,300,10\n3,9000,10\n";
  const std::string words = kLlama + "--requests " + folder.file("r.csv");
  const json two = simulate(words + " --count 2");
  CHECK(two["requests"] == 2);
  CHECK(two["notes"][0].get<std::string>().find("2 requests of ") == 0);
  CHECK(two["notes"][0].get<std::string>().find("(the first of 4) over 1.00 s, 150 + 10 tokens") != std::string::npos);
  CHECK(simulate(words + " --count 9")["requests"] == 4);
}

TEST_CASE("the table has the percentiles that goals are of, as JSON has them") {
  const std::string words = kLlama + "--rate 5 --count 60 --prompt 1k --output 64";
  const json row = simulate(words)["rows"][0];
  const std::string table = run_program("simulate " + words).out;
  CHECK(table.find("TTFT p90") != std::string::npos);
  const double ttft = row["ttft_ms"]["p95"]["value"], whole = row["e2e_ms"]["p99"]["value"];
  CHECK(table.find("  " + fmt::format("{:.1f}", ttft) + "  ") != std::string::npos);
  CHECK(table.find(fmt::format("{:.3f}", whole * 1e-3)) != std::string::npos);
}

TEST_CASE("a device that the engine has no kernels for is refused, and left out of all devices") {
  const std::string model = " --model llama-3-8b --engine tensorrt-llm ";
  for (const std::string& words : {"plan" + model + "--device mi300x", "compare" + model + "--device h100-sxm,mi300x",
                                  "simulate" + model + "--device mi300x --rate 1",
                                  "simulate" + model + "--device h100-sxm --prefill-device gaudi-3 --rate 1 "
                                                       "--replicas 2 --prefill-replicas 1"}) {
    INFO(words);
    const Ran ran = run_program(words);
    CHECK(ran.code == 2);
    CHECK(ran.err.find("tensorrt-llm runs on devices of NVIDIA, and this one is of ") != std::string::npos);
  }
  const json all = json_of("compare" + model + "--device all");
  CHECK(has_note(all, "left out, for tensorrt-llm does not run there: "));
  CHECK(has_note(all, "mi300x"));
  for (const json& point : all["points"]) CHECK(point["device"] != "mi300x");
  CHECK(run_program("plan --model llama-3-8b --engine vllm --device mi300x").code == 0);
}
