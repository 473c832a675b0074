// Arithmetic on what a step counts.
#include "sim/core/residency.hpp"

#include "tests/catch.hpp"

using namespace kvroof;

namespace {

// Counts 1, 2, 3, … in the order of the tables.
LayerCounts counted() {
  LayerCounts counts;
  std::uint64_t next = 0;
  for_each_count([&](std::uint64_t& count) { count = ++next; }, counts);
  counts.policy_flops = {1, 2, 4};
  return counts;
}

}  // namespace

TEST_CASE("each count of a step is added, taken away, multiplied and divided, those by age among them") {
  const LayerCounts one = counted();
  CHECK(one.attended == 1);
  CHECK(one.page_metadata == 12);
  CHECK(one.keyed_resident == 15);
  CHECK(one.converted == AgedRows{24, 25, 26, 27});
  const LayerCounts four = 4 * one;
  CHECK(four.converted == AgedRows{96, 100, 104, 108});
  CHECK(four.policy_flops == PolicyFlops{4, 8, 16});
  CHECK(one + one + one + one == four);
  CHECK(sum_counts(std::array{one, one, one, one}) == four);
  CHECK(four / 4 == one);
  CHECK(four - one == 3 * one);
  CHECK(four + (one - four) == one);  // which wraps between
}

TEST_CASE("a mean of counts is rounded down or to nearest, halves up") {
  const LayerCounts down = counted() / 4, nearest = nearest_mean(counted(), 4);
  CHECK(down.indexed == 0);
  CHECK(nearest.indexed == 1);  // of 3 / 4
  CHECK(down.state_written == 2);
  CHECK(nearest.attended_other == 1);  // of 2 / 4
  CHECK(down.converted == AgedRows{6, 6, 6, 6});
  CHECK(nearest.converted == AgedRows{6, 6, 7, 7});
  CHECK(nearest.policy_flops == PolicyFlops{0.25, 0.5, 1});
}
