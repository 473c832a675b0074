// Policies whose heads hold as many tokens as the attention says: threshold, fastgen and simlayerkv; and finch.
#include <cmath>

#include "tests/catch.hpp"
#include "tests/support/policy_driver.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

constexpr float kAll = 20;    // so much above the other logits that they get nothing
constexpr float kNone = -20;  // so much below that it gets nothing

Positions range(std::uint32_t first, std::uint32_t last) {
  Positions all;
  for (std::uint32_t i = first; i < last; ++i) all.push_back(i);
  return all;
}

}  // namespace

TEST_CASE("threshold gives up a token that gets less than the threshold, when it is no longer recent") {
  const Shape shape = {.prompt = 6, .decode = 6};
  const auto low = [](auto, auto, std::uint32_t j) { return j == 3 || j == 7 ? kNone : 0.0F; };
  Driver driver(spec_of("threshold:threshold=0.9:recent=2"), shape, low);
  const auto steps = kept_each_step(driver);
  CHECK(steps[0] == Positions{0, 1, 2, 4, 5});
  CHECK(steps[2] == Positions{0, 1, 2, 4, 5, 6, 7});
  CHECK(steps[3] == Positions{0, 1, 2, 4, 5, 6, 7, 8});
  CHECK(steps[4] == Positions{0, 1, 2, 4, 5, 6, 8, 9});
}

TEST_CASE("threshold judges a token once, or always by all rows since it came") {
  // Token 1 gets even shares of the rows 1 to 7 and nothing later: in the mean 7 / t after the row of t.
  const Shape shape = {.prompt = 6, .decode = 12};
  const auto fades = [](auto, std::uint32_t t, std::uint32_t j) { return j == 1 && t >= 8 ? kNone : 0.0F; };
  Driver once(spec_of("threshold:threshold=0.48:recent=2"), shape, fades);
  CHECK(kept_each_step(once).back() == range(0, 18));
  Driver always(spec_of("threshold:threshold=0.48:recent=2:decide=always"), shape, fades);
  const auto steps = kept_each_step(always);
  CHECK(steps[14 - 5] == range(0, 15));
  CHECK(steps[15 - 5].size() == 15);
  CHECK(steps[15 - 5][1] == 2);
}

TEST_CASE("threshold in weights is held against the mean weight, whatever the number of tokens") {
  // Means over the rows j … 5 of 1 / (i + 1): 0.408, 0.29, 0.2375, 0.206, 0.183, and the newest stays.
  const Shape shape = {.prompt = 6};
  Driver driver(spec_of("threshold:threshold=0.25:recent=1:unit=weight"), shape,
                [](auto, auto, auto) { return 0.0F; });
  driver.prompt();
  CHECK(driver.kept(0) == Positions{0, 1, 5});
}

TEST_CASE("threshold takes the mean over the query heads of a group") {
  // One of two query heads pays token 2 nothing, the other an even share: half of one in the mean.
  const Shape shape = {.query_heads = 2, .kv_heads = 1, .prompt = 8};
  const auto half = [](std::uint32_t h, auto, std::uint32_t j) { return h == 1 && j == 2 ? kNone : 0.0F; };
  const auto kept = [&](const char* policy, std::uint32_t head) {
    Driver driver(spec_of(policy), shape, half);
    driver.prompt();
    return driver.kept(head);
  };
  CHECK(kept("threshold:threshold=0.4:recent=1", 0) == range(0, 8));
  CHECK(kept("threshold:threshold=0.6:recent=1", 0) == Positions{0, 1, 3, 4, 5, 6, 7});
  CHECK(kept("threshold:threshold=0.4:recent=1:group=none", 0) == range(0, 8));
  CHECK(kept("threshold:threshold=0.4:recent=1:group=none", 1) == Positions{0, 1, 3, 4, 5, 6, 7});
}

TEST_CASE("fastgen gives each head the cheapest tokens that recover its attention of the prompt") {
  // Token 0 is special, 7, 14, … are punctuation (tests/support/policy_driver.hpp).
  const Shape shape = {.query_heads = 5, .kv_heads = 5, .prompt = 40, .decode = 10};
  const auto logit = [](std::uint32_t h, std::uint32_t t, std::uint32_t j) {
    switch (h) {
      case 0: return j == 0 ? kAll : 0.0F;                // special tokens
      case 1: return j % 7 == 0 ? kAll : 0.0F;            // punctuation
      case 2: return j == 3 || j == 17 ? kAll : 0.0F;     // two tokens
      case 3: return j == t ? kAll : 0.0F;                // its own
      default: return 0.0F;                               // all alike
    }
  };
  Driver driver(spec_of("fastgen:recovery=0.98"), shape, logit);
  driver.prompt();
  CHECK(driver.kept(0) == Positions{0});
  CHECK(driver.kept(1) == Positions{0, 7, 14, 21, 28, 35});
  const Positions frequent = driver.kept(2);
  CHECK(frequent.size() == 6 + 12);
  CHECK(std::ranges::includes(frequent, Positions{0, 3, 7, 14, 17, 21, 28, 35}));
  const Positions local = driver.kept(3);
  CHECK(local.size() == 4 + 12 + 12);  // 35 is local
  CHECK(std::ranges::includes(local, range(28, 40)));
  CHECK(driver.kept(4) == range(0, 40));
  for (std::uint32_t t = 40; t < 50; ++t) driver.row(t);
  CHECK(driver.kept(0) == Positions{0});
  CHECK(driver.kept(1) == Positions{0, 7, 14, 21, 28, 35, 42, 49});
  CHECK(driver.kept(2).size() == 8 + 12);
  CHECK(std::ranges::includes(driver.kept(3), range(38, 50)));
  CHECK(driver.kept(3).size() == 6 + 12 + 12);  // 42 and 49 are local
  CHECK(driver.kept(4) == range(0, 50));
}

TEST_CASE("fastgen counts what local tokens recover by the rows near to them") {
  // Each row pays half to itself, half to the token 8 before it, of 40: a window of 8 rows recovers one half, one of 9
  // nearly all.
  const Shape shape = {.prompt = 40};
  const auto logit = [](auto, std::uint32_t t, std::uint32_t j) { return j == t || j + 8 == t ? kAll : 0.0F; };
  const auto kept = [&](const char* policy) {
    Driver driver(spec_of(policy), shape, logit);
    driver.prompt();
    return driver.kept(0);
  };
  CHECK(kept("fastgen:recovery=0.9:frequent=0:local=0.2:kinds=none") == range(0, 40));
  const Positions with_sink = kept("fastgen:recovery=0.9:frequent=0:local=0.225:kinds=none");
  CHECK(with_sink == Positions{0, 31, 32, 33, 34, 35, 36, 37, 38, 39});
}

TEST_CASE("fastgen without kinds of tokens has sinks, frequent and local tokens, and needs no tokenizer") {
  const Shape shape = {.prompt = 40};
  const auto punctuation = [](auto, auto, std::uint32_t j) { return j % 7 == 0 ? kAll : 0.0F; };
  Driver driver(spec_of("fastgen:recovery=0.9:kinds=none"), shape, punctuation);
  driver.prompt();
  CHECK(driver.kept(0).size() == 1 + 12);
  CHECK(std::ranges::includes(driver.kept(0), Positions{0, 7, 14, 21, 28, 35}));
  PolicyContext context = driver.context();
  context.token_kinds = nullptr;
  CHECK_NOTHROW(LayerPolicy(spec_of("fastgen:kinds=none"), context, 1, 1));
  CHECK_THROWS_AS(LayerPolicy(spec_of("fastgen"), context, 1, 1), Error);
}

TEST_CASE("simlayerkv keeps sinks and recent tokens where the last rows pay them more than the threshold, else all") {
  // Even rows: 2 sinks and the 6 tokens before the last rows get 8 / 20 of the row of token 19, 8 / 19 of that of 18.
  const auto kept = [](const char* parameters) {
    Driver driver(spec_of(std::string("simlayerkv:sinks=2:recent=6:") + parameters), {.prompt = 20, .decode = 2},
                  [](auto, auto, auto) { return 0.0F; });
    return kept_each_step(driver).back();
  };
  CHECK(kept("threshold=0.399") == Positions{0, 1, 15, 16, 17, 18, 19, 20, 21});
  CHECK(kept("threshold=0.401") == range(0, 22));
  CHECK(kept("threshold=0.41:last=2") == Positions{0, 1, 16, 17, 18, 19, 20, 21});
  CHECK(kept("threshold=0.411:last=2") == range(0, 22));
}

TEST_CASE("simlayerkv decides for a whole layer, by the mean over all its query heads") {
  // One of four query heads pays all to the first token, the others all to one that is neither first nor recent.
  const auto logit = [](std::uint32_t h, auto, std::uint32_t j) { return j == (h == 0 ? 0U : 8U) ? kAll : 0.0F; };
  for (const char* policy :
       {"simlayerkv:sinks=2:recent=6:threshold=0.24", "simlayerkv:sinks=2:recent=6:threshold=0.26"}) {
    Driver driver(spec_of(policy), {.query_heads = 4, .kv_heads = 2, .prompt = 20}, logit);
    driver.prompt();
    INFO(policy);
    CHECK(driver.kept(0).size() == (std::string_view(policy).ends_with("24") ? 7 : 20));
    CHECK(driver.kept(1) == driver.kept(0));
  }
}

TEST_CASE("simlayerkv drops nothing of a prompt of sinks, recent and last tokens, and nothing at a threshold of 1") {
  const auto kept = [](std::uint32_t prompt, const char* policy) {
    Driver driver(spec_of(policy), {.prompt = prompt}, [](auto, auto, std::uint32_t j) { return j == 0 ? 100.0F : 0; });
    driver.prompt();
    return driver.kept(0);
  };
  CHECK(kept(9, "simlayerkv:sinks=2:recent=6") == range(0, 9));
  CHECK(kept(10, "simlayerkv:sinks=2:recent=6") == Positions{0, 1, 5, 6, 7, 8, 9});
  CHECK(kept(20, "simlayerkv:sinks=2:recent=6:threshold=1") == range(0, 20));
  CHECK_THROWS_AS(spec_of("simlayerkv:recent=6:last=6"), Error);
}

TEST_CASE("finch weighs each row of the question by how many tokens lie before it, and keeps the question") {
  // What the rows 2 and 3 pay the tokens before the question: 2 · 0.5 + 3 · 0.1 = 1.3, 2 · 0.1 + 3 · 0.39 = 1.37.
  // By the plain sums, 0.6 and 0.49, the other one stays.
  const float rows[2][4] = {{0.5F, 0.1F, 0.4F, 0}, {0.1F, 0.39F, 0.26F, 0.25F}};
  const auto logit = [&](std::uint32_t, std::uint32_t t, std::uint32_t j) {
    return t < 2 ? 0.0F : std::log(rows[t - 2][j]);
  };
  const auto kept = [&](const char* policy) {
    Driver driver(spec_of(policy), {.prompt = 4}, logit);
    driver.prompt();
    return driver.kept(0);
  };
  CHECK(kept("finch:budget=3:window=2") == Positions{1, 2, 3});
  CHECK(kept("snapkv:budget=3:window=2:kernel=1") == Positions{0, 2, 3});
}
