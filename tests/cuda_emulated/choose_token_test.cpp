// What greedy decoding takes of rows of logits, against the sampler of the host.
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cuda/kernels.hpp"
#include "kernels/engine/sampler.hpp"
#include "tests/catch.hpp"

using namespace kvroof;
using namespace kvroof::cuda;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<DeviceChoice> chosen_of(const std::vector<float>& logits, std::uint32_t rows) {
  std::vector<DeviceChoice> chosen(rows + 1, {0xdeadbeefU, 7.0F});
  Stream stream;
  run_choose_token(stream, {logits.data(), rows, static_cast<std::uint32_t>(logits.size() / rows), chosen.data()});
  CHECK(chosen.back().token == 0xdeadbeefU);
  chosen.pop_back();
  return chosen;
}

DeviceChoice choice_of(const std::vector<float>& row) { return chosen_of(row, 1)[0]; }

}  // namespace

TEST_CASE("of each row of logits the largest is taken, with its log-probability") {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 4);
  for (const std::uint32_t vocab : {1U, 2U, 31U, 1023U, 1024U, 1025U, 16384U, 16385U, 50257U}) {
    CAPTURE(vocab);
    constexpr std::uint32_t kRows = 3;
    std::vector<float> logits(std::size_t{kRows} * vocab);
    for (float& x : logits) x = normal(random);
    const std::vector<DeviceChoice> chosen = chosen_of(logits, kRows);
    for (std::uint32_t r = 0; r < kRows; ++r) {
      const std::span<const float> row = std::span(logits).subspan(std::size_t{r} * vocab, vocab);
      const std::int64_t token = sample(row, {}, 0, 0);
      CHECK(chosen[r].token == token);
      CHECK_THAT(chosen[r].logprob, Catch::Matchers::WithinAbs(log_probability(row, token), 4e-6));
    }
  }
}

TEST_CASE("of equal logits the first is taken, and 0 and -0 are equal") {
  std::vector<float> row(5000, -1.0F);
  for (const std::size_t at : {4999U, 1500U, 2524U}) row[at] = 3.0F;
  CHECK(choice_of(row).token == 1500);
  row.assign(2000, 0.0F);
  row[0] = row[3] = -0.0F;
  CHECK(choice_of(row).token == 0);
}

TEST_CASE("a token that can never be taken does not disturb the others") {
  std::vector<float> row(3000, -kInfinity);
  row[1700] = 2.0F;
  row[40] = 2.0F - std::log(3.0F);
  CHECK(choice_of(row).token == 1700);
  CHECK_THAT(choice_of(row).logprob, Catch::Matchers::WithinAbs(std::log(0.75), 1e-6));
}

TEST_CASE("a row that is no distribution has no finite log-probability, and a token of the vocabulary") {
  const auto is_refused = [](std::vector<float> row) {
    const DeviceChoice choice = choice_of(row);
    return !std::isfinite(choice.logprob) && choice.token < row.size();
  };
  for (const std::size_t place : {0U, 1U, 1100U, 2999U}) {
    for (const float bad : {kNan, -kNan, kInfinity}) {
      std::vector<float> row(3000, 1.0F);
      row[place] = bad;
      CHECK(is_refused(row));
    }
  }
  CHECK(is_refused(std::vector<float>(3000, -kInfinity)));
  CHECK(is_refused(std::vector<float>(3000, -kNan)));
  CHECK(is_refused(std::vector<float>(3, kNan)));
}
