// What kvpress does at the ends of its rules: prompts no longer than the window, and budgets of one token.
#include <string>

#include "sim/core/error.hpp"
#include "tests/catch.hpp"
#include "tests/support/policy_driver.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

// What a layer of one head keeps of a prompt with even attention, whose values have one element each.
Positions kept_of_values(std::string_view policy, std::vector<float> values) {
  const auto n = static_cast<std::uint32_t>(values.size());
  const std::vector<float> ones(n, 1.0F);
  Driver driver(spec_of(policy), {.prompt = n, .width = 1}, [](auto, auto, auto) { return 0.0F; },
                DriverRows(ones, ones, std::move(values), 1, 1, n, n));
  driver.prompt();
  return driver.kept(0);
}

std::string why_not(const std::string& policy, std::uint32_t prompt) {
  try {
    const Driver driver(spec_of(policy), {.prompt = prompt}, [](auto, auto, auto) { return 0.0F; });
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kUsage);
    return error.what();
  }
  return {};
}

}  // namespace

TEST_CASE("criticalkv keeps one token by the inner scores at least, unless its first stage is turned off") {
  // The last token is the window. Its v is the smallest, so that the second stage alone would keep another.
  const std::vector<float> values = {100, 2, 2, 1};
  for (const char* budget : {"budget=1", "compression=0.75", "compression=0.99", "budget=1:first=0.01"}) {
    INFO(budget);
    CHECK(kept_of_values("criticalkv:window=1:" + std::string(budget), values) == Positions{3});
  }
  CHECK(kept_of_values("criticalkv:window=1:budget=1:first=0", values) == Positions{0});
  // int(0.5 · 3) = 1: the other two go by v as well.
  CHECK(kept_of_values("criticalkv:window=1:budget=2", values) == Positions{0, 3});
}

TEST_CASE("where the window pays nothing to the tokens before it, normalising changes nothing") {
  Shape shape;
  shape.query_heads = shape.kv_heads = 2;
  shape.prompt = 40;
  shape.decode = 1;
  const auto far_off = [](std::uint32_t, std::uint32_t, std::uint32_t j) { return j < 34 ? -1e4F : 0.0F; };
  const auto kept = [&](const std::string& words) {
    Driver driver(parse_policies(words).front(), shape, far_off);
    driver.prompt();
    return std::pair(driver.kept(0), driver.kept(1));
  };
  CHECK(kept("adakv:budget=20:window=6:normalize=yes") == kept("adakv:budget=20:window=6:normalize=no"));
}

TEST_CASE("rule=kvpress evicts from no prompt that is all window, and says so") {
  for (const std::string policy : {"snapkv", "pyramidkv", "adakv"}) {
    INFO(policy);
    CHECK(why_not(policy + ":budget=10:rule=kvpress", 64) ==
          "policy " + policy + ": rule=kvpress evicts from prompts that are longer than its window; expected at least "
          "65 tokens, found 64; give a smaller window, rule=repository or a budget that keeps the whole prompt");
    CHECK(why_not(policy + ":compression=0.5:rule=kvpress:window=16", 9).find("at least 17 tokens, found 9") !=
          std::string::npos);
    CHECK(why_not(policy + ":budget=10:rule=kvpress", 65).empty());
    CHECK(why_not(policy + ":budget=64:rule=kvpress", 64).empty());  // evicts nothing
    CHECK(why_not(policy + ":compression=0:rule=kvpress", 20).empty());
    CHECK(why_not(policy + ":budget=10:window=64", 20).empty());
  }
  CHECK(why_not("tova:budget=1:rule=kvpress", 2).empty());  // whose window is the last token
}
