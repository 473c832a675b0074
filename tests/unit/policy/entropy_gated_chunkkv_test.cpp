// Chunks that are cut where few tokens make their score, by hand.
#include <cmath>

#include "tests/catch.hpp"
#include "tests/support/policy_driver.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

// What head 0 keeps of a prompt whose last row, the window, pays the other tokens these shares.
Positions kept_of(std::string_view words, const std::vector<float>& shares) {
  const auto n = static_cast<std::uint32_t>(shares.size() + 1);
  const auto logit = [&](std::uint32_t, std::uint32_t t, std::uint32_t j) {
    return t + 1 < n || j + 1 == n ? 0.0F : std::log(shares[j]);
  };
  Driver driver(spec_of(fmt::format("entropy-gated-chunkkv:window=1:kernel=1:{}", words)), {.prompt = n}, logit);
  driver.prompt();
  return driver.kept(0);
}

// Chunks of 4: even and good, good by token 5, even and bad, bad by token 12; then one of the window's token alone.
const std::vector<float> kShares = {0.5F, 0.5F, 0.5F, 0.5F, 0.01F, 3, 0.02F, 0.03F,
                                    0.1F, 0.1F, 0.1F, 0.1F, 0.2F,  0.001F, 0.002F, 0.003F};

}  // namespace

TEST_CASE("of a good chunk whose score lies in few tokens only its best stay, and the next chunk gets their place") {
  // The window's token, then two of the second chunk, then the first.
  CHECK(kept_of("chunk=4:low=2:budget=3", kShares) == Positions{5, 7, 16});
  CHECK(kept_of("chunk=4:low=1:budget=6", kShares) == Positions{0, 1, 2, 3, 5, 16});
  CHECK(kept_of("chunk=4:low=2:budget=7", kShares) == Positions{0, 1, 2, 3, 5, 7, 16});
}

TEST_CASE("bad chunks are taken whole, and the last one as far as k goes by its best tokens") {
  // Behind the good ones: the third chunk, whose mean is 0.1, in part; of equals the youngest.
  CHECK(kept_of("chunk=4:low=2:budget=9", kShares) == Positions{0, 1, 2, 3, 5, 7, 10, 11, 16});
  CHECK(kept_of("chunk=4:low=2:budget=15", kShares) == Positions{0, 1, 2, 3, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16});
  // Chunks of 2. The second and the fourth have less entropy than most; the fourth is bad, and 6 and 7 both stay.
  const std::vector<float> shares = {0.5F, 0.5F, 0.01F, 3, 0.1F, 0.06F, 0.06F, 0.0001F, 0.3F, 0.28F, 0.2F, 0.15F};
  CHECK(kept_of("chunk=2:low=1:budget=12", shares) == Positions{0, 1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
}

TEST_CASE("of an even number of chunks the median is the lower of the two in the middle, of means and of entropies") {
  // Means 0.5, 0.1, 0.4 and that of the window's chunk, which is the largest; the third is good and is cut to token 8.
  const std::vector<float> shares = {0.5F, 0.5F,    0.5F,    0.5F,    0.1F, 0.1F, 0.1F, 0.1F,
                                     1.6F, 0.0001F, 0.0001F, 0.0001F, 0.2F, 0.2F, 0.2F};
  CHECK(kept_of("chunk=4:low=1:budget=10", shares) == Positions{0, 1, 2, 3, 7, 8, 12, 13, 14, 15});
}

TEST_CASE("what cut chunks leave of k goes to the best tokens that did not stay") {
  CHECK(kept_of("chunk=4:low=2:budget=16", kShares) ==
        Positions{0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16});
}

TEST_CASE("entropy-gated-chunkkv refuses to keep a chunk's every token of those that it cuts") {
  CHECK_THROWS_AS(spec_of("entropy-gated-chunkkv:budget=4:chunk=4:low=4"), Error);
  CHECK_THROWS_AS(spec_of("entropy-gated-chunkkv:budget=4:low=0"), Error);
}
