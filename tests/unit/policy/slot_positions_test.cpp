#include "sim/policy/slot_positions.hpp"

#include <cmath>

#include "tests/catch.hpp"
#include "tests/support/policy_driver.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

constexpr std::size_t kWidth = 10, kFirst = 2, kDims = 8;

std::vector<float> row_of(std::uint32_t seed) {
  std::vector<float> row;
  for (std::uint32_t i = 0; i < kWidth; ++i) row.push_back(uniform_draw({.seed = seed, .position = i}) - 0.5F);
  return row;
}

// Elements [2, 10) turned by a position, in double.
std::vector<float> turned(std::vector<float> row, double position, const LayerRotation& rotation) {
  for (std::size_t i = 0; i < kDims / 2; ++i) {
    const double angle = position * static_cast<double>(rotation.frequencies()[i]);
    const auto [one, other] = rotation.elements(i);
    const auto a = static_cast<double>(row[one]);
    const auto b = static_cast<double>(row[other]);
    row[one] = static_cast<float>(a * std::cos(angle) - b * std::sin(angle));
    row[other] = static_cast<float>(b * std::cos(angle) + a * std::sin(angle));
  }
  return row;
}

}  // namespace

TEST_CASE("relocated logits are those of q and k turned by their places, in any order of slots and with any gaps") {
  const std::vector<TokenPos> positions = {TokenPos(40), TokenPos(3), TokenPos(0), TokenPos(17), TokenPos(39),
                                           TokenPos(18)};
  const std::vector<std::uint32_t> places = {5, 1, 0, 2, 4, 3};
  for (const RotaryStyle style : {RotaryStyle::kHalfSplit, RotaryStyle::kAdjacentPairs}) {
    const RotaryRule rule = plain_rotary(style, kDims, 100);
    const LayerRotation rotation{&rule, kFirst, false};
    const LogitRule logit_rule{.scale = 3, .softcap = 2};
    const std::vector<float> q = row_of(1);
    const std::vector<float> here = turned(q, 40, rotation);
    std::vector<float> by_slot, by_position(41 * kWidth);
    for (std::size_t s = 0; s < positions.size(); ++s) {
      const auto k = turned(row_of(2 + positions[s].value), positions[s].value, rotation);
      by_slot.insert(by_slot.end(), k.begin(), k.end());
      std::ranges::copy(k, by_position.begin() + positions[s].value * static_cast<std::ptrdiff_t>(kWidth));
    }
    const auto view = [&](const std::vector<float>& rows) {
      return RowsView{reinterpret_cast<const std::byte*>(rows.data()), DType::kF32, kWidth, kWidth,
                      rows.size() / kWidth};
    };
    constexpr float kSlope = 0.25F;
    std::vector<float> own(positions.size());
    compute_logits(here, view(by_slot), logit_rule, own);
    add_alibi(positions, TokenPos(40), {kSlope}, own);
    SlotRow row{rotation, positions, TokenPos(40), here, view(by_slot), false, logit_rule, {kSlope}};
    std::vector<float> logits = own;
    relocate_logits(row, logits);
    for (std::size_t s = 0; s < positions.size(); ++s) {
      std::vector<float> expected(1);
      const auto k = turned(row_of(2 + positions[s].value), places[s], rotation);
      compute_logits(turned(q, 5, rotation), view(k), logit_rule, expected);
      expected[0] -= kSlope * static_cast<float>(5 - places[s]);
      CHECK(logits[s] == Approx(expected[0]).margin(2e-5));
    }
    CHECK(logits[0] == own[0]);  // the query's own token
    row.keys = view(by_position);
    row.by_position = true;
    std::vector<float> again = own;
    relocate_logits(row, again);
    CHECK(again == logits);
  }
}

TEST_CASE("turning keys again is counted: three operations for each rotated element of every key at every step") {
  const RotaryRule rule = plain_rotary(RotaryStyle::kHalfSplit, 6, 10000);
  const Shape shape = {.query_heads = 4, .kv_heads = 2, .prompt = 20, .decode = 3, .rotary = &rule};
  const auto flops = [&](const char* policy) {
    Driver driver(spec_of(policy), shape, [](auto, auto, auto) { return 0.0F; });
    driver.prompt();
    CHECK(driver.policy().take_counts().policy_flops.scoring == 0);
    driver.row(20);
    return driver.policy().take_counts().policy_flops.scoring;
  };
  CHECK(flops("streaming:budget=10:positions=slot") == 2 * 11 * 6 * 3);
  CHECK(flops("streaming:budget=10") == 0);
  // Survivors of an only eviction are turned once.
  CHECK(flops("streaming:budget=10:positions=slot:when=prefill") == 2 * 10 * 6 * 3);
  CHECK(flops("streaming:budget=20:positions=slot:when=prefill") == 0);
}
