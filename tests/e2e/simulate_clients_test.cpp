// `kvroof simulate --clients`: people who read and write between requests, and how many of them a server serves.
#include "tests/support/program_json.hpp"

using kvroof::test::has_note;
using kvroof::test::run_program;
using kvroof::test::simulate;
using kvroof::test::value;
using nlohmann::json;

namespace {

bool says(const json& text, const std::string& what) {
  return text.get<std::string>().find(what) != std::string::npos;
}

const std::string kServer = "--model llama-3-8b --device h100-sxm --engine vllm --prompt 2k --output 128 ";
const std::string kGoals = "--ttft-ms 1000 --tpot-ms 40 ";

}  // namespace

TEST_CASE("clients that pause ask as often as the time of an answer and a pause allows") {
  const json answer = simulate(kServer + "--clients 100 --think-s 20");
  const json row = answer["rows"][0];
  const double turn = 20 + value(row["e2e_ms"]["mean"]) / 1000;
  CHECK(value(row["requests_per_s"]) == Approx(100 / turn).epsilon(0.06));
  CHECK(answer["think_s"] == 20);
  CHECK(has_note(answer, "100 clients send the next when they are answered and a pause of 20 s in the mean"));
  CHECK(value(simulate(kServer + "--clients 100")["rows"][0]["requests_per_s"]) > 2 * value(row["requests_per_s"]));
}

TEST_CASE("as many clients as meet the goals are found: one more in a hundred does not meet them") {
  for (const std::string pause : {"", "--think-s 20 "}) {
    const json answer = simulate(kServer + kGoals + pause + "--clients max");
    const json row = answer["rows"][0];
    const int clients = row["clients"];
    CHECK(value(row["most_clients"]) == clients);
    CHECK(row["most_clients"]["low80"] <= clients);
    CHECK(row["most_clients"]["high80"] >= clients);
    CHECK(answer["clients"].is_null());
    CHECK(says(answer["answer"], "h100-sxm under full serves up to " + std::to_string(clients) + " clients (80 %: "));
    const std::string given = kServer + kGoals + pause + "--clients ";
    CHECK(simulate(given + std::to_string(clients * 98 / 100))["rows"][0]["meets_goals"] == true);
    CHECK(simulate(given + std::to_string(clients * 103 / 100 + 1), 3)["rows"][0]["meets_goals"] == false);
  }
}

TEST_CASE("two servers serve about twice as many clients, and of several rows that with most on each device is first") {
  const std::string words = kServer + kGoals + "--think-s 20 --clients max ";
  const int one = simulate(words)["rows"][0]["clients"], two = simulate(words + "--replicas 2")["rows"][0]["clients"];
  CHECK(two > 1.9 * one);
  CHECK(two < 2.3 * one);
  const json several = simulate("--model llama-3-8b --device l40s,h100-sxm --engine vllm --prompt 2k --output 128 " +
                                kGoals + "--policy full,window --budget 0.2 --clients max");
  int before = 1 << 30;
  for (const json& row : several["rows"]) {
    CHECK(row["clients"].get<int>() <= before);
    before = row["clients"];
  }
  CHECK(several["rows"][0]["policy"] == "window:budget=0.2");
  CHECK(says(several["answer"], "; under full it serves "));
  CHECK(says(several["answer"], "; next l40s under window:budget=0.2: "));
}

TEST_CASE("goals that one client misses are said to be missed by it") {
  const json answer = simulate(kServer + "--ttft-ms 1 --clients max", 3);
  CHECK(says(answer["rows"][0]["problem"], "fewer than 90 % of the requests meet the goals, even with one client"));
}

TEST_CASE("goals that as many clients meet as the requests are enough for are said to have no limit there") {
  const json answer = simulate(kServer + "--ttft-ms 60000 --clients max --count 20", 3);
  CHECK(answer["rows"][0]["problem"] == "the goals are met by 10 clients, as many as 20 requests are enough for");
}

TEST_CASE("what cannot be asked of clients is said in a sentence") {
  const auto error = [](const std::string& words) { return run_program("simulate " + kServer + words).err; };
  CHECK(says(error("--clients max"), "--clients max needs a goal: --ttft-ms, --tpot-ms or both"));
  CHECK(says(error("--clients max --replicas auto --ttft-ms 9"),
             "--clients max and --replicas auto: one of the two must be a number"));
  CHECK(says(error("--clients max --replicas 3 --prefill-replicas auto --ttft-ms 9"),
             "--clients max and --prefill-replicas auto: one of the two must be a number"));
  CHECK(says(error("--rate 3 --think-s 9"),
             "--think-s is of clients, or of --turns: --clients says how many there are"));
  CHECK(says(error("--clients many"), "--clients many: expected a count from 1 to 1048576, or max"));
}
