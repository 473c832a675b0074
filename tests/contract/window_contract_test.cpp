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

TEST_CASE("of a prompt that a window cut, chunks by themselves keep the share that the budget is of what is left") {
  Shape shape = kShape;
  shape.prompt = 200;
  shape.window = 101;  // of which the next row sees 100
  for (const std::string policy : {"keydiff", "knorm", "expected-attention"}) {
    INFO(policy);
    const auto kept = [&](const std::string& more) {
      Driver driver(parse_policies(policy + ":budget=40" + more).front(), shape, random_logit);
      driver.prompt();
      return driver.kept(0).size();
    };
    CHECK(kept("") == 40);
    CHECK(kept(":chunk=20") == 40);  // 8 of each 20
  }
}

TEST_CASE("prompts' scorers evict as many tokens where k or v are zero and no token has a share of anything") {
  const std::size_t rows = std::size_t{kShape.prompt + kShape.decode} * kShape.width;
  const auto tensors = [&](bool keys, bool values) {
    std::vector<float> q(rows * kShape.query_heads, 1), k(rows * kShape.kv_heads), v(rows * kShape.kv_heads);
    for (std::size_t i = 0; i < k.size(); ++i) {
      k[i] = keys ? 0.01F * static_cast<float>(i % 97) : 0;
      v[i] = values ? 0.01F * static_cast<float>(i % 89) : 0;
    }
    return DriverRows(std::move(q), std::move(k), std::move(v), kShape.query_heads, kShape.kv_heads,
                      kShape.prompt + kShape.decode, kShape.prompt);
  };
  for (const PolicySpec& spec : all_specs()) {
    const PolicyTraits traits = policy_info(spec.name).traits(spec);
    if (!traits.tensors.any() || traits.schedule != Schedule::kPrefillOnly) continue;
    Driver usual(spec, kShape, random_logit);
    usual.prompt();
    for (const bool keys : {false, true}) {
      INFO(spec.text() << (keys ? ", v is zero" : ", k is zero"));
      Driver driver(spec, kShape, random_logit, tensors(keys, !keys));
      driver.prompt();
      std::size_t held = 0, usually = 0;
      for (std::uint32_t h = 0; h < driver.policy().storage_heads(); ++h) {
        held += driver.kept(h).size();
        usually += usual.kept(h).size();
      }
      CHECK(held == usually);
    }
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
