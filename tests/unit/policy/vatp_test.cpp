// VATP: attention times the L1 norm of v, by hand.
#include "tests/catch.hpp"
#include "tests/support/all_policies.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

// Attention is even, so that rows 0 … 4 pay the tokens 2.283, 1.283, 0.783, 0.45 and 0.2 in all.
Driver even_attention(std::string_view policy, std::vector<float> values, std::uint32_t width = 1) {
  const auto n = static_cast<std::uint32_t>(values.size() / width);
  const std::vector<float> rows(values.size(), 1.0F);
  return {spec_of(policy), {.prompt = n, .width = width}, [](auto, auto, auto) { return 0.0F; },
          DriverRows(rows, rows, std::move(values), 1, 1, n, n)};
}

Positions kept_of(std::string_view policy, std::vector<float> values, std::uint32_t width = 1) {
  Driver driver = even_attention(policy, std::move(values), width);
  driver.prompt();
  return driver.kept(0);
}

// Elements of k, v and q that were read to score tokens, as announced and as read.
std::pair<std::uint64_t, std::uint64_t> scored(Driver& driver) {
  const std::uint64_t announced = driver.policy().take_counts().scored;
  return {announced, driver.policy().take_read_elements()};
}

}  // namespace

TEST_CASE("vatp weighs the attention that rows paid by the L1 norm of v") {
  // 2.28, 2.57, 3.13, 0.45.
  CHECK(kept_of("vatp:budget=3:sinks=0:recent=1", {1, 2, -4, 1, 1}) == Positions{1, 2, 4});
  // Token 2 has the L1 norm 4 and the L2 norm 2.83: 3.13 against the 2.82 of token 1, or 2.21.
  CHECK(kept_of("vatp:budget=2:sinks=0:recent=1", {0, 0, 2.2F, 0, -2, 2, 0, 0, 1, 1}, 2) == Positions{2, 4});
}

TEST_CASE("vatp keeps the first tokens whatever their v, and of too many the youngest") {
  CHECK(kept_of("vatp:budget=3:sinks=1:recent=1", {0, 2, -4, 1, 1}) == Positions{0, 2, 4});
  CHECK(kept_of("vatp:budget=3:recent=1", {1, 2, -4, 1, 1}) == Positions{2, 3, 4});
}

TEST_CASE("vatp with rows=2 adds up what the prompt's last two rows paid, as Scissorhands would") {
  // Each older token got 1/4 + 1/5; of all rows it were 2.28, 2.57, 3.13, 1.35.
  CHECK(kept_of("vatp:budget=3:sinks=0:recent=1:rows=2", {1, 2, -4, 3, 1}) == Positions{2, 3, 4});
  CHECK(kept_of("vatp:budget=3:sinks=0:recent=1", {1, 2, -4, 3, 1}) == Positions{1, 2, 4});
}

TEST_CASE("vatp reads v once: the prompt's when it first evicts, then that of each new token") {
  Driver driver(spec_of("vatp:budget=10"), kShape, random_logit);
  driver.prompt();
  const std::uint64_t row = std::uint64_t{kShape.kv_heads} * kShape.width;
  CHECK(scored(driver) == std::pair(kShape.prompt * row, kShape.prompt * row));
  for (std::uint32_t t = kShape.prompt; t < kShape.prompt + 4; ++t) {
    driver.row(t);
    CHECK(scored(driver) == std::pair(row, row));
  }
  Driver rarer(spec_of("vatp:budget=10:when=4"), kShape, random_logit);
  rarer.prompt();
  (void)scored(rarer);
  for (std::uint32_t i = 0; i < 8; ++i) {
    rarer.row(kShape.prompt + i);
    const std::uint64_t tokens = i % 4 == 3 ? 4 : 0;
    CHECK(scored(rarer) == std::pair(tokens * row, tokens * row));
  }
}

TEST_CASE("vatp where all v have one norm and no token is a sink is h2o") {
  const std::uint32_t tokens = kShape.prompt + kShape.decode;
  const std::vector<float> queries(std::size_t{kShape.query_heads} * tokens, 1.0F);
  const std::vector<float> ones(std::size_t{kShape.kv_heads} * tokens, 1.0F);
  Shape shape = kShape;
  shape.width = 1;
  for (const char* words :
       {"budget=12", "budget=0.3@current:group=none", "budget=12:when=prefill", "budget=12:when=8"}) {
    const auto kept = [&](std::string_view policy) {
      Driver driver(spec_of(fmt::format("{}:{}", policy, words)), shape, random_logit,
                    DriverRows(queries, ones, ones, shape.query_heads, shape.kv_heads, tokens, shape.prompt));
      return kept_each_step(driver, 1);
    };
    INFO(words);
    CHECK(kept("vatp:sinks=0") == kept("h2o"));
  }
}

TEST_CASE("vatp refuses to add up no rows") { CHECK_THROWS_AS(spec_of("vatp:budget=4:rows=0"), Error); }
