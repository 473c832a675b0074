#include <algorithm>
#include <set>

#include "sim/policy/head_values.hpp"
#include "sim/policy/page_victims.hpp"
#include "tests/catch.hpp"
#include "tests/support/all_policies.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

std::vector<TokenPos> positions_of(std::initializer_list<std::uint32_t> values) {
  std::vector<TokenPos> positions;
  for (const std::uint32_t value : values) positions.emplace_back(value);
  return positions;
}

std::vector<std::uint32_t> chosen(std::uint32_t page, std::span<const float> scores, const Candidates& candidates,
                                  std::uint32_t count) {
  std::vector<SlotId> victims;
  PageVictims(page).choose(scores, candidates, count, victims);
  std::vector<std::uint32_t> gone;
  for (const SlotId slot : victims) gone.push_back(candidates.positions[slot.value].value);
  std::ranges::sort(gone);
  return gone;
}

}  // namespace

TEST_CASE("the pages with the lowest sums go, in whatever slots their tokens lie, until enough tokens have gone") {
  // Pages of 4: tokens 0–3 score 8, 4–7 score 2.5, 8–11 score 3; the last page is too young.
  const auto positions = positions_of({9, 1, 4, 13, 0, 7, 2, 6, 8, 3, 5, 10, 11, 12});
  const std::vector<float> scores = {1, 2, 1, 0, 3, 0.5, 2, 0.5, 1, 1, 0.5, 0.5, 0.5, 0};
  const Candidates candidates{positions, TokenPos(13), 2};
  CHECK(chosen(4, scores, candidates, 1) == std::vector<std::uint32_t>{4, 5, 6, 7});
  CHECK(chosen(4, scores, candidates, 4) == std::vector<std::uint32_t>{4, 5, 6, 7});
  CHECK(chosen(4, scores, candidates, 5) == std::vector<std::uint32_t>{4, 5, 6, 7, 8, 9, 10, 11});
  // A recent window of 3 protects token 11, and with it its page.
  CHECK(chosen(4, scores, {positions, TokenPos(13), 3}, 5) == std::vector<std::uint32_t>{0, 1, 2, 3, 4, 5, 6, 7});
  // Where the pages do not suffice, the lowest of the other old tokens go as well.
  CHECK(chosen(4, scores, {positions, TokenPos(13), 3}, 9) ==
        std::vector<std::uint32_t>{0, 1, 2, 3, 4, 5, 6, 7, 10});
  // Where no page is old enough, single tokens.
  CHECK(chosen(16, scores, candidates, 2) == chosen(1, scores, candidates, 2));
}

TEST_CASE("of pages with equal sums the oldest goes") {
  const auto positions = positions_of({8, 0, 4, 9, 1, 5, 10, 11, 12, 2, 3, 6, 7});
  const std::vector<float> scores(13, 1.0F);
  CHECK(chosen(4, scores, {positions, TokenPos(12), 1}, 1) == std::vector<std::uint32_t>{0, 1, 2, 3});
}

TEST_CASE("a choice between pages says how far apart their sums were, one between tokens their scores") {
  const auto positions = positions_of({0, 1, 2, 3, 4});
  const std::vector<float> scores = {1, 3, 1, 1, 0};
  PageVictims choice(2);
  std::vector<SlotId> victims;
  choice.choose(scores, {positions, TokenPos(4), 1}, 1, victims);
  CHECK(choice.gap(scores, SlotId(0), SlotId(2)) == Approx(0.5));
  CHECK(choice.gap(scores, SlotId(0), SlotId(1)) == 0);
  choice.choose(scores, {positions, TokenPos(4), 4}, 1, victims);
  CHECK(choice.gap(scores, SlotId(0), SlotId(1)) == Approx(2.0 / 3));
}

TEST_CASE("a policy that evicts pages holds whole pages of the sequence, and takes whole pages of memory") {
  Shape shape = kShape;
  shape.prompt = 96;
  for (const char* policy : {"h2o:budget=48:recent=8:page=16", "a2sf:budget=48:recent=8:page=16",
                             "keyformer:budget=48:recent=8:page=16",
                             "keyformer:budget=48:recent=8:page=16:score=layer"}) {
    INFO(policy);
    Driver driver(spec_of(policy), shape, random_logit);
    driver.prompt();
    for (std::uint32_t t = shape.prompt; t < shape.prompt + shape.decode; ++t) {
      driver.row(t);
      std::uint64_t pages = 0;
      for (std::uint32_t h = 0; h < 2; ++h) {
        const Positions kept = driver.kept(h);
        for (const std::uint32_t p : kept) {
          // Only the page that is being filled is not whole.
          for (std::uint32_t i = p / 16 * 16; i <= std::min(p / 16 * 16 + 15, t); ++i) {
            CHECK(std::ranges::binary_search(kept, i));
          }
        }
        pages += in_pages(kept.size());
      }
      const LayerCounts counts = driver.policy().take_counts();
      CHECK(counts.resident <= 2 * 48);
      CHECK(counts.allocated_paged >= pages);
      CHECK(counts.allocated_paged >= counts.allocated);
    }
  }
}

TEST_CASE("kv-compress lets the lowest tokens of a layer go, whatever their head, in lots that empty pages") {
  // Head 0 pays the odd tokens up to 7 nothing, head 1 pays tokens 0–7 almost nothing.
  const auto logit = [](std::uint32_t h, std::uint32_t, std::uint32_t j) {
    if (h == 0) return j < 8 && j % 2 == 1 ? -9.0F : 0.0F;
    return j < 4 ? -4.0F : j < 8 ? -5.0F : 0.0F;
  };
  const Shape shape = {.query_heads = 2, .kv_heads = 2, .prompt = 16, .decode = 0};
  Driver driver(spec_of("kv-compress:budget=10:page=4:window=4:kernel=1"), shape, logit);
  driver.prompt();
  CHECK(driver.kept(0) == Positions{0, 2, 4, 6, 8, 9, 10, 11, 12, 13, 14, 15});
  CHECK(driver.kept(1) == Positions{8, 9, 10, 11, 12, 13, 14, 15});
  // One lot more must go for a mean of 9: the oldest of head 0, whose attention is thinner.
  Driver smaller(spec_of("kv-compress:budget=9:page=4:window=4:kernel=1"), shape, logit);
  smaller.prompt();
  CHECK(smaller.kept(0) == Positions{8, 9, 10, 11, 12, 13, 14, 15});
  CHECK(smaller.kept(1) == driver.kept(1));
}

TEST_CASE("kv-compress: a head that lost tokens fills its pages, the heads hold k in the mean less part of a page") {
  Shape shape = kShape;
  shape.prompt = 90;
  Driver driver(spec_of("kv-compress:budget=45:page=16:window=8"), shape, random_logit);
  driver.prompt();
  for (std::uint32_t t = shape.prompt;; ++t) {
    std::size_t held = 0;
    bool evicted = false;
    for (std::uint32_t h = 0; h < 2; ++h) {
      held += driver.kept(h).size();
      if (driver.policy().eviction(HeadId(h)).evicted.empty()) continue;
      evicted = true;
      CHECK(driver.kept(h).size() % 16 == 0);
    }
    CHECK(held <= 2 * 45);
    if (evicted) CHECK(held >= 2 * 45 - 15);
    if (t == shape.prompt + shape.decode) break;
    driver.row(t);
  }
}

TEST_CASE("kv-compress pools the prompt's metrics, so that the neighbours of a heavy token stay") {
  const auto logit = [](std::uint32_t, std::uint32_t, std::uint32_t j) { return j == 8 ? 6.0F : j < 4 ? 0.1F : 0.0F; };
  const Shape shape = {.prompt = 20};
  const auto kept = [&](const char* policy) {
    Driver driver(spec_of(policy), shape, logit);
    driver.prompt();
    return driver.kept(0);
  };
  CHECK(kept("kv-compress:budget=12:page=4:window=4:kernel=7") ==
        Positions{4, 5, 6, 7, 8, 9, 10, 11, 16, 17, 18, 19});
  CHECK(kept("kv-compress:budget=12:page=4:window=4:kernel=1") ==
        Positions{0, 1, 2, 3, 8, 13, 14, 15, 16, 17, 18, 19});
}

TEST_CASE("duo's retrieval heads keep all, its streaming heads sinks and recent tokens, by a file or evenly spread") {
  Shape shape = {.query_heads = 4, .kv_heads = 4, .prompt = 30, .decode = 5, .layers = 2};
  const auto sizes = [&](const PolicySpec& spec) {
    Driver driver(spec, shape, random_logit);
    driver.prompt();
    for (std::uint32_t t = 30; t < 35; ++t) driver.row(t);
    std::vector<std::size_t> held;
    for (std::uint32_t h = 0; h < 4; ++h) held.push_back(driver.kept(h).size());
    return held;
  };
  PolicySpec spec = spec_of("duo:sinks=2:recent=6");
  CHECK(sizes(spec) == std::vector<std::size_t>{8, 35, 8, 35});
  spec = spec_of("duo:sinks=2:recent=6:retrieval=0.3");  // heads 3 and 6 of 8
  CHECK(sizes(spec) == std::vector<std::size_t>{8, 8, 8, 35});
  shape.layer = 1;
  CHECK(sizes(spec) == std::vector<std::size_t>{8, 8, 35, 8});
  spec = spec_of("duo:sinks=2:recent=6:heads=gates.tsv");
  CHECK_THROWS_WITH(sizes(spec), ContainsSubstring("heads=gates.tsv was not read"));
  spec.head_values = {{0, 0, 0, 0}, {0.5F, 0.49F, 1, 0}};
  CHECK(sizes(spec) == std::vector<std::size_t>{35, 8, 35, 8});
  spec.head_values = {{0, 0, 0, 0}};
  CHECK_THROWS_WITH(sizes(spec), ContainsSubstring("has 1 layers of 4 heads, the model 2 of 4"));
}

TEST_CASE("adakv takes its heads' capacities from a file: their mean over the model is the budget") {
  Shape shape = kShape;
  shape.layers = 2;
  PolicySpec spec = spec_of("adakv:budget=20:window=4:heads=weights");
  spec.head_values = {{1, 3}, {4, 0}};
  std::size_t held = 0;
  for (shape.layer = 0; shape.layer < 2; ++shape.layer) {
    Driver driver(spec, shape, random_logit);
    driver.prompt();
    for (std::uint32_t h = 0; h < 2; ++h) {
      const double weight = static_cast<double>(spec.head_values[shape.layer][h]);
      CHECK(static_cast<double>(driver.kept(h).size()) == 4 + 16 * weight / 2);
      held += driver.kept(h).size();
    }
  }
  CHECK(held == 4 * 20);
  shape.layer = 0;
  spec.head_values = {{7, 7}, {7, 7}};
  CHECK(history(spec, shape, random_logit) ==
        history(spec_of("snapkv:budget=20:window=4:kernel=7:pool=max"), shape, random_logit));
}

TEST_CASE("policies that are told what each head holds say so: one head cannot stand for all") {
  CHECK(names_heads(spec_of("duo")));
  CHECK(names_heads(spec_of("adakv:budget=20:heads=weights")));
  CHECK_FALSE(names_heads(spec_of("adakv:budget=20")));
  CHECK_FALSE(names_heads(spec_of("adakv:budget=20:heads=none")));
  CHECK_FALSE(names_heads(spec_of("kv-compress:budget=20")));
}

TEST_CASE("a file of numbers for heads is read with tabs, blanks or commas, and refused with its line") {
  const auto values = parse_head_values("# gates\n0.1\t1\t0\n\n 1, 2e-1 ,3\r\n").or_throw("file");
  CHECK(values == std::vector<std::vector<float>>{{0.1F, 1, 0}, {1, 0.2F, 3}});
  CHECK(parse_head_values("1 2\n1 x").error() == "line 2: `x` is no number of a head: expected one that is 0 or more");
  CHECK(parse_head_values("1 2\n1").error() == "line 2 has 1 numbers, the first line 2; expected one for each KV head");
  for (const char* bad : {"", "#\n\n", "-1", "nan", "inf", "1e99", "1;2"}) {
    CHECK_FALSE(parse_head_values(bad));
  }
}
