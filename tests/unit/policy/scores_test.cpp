#include "sim/policy/growing_scores.hpp"

#include <algorithm>
#include <cmath>
#include <hwy/targets.h>

#include "sim/core/gumbel.hpp"
#include "sim/policy/noise.hpp"
#include "tests/catch.hpp"

using namespace kvroof;

namespace {

template <class Body>
void on_every_target(Body body) {
  const std::int64_t all = hwy::SupportedTargets();
  for (std::int64_t left = all; left != 0; left &= left - 1) {
    hwy::SetSupportedTargetsForTest(left & -left);
    hwy::GetChosenTarget().Update(left & -left);
    INFO("instruction set " << hwy::TargetName(left & -left));
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

float number(std::uint32_t i, std::uint32_t stream) { return uniform_draw({.seed = stream, .position = i}); }

// Distinct positions 0 … count − 1 in an order that is none.
std::vector<TokenPos> shuffled(std::uint32_t count) {
  std::vector<TokenPos> positions(count);
  for (std::uint32_t i = 0; i < count; ++i) positions[i] = TokenPos(i);
  std::ranges::sort(positions, {}, [](TokenPos p) { return number(p.value, 3); });
  return positions;
}

}  // namespace

TEST_CASE("the lowest score outside the recent window is found, of equals the oldest token, on every instruction set") {
  for (const std::uint32_t count : {1U, 2U, 7U, 15U, 16U, 17U, 64U, 133U, 1111U}) {
    for (const std::uint32_t recent : {0U, 1U, count / 2, count - 1}) {
      if (recent >= count) continue;
      const auto positions = shuffled(count);
      const Candidates candidates{positions, TokenPos(count - 1), recent};
      std::vector<float> scores(count);
      for (std::uint32_t s = 0; s < count; ++s) scores[s] = std::floor(4 * number(s, 9));  // many ties
      std::vector<std::uint32_t> order;
      for (std::uint32_t s = 0; s < count; ++s) {
        if (positions[s].value < count - recent) order.push_back(s);
      }
      std::ranges::sort(order, [&](std::uint32_t a, std::uint32_t b) {
        return std::pair(scores[a], positions[a]) < std::pair(scores[b], positions[b]);
      });
      on_every_target([&] {
        INFO(count << " slots, recent " << recent);
        CHECK(lowest(scores, candidates).value == order.front());
        for (const std::uint32_t wanted : {1U, 3U, count}) {
          std::vector<SlotId> victims;
          lowest(scores, candidates, wanted, victims);
          std::vector<SlotId> expected;
          for (std::uint32_t i = 0; i < std::min<std::size_t>(wanted, order.size()); ++i)
            expected.emplace_back(order[i]);
          std::ranges::sort(victims);
          std::ranges::sort(expected);
          CHECK(victims == expected);
        }
      });
    }
  }
}

TEST_CASE("rows of a group are reduced first and added to the scores then, on every instruction set") {
  constexpr std::uint32_t kSlots = 37;
  std::vector<float> rows(3 * kSlots);
  for (std::uint32_t i = 0; i < rows.size(); ++i) rows[i] = number(i, 5);
  on_every_target([&] {
    for (const GroupReduction reduction : {GroupReduction::kSum, GroupReduction::kMean, GroupReduction::kMax}) {
      std::vector<float> scores(kSlots, 2.0F);
      accumulate(reduction, rows.data(), 3, scores);
      for (std::uint32_t s = 0; s < kSlots; ++s) {
        const float a = rows[s];
        const float b = rows[kSlots + s];
        const float c = rows[2 * kSlots + s];
        const float sum = (a + b) + c;
        const float reduced = reduction == GroupReduction::kSum    ? sum
                              : reduction == GroupReduction::kMean ? sum * (1.0F / 3)
                                                                   : std::max({a, b, c});
        CHECK(scores[s] == 2.0F + reduced);
      }
    }
  });
}

TEST_CASE("scores that rows add to, and their lowest, equal a plain loop bit for bit on every instruction set") {
  constexpr std::uint32_t kGroup = 2;
  for (const std::uint32_t slots : {1U, 7U, 16U, 23U, 64U, 133U, 401U}) {
    for (const std::uint32_t group : {1U, kGroup}) {
      for (const float keep : {1.0F, 0.75F}) {
        on_every_target([&] {
          INFO(slots << " slots, group " << group << ", keeps " << keep);
          const std::uint32_t recent = slots / 3;
          const float factors[kGroup] = {0.3F, 0.7F};
          auto positions = shuffled(slots);
          GrowingScores growing;
          for (std::uint32_t s = 0; s < slots; ++s) growing.admit(SlotId(s), positions[s]);
          std::vector<float> plain(slots);
          for (std::uint32_t row = 0; row < 6; ++row) {
            const TokenPos query(slots - 1 + row);
            std::vector<float> values(std::size_t{group} * (slots + 3));
            for (std::uint32_t i = 0; i < values.size(); ++i) values[i] = std::floor(4 * number(i + row, 7));
            for (std::uint32_t s = 0; s < slots; ++s) {
              float sum = values[s] * factors[0];
              if (group == kGroup) sum = sum + values[slots + 3 + s] * factors[1];
              plain[s] = plain[s] * keep + sum;
            }
            growing.add({{values.data(), slots + 3, factors}, group, GroupReduction::kSum, keep}, slots);
            const Candidates candidates{positions, query, recent};
            std::uint32_t expected = slots;
            for (std::uint32_t s = 0; s < slots; ++s) {
              if (positions[s].value + recent > query.value) continue;
              const auto before = [&](std::uint32_t t) { return std::pair(plain[t], positions[t]); };
              if (expected == slots || before(s) < before(expected)) expected = s;
            }
            std::vector<SlotId> victims;
            growing.lowest(candidates, 1, victims);
            REQUIRE(victims == std::vector<SlotId>{SlotId(expected)});
            REQUIRE(std::ranges::equal(growing.of(slots), plain));
            positions[expected] = TokenPos(query.value + 1);
            growing.admit(SlotId(expected), positions[expected]);
            plain[expected] = 0;
          }
        });
      }
    }
  }
}

TEST_CASE("the lowest score is sought again after a move, an admission, and for another window") {
  const std::vector<TokenPos> positions = {TokenPos(0), TokenPos(1), TokenPos(2), TokenPos(3)};
  const float rows[] = {4, 3, 2, 1};
  const auto lowest_of = [&](const auto& change, std::uint32_t recent) {
    GrowingScores scores;
    for (std::uint32_t s = 0; s < 4; ++s) scores.admit(SlotId(s), TokenPos(s));
    std::vector<SlotId> victims;
    scores.lowest({positions, TokenPos(3), 1}, 1, victims);
    scores.add({{rows, 4}}, 4);
    change(scores);
    victims.clear();
    scores.lowest({positions, TokenPos(3), recent}, 1, victims);
    return victims.front();
  };
  const SlotMove move[] = {{SlotId(3), SlotId(1)}};
  CHECK(lowest_of([](GrowingScores&) {}, 1) == SlotId(2));
  CHECK(lowest_of([](GrowingScores&) {}, 0) == SlotId(3));
  CHECK(lowest_of([](GrowingScores& scores) { scores.admit(SlotId(0), TokenPos(4)); }, 1) == SlotId(0));
  CHECK(lowest_of([&](GrowingScores& scores) { scores.move(move); }, 1) == SlotId(1));
}

// Weights that favour some tokens, and are all alike in some rows.
float weight_at(std::uint32_t row, std::uint32_t slot, bool alike) {
  return alike ? 0.25F : number(slot, 11) * number(slot + 977 * row, 12);
}

TEST_CASE("the lowest of growing scores is that of a plain search over hundreds of rows, whoever chooses what goes") {
  constexpr std::uint32_t kSlots = 300;
  for (const bool alike : {false, true}) {
    for (const std::uint32_t recent : {0U, 3U, 40U, 150U}) {
      INFO("recent " << recent << (alike ? ", equal weights" : ""));
      auto positions = shuffled(kSlots);
      GrowingScores growing;
      for (std::uint32_t s = 0; s < kSlots; ++s) growing.admit(SlotId(s), positions[s]);
      std::vector<float> plain(kSlots), weights(kSlots);
      std::uint32_t wrong = 0;
      for (std::uint32_t row = 0; row < 500; ++row) {
        const TokenPos query(kSlots - 1 + row);
        for (std::uint32_t s = 0; s < kSlots; ++s) {
          weights[s] = weight_at(row, s, alike);
          plain[s] = plain[s] + weights[s];
        }
        growing.add({{weights.data(), kSlots}}, kSlots);
        const Candidates candidates{positions, query, recent};
        std::uint32_t expected = kSlots;
        for (std::uint32_t s = 0; s < kSlots; ++s) {
          if (positions[s].value + recent > query.value) continue;
          const auto before = [&](std::uint32_t t) { return std::pair(plain[t], positions[t]); };
          if (expected == kSlots || before(s) < before(expected)) expected = s;
        }
        std::vector<SlotId> victims;
        growing.lowest(candidates, 1, victims);
        wrong += victims == std::vector{SlotId(expected)} ? 0 : 1;
        // A recording may have given up another token; and slots may change places.
        std::uint32_t gone = row % 7 == 0 ? (expected + 1) % kSlots : expected;
        if (row % 50 == 49) {
          const std::uint32_t last = kSlots - 1;
          const SlotMove move[] = {{SlotId(last), SlotId(gone)}};
          growing.move(move);
          positions[gone] = positions[last];
          plain[gone] = plain[last];
          gone = last;
        }
        positions[gone] = TokenPos(query.value + 1);
        growing.admit(SlotId(gone), positions[gone]);
        plain[gone] = 0;
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("slots of older tokens below a limit are listed, unless they are too many, on every instruction set") {
  const auto positions = shuffled(133);
  std::vector<float> scores(133);
  for (std::uint32_t s = 0; s < scores.size(); ++s) scores[s] = number(s, 9);
  std::vector<SlotId> expected;
  for (std::uint32_t s = 0; s < scores.size(); ++s) {
    if (positions[s].value < 90 && scores[s] < 0.3F) expected.emplace_back(s);
  }
  on_every_target([&] {
    std::vector<SlotId> slots;
    CHECK(slots_below(scores, positions, TokenPos(90), 0.3F, expected.size(), slots));
    CHECK(slots == expected);
    slots.clear();
    CHECK_FALSE(slots_below(scores, positions, TokenPos(90), 0.3F, expected.size() - 1, slots));
  });
}

TEST_CASE("as many values as asked for are not below a bound, or all that equal the last, on every instruction set") {
  for (const std::size_t count : {1, 5, 16, 33, 133, 1000}) {
    std::vector<float> values(count);
    for (std::uint32_t s = 0; s < count; ++s) {
      values[s] = (number(s, 4) - 0.4F) * std::ldexp(1.0F, static_cast<int>(s % 40) - 20);
      if (s % 7 == 3) values[s] = s % 2 == 0 ? 0.0F : -0.0F;  // equals
      if (s % 50 == 20) values[s] = -std::numeric_limits<float>::infinity();
    }
    std::vector<float> sorted = values;
    std::ranges::sort(sorted, std::greater<>());
    on_every_target([&] {
      for (std::size_t n = 1; n <= count; n += 1 + count / 60) {
        const float bound = bound_of_largest(values, n);
        CHECK(bound <= sorted[n - 1]);
        if (n < count) CHECK((bound > sorted[n] || bound == sorted[n - 1]));
        std::vector<SlotId> expected = {SlotId(77)}, slots = expected;
        for (std::uint32_t s = 0; s < count; ++s) {
          if (values[s] >= bound) expected.emplace_back(s);
        }
        CHECK(count_at_least(values, bound) == expected.size() - 1);
        slots_at_least(values, bound, slots);
        CHECK(slots == expected);
      }
    });
  }
}

TEST_CASE("many Gumbel draws at once equal the single draws bit for bit on every instruction set") {
  const auto positions = shuffled(5000);
  const NoiseKey key{.seed = 0x123456789abcdef0U, .sequence = 3, .layer = 31, .query_head = 17, .query_position = 4000};
  on_every_target([&] {
    for (const std::size_t count : {1, 3, 16, 31, 5000}) {
      std::vector<float> draws(count);
      gumbel_draws(key, positions, draws);
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < count; ++i) {
        NoiseKey one = key;
        one.position = positions[i].value;
        wrong += float_bits(gumbel_draw(one)) == float_bits(draws[i]) ? 0 : 1;
      }
      CHECK(wrong == 0);
    }
  });
}

TEST_CASE("columns of slots start at 0, grow with the slots, and move") {
  SlotColumns<float> columns(2);
  for (std::uint32_t s = 0; s < 200; ++s) {
    columns.admit(SlotId(s));
    CHECK(columns.at(1, SlotId(s)) == 0.0F);
    columns.at(0, SlotId(s)) = static_cast<float>(s);
    columns.at(1, SlotId(s)) = -static_cast<float>(s);
  }
  CHECK(columns.column(0, 200)[150] == 150.0F);
  const SlotMove moves[] = {{SlotId(199), SlotId(3)}, {SlotId(198), SlotId(199)}};
  columns.move(moves);
  CHECK(columns.at(1, SlotId(3)) == -199.0F);
  CHECK(columns.at(0, SlotId(199)) == 198.0F);
  columns.admit(SlotId(3));
  CHECK(columns.at(0, SlotId(3)) == 0.0F);
}
