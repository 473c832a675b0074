// What a server does with clients that ask again as they are answered.
#include <cmath>
#include <deque>
#include <filesystem>
#include <random>
#include <vector>

#include "analysis/serving.hpp"
#include "tests/catch.hpp"

namespace kvroof {
namespace {

const std::filesystem::path kCatalog = std::filesystem::path(KVROOF_SOURCE_DIR) / "catalog";

Server server_of(const char* engine, std::uint32_t input, std::uint32_t output, bool equal = false) {
  const ModelShape shape = find_model_shape("llama-3-8b", kCatalog);
  const CostModel cost(shape, Deployment(TrafficTypes{}), find_device("h100-sxm", kCatalog),
                       find_engine_profile(engine, kCatalog, "Hopper", 74));
  const ResidencySummary mean = full_attention_summary(shape, input, output - 1);
  return {cost, mean, full_attention_summary(shape, input, output / 2), {input, output, equal}};
}

// Seconds to the first token and for an answer's others, mean.
struct Loop {
  double first = 0, rest = 0;
};

// The same loop step by step: prompts of `chunks` steps one after the other, each with a step of answers; answers of
// 0.7 to 1.3 times as many steps.
Loop stepped(int clients, double chunks, double answer, double chunk_seconds, double step_seconds) {
  struct Client {
    double prompt = 0, steps = 0, came = 0, first = 0;
  };
  std::vector<Client> all(static_cast<std::size_t>(clients));
  std::mt19937 random(5);
  std::uniform_real_distribution<double> spread(0.7, 1.3);
  std::deque<Client*> waiting;
  for (Client& c : all) {
    c = {chunks, std::round(answer * spread(random)), 0, 0};
    waiting.push_back(&c);
  }
  Loop sum;
  int answered = 0;
  for (double now = 0; answered < 60 * clients;) {
    std::vector<Client*> decoding;
    for (Client& c : all) {
      if (c.prompt <= 0) decoding.push_back(&c);
    }
    double room = waiting.empty() ? 0 : 1;
    now += step_seconds;
    while (room > 1e-9 && !waiting.empty()) {
      Client& c = *waiting.front();
      const double part = std::min(room, c.prompt);
      c.prompt -= part, room -= part, now += part * chunk_seconds;
      if (c.prompt > 1e-9) break;
      c.prompt = 0;
      c.first = now;
      waiting.pop_front();
    }
    for (Client* c : decoding) {
      if (--c->steps > 0) continue;
      if (++answered > 10 * clients) {  // the burst that begins the loop is over
        sum.first += c->first - c->came;
        sum.rest += now - c->first;
      }
      *c = {chunks, std::round(answer * spread(random)), now, 0};
      waiting.push_back(c);
    }
  }
  return {sum.first / (50 * clients), sum.rest / (50 * clients)};
}

}  // namespace

TEST_CASE("prompts that take several steps, in which answers go on, keep clients waiting as a loop step by step does") {
  for (const std::uint32_t input : {20480U, 65536U}) {
    for (const std::uint32_t output : {16U, 128U, 1024U}) {
      for (const std::uint32_t clients : {2U, 5U, 16U}) {
        INFO(input << " + " << output << ", " << clients << " clients");
        const Server server = server_of("vllm", input, output);
        // Others would wait for a place.
        if (server.cost().memory().largest_batch(server.residency()) < clients) continue;
        const double prompt = server.cost().prefill(server.residency(), 1).value;
        const double chunks = input / server.cost().engine().step_room(8192);
        REQUIRE(chunks > 1);
        const double step = server.cost().step(server.residency(), clients).value;
        const Loop exact = stepped(static_cast<int>(clients), chunks, output - 1.0, prompt / chunks, step);
        const RequestTimes served = server.closed_loop(clients);
        const double burst = 0.05 * clients * prompt, arrival = server.cost().engine().arrival_us * 1e-6;
        CHECK(served.first_token.value - burst - arrival == Approx(exact.first).epsilon(0.15));
        CHECK(served.token.value * (output - 1) == Approx(exact.rest).epsilon(0.20));
      }
    }
  }
}

TEST_CASE("a prompt of one token more changes no time by much, also where it no longer fits in a step") {
  for (const std::uint32_t output : {16U, 128U, 512U}) {
    for (const std::uint32_t clients : {4U, 16U, 64U}) {
      for (const std::uint32_t input : {2048U, 8191U, 8192U, 8193U, 16384U}) {
        const Server before = server_of("vllm", input, output), after = server_of("vllm", input + 1, output);
        REQUIRE(before.cost().engine().prompt_chunk == 8192);
        if (after.cost().memory().largest_batch(after.residency()) < clients) continue;
        INFO(input << " + " << output << ", " << clients << " clients");
        const RequestTimes a = before.closed_loop(clients), b = after.closed_loop(clients);
        CHECK(b.first_token.value == Approx(a.first_token.value).epsilon(0.01));
        CHECK(b.token.value == Approx(a.token.value).epsilon(0.01));
        CHECK(after.closed_loop_rate(clients).value == Approx(before.closed_loop_rate(clients).value).epsilon(0.01));
      }
    }
  }
}

TEST_CASE("of prompts that take most of a step or little more a first token comes about as soon as simulated ones do") {
  // By `kvroof simulate` of so many clients and ten requests each, with lengths that vary by a tenth: seconds until the
  // first token, and of a mean token. Prompts in pieces alone were 0.2 to 0.5 of these, prompts computed whole 1.3 to
  // 2.5 times.
  struct Simulated {
    std::uint32_t input, output, clients;
    double first, token;
  };
  const Simulated simulated[] = {{4096, 32, 16, 0.430, 0.0438},  {8192, 32, 8, 0.583, 0.0440},
                                 {8192, 128, 8, 0.396, 0.0193},  {8192, 128, 32, 0.906, 0.0622},
                                 {12288, 128, 8, 0.626, 0.0265}, {6000, 64, 32, 0.771, 0.0750}};
  for (const Simulated& s : simulated) {
    INFO(s.input << " + " << s.output << ", " << s.clients << " clients");
    const RequestTimes served = server_of("vllm", s.input, s.output).closed_loop(s.clients);
    CHECK(std::abs(std::log(served.first_token.value / s.first)) < std::log(1.35));
    CHECK(std::abs(std::log(served.token.value / s.token)) < std::log(1.25));
  }
}

TEST_CASE("clients are as many as their rate of answers times the time of one, however short answers are") {
  // Little's law, but for 5 % of an answer's steps.
  for (const char* engine : {"vllm", "tensorrt-llm", "graphs"}) {
    for (const std::uint32_t output : {2U, 4U, 16U, 64U, 512U, 3U}) {
      const bool equal = output % 2 == 1 || output == 16;
      const Server server = server_of(engine, 2048, output, equal);
      for (const std::uint32_t clients : {4U, 8U, 32U}) {
        INFO(engine << ", " << output << " tokens, " << clients << " clients" << (equal ? ", all alike" : ""));
        const double answers = server.closed_loop_rate(clients).value / output;
        const double there = answers * server.closed_loop(clients).whole(output).value;
        CHECK(there <= 1.06 * clients);
        CHECK(there >= 0.93 * clients);
      }
    }
  }
}

TEST_CASE("of answers that are short beside their prompts a token waits for fewer prompts than there are others") {
  // Eight clients, answers of four tokens: were all seven others' prompts spread over four steps, a token would take
  // seven fourths of a prompt and a step.
  const Server server = server_of("vllm", 2048, 4);
  const double prompt = server.cost().prefill(server.residency(), 1).value;
  const RequestTimes served = server.closed_loop(8);
  CHECK(served.token.value < 7.0 / 4 * prompt);
  CHECK(served.token.value > server.cost().step(server.residency(), 8).value);
  CHECK(served.first_token.value > prompt);
}

}  // namespace kvroof
