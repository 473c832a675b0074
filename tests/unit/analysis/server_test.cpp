// What a server does with clients that ask again as they are answered.
#include <filesystem>

#include "analysis/serving.hpp"
#include "tests/catch.hpp"

namespace kvroof {
namespace {

const std::filesystem::path kCatalog = std::filesystem::path(KVROOF_SOURCE_DIR) / "catalog";

Server server_of(const char* engine, std::uint32_t input, std::uint32_t output, bool equal = false) {
  const ModelShape shape = find_model_shape("llama-3-8b", kCatalog);
  const CostModel cost(shape, Deployment(TrafficTypes{}), find_device("h100-sxm", kCatalog),
                       find_engine_profile(engine, kCatalog));
  const ResidencySummary mean = full_attention_summary(shape, input, output - 1);
  return {cost, mean, full_attention_summary(shape, input, output / 2), {input, output, equal}};
}

}  // namespace

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
