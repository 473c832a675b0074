#include <cmath>
#include <cstdint>

#include "tests/catch.hpp"
#include "tests/support/policy_driver.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

// What head 0 keeps of a prompt whose keys and values have one element each.
Positions kept_of(std::string_view policy, std::vector<float> keys, std::vector<float> values) {
  const auto n = static_cast<std::uint32_t>(keys.size());
  const Shape shape = {.prompt = n, .width = 1};
  const std::vector<float> queries(n, 1.0F);
  Driver driver(spec_of(policy), shape, [](auto, auto, auto) { return 0.0F; },
                DriverRows(queries, std::move(keys), std::move(values), 1, 1, n, n));
  driver.prompt();
  return driver.kept(0);
}

RowsView view_of(const std::vector<float>& rows, std::size_t width) {
  return {reinterpret_cast<const std::byte*>(rows.data()), DType::kF32, width, width, rows.size() / width};
}

}  // namespace

TEST_CASE("knorm keeps the smallest norms, in chunks every chunk keeps its share, and one token at least") {
  const std::vector<float> keys = {9, 1, -2, 8, 3, -7, 6, 5};
  CHECK(kept_of("knorm:budget=4", keys, keys) == Positions{1, 2, 4, 7});
  CHECK(kept_of("knorm:budget=4:chunk=4", keys, keys) == Positions{1, 2, 4, 7});
  CHECK(kept_of("knorm:budget=2:chunk=4", keys, keys) == Positions{1, 4});
  // int(4 · 3/8) = 1 a chunk: fewer than the budget.
  CHECK(kept_of("knorm:budget=3:chunk=4", keys, keys) == Positions{1, 4});
  // One token of every chunk stays, though that is more than the budget.
  CHECK(kept_of("knorm:budget=3:chunk=2", keys, keys) == Positions{1, 2, 4, 7});
  CHECK(kept_of("knorm:compression=0.8:chunk=3", keys, keys) == Positions{1, 4, 7});
  CHECK(kept_of("knorm:compression=0.5:chunk=5", keys, keys) == Positions{1, 2, 7});
}

TEST_CASE("equal scores go from the oldest on") {
  const std::vector<float> same(6, 2.0F);
  for (const char* policy :
       {"knorm:budget=2", "keydiff:budget=2", "keydiff:budget=2:block=2", "cur:budget=2:sinks=0"}) {
    INFO(policy);
    CHECK(kept_of(policy, same, same) == Positions{4, 5});
  }
}

TEST_CASE("expected-attention keeps the first tokens also where all scores are alike") {
  const std::vector<float> same(12, 2.0F);
  for (const char* more : {"", ":vnorm=no"}) {
    CHECK(kept_of("expected-attention:budget=6:covariance=no" + std::string(more), same, same) ==
          Positions{0, 1, 2, 3, 10, 11});
  }
}

TEST_CASE("a prompt too short for two partitions is judged by lagkv by age alone, after its sinks") {
  const std::vector<float> keys = {9, 1, 2, 8, 3, 7, 6, 5};
  CHECK(kept_of("lagkv:budget=5:sinks=2:lag=4", keys, keys) == Positions{0, 1, 5, 6, 7});
  CHECK(kept_of("lagkv:budget=5", keys, keys) == Positions{0, 1, 2, 3, 7});
}

TEST_CASE("cur multiplies shares of squared lengths within windows, and its sinks stay") {
  // Windows of 4: shares of k² are 1/20 · (1, 1, 9, 9) and 1/4 each, of v² 1/4 each throughout.
  const std::vector<float> keys = {1, 1, 3, 3, 5, 5, 5, 5};
  const std::vector<float> values(8, 1.0F);
  CHECK(kept_of("cur:budget=6:sinks=0:window=4", keys, values) == Positions{2, 3, 4, 5, 6, 7});
  CHECK(kept_of("cur:budget=3:sinks=1:window=4", keys, values) == Positions{0, 2, 3});
  CHECK(kept_of("cur:budget=4:sinks=0:window=0", keys, values) == Positions{4, 5, 6, 7});
}

TEST_CASE("capkv without tau keeps the longest v, with it those whose keys point where the queries do") {
  // One channel, no rotation: v² / (1 + Σ w v²) grows with |v|, and a key against the queries weighs exp(−2 tau) less.
  const std::vector<float> values = {1, -5, 2, 4, -3, 6};
  const std::vector<float> keys = {1, -1, 1, -2, 3, -1};
  CHECK(kept_of("capkv:budget=3:tau=0:sinks=0", keys, values) == Positions{1, 3, 5});
  CHECK(kept_of("capkv:budget=3:sinks=0", keys, values) == Positions{0, 2, 4});
  CHECK(kept_of("capkv:budget=3:tau=0:sinks=2", keys, values) == Positions{0, 1, 5});
  // exp(−2 · 0.5) is a factor of 0.37 for the tokens 1, 3 and 5: 9.2, 5.9 and 13.2 beside 1, 4 and 9.
  CHECK(kept_of("capkv:budget=3:tau=0.5:sinks=0", keys, values) == Positions{1, 4, 5});
}

TEST_CASE("first tokens that a window has hidden protect no others") {
  // Tokens 4 … 7 are left of 8 in a window of 4, and the shortest v of them goes.
  const std::vector<float> values = {9, 9, 9, 9, 1, 5, 5, 5};
  const Shape shape = {.prompt = 8, .window = 4, .width = 1};
  const std::vector<float> ones(8, 1.0F);
  for (const char* policy : {"capkv:budget=3:tau=0:sinks=4", "expected-attention:budget=3:sinks=4"}) {
    INFO(policy);
    Driver driver(spec_of(policy), shape, [](auto, auto, auto) { return 0.0F; },
                  DriverRows(ones, ones, values, 1, 1, 8, 8));
    driver.prompt();
    CHECK(driver.kept(0) == Positions{5, 6, 7});
  }
}

TEST_CASE("qfilters keeps the keys that reach furthest along the queries, whichever way these point") {
  const Shape shape = {.prompt = 5, .width = 2};
  const std::vector<float> keys = {3, 9, -2, 0, 1, -9, -4, 2, 2, 1};
  const auto kept = [&](std::vector<float> queries) {
    Driver driver(spec_of("qfilters:budget=2"), shape, [](auto, auto, auto) { return 0.0F; },
                  DriverRows(std::move(queries), keys, keys, 1, 1, 5, 5));
    driver.prompt();
    return driver.kept(0);
  };
  CHECK(kept({4, 0, 5, 0, 3, 0, 4, 0, 5, 0}) == Positions{0, 4});
  CHECK(kept({-4, 0, -5, 0, -3, 0, -4, 0, -5, 0}) == Positions{1, 3});
  // The longest direction is not that of the mean, which lies along the other channel.
  CHECK(kept({1, 9, 1, -9, 1, 9, 1, -9, 1, 1}) == Positions{0, 3});
}

TEST_CASE("chunks are scored apart: by the mean of their own keys, from their own first window on") {
  // The keys of the first chunk lie around one direction, those of the second around another; tokens 3 and 4 are
  // unlike those of their chunks, tokens 0 and 7 unlike the mean of all.
  const std::vector<float> keys = {1, -0.05F, 1, 0.1F, 1, 0, 1, 1, 1, 1, 0, 1, 0.1F, 1, -0.05F, 1};
  const Shape shape = {.prompt = 8, .width = 2};
  const auto kept = [&](std::string_view policy) {
    Driver driver(spec_of(policy), shape, [](auto, auto, auto) { return 0.0F; },
                  DriverRows(std::vector<float>(16, 1.0F), keys, keys, 1, 1, 8, 8));
    driver.prompt();
    return driver.kept(0);
  };
  CHECK(kept("keydiff:budget=2:chunk=4") == Positions{3, 4});
  CHECK(kept("keydiff:budget=2") == Positions{0, 7});
  // Windows of 2 restart with each chunk of 3, so that its last token is alone in one; otherwise 4 would stay, not 5.
  CHECK(kept_of("cur:budget=2:chunk=3:sinks=0:window=2", {1, 1, 2, 1, 5, 1}, std::vector<float>(6, 1.0F)) ==
        Positions{2, 5});
}

TEST_CASE("keydiff refuses to work in blocks and in chunks at once") {
  CHECK_THROWS_AS(spec_of("keydiff:budget=4:block=2:chunk=2"), Error);
  CHECK_THROWS_AS(spec_of("expected-attention:budget=4:future=0"), Error);
  CHECK_THROWS_AS(spec_of("lagkv:budget=4:lag=0"), Error);
}

TEST_CASE("rows of k are those of the token in a slot: by position, by slot, and by slot before planned moves") {
  const std::vector<float> rows = {0, 10, 20, 30, 40};
  const std::vector<TokenPos> positions = {TokenPos(4), TokenPos(1), TokenPos(3)};
  const std::vector<SlotId> order = {SlotId(1), SlotId(2), SlotId(0)};
  std::vector<float> read;
  HeadTensors::Scratch scratch;
  HeadTensors by_position({view_of(rows, 1), view_of(rows, 1), true, {}}, positions, {}, scratch);
  by_position.read_keys(order, read);
  CHECK(read == std::vector<float>{10, 30, 40});
  HeadTensors by_slot({view_of(rows, 1), view_of(rows, 1), false, {}}, positions, {}, scratch);
  by_slot.read_values(order, read);
  CHECK(read == std::vector<float>{10, 20, 0});
  const std::vector<SlotMove> moves = {{SlotId(4), SlotId(1)}};
  HeadTensors moved({view_of(rows, 1), view_of(rows, 1), false, {}}, positions, moves, scratch);
  moved.read_keys(order, read);
  CHECK(read == std::vector<float>{40, 20, 0});
  CHECK(moved.elements_read() == 3);
}

TEST_CASE("the last rows of the queries are read, no more than there are") {
  const std::vector<float> rows = {0, 1, 2, 3, 4, 5};
  HeadTensors::Scratch scratch;
  HeadTensors tensors({view_of(rows, 2), view_of(rows, 2), true, view_of(rows, 2)}, {}, {}, scratch);
  std::vector<float> read;
  tensors.read_queries(2, read);
  CHECK(read == std::vector<float>{2, 3, 4, 5});
  tensors.read_queries(TensorNeed::kWholePrompt, read);
  CHECK(read == rows);
  CHECK(tensors.elements_read() == 10);
}

TEST_CASE("undoing a rotation gives the rows before it, for both styles, their magnitude and first element") {
  for (const RotaryStyle style : {RotaryStyle::kHalfSplit, RotaryStyle::kAdjacentPairs}) {
    RotaryRule rule = plain_rotary(style, 4, 100.0);
    rule.magnitude = 1.5F;
    const LayerRotation rotation{&rule, 1, false};
    const std::vector<float> before = {7, 1, 2, 3, 4, 8};
    std::vector<float> row = before;
    for (std::size_t pair = 0; pair < 2; ++pair) {
      const double angle = 11.0 * static_cast<double>(rule.inverse_frequencies[pair]);
      const std::size_t one = style == RotaryStyle::kHalfSplit ? 1 + pair : 1 + 2 * pair;
      const std::size_t other = style == RotaryStyle::kHalfSplit ? 3 + pair : 2 + 2 * pair;
      row[one] = static_cast<float>(1.5 * (before[one] * std::cos(angle) - before[other] * std::sin(angle)));
      row[other] = static_cast<float>(1.5 * (before[other] * std::cos(angle) + before[one] * std::sin(angle)));
    }
    undo_rotation(rotation, TokenPos(11), row.size(), row);
    for (std::size_t i = 0; i < row.size(); ++i) CHECK(std::fabs(row[i] - before[i]) < 1e-5F);
  }
}
