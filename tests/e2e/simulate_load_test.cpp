// What `kvroof simulate` says of loads that servers cannot take: requests too long for them, rates too high.
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/catch.hpp"
#include "tests/support/run_program.hpp"

using kvroof::test::Ran;
using kvroof::test::run_program;
using kvroof::test::slurp;
using kvroof::test::TemporaryFolder;
using nlohmann::json;

namespace {

json simulate(const std::string& words, int code = 0) {
  const Ran ran = run_program("simulate " + words + " --format json");
  INFO(ran.err);
  INFO(ran.out);
  REQUIRE(ran.code == code);
  return json::parse(ran.out);
}

bool has_note(const json& answer, const std::string& words) {
  for (const json& note : answer["notes"]) {
    if (note.get<std::string>().find(words) != std::string::npos) return true;
  }
  return false;
}

const std::string kServer = "--model llama-3.1-8b --device l40s --engine vllm ";

}  // namespace

TEST_CASE("a long prompt of one request and a long answer of another are two requests, and both are served") {
  const TemporaryFolder folder;
  std::ofstream(folder.file("mixed.csv")) << "arrival_s,prompt,output\n0,150000,100\n1,100,60000\n2,1000,100\n";
  const json answer = simulate(kServer + "--requests " + folder.file("mixed.csv"));
  CHECK(answer["rows"][0]["refused_requests"] == 0);
  CHECK(answer["rows"][0]["problem"] == nullptr);
  CHECK(has_note(answer, "150000 + 100 tokens are more than the 131072 positions"));
}

TEST_CASE("a request that does not fit is refused and misses the goals, the others are served") {
  const TemporaryFolder folder;
  std::ofstream(folder.file("long.csv")) << "arrival_s,prompt,output\n0,600000,100\n2,1000,100\n3,1000,100\n";
  const json answer = simulate(kServer + "--ttft-ms 60000 --attainment 0.6 --requests " + folder.file("long.csv") +
                               " --per-request " + folder.file("rows.csv"));
  CHECK(answer["rows"][0]["refused_requests"] == 1);
  CHECK(answer["rows"][0]["attained"]["value"].get<double>() == Approx(2.0 / 3));
  CHECK(has_note(answer, "1 of 3 requests do not fit on a server by themselves"));
  // Numbers of requests are those of the file.
  const std::string rows = slurp(folder.file("rows.csv"));
  CHECK(rows.find("l40s,full,bf16,1,0,") == std::string::npos);
  CHECK(rows.find("l40s,full,bf16,1,1,") != std::string::npos);
  CHECK(rows.find("l40s,full,bf16,1,2,") != std::string::npos);
  CHECK(rows.find(",kv_type,drafts\n") != std::string::npos);
  // Without them the rest is served as it is by itself.
  std::ofstream(folder.file("rest.csv")) << "arrival_s,prompt,output\n2,1000,100\n3,1000,100\n";
  const json rest = simulate(kServer + "--requests " + folder.file("rest.csv"));
  CHECK(rest["rows"][0]["ttft_ms"]["p50"]["value"] == answer["rows"][0]["ttft_ms"]["p50"]["value"]);
}

TEST_CASE("servers that fall behind a rate that lasts do not meet its goals, and more are asked for") {
  const std::string work = "--model llama-3-8b --device h100-sxm --engine vllm --prompt 512 --output 4096 --rate 10 "
                           "--ttft-ms 1000 --tpot-ms 40 ";
  const json found = simulate(work + "--replicas auto");
  const json row = found["rows"][0];
  CHECK_FALSE(row["falls_behind"].get<bool>());
  CHECK(has_note(found, "servers were still filling when the last came"));
  const int fewer = row["replicas"].get<int>() - 1;
  const json few = simulate(work + "--replicas " + std::to_string(fewer), 3)["rows"][0];
  CHECK_FALSE(few["meets_goals"].get<bool>());
  CHECK(few["attained"]["value"].get<double>() >= 0.9);  // by the 1,000 requests alone they would
  CHECK(few["falls_behind"].get<bool>());
}

TEST_CASE("a million tokens cost what all devices cost while they are made") {
  const json row = simulate("--model llama-3-8b --device h100-sxm --engine vllm --prompt 512 --output 128 --rate 4 "
                            "--count 200 --replicas 2 --usd-per-hour 3")["rows"][0];
  const double expected = 2 * 3.0 / 3600 / row["tokens_per_s"]["value"].get<double>() * 1e6;
  CHECK(row["usd_per_million_tokens"]["low"].get<double>() == Approx(expected));
  CHECK(row["usd_per_million_tokens"]["high"].get<double>() == Approx(expected));
  const Ran free = run_program("compare --model llama-3-8b --device h100-sxm --usd-per-hour 0");
  CHECK(free.code == 2);
}
