// Prompts that come in chunks, as StreamingLLM feeds them.
#include <numeric>

#include "tests/catch.hpp"
#include "tests/support/policy_driver.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

float no_logit(std::uint32_t, std::uint32_t, std::uint32_t) { return 0; }

// The first 4 tokens and those from `first` to `last`.
Positions sinks_and(std::uint32_t first, std::uint32_t last) {
  Positions all(4 + last - first + 1);
  std::iota(all.begin(), all.begin() + 4, 0U);
  std::iota(all.begin() + 4, all.end(), first);
  return all;
}

}  // namespace

TEST_CASE("streaming makes room before each chunk of a prompt, as the authors' evict_for_space does") {
  // What the authors' cache (mit-han-lab/streaming-llm 2e50426, StartRecentKVCache(4, 28)) held during each forward,
  // fed with chunks of these lengths.
  const std::vector<std::uint32_t> chunks = {20, 7, 1, 9, 7, 1, 1, 20, 3};
  const std::vector<Positions> visible = {sinks_and(4, 19),  sinks_and(4, 26),  sinks_and(4, 27),
                                          sinks_and(9, 36),  sinks_and(16, 43), sinks_and(17, 44),
                                          sinks_and(18, 45), sinks_and(38, 65), sinks_and(41, 68)};
  const Shape shape = {.prompt = 69};
  Driver driver(spec_of("streaming:budget=32:prompt=20/7/1/9/7/1/1/20/3"), shape, no_logit);
  std::uint32_t t = 0;
  for (std::size_t chunk = 0; chunk < chunks.size(); ++chunk) {
    for (std::uint32_t i = 0; i < chunks[chunk]; ++i, ++t) {
      if (i + 1 < chunks[chunk]) {
        driver.row(t);
        continue;
      }
      Positions seen = driver.kept(0);
      seen.push_back(t);
      CHECK(seen == visible[chunk]);
      driver.row(t);
    }
  }
  CHECK(driver.kept(0) == visible.back());
}

TEST_CASE("streaming keeps the sinks alone before a chunk that leaves no room for others, and what it can of k after") {
  const Shape shape = {.prompt = 60, .decode = 2};
  Driver driver(spec_of("streaming:budget=16:prompt=30"), shape, no_logit);
  for (std::uint32_t t = 0; t < 30; ++t) driver.row(t);
  CHECK(driver.kept(0) == Positions{0, 1, 2, 3});
  for (std::uint32_t t = 30; t < 60; ++t) driver.row(t);
  CHECK(driver.kept(0) == sinks_and(48, 59));
  driver.row(60);
  CHECK(driver.kept(0) == sinks_and(49, 60));
}

TEST_CASE("streaming token by token holds k after each row, of the prompt as later") {
  const Shape shape = {.prompt = 40, .decode = 1};
  Driver driver(spec_of("streaming:budget=12:prompt=stream"), shape, no_logit);
  for (std::uint32_t t = 0; t <= 40; ++t) {
    driver.row(t);
    if (t >= 4) CHECK(driver.kept(0) == sinks_and(std::max(t, 11U) - 7, t));
  }
}

TEST_CASE("streaming refuses lengths of chunks that are none") {
  for (const std::string lengths : {"0", "7/", "-1", "9999999999", "a", ""}) {
    INFO(lengths);
    CHECK_THROWS_AS(spec_of("streaming:budget=9:prompt=" + lengths), Error);
  }
}
