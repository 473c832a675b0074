// What merging counts, and the arithmetic of a merged row.
#include <cmath>

#include "tests/catch.hpp"
#include "tests/support/all_policies.hpp"

using namespace kvroof;
using namespace kvroof::test;

TEST_CASE("a merged row is the weighted sum, rounded to the type of the cache") {
  std::vector<std::byte> to(2 * 2), from(2 * 2);
  convert_from_float(DType::kBF16, std::vector<float>{1, -2}, to.data());
  convert_from_float(DType::kBF16, std::vector<float>{3, 0.125F}, from.data());
  merge_row(DType::kBF16, 2, {.kept = 0.75F, .added = 0.25F}, from.data(), to.data());
  std::vector<float> merged(2);
  convert_to_float(DType::kBF16, to.data(), merged);
  CHECK(merged == std::vector<float>{1.5F, -1.46875F});
}

TEST_CASE("a merge counts one row read and written more, the evicted v, and the search over all keys") {
  const Shape shape = {.query_heads = 1, .kv_heads = 1, .prompt = 20, .decode = 4};
  const double width = shape.width;
  const auto counts_of = [&](const char* policy) {
    Driver driver(spec_of(policy), shape, random_logit);
    driver.prompt();
    std::vector<LayerCounts> counts = {driver.policy().take_counts()};
    for (std::uint32_t t = 20; t < 24; ++t) {
      driver.row(t);
      counts.push_back(driver.policy().take_counts());
    }
    return counts;
  };
  const auto merged = counts_of("d2o:budget=8:threshold=0");
  const auto evicted = counts_of("h2o:budget=8");
  CHECK(merged[0].moved == evicted[0].moved + 12);  // twelve of twenty tokens go
  CHECK(merged[0].scored == 20 * shape.width + 12 * shape.width);
  for (std::size_t step = 1; step < merged.size(); ++step) {
    CHECK(merged[step].moved == evicted[step].moved + 1);
    CHECK(merged[step].scored == 9 * shape.width + shape.width);
    CHECK(merged[step].policy_flops.scoring - evicted[step].policy_flops.scoring == 2 * width * 9 * 2 + 3 * 2 * width);
    CHECK(merged[step].resident == 8);
  }
}
