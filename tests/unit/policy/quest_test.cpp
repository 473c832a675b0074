#include "sim/policy/page_bounds.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <set>

#include "tests/catch.hpp"
#include "tests/support/all_policies.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

constexpr Shape kPages = {.query_heads = 4, .kv_heads = 2, .prompt = 40, .decode = 30, .width = 8};

LayerCounts counts_after(Driver& driver, std::uint32_t t) {
  (void)driver.policy().take_counts();
  driver.row(t);
  return driver.policy().take_counts();
}

}  // namespace

TEST_CASE("the product with a page's bounds is at least that with any of its keys, and is it where one key is alone") {
  DriverRows rows = DriverRows::random(kPages);
  rows.serve(kPages.kv_heads);
  PageBounds bounds(5, kPages.width);
  const RowsView keys = rows.rows(HeadId(0)).keys;
  const auto key = [&](std::size_t t) { return reinterpret_cast<const float*>(keys.row(t)); };
  for (std::uint32_t t = 0; t < 36; ++t) bounds.add(TokenPos(t), {key(t), kPages.width});
  for (std::uint32_t query = 0; query < 20; ++query) {
    const float* q = rows.query(query, 1);
    const auto products = bounds.products({q, kPages.width});
    REQUIRE(products.size() == 8);
    for (std::uint32_t t = 0; t < 36; ++t) {
      float dot = 0;
      for (std::size_t c = 0; c < kPages.width; ++c) dot += q[c] * key(t)[c];
      CHECK(products[t / 5] >= dot - 1e-5F);
      if (t == 35) CHECK(std::fabs(products[7] - dot) < 1e-5F);
    }
  }
}

TEST_CASE("quest with a budget of all tokens reads what full attention reads, and the bounds of all pages") {
  Driver quest(spec_of("quest:budget=4000:dense=0"), kPages, random_logit);
  Driver full(spec_of("full"), kPages, random_logit);
  quest.prompt();
  full.prompt();
  for (std::uint32_t t = kPages.prompt; t < kPages.prompt + kPages.decode; ++t) {
    const LayerCounts ours = counts_after(quest, t);
    LayerCounts same = ours;
    const std::uint64_t bound = 2 * kPages.width;          // elements of a page's metadata
    const std::uint64_t pages = 2 * ((t + 16) / 16);       // of two KV heads
    CHECK(ours.page_metadata == pages * bound);
    CHECK(ours.scored == (pages + 2) * bound);             // every bound is read, that of the new token's page written
    same.page_metadata = same.scored = 0;
    same.policy_flops = {};
    CHECK(same == counts_after(full, t));
  }
}

TEST_CASE("with pages of one token quest reads the k tokens with the largest q·k of each query head") {
  DriverRows rows = DriverRows::random(kPages);
  rows.serve(kPages.kv_heads);
  Driver driver(spec_of("quest:budget=12:page=1:dense=0:current=no"), kPages, random_logit);
  driver.prompt();
  for (std::uint32_t t = kPages.prompt; t < kPages.prompt + kPages.decode; ++t) {
    driver.row(t);
    for (std::uint32_t h = 0; h < kPages.query_heads; ++h) {
      const RowsView keys = rows.rows(HeadId(h / 2)).keys;
      std::vector<std::pair<double, std::uint32_t>> products;
      for (std::uint32_t j = 0; j <= t; ++j) {
        const auto* key = reinterpret_cast<const float*>(keys.row(j));
        products.emplace_back(std::inner_product(key, key + kPages.width, rows.query(t, h), 0.0), j);
      }
      std::ranges::sort(products, std::greater());
      std::set<std::uint32_t> best;
      for (std::size_t i = 0; i < 12; ++i) best.insert(products[i].second);
      CHECK(std::ranges::equal(driver.read(h), best));
    }
  }
}

TEST_CASE("a prompt's bounds are written once, and take a sixteenth of what its whole pages take") {
  Shape shape = kPages;
  shape.prompt = 48;
  Driver driver(spec_of("quest:budget=16:dense=0"), shape, random_logit);
  driver.prompt();
  const LayerCounts prompt = driver.policy().take_counts();
  CHECK(prompt.scored == prompt.page_metadata);
  CHECK(16 * prompt.page_metadata == prompt.resident * 2 * shape.width);
}

TEST_CASE("quest holds every token and reads k / page pages of it, that of the newest token among them") {
  Driver driver(spec_of("quest:budget=24:page=8:dense=0"), kPages, random_logit);
  driver.prompt();
  for (std::uint32_t t = kPages.prompt; t < kPages.prompt + kPages.decode; ++t) {
    const LayerCounts counts = counts_after(driver, t);
    CHECK(counts.resident == 2 * (t + 1));
    std::set<std::uint32_t> read_by_head_0;
    for (std::uint32_t h = 0; h < 4; ++h) {
      const Positions read = driver.read(h);
      CHECK(read.size() == 16 + t % 8 + 1);
      CHECK(read.back() == t);
      if (h < 2) read_by_head_0.insert(read.begin(), read.end());
    }
    CHECK(counts.attended >= read_by_head_0.size());  // rows are read once for the heads of a group
    CHECK(counts.attended <= 2 * (t + 1));
  }
}

TEST_CASE("the rule of the published code for accuracy reads three pages at the least and no page for certain") {
  Shape shape = kPages;
  shape.decode = 200;
  Driver driver(spec_of("quest:budget=8:page=8:dense=0:rule=repository"), shape, random_logit);
  driver.prompt();
  std::size_t without_current = 0;
  for (std::uint32_t t = shape.prompt; t < shape.prompt + shape.decode; ++t) {
    driver.row(t);
    for (std::uint32_t h = 0; h < 4; ++h) {
      std::set<std::uint32_t> pages;
      for (const std::uint32_t p : driver.read(h)) pages.insert(p / 8);
      CHECK(pages.size() == 3);
      without_current += driver.read(h).back() != t ? 1 : 0;
    }
  }
  CHECK(without_current > 100);
}

TEST_CASE("in the first layers quest reads everything and keeps no bounds") {
  Shape shape = kPages;
  for (shape.layer = 0; shape.layer < 3; ++shape.layer) {
    Driver driver(spec_of("quest:budget=16"), shape, random_logit);
    driver.prompt();
    const LayerCounts counts = counts_after(driver, shape.prompt);
    CHECK((counts.page_metadata > 0) == (shape.layer == 2));
    CHECK((counts.attended == 2 * (shape.prompt + 1ULL)) == (shape.layer < 2));
  }
}

TEST_CASE("under a sliding window quest knows the pages that the window shows, and k = window reads them all") {
  Shape shape = kPages;
  shape.window = 20;
  Driver driver(spec_of("quest:budget=20:dense=0"), shape, random_logit);
  driver.prompt();
  for (std::uint32_t t = shape.prompt; t < shape.prompt + shape.decode; ++t) {
    const LayerCounts counts = counts_after(driver, t);
    CHECK(counts.attended == 2 * 20);
    const std::uint64_t pages = t / 16 - (t - 19) / 16 + 1;
    CHECK(counts.page_metadata == 2 * pages * 2 * shape.width);
    CHECK(driver.policy().take_read_elements() > 0);
  }
}
