#include "kernels/cpu/working_sets.hpp"

#include "tests/catch.hpp"

using namespace kvroof;

TEST_CASE("turns give their median, and the farther of the fastest and the slowest") {
  const Turns slow = turns_of({1.0, 2.0, 1.1, 0.9, 1.0});
  CHECK(slow.seconds == 1.0);
  CHECK(slow.spread == Approx(1.0));  // twice as long
  const Turns fast = turns_of({1.0, 1.1, 0.25});
  CHECK(fast.seconds == 1.0);
  CHECK(fast.spread == Approx(3.0));  // four times as fast
  CHECK(turns_of({0.5}).spread == 0);
}
