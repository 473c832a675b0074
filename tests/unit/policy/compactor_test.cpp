// Leverage scores, non-causal attention and their blend, by hand.
#include <cmath>

#include "sim/policy/leverage.hpp"
#include "sim/policy/tile_attention.hpp"
#include "tests/catch.hpp"
#include "tests/support/policy_driver.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

// What head 0 keeps of a prompt; rows of `width` elements, every query 1 throughout.
Positions kept_of(std::string_view policy, std::vector<float> keys, std::vector<float> values, std::uint32_t width = 1,
                  const RotaryRule* rotary = nullptr) {
  const auto n = static_cast<std::uint32_t>(keys.size() / width);
  const Shape shape = {.prompt = n, .rotary = rotary, .width = width};
  const std::vector<float> queries(keys.size(), 1.0F);
  Driver driver(spec_of(policy), shape, [](auto, auto, auto) { return 0.0F; },
                DriverRows(queries, std::move(keys), std::move(values), 1, 1, n, n));
  driver.prompt();
  return driver.kept(0);
}

std::vector<TokenPos> positions_to(std::size_t n) {
  std::vector<TokenPos> positions;
  for (std::uint32_t i = 0; i < n; ++i) positions.emplace_back(i);
  return positions;
}

std::vector<double> leverage_of(std::string_view policy, std::vector<float> keys, std::size_t width) {
  std::vector<double> scores;
  LeverageScores(spec_of(policy), {}).score(positions_to(keys.size() / width), width, keys, scores);
  return scores;
}

std::vector<double> attention_of(std::string_view policy, const TileRows& rows) {
  std::vector<double> scores;
  TileAttention(spec_of(policy)).score(rows, scores);
  return scores;
}

void check_close(const std::vector<double>& found, const std::vector<double>& expected, double margin = 1e-6) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    INFO("token " << i);
    CHECK(std::fabs(found[i] - expected[i]) < margin);
  }
}

// Large enough that the ridge does not show.
std::vector<float> large_keys(std::size_t n, std::size_t width) {
  std::vector<float> keys;
  for (std::uint32_t i = 0; i < n * width; ++i) keys.push_back(200 * uniform_draw({.seed = 8, .position = i}));
  return keys;
}

}  // namespace

TEST_CASE("leverage is a centred key's square in units of what all keys have in its direction, and 0.01 more") {
  // Centred already; Σ x xᵀ is diag(8, 2).
  check_close(leverage_of("leverage:budget=1:sketch=0", {2, 0, -2, 0, 0, 1, 0, -1}, 2),
              {4 / 8.01, 4 / 8.01, 1 / 2.01, 1 / 2.01});
  // The mean is 5: distances 4, 2, 0, 6, their squares of 56.
  check_close(leverage_of("leverage:budget=1:sketch=0", {1, 3, 5, 11}, 1),
              {16 / 56.01, 4 / 56.01, 0, 36 / 56.01});
}

TEST_CASE("leverage scores of keys that span the space add up to its dimensions") {
  double sum = 0;
  for (const double score : leverage_of("leverage:budget=1:sketch=0", large_keys(40, 6), 6)) sum += score;
  CHECK(std::fabs(sum - 6) < 1e-4);
}

TEST_CASE("a sketch with as many columns as a key has elements leaves leverage as it is") {
  const std::vector<float> keys = large_keys(40, 6);
  check_close(leverage_of("leverage:budget=1:sketch=6", keys, 6), leverage_of("leverage:budget=1:sketch=0", keys, 6),
              1e-3);
}

TEST_CASE("a sketch is divided by the root of its columns") {
  const auto ones = [](std::uint64_t, std::size_t rows, std::size_t columns, std::vector<float>& out) {
    out.assign(rows * columns, 1.0F);
  };
  std::vector<float> keys = {0.1F, -0.1F, 0, 0};
  std::vector<double> scores;
  LeverageScores(spec_of("leverage:budget=1:sketch=4"), {}, ones).score(positions_to(4), 1, keys, scores);
  check_close(scores, {0.01 / 0.03, 0.01 / 0.03, 0, 0});
}

TEST_CASE("a sketch is drawn from the standard normal distribution, by the seed alone") {
  std::vector<float> sketch, again, other;
  draw_sketch(3, 128, 48, sketch);
  draw_sketch(3, 128, 48, again);
  draw_sketch(4, 128, 48, other);
  CHECK(sketch == again);
  CHECK(sketch != other);
  double sum = 0;
  double squares = 0;
  for (const float x : sketch) {
    sum += static_cast<double>(x);
    squares += static_cast<double>(x) * static_cast<double>(x);
  }
  const auto n = static_cast<double>(sketch.size());
  CHECK(std::fabs(sum / n) < 4 / std::sqrt(n));
  CHECK(std::fabs(squares / n - 1) < 4 * std::sqrt(2 / n));
}

TEST_CASE("leverage is that of keys before rotary embedding") {
  const RotaryRule rotary = plain_rotary(RotaryStyle::kHalfSplit, 2, 10.0);
  std::vector<float> keys;
  for (std::uint32_t i = 0; i < 8; ++i) {
    // All keys were (3, 1) but that of token 2, which was (3, 1.5).
    const double y = i == 2 ? 1.5 : 1;
    keys.push_back(static_cast<float>(3 * std::cos(i) - y * std::sin(i)));
    keys.push_back(static_cast<float>(y * std::cos(i) + 3 * std::sin(i)));
  }
  const std::vector<float> values(16, 1.0F);
  CHECK(kept_of("leverage:budget=1:sketch=0", keys, values, 2, &rotary) == Positions{2});
  CHECK(kept_of("leverage:budget=1:sketch=0", keys, values, 2) != Positions{2});
}

TEST_CASE("each chunk keeps its share by the leverage of its own keys") {
  // Of all keys 50 and 54 lie furthest out; in their chunk 52 is the middle.
  const std::vector<float> keys = {0, 2, 1, 50, 52, 54};
  const std::vector<float> values(6, 1.0F);
  CHECK(kept_of("leverage:budget=4:sketch=0:chunk=3", keys, values) == Positions{0, 1, 3, 5});
}

TEST_CASE("non-causal attention goes to earlier and later tokens of a tile alike, and spreads over neighbours") {
  const std::vector<float> queries(3, 1.0F);
  const std::vector<float> keys = {0, 0, std::log(3.0F)};
  const std::vector<float> ones(3, 1.0F);
  // Every query pays 1/5, 1/5, 3/5; a third of the sums of three.
  check_close(attention_of("non-causal:budget=1:tile=3", {queries, keys, ones, 1, 1}), {1.2 / 3, 3.0 / 3, 2.4 / 3});
  // The norm of v weighs first.
  const std::vector<float> values = {1, -2, 1};
  check_close(attention_of("non-causal:budget=1:tile=3", {queries, keys, values, 1, 1}), {1.8 / 3, 3.6 / 3, 3.0 / 3});
}

TEST_CASE("a short last tile is filled up with zeros, which pay and are paid, or left short") {
  const std::vector<float> queries(3, 1.0F);
  const std::vector<float> keys = {0, 0, std::log(3.0F)};
  const std::vector<float> ones(3, 1.0F);
  // The last token pays itself 3/4 of 3 + 1, and the query of zeros pays it 1/2.
  check_close(attention_of("non-causal:budget=1:tile=2", {queries, keys, ones, 1, 1}), {2.0 / 3, 3.25 / 3, 2.25 / 3});
  check_close(attention_of("non-causal:budget=1:tile=2:pad=no", {queries, keys, ones, 1, 1}),
              {2.0 / 3, 3.0 / 3, 2.0 / 3});
}

TEST_CASE("non-causal attention is the mean over the query heads that share a key") {
  // Queries 1 and 0 of two heads in turn: softmax of (0, log 3), and even.
  const std::vector<float> queries = {1, 0, 1, 0};
  const std::vector<float> keys = {0, std::log(3.0F)};
  const std::vector<float> ones(2, 1.0F);
  // Sums 2 · 1/4 and 2 · 3/4 of the one head, 1 and 1 of the other.
  check_close(attention_of("non-causal:budget=1:tile=2", {queries, keys, ones, 1, 2}), {2.0 / 3, 2.0 / 3});
  const std::vector<float> weighted = {1, 3};
  check_close(attention_of("non-causal:budget=1:tile=1:pad=no", {queries, keys, weighted, 1, 2}), {4.0 / 3, 4.0 / 3});
}

TEST_CASE("compactor keeps first and last tokens, which take part in neither score") {
  // Tokens 0 and 9 lie furthest out; without them the mean is that of 1 … 8, of which 4 stands out.
  const std::vector<float> keys = {90, 1, 1, 1, 6, 1, 1, 1, 1, -90};
  const std::vector<float> values(10, 1.0F);
  const char* rest = ":blend=100:tile=4:sketch=0";
  CHECK(kept_of(fmt::format("compactor:budget=3:sinks=1:recent=1{}", rest), keys, values) == Positions{0, 4, 9});
  CHECK(kept_of(fmt::format("compactor:budget=2:sinks=0:recent=0{}", rest), keys, values) == Positions{0, 9});
  // Tokens 1 and 2 both stand out, 2 further, and one of them has a place.
  const std::vector<float> two = {90, 0, 11, 5, 5, 5, 5, 5, 5, -90};
  CHECK(kept_of(fmt::format("compactor:budget=3:sinks=1:recent=1{}", rest), two, values) == Positions{0, 2, 9});
  // More of them than k: the youngest.
  CHECK(kept_of(fmt::format("compactor:budget=4:sinks=8:recent=4{}", rest), keys, values) == Positions{6, 7, 8, 9});
}

TEST_CASE("compactor weighs leverage by what goes of the prompt, unless a weight is given") {
  const std::vector<float> keys = large_keys(12, 2);
  const std::vector<float> values = large_keys(12, 1);
  std::vector<float> twice;
  for (const float v : values) twice.insert(twice.end(), {v, v});
  const auto kept = [&](std::string_view words) {
    return kept_of(fmt::format("compactor:sinks=0:recent=0:tile=4:sketch=0:{}", words), keys, twice, 2);
  };
  CHECK(kept("compression=0.75") == kept("compression=0.75:blend=0.75"));
  CHECK(kept("budget=3") == kept("budget=3:blend=0.75"));
  CHECK(kept("compression=0.75") != kept("compression=0.75:blend=0"));
}

TEST_CASE("bad parameters of leverage, non-causal and compactor are refused") {
  CHECK_THROWS_AS(spec_of("leverage:budget=4:sketch=2000"), Error);
  CHECK_THROWS_AS(spec_of("non-causal:budget=4:tile=0"), Error);
  CHECK_THROWS_AS(spec_of("non-causal:budget=4:tile=2000000"), Error);
  CHECK_THROWS_AS(spec_of("compactor:budget=4:blend=-1"), Error);
  CHECK_THROWS_AS(spec_of("compactor:budget=4:sketch=2000"), Error);
}
