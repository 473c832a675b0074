#include "kernels/engine/kv_bookkeeping.hpp"
#include "tests/catch.hpp"

using namespace kvroof;

TEST_CASE("moves go side by side up to the first that reads or writes a slot of another's") {
  const auto count = [](std::initializer_list<std::pair<std::uint32_t, std::uint32_t>> slots) {
    std::vector<SlotMove> moves;
    for (const auto& [from, to] : slots) moves.push_back({SlotId(from), SlotId(to)});
    return moves_at_once(moves);
  };
  CHECK(count({}) == 0);
  CHECK(count({{7, 1}, {8, 2}, {9, 0}}) == 3);
  CHECK(count({{9, 6}, {6, 1}}) == 1);          // what the first brought is taken on
  CHECK(count({{9, 2}, {7, 1}, {8, 2}}) == 2);  // the last one's is to stay
  CHECK(count({{5, 3}, {7, 5}}) == 1);          // its row has to be gone by then
}
