// What every policy of the table must hold on a layer with a sliding window.
#include <algorithm>
#include <numeric>
#include <set>

#include "tests/catch.hpp"
#include "tests/support/all_policies.hpp"
#include "tests/support/policy_laws.hpp"

using namespace kvroof;
using namespace kvroof::test;

TEST_CASE("a window that hides no token from any row changes nothing") {
  Shape wide = kShape;
  wide.window = kShape.prompt + kShape.decode + 1;  // the next row would still see the first token
  for (const PolicySpec& spec : all_specs()) {
    INFO(spec.text());
    CHECK(history(spec, kShape, random_logit) == history(spec, wide, random_logit));
  }
}

// One row: what the heads may have lost without the policy's word is what neither this row nor a later one sees.
void check_row(Driver& driver, std::vector<std::set<std::uint32_t>>& held, std::uint32_t t) {
  const std::uint32_t window = driver.shape().window;
  std::uint64_t attended = 0;
  for (std::uint32_t h = 0; h < held.size(); ++h) {
    std::erase_if(held[h], [&](std::uint32_t p) { return p + window <= t; });
    held[h].insert(t);
    attended += held[h].size();
    for (const TokenPos p : driver.policy().eviction(HeadId(h)).evicted) CHECK(held[h].erase(p.value) == 1);
    const Positions kept = driver.kept(h);
    if (t + 1 >= window && held[h].size() > kept.size()) held[h].erase(t + 1 - window);
    CHECK(std::ranges::equal(kept, held[h]));
  }
  const LayerCounts counts = driver.policy().take_counts();
  if (driver.policy().traits().selects) return;
  CHECK(counts.attended == attended);
  CHECK(counts.allocated <= std::uint64_t{window} * held.size());
  CHECK(counts.resident == driver.policy().rows_held());
}

TEST_CASE("under a window a head attends to the last tokens alone, and loses only what it hides or the policy evicts") {
  for (const std::uint32_t window : {1U, 2U, 9U, 24U, 47U, 48U, 60U}) {
    Shape shape = kShape;
    shape.window = window;
    for (const PolicySpec& spec : all_specs()) {
      INFO(spec.text() << " window " << window);
      Driver driver(spec, shape, random_logit);
      driver.prompt();
      (void)driver.policy().take_counts();
      std::vector<std::set<std::uint32_t>> held(driver.policy().storage_heads());
      for (std::uint32_t h = 0; h < held.size(); ++h) {
        for (const std::uint32_t p : driver.kept(h)) held[h].insert(p);
      }
      for (std::uint32_t t = shape.prompt; t < shape.prompt + shape.decode; ++t) {
        driver.row(t);
        check_row(driver, held, t);
      }
    }
  }
}

TEST_CASE("what a budget leaves alone, a window of w tokens brings down to the last w") {
  for (const PolicySpec& spec : specs({"budget=4000"})) {
    const PolicyInfo& info = policy_info(spec.name);
    if (!info.takes_budget && info.traits(spec).selects) continue;  // it hides tokens whatever the budget
    if (!exempt(law::kAll, spec).empty()) continue;
    if (!exempt(law::kWhole, spec).empty()) continue;
    for (const std::uint32_t window : {1U, 13U, 48U, 49U, 70U}) {
      INFO(spec.text() << " window " << window);
      Shape shape = kShape;
      shape.window = window;
      const auto sets = history(spec, shape, random_logit);
      for (std::uint32_t row = 0; row < sets.size(); ++row) {
        const std::uint32_t tokens = shape.prompt + row;
        Positions last(std::min(tokens, window));
        std::iota(last.begin(), last.end(), tokens - static_cast<std::uint32_t>(last.size()));
        const bool selects = info.traits(spec).selects;
        for (const Positions& kept : sets[row]) CHECK((kept == last || (selects && row == 0)));
      }
    }
  }
}
