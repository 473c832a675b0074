// What `kvroof simulate` says of loads that servers cannot take: requests too long for them, rates too high.
#include <fstream>
#include <nlohmann/json.hpp>

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
  CHECK(has_note(answer, "1 of 3 requests does not fit on a server by itself; it is refused and in time for no goal"));
  // Numbers of requests are those of the file.
  const std::string rows = slurp(folder.file("rows.csv"));
  CHECK(rows.find("l40s,full,bf16,1,0,") == std::string::npos);
  CHECK(rows.find("l40s,full,bf16,1,1,") != std::string::npos);
  CHECK(rows.find("l40s,full,bf16,1,2,") != std::string::npos);
  CHECK(rows.find(",kv_type,drafts,pipeline_stages,data_parallel,group,conversation,turn\n") != std::string::npos);
  // Without them the rest is served as it is by itself.
  std::ofstream(folder.file("rest.csv")) << "arrival_s,prompt,output\n2,1000,100\n3,1000,100\n";
  const json rest = simulate(kServer + "--requests " + folder.file("rest.csv"));
  CHECK(rest["rows"][0]["ttft_ms"]["p50"]["value"].get<double>() ==
        Approx(answer["rows"][0]["ttft_ms"]["p50"]["value"].get<double>()).epsilon(1e-9));
}

TEST_CASE("what is refused is too long by itself, however near to it others are") {
  const TemporaryFolder folder;
  const std::string server = "--model llama-3.1-8b --device rtx-4090 ";
  const auto refused = [&](const std::string& prompts) {
    std::ofstream(folder.file("near.csv")) << "arrival_s,prompt,output\n" + prompts;
    return simulate(server + "--requests " + folder.file("near.csv"))["rows"][0]["refused_requests"].get<int>();
  };
  // The longest prompt that the card holds, by plan, and some little shorter ones.
  const Ran plan = run_program("plan " + server + "--prompt max --output 10 --batch 1 --format json");
  const int longest = json::parse(plan.out)["prompt"];
  std::string near;
  for (const int less : {0, 100, 300, 600, 700}) near += "0," + std::to_string(longest - less) + ",10\n";
  CHECK(refused(near) == 0);
  CHECK(refused(near + "1,60000,10\n") == 1);
  CHECK(refused(near + "1," + std::to_string(longest + 100) + ",10\n") == 1);
}

TEST_CASE("without goals none is missed, and goals that refusals miss are said to be missed by them") {
  CHECK(simulate("--model llama-3.1-8b --device h200 --rate 100 --count 200")["rows"][0]["meets_goals"] == true);
  const TemporaryFolder folder;
  std::ofstream file(folder.file("long.csv"));
  file << "arrival_s,prompt,output\n";
  for (int i = 0; i < 8; ++i) file << i << (i < 6 ? ",600000,10\n" : ",1000,10\n");
  file.close();
  const json answer = simulate(kServer + "--rate max --ttft-ms 5000 --requests " + folder.file("long.csv"), 3);
  CHECK(answer["rows"][0]["problem"] == "6 of 8 requests do not fit on a server by themselves");
}

TEST_CASE("the best number of servers for prompts is one that keeps up, where some do") {
  const json row = simulate("--model llama-3.1-8b --device h200 --rate 7 --count 300 --replicas 4 --prompt 8k --output "
                            "64 --ttft-ms 1000000 --prefill-replicas auto")["rows"][1];
  CHECK(row["prefill_replicas"] == 2);  // with 1 they fall behind, though all are in time
  CHECK(row["meets_goals"] == true);
}

TEST_CASE("servers that fall behind a rate that lasts do not meet its goals, and more are asked for") {
  const std::string work = "--model llama-3-8b --device h100-sxm --engine vllm --prompt 512 --output 4096 --rate 10 "
                           "--ttft-ms 1000 --tpot-ms 40 --count 1000 ";
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

TEST_CASE("requests are drawn until as many end as begin, so that the rate that is found is one that is served") {
  // 300 requests are too few to fill four servers, which look as if they bore nearly twice as much.
  const std::string work = "--model llama-3-8b --device h100-sxm --engine vllm --prompt 4k --output 256 --ttft-ms 2000 "
                           "--tpot-ms 50 --rate max --replicas 8 ";
  const json lasting = simulate(work), burst = simulate(work + "--count 300");
  const auto found = [](const json& answer) { return answer["rows"][0]["highest_rate_per_s"]["value"].get<double>(); };
  const auto served = [](const json& answer) { return answer["rows"][0]["requests_per_s"]["value"].get<double>(); };
  CHECK(found(lasting) < 1.1 * served(lasting));
  CHECK_FALSE(has_note(lasting, "servers were still filling"));
  CHECK(found(burst) > 1.3 * served(burst));
  CHECK(has_note(burst, "the rate that was found is that of a burst, more than lasts; more requests (--count"));
  CHECK(found(burst) > 1.3 * found(lasting));
}

TEST_CASE("servers are said to keep up with the requests that came, where fewer came than were asked for") {
  const std::string work = "--model llama-3-8b --device l40s --engine vllm --prompt 4k --output 256 --rate 2 ";
  const json few = simulate(work + "--count 200");
  CHECK(has_note(few, "fewer than --rate 2, and servers kept up with those"));
  CHECK_FALSE(has_note(few, "servers keep up, though"));
}

TEST_CASE("a million tokens cost what all devices cost while they are made, however long the end of a run is") {
  const std::string work = "--model llama-3-8b --device h100-sxm --engine vllm --prompt 512 --output 2048 --spread 0 "
                           "--replicas 2 --usd-per-hour 3 --rate 4 --arrivals constant --count ";
  const double expected = 2 * 3.0 / 3600 / (4 * 2048) * 1e6;
  for (const char* count : {"200", "1500"}) {
    const json row = simulate(work + count)["rows"][0];
    CHECK(row["usd_per_million_tokens"]["low"].get<double>() == Approx(expected));
    CHECK(row["usd_per_million_tokens"]["high"].get<double>() == Approx(expected));
  }
  CHECK(simulate(work + "200")["rows"][0]["tokens_per_s"]["value"].get<double>() < 0.9 * 4 * 2048);
  // Of clients likewise: ten rounds with their end come near one with a hundred.
  const auto clients = [&](const char* count) {
    const std::string server = "--model llama-3-8b --device h100-sxm --engine vllm --prompt 512 --output 512 ";
    const json row = simulate(server + "--clients 20 --count " + count)["rows"][0];
    return row["usd_per_million_tokens"]["low"].get<double>();
  };
  CHECK(clients("200") == Approx(clients("2000")).epsilon(0.04));
  const Ran free = run_program("compare --model llama-3-8b --device h100-sxm --usd-per-hour 0");
  CHECK(free.code == 2);
}

TEST_CASE("no more sequences run at once than a plan says fit, where activations grow with each") {
  const std::string work = " --model qwen3-30b-a3b --engine huggingface --device h100-sxm --prompt 8k --output 64";
  const json plan = json_of("plan" + work);
  CHECK(plan["largest_batch_in_memory"] == 1);
  CHECK(simulate(work + " --clients 8 --count 16 --spread 0")["rows"][0]["most_running"] == 1);
}
