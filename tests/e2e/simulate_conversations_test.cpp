// `kvroof simulate --turns`: conversations, whose prompts hold what was said before.
#include <algorithm>
#include <map>
#include <sstream>
#include <utility>
#include <vector>

#include "tests/support/program_json.hpp"

using kvroof::test::has_note;
using kvroof::test::run_program;
using kvroof::test::simulate;
using kvroof::test::slurp;
using kvroof::test::TemporaryFolder;
using kvroof::test::value;
using nlohmann::json;

namespace {

double found(const json& row) { return row["prefix_cache"]["found_share"].get<double>(); }

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream all(line);
  for (std::string cell; std::getline(all, cell, ',');) cells.push_back(cell);
  return cells;
}

const std::string kServer = "--model llama-3.1-8b --device h100-sxm --engine vllm ";
// Prompts of 1000, 1300, 1600 and 1900 tokens, one conversation after the other.
const std::string kTalk = kServer + "--turns 4 --prompt 1000 --message 200 --output 100 --spread 0 ";
const std::string kSlow = kTalk + "--rate 0.1 --arrivals constant --count 48 ";
constexpr double kPrompts = 1000 + 1300 + 1600 + 1900;

}  // namespace

TEST_CASE("turns find whole blocks of what was said before, and of the last answer all but its last token") {
  const json answer = simulate(kSlow);
  CHECK(found(answer["rows"][0]) == Approx((1088 + 1392 + 1696) / kPrompts));
  CHECK(answer["turns"] == 4);
  CHECK(answer["message_tokens"] == 200);
  CHECK(answer["requests"] == 48);
  CHECK(answer["warm_up_requests"] == 16);  // of conversations that come one by one, four
  CHECK(has_note(answer, "48 drawn requests of 1000 + 100 tokens in conversations of 4 turns, with messages of 200 "
                         "after the first"));
  CHECK(found(simulate(kSlow + "--prefix-cache infinite")["rows"][0]) == found(answer["rows"][0]));
  CHECK(simulate(kSlow + "--prefix-cache none")["rows"][0]["prefix_cache"].is_null());
  // Conversations begin with what others began with as well: 62 blocks of 16 tokens.
  const json shared = simulate(kSlow + "--shared-prefix 999");
  CHECK(found(shared["rows"][0]) == Approx((992 + 1088 + 1392 + 1696) / kPrompts));
}

TEST_CASE("policies that evict find nothing of a conversation, and copies or servers of prompts no answers") {
  const json rows = simulate(kSlow + "--policy full,h2o --budget 0.5")["rows"];
  CHECK(found(rows[1]) == 0);
  CHECK(value(rows[1]["ttft_ms"]["mean"]) > value(rows[0]["ttft_ms"]["mean"]));
  const double of_prompts = (992 + 1296 + 1600) / kPrompts;
  CHECK(found(simulate(kSlow + "--policy h2o --budget 0.5 --evicted-prefix copy")["rows"][0]) == Approx(of_prompts));
  CHECK(found(simulate(kSlow + "--replicas 2 --prefill-replicas 1")["rows"][0]) == Approx(of_prompts));
}

TEST_CASE("thoughts are in no later prompt, and behind them nothing of an answer is found") {
  // Prompts of 1000, 1240, 1480 and 1720 tokens: of each answer of 100 tokens 40 go on.
  const json answer = simulate(kSlow + "--thoughts 0.6");
  CHECK(found(answer["rows"][0]) == Approx((992 + 1232 + 1472) / (1000.0 + 1240 + 1480 + 1720)));
  CHECK(answer["thoughts"] == 0.6);
  CHECK(has_note(answer, "with messages of 200 after the first, without 60 % of each answer"));
}

TEST_CASE("a turn comes a pause after the answer before it, and its line says which it is") {
  const TemporaryFolder folder;
  simulate(kTalk + "--rate 1 --count 400 --think-s 30 --per-request " + folder.file("r.csv"));
  std::istringstream lines(slurp(folder.file("r.csv")));
  std::string line;
  std::getline(lines, line);
  CHECK(line.ends_with(",group,conversation,turn"));
  const std::vector<std::string> keys = cells_of(line);
  const auto number = [&](const char* key) {
    return std::stod(cells_of(line).at(static_cast<std::size_t>(std::ranges::find(keys, key) - keys.begin())));
  };
  std::map<int, std::pair<int, double>> last;  // of each conversation: its turn, and when that was answered
  double before = 0, pauses = 0;
  int turns = 0;
  while (std::getline(lines, line)) {
    CHECK(number("arrival_s") >= before);
    before = number("arrival_s");
    auto& [turn, answered] = last[static_cast<int>(number("conversation"))];
    REQUIRE(number("turn") == turn + 1);
    if (turn > 0) {
      CHECK(before >= answered);
      pauses += before - answered;
      ++turns;
    }
    turn = static_cast<int>(number("turn"));
    answered = number("finished_s");
  }
  CHECK(pauses / turns == Approx(30).epsilon(0.15));
}

TEST_CASE("at a rate that lasts as many requests are answered as come, and all turns are as frequent") {
  const json answer = simulate(kTalk + "--rate 6 --think-s 20");
  const json row = answer["rows"][0];
  CHECK(value(row["requests_per_s"]) == Approx(6).epsilon(0.1));
  CHECK(row["falls_behind"] == false);
  CHECK(found(row) == Approx((1088 + 1392 + 1696) / kPrompts).epsilon(0.05));
  CHECK(answer["warm_up_requests"].get<int>() == answer["requests"].get<int>() / 3);
  CHECK(has_note(answer, "requests, when conversations have only begun"));
}

TEST_CASE("servers that conversations come to faster than they are answered fall behind, and their price says so") {
  const json row = simulate(kServer + "--turns 30 --message 1000 --prompt 4k --output 200 --rate 60 --count 3000")
                       ["rows"][0];
  CHECK(row["falls_behind"] == true);
  CHECK(row["lasting_tokens_per_s"].get<double>() == value(row["tokens_per_s"]));
  CHECK(value(row["requests_per_s"]) < 10);
}

TEST_CASE("of several servers a turn finds what was said where a router looks for it, which a note says") {
  const std::string words = kTalk + "--rate 6 --replicas 4 ";
  const json least = simulate(words), routed = simulate(words + "--router prefix");
  CHECK(found(routed["rows"][0]) > found(least["rows"][0]) + 0.1);
  CHECK(found(routed["rows"][0]) == Approx((1088 + 1392 + 1696) / kPrompts).epsilon(0.05));
  CHECK(has_note(least, "prefix sends it there"));
  CHECK_FALSE(has_note(routed, "prefix sends it there"));
}

TEST_CASE("clients that hold conversations ask as often as answers and pauses allow, and find what they said") {
  const json answer = simulate(kTalk + "--clients 60 --think-s 20");
  const json row = answer["rows"][0];
  CHECK(value(row["requests_per_s"]) == Approx(60 / (20 + value(row["e2e_ms"]["mean"]) / 1000)).epsilon(0.05));
  CHECK(answer["requests"] == 1000);
  CHECK(answer["warm_up_requests"] == 5 * 60);
  CHECK(has_note(answer, "clients begin in the middle of conversations, so that all turns are as frequent; times but "
                         "those between tokens (itl_ms), what prompts found and requests/s are without the first 300"));
  // All turns are as frequent, so that each finds what it does one by one.
  CHECK(found(row) == Approx((1088 + 1392 + 1696) / kPrompts).epsilon(0.01));
}

TEST_CASE("the most clients with conversations are found, and fewer where every prompt is computed whole") {
  const std::string goals = "--ttft-ms 300 --tpot-ms 20 --think-s 20 --clients ";
  const json best = simulate(kTalk + goals + "max")["rows"][0];
  const int clients = best["clients"];
  CHECK(simulate(kTalk + goals + std::to_string(clients * 97 / 100))["rows"][0]["meets_goals"] == true);
  CHECK(simulate(kTalk + goals + std::to_string(clients * 104 / 100 + 1), 3)["rows"][0]["meets_goals"] == false);
  CHECK(simulate(kTalk + goals + "max --prefix-cache none")["rows"][0]["clients"].get<int>() < clients);
}

TEST_CASE("conversations end where the model has no positions left") {
  const std::string words = "--model llama-3-8b --device h100-sxm --engine vllm --prompt 1k --output 512 --rate 1 "
                            "--count 100 ";
  // 1024 + 512 + 9 * 768 tokens are more than 8192, 8 * 768 are not: the last of ten turns. 200 / 0.9 are drawn.
  const json exact = simulate(words + "--turns 10 --spread 0");
  CHECK(has_note(exact, "22 turns for which the model has no positions are left out"));
  CHECK(exact["rows"][0]["problem"].is_null());
  CHECK_FALSE(has_note(simulate(words + "--spread 0 --turns 9"), "left out"));
}

TEST_CASE("where few turns have positions, as many requests come as are asked for, and enough of them are drawn") {
  const std::string words = "--model llama-3-8b --device h100-sxm --engine vllm --turns 30 --message 1000 --prompt 1k "
                            "--output 512 --think-s 60 ";  // five turns have
  const json few = simulate(words + "--rate 1 --count 600");
  CHECK(few["requests"] == 600);
  CHECK(has_note(few, "600 drawn requests"));
  const json lasting = simulate(words + "--rate 2");
  CHECK(lasting["requests"].get<int>() <= 16000);
  CHECK(lasting["rows"][0]["burst"] == false);
  CHECK(value(lasting["rows"][0]["requests_per_s"]) == Approx(2).epsilon(0.1));
  CHECK(simulate(words + "--clients 30")["requests"] == 30 * 90);
}

TEST_CASE("what cannot be asked of conversations is said in a sentence") {
  const auto error = [](const std::string& words) { return run_program("simulate " + kServer + words).err; };
  const auto says = [&](const std::string& words, const std::string& what) {
    return error(words).find(what) != std::string::npos;
  };
  CHECK(says("--rate 1 --turns 0", "--turns 0: expected a count from 1 to 1000"));
  CHECK(says("--rate 1 --message 99", "--message is of conversations: --turns says how many requests one has"));
  CHECK(says("--rate 1 --thoughts 0.5", "--thoughts is of conversations"));
  CHECK(says("--rate 1 --turns 2 --thoughts 2", "--thoughts 2: expected"));
  CHECK(says("--turns 3 --requests x.csv", "--turns and --requests: the file says what is asked and when"));
  CHECK(says("--turns 3 --rate 1 --cached-prompt 0.5",
             "--turns and --cached-prompt: what a cache has of a conversation is simulated"));
  CHECK(says("--rate 3 --think-s 9", "--think-s is of clients, or of --turns"));
  CHECK(says("--rate 1 --turns 1000 --prompt 16m", "--turns 1000: a conversation of "));
  CHECK(says("--clients 100000 --turns 1000 --prompt 1k --message 1 --output 1",
             "--turns 1000: "));
}
