// A budget that the window of observed rows fills: what stays, and that a policy's advice says so.
#include <algorithm>

#include "tests/catch.hpp"
#include "tests/support/all_policies.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

std::string advice_of(const std::string& policy, std::uint32_t prompt = kShape.prompt) {
  return policy_advice(spec_of(policy), prompt);
}

// What the heads hold after the prompt and after each decoded row.
std::vector<std::vector<Positions>> held(const std::string& policy) {
  return history(spec_of(policy), kShape, random_logit);
}

}  // namespace

TEST_CASE("a policy whose window fills the budget holds what a window of the last tokens holds, and says so") {
  for (const std::string policy :
       {"snapkv:window=8", "snapkv:window=8:rule=kvpress", "pyramidkv:window=8", "pyramidkv:window=8:rule=kvpress",
        "adakv:window=8", "adakv:window=8:rule=kvpress", "cake:window=8", "finch:window=8", "r-kv:window=8:when=16"}) {
    const std::string same = policy.starts_with("r-kv") ? "window:when=16" : "window:when=prefill";
    for (const std::string budget : {":budget=5", ":budget=8"}) {
      INFO(policy << budget);
      CHECK(held(policy + budget) == held(same + budget));
      CHECK(advice_of(policy + budget).find("as under " + same) != std::string::npos);
    }
    INFO(policy);
    CHECK(held(policy + ":budget=12") != held(same + ":budget=12"));
    CHECK(advice_of(policy + ":budget=9") == "");
  }
}

TEST_CASE("a policy that scores its window above other tokens keeps hardly any others where it fills the budget") {
  for (const std::string policy : {"chunkkv:window=8:chunk=4", "entropy-gated-chunkkv:window=8:chunk=4:low=2",
                                   "criticalkv:window=8", "criticalkv:window=8:capacities=adaptive"}) {
    INFO(policy);
    const std::vector<std::vector<Positions>> rows = held(policy + ":budget=6");
    for (const Positions& kept : rows.front()) {
      CHECK(std::ranges::count_if(kept, [](auto position) { return position + 8 < kShape.prompt; }) == 0);
    }
    CHECK(advice_of(policy + ":budget=6").find("hardly any but tokens of the window") != std::string::npos);
    CHECK(advice_of(policy + ":budget=9") == "");
  }
}

TEST_CASE("nothing is said of a window where nothing is evicted, or where what stays does not follow from it") {
  CHECK(advice_of("snapkv:budget=20", 21) != "");
  CHECK(advice_of("snapkv:budget=20", 20) == "");
  CHECK(advice_of("snapkv:budget=0.5", 65) ==
        "snapkv:budget=0.5: the window of 32 tokens stays before all others, so that of a budget of 32 nothing is left "
        "for scores to choose: the last 32 tokens stay, as under window:when=prefill; give a budget above 32 or a "
        "smaller window=");
  CHECK(advice_of("snapkv:budget=0.5", 66) == "");
  CHECK(advice_of("adakv:inner=knorm:budget=5") == "");
  CHECK(advice_of("criticalkv:inner=expected-attention:budget=5") == "");
  CHECK(advice_of("cake:layers=2/1:budget=5") == "");
}

TEST_CASE("a window of more rows than any prompt has is one of all of them") {
  const auto kept = [](std::string_view window) {
    return history(spec_of(fmt::format("snapkv:budget=20:window={}", window)), kShape, random_logit);
  };
  CHECK(kept("2147483647") == kept("48"));
}
