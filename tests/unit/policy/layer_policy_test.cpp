#include "sim/policy/layer_policy.hpp"

#include <cmath>
#include <deque>
#include <map>

#include "tests/catch.hpp"
#include "tests/support/policy_driver.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

// A policy that gives up the positions it is told to, and remembers what it was told.
struct Script {
  std::deque<Positions> victims;  // for each call of evict
  std::vector<std::uint32_t> excess = {};
  std::map<std::uint32_t, std::uint32_t> slot_of = {};  // of head 0, as admit and move say
  std::uint32_t observed = 0;
  std::vector<std::uint32_t> capacities = {};  // of the heads
};
Script script;

class Scripted final : public EvictionPolicy {
 public:
  void admit(HeadId head, SlotId slot, TokenPos position) override {
    if (head.value == 0) script.slot_of[position.value] = slot.value;
  }
  void observe(HeadId, const AttentionRows&) override { ++script.observed; }
  void capacities(TokenPos, std::uint32_t, std::span<std::uint32_t> slots) override {
    std::ranges::copy(script.capacities, slots.begin());
  }
  void evict(HeadId, const EvictRequest& request, std::vector<SlotId>& victims) override {
    script.excess.push_back(request.excess);
    for (const std::uint32_t position : script.victims.front()) {
      for (std::uint32_t s = 0; s < request.positions.size(); ++s) {
        if (request.positions[s].value == position) victims.emplace_back(s);
      }
    }
    script.victims.pop_front();
  }
  void move(HeadId head, std::span<const SlotMove> moves) override {
    if (head.value != 0) return;
    for (const SlotMove& m : moves) {
      for (auto& [position, slot] : script.slot_of) {
        if (slot == m.from.value) slot = m.to.value;
      }
    }
  }
  [[nodiscard]] std::uint64_t walked_state_bytes(HeadId) const override { return 0; }
};

PolicyTraits scripted_traits;

Driver scripted(Script s, PolicyTraits traits, const Shape& shape, std::string_view budget) {
  script = std::move(s);
  scripted_traits = traits;
  PolicyInfo info;
  info.name = "scripted";
  info.traits = [](const PolicySpec&) { return scripted_traits; };
  info.make = [](const PolicySpec&, const PolicyContext&) -> std::unique_ptr<EvictionPolicy> {
    return std::make_unique<Scripted>();
  };
  PolicySpec spec;
  spec.budget = parse_budget(budget).or_throw(budget);
  spec.has_budget = true;
  return Driver(info, spec, shape, [](auto, auto, auto) { return 0.0F; });
}

std::vector<std::uint32_t> by_slot(Driver& driver, std::uint32_t head = 0) {
  std::vector<std::uint32_t> positions;
  for (const TokenPos p : driver.policy().positions(HeadId(head))) positions.push_back(p.value);
  return positions;
}

// What the policy was told about slots agrees with what LayerPolicy says.
void check_slots_agree(Driver& driver) {
  const auto positions = by_slot(driver);
  for (std::uint32_t s = 0; s < positions.size(); ++s) CHECK(script.slot_of.at(positions[s]) == s);
}

std::vector<std::pair<std::uint32_t, std::uint32_t>> moves_of(Driver& driver) {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> moves;
  for (const SlotMove& m : driver.policy().eviction(HeadId(0)).moves) moves.emplace_back(m.from.value, m.to.value);
  return moves;
}

}  // namespace

TEST_CASE("after the prompt the survivors close up in ascending order, and all of them count as moved") {
  Driver driver = scripted({.victims = {{1, 4}}}, {}, {.prompt = 6}, "4");
  driver.prompt();
  CHECK(by_slot(driver) == Positions{0, 2, 3, 5});
  CHECK(moves_of(driver) == std::vector<std::pair<std::uint32_t, std::uint32_t>>{{2, 1}, {3, 2}, {5, 3}});
  CHECK(driver.policy().packed_prompt());
  CHECK(script.excess == std::vector<std::uint32_t>{2});
  check_slots_agree(driver);
  const LayerCounts counts = driver.policy().take_counts();
  CHECK(counts.attended == 6 * 7 / 2);
  CHECK(counts.written == 6);
  CHECK(counts.moved == 4);
  CHECK(counts.resident == 4);
  CHECK(counts.allocated == 4);
}

TEST_CASE("a decoded token takes the hole that the last eviction left, and nothing moves") {
  Driver driver = scripted({.victims = {{1, 4}, {2}, {6}}}, {}, {.prompt = 6, .decode = 2}, "4");
  driver.prompt();
  (void)driver.policy().take_counts();
  driver.row(6);
  CHECK(driver.kept(0) == Positions{0, 3, 5, 6});
  CHECK(moves_of(driver).empty());
  CHECK_FALSE(driver.policy().packed_prompt());
  const LayerCounts counts = driver.policy().take_counts();
  CHECK(counts.attended == 5);
  CHECK(counts.written == 1);
  CHECK(counts.moved == 0);
  CHECK(counts.resident == 4);
  CHECK(counts.allocated == 5);
  CHECK(driver.policy().admit(HeadId(0), TokenPos(7)) == SlotId(1));
  CHECK(by_slot(driver) == Positions{0, 7, 3, 5, 6});
}

TEST_CASE("after several evictions at once the last survivors fill the holes") {
  Driver driver = scripted({.victims = {{1, 3, 6}}}, {}, {.prompt = 6, .decode = 1}, "6");
  driver.prompt();
  CHECK_FALSE(driver.policy().packed_prompt());
  (void)driver.policy().take_counts();
  driver.row(6);
  CHECK(by_slot(driver) == Positions{0, 4, 2, 5});
  CHECK(moves_of(driver) == std::vector<std::pair<std::uint32_t, std::uint32_t>>{{4, 1}, {5, 3}});
  check_slots_agree(driver);
  CHECK(driver.policy().take_counts().moved == 2);
}

TEST_CASE("a prompt within the budget is left alone, and the cache grows to the budget first") {
  Driver driver = scripted({.victims = {{0}}}, {}, {.prompt = 3, .decode = 2}, "4");
  driver.prompt();
  CHECK(driver.policy().take_counts().moved == 0);
  driver.row(3);
  CHECK(script.excess.empty());
  CHECK(driver.policy().take_counts().allocated == 4);
  driver.row(4);
  CHECK(driver.kept(0) == Positions{1, 2, 3, 4});
  CHECK(driver.policy().take_counts().allocated == 5);
}

TEST_CASE("a policy for the prompt alone lets the cache grow afterwards, and sees no more rows") {
  PolicyTraits traits;
  traits.schedule = Schedule::kPrefillOnly;
  traits.rows = RowNeed::kAll;
  traits.state_read = 4;
  Driver driver = scripted({.victims = {{0, 1}}}, traits, {.prompt = 4, .decode = 2}, "2");
  driver.prompt();
  CHECK(script.observed == 4);
  CHECK(driver.policy().take_counts().state_read == 4 * 10);
  driver.row(4);
  driver.row(5);
  CHECK(script.observed == 4);
  CHECK(driver.kept(0) == Positions{2, 3, 4, 5});
  CHECK(driver.policy().take_counts().state_read == 0);
}

TEST_CASE("heads may hold different numbers of tokens, and counts are sums over what each holds") {
  PolicyTraits traits;
  traits.capacities = Capacities::kByHead;
  traits.schedule = Schedule::kPrefillOnly;
  Driver driver = scripted({.victims = {{0, 1, 2, 3}, {4}}, .capacities = {2, 5}}, traits,
                           {.query_heads = 2, .kv_heads = 2, .prompt = 6, .decode = 3}, "3");
  driver.prompt();
  CHECK(script.excess == std::vector<std::uint32_t>{4, 1});
  CHECK(driver.kept(0) == Positions{4, 5});
  CHECK(driver.kept(1) == Positions{0, 1, 2, 3, 5});
  LayerCounts counts = driver.policy().take_counts();
  CHECK(counts.resident == 7);
  CHECK(counts.moved == 7);
  CHECK(counts.allocated == 7);
  driver.row(6);
  counts = driver.policy().take_counts();
  CHECK(counts.attended == 3 + 6);
  CHECK(counts.allocated == 9);
  CHECK(driver.policy().most_rows(HeadId(0), 9) == 2 + 3);
  CHECK(driver.policy().most_rows(HeadId(1), 9) == 5 + 3);
}

TEST_CASE("a policy that evicts every r steps lets heads grow between, and has room for that") {
  PolicyTraits traits;
  traits.interval = 3;
  Driver driver = scripted({.victims = {{0}, {1, 2, 3}}}, traits, {.prompt = 4, .decode = 3}, "3");
  driver.prompt();
  CHECK(driver.policy().most_rows(HeadId(0), 100) == 3 + 3);
  driver.row(4);
  driver.row(5);
  CHECK(driver.kept(0) == Positions{1, 2, 3, 4, 5});
  driver.row(6);
  CHECK(driver.kept(0) == Positions{4, 5, 6});
}

TEST_CASE("a policy that looks at the last rows of the prompt is shown those, and what is decoded") {
  PolicyTraits traits;
  traits.rows = RowNeed::kLast;
  traits.last_rows = 2;
  traits.state_written = 4;
  Driver driver = scripted({}, traits, {.prompt = 5, .decode = 1}, "8");
  driver.prompt();
  CHECK(script.observed == 2);
  CHECK(driver.policy().take_counts().state_written == 4 * (4 + 5));
  driver.row(5);
  CHECK(script.observed == 3);
}

TEST_CASE("a policy that streams the prompt evicts after each of its rows, and nothing is packed") {
  PolicyTraits traits;
  traits.streams_prompt = true;
  Driver driver = scripted({.victims = {{1}, {0}}}, traits, {.prompt = 4}, "2");
  driver.prompt();
  CHECK(driver.kept(0) == Positions{2, 3});
  CHECK_FALSE(driver.policy().packed_prompt());
  const LayerCounts counts = driver.policy().take_counts();
  CHECK(counts.attended == 1 + 2 + 3 + 3);
  CHECK(counts.moved == 0);
  CHECK(counts.allocated == 3);
}

TEST_CASE("one set for the layer is chosen in head 0 and holds for all heads") {
  PolicyTraits traits;
  traits.scope = Scope::kLayer;
  Driver driver =
      scripted({.victims = {{0, 2}, {1}}}, traits, {.query_heads = 4, .kv_heads = 2, .prompt = 4, .decode = 1}, "2");
  driver.prompt();
  driver.row(4);
  CHECK(script.victims.empty());
  CHECK(driver.kept(0) == Positions{3, 4});
  CHECK(driver.kept(1) == Positions{3, 4});
}

TEST_CASE("a review can put other tokens in the place of the victims") {
  Driver driver = scripted({.victims = {{0, 1}}}, {}, {.prompt = 4}, "2");
  driver.policy().set_review(
      [](HeadId, std::span<const TokenPos>, std::vector<SlotId>& victims) { victims = {SlotId(3), SlotId(0)}; });
  driver.prompt();
  CHECK(driver.kept(0) == Positions{1, 2});
}

TEST_CASE("scores of two slots are as far apart as their difference, relative to the larger") {
  // Every row pays its tokens alike: 1, 1/2, 1/3 …
  Driver h2o(spec_of("h2o:budget=3"), {.prompt = 3}, [](auto, auto, auto) { return 0.0F; });
  h2o.prompt();
  const double first = 1 + 1.0 / 2 + 1.0 / 3;
  CHECK(h2o.policy().score_gap(HeadId(0), SlotId(0), SlotId(2)) == Approx((first - 1.0 / 3) / first));
  CHECK(h2o.policy().score_gap(HeadId(0), SlotId(2), SlotId(0)) == Approx((first - 1.0 / 3) / first));
  CHECK(h2o.policy().score_gap(HeadId(0), SlotId(1), SlotId(1)) == 0);
  Driver window(spec_of("window:budget=3"), {.prompt = 3}, [](auto, auto, auto) { return 0.0F; });
  window.prompt();
  CHECK(std::isinf(window.policy().score_gap(HeadId(0), SlotId(0), SlotId(1))));
}

TEST_CASE("counts that differ by one row are within rounding, as attention at the threshold is") {
  // Rows pay token 0 more than the threshold and all others less: token j was below it in 4 - j rows.
  Driver driver(spec_of("scissorhands:budget=4"), {.prompt = 4},
                [](auto, auto, auto j) { return j == 0 ? 5.0F : 0.0F; });
  driver.prompt();
  const auto gap = [&](std::uint32_t a, std::uint32_t b) {
    return driver.policy().score_gap(HeadId(0), SlotId(a), SlotId(b));
  };
  CHECK(gap(2, 3) == 0);
  CHECK(gap(1, 3) == Approx(1.0 / 3));
  CHECK(gap(0, 1) == Approx(2.0 / 3));
}

TEST_CASE("a policy that frees too few slots, or one twice, breaks an invariant") {
  for (const Positions& wrong : {Positions{0}, Positions{0, 0}, Positions{}}) {
    Driver driver = scripted({.victims = {wrong}}, {}, {.prompt = 4}, "2");
    CHECK_THROWS_AS(driver.prompt(), std::logic_error);
  }
}

TEST_CASE("a policy that stores for each query head has as many storage heads, each with its own set") {
  Driver grouped(spec_of("h2o:budget=4"), {.query_heads = 4, .kv_heads = 2, .prompt = 8},
                 [](auto, auto, auto) { return 0.0F; });
  Driver single(spec_of("h2o:budget=4:group=none"), {.query_heads = 4, .kv_heads = 2, .prompt = 8},
                [](auto, auto, auto) { return 0.0F; });
  CHECK(grouped.policy().storage_heads() == 2);
  CHECK(grouped.policy().group() == 2);
  CHECK(single.policy().storage_heads() == 4);
  CHECK(single.policy().group() == 1);
}

TEST_CASE("keyformer's stored draws count as state for each query head of the group") {
  const Shape shape{.query_heads = 8, .kv_heads = 2, .prompt = 8};
  const auto none = [](auto, auto, auto) { return 0.0F; };
  CHECK(Driver(spec_of("keyformer:budget=4"), shape, none).policy().traits().state_bytes == 4 + 4 * 4);
  CHECK(Driver(spec_of("keyformer:budget=4:noise=query"), shape, none).policy().traits().state_bytes == 4);
  CHECK(Driver(spec_of("keyformer:budget=4:group=none"), shape, none).policy().traits().state_bytes == 4 + 4);
  // 400 bits are thirteen words, and the count is one.
  CHECK(Driver(spec_of("scissorhands:budget=4"), shape, none).policy().traits().state_bytes == 13 * 4 + 4);
}

TEST_CASE("the oracle counts as a cache of its budget: k resident, k + 1 read and allocated") {
  Driver driver(spec_of("oracle:budget=3"), {.query_heads = 2, .kv_heads = 1, .prompt = 6, .decode = 2},
                [](auto h, auto, auto j) { return static_cast<float>(h == 0 ? j : 100 - j); });
  driver.prompt();
  (void)driver.policy().take_counts();
  driver.row(6);
  const LayerCounts counts = driver.policy().take_counts();
  CHECK(counts.attended == 2 * 4);
  CHECK(counts.written == 2 * 1);
  CHECK(counts.resident == 2 * 3);
  CHECK(counts.allocated == 2 * 4);
  CHECK(driver.read(0) == Positions{3, 4, 5, 6});
  CHECK(driver.read(1) == Positions{0, 1, 2, 3});
}

TEST_CASE("steps count decoded tokens from 1, the prompt is step 0") {
  Driver driver(spec_of("full"), {.prompt = 5}, [](auto, auto, auto) { return 0.0F; });
  CHECK(driver.policy().step_of(TokenPos(4)) == StepId(0));
  CHECK(driver.policy().step_of(TokenPos(5)) == StepId(1));
  CHECK(driver.policy().step_of(TokenPos(7)) == StepId(3));
}

TEST_CASE("a token takes the slot of the one that the window hides, and the policy is not asked") {
  Driver driver = scripted({}, {}, {.prompt = 3, .decode = 4, .window = 4}, "9");
  driver.prompt();
  for (std::uint32_t t = 3; t < 6; ++t) driver.row(t);
  CHECK(by_slot(driver) == Positions{4, 5, 2, 3});
  check_slots_agree(driver);
  CHECK(script.excess.empty());
  CHECK(driver.policy().eviction(HeadId(0)).evicted.empty());
  (void)driver.policy().take_counts();
  driver.row(6);
  const LayerCounts counts = driver.policy().take_counts();
  CHECK(counts.attended == 4);
  CHECK(counts.written == 1);
  CHECK(counts.moved == 0);
  CHECK(counts.resident == 4);
  CHECK(counts.allocated == 4);
}

TEST_CASE("a prompt longer than the window attends to what each row sees, and only the last tokens are packed") {
  Driver driver = scripted({}, {}, {.prompt = 7, .decode = 1, .window = 4}, "9");
  driver.prompt();
  CHECK(driver.policy().packed_prompt());
  CHECK(by_slot(driver) == Positions{4, 5, 6, 3});
  check_slots_agree(driver);
  const LayerCounts counts = driver.policy().take_counts();
  CHECK(counts.attended == 1 + 2 + 3 + 4 + 4 + 4 + 4);
  CHECK(counts.written == 7);
  CHECK(counts.moved == 4);
  CHECK(counts.resident == 4);
  CHECK(counts.allocated == 4);
  driver.row(7);
  CHECK(driver.kept(0) == Positions{4, 5, 6, 7});
}

TEST_CASE("a head over its budget gives up the token that no later row sees before it asks the policy") {
  // Budget 3, window 4: rows 4 and 5 make room by themselves; the prompt leaves one more token than its hidden one.
  Driver driver = scripted({.victims = {{2}}}, {}, {.prompt = 5, .decode = 2, .window = 5}, "3");
  driver.prompt();
  CHECK(script.excess == std::vector<std::uint32_t>{1});
  CHECK(driver.kept(0) == Positions{1, 3, 4});
  check_slots_agree(driver);
  CHECK(driver.policy().eviction(HeadId(0)).evicted == std::vector<TokenPos>{TokenPos(2)});
  CHECK(driver.policy().take_counts().moved == 3);
  driver.row(5);
  CHECK(driver.kept(0) == Positions{3, 4, 5});
  CHECK(script.excess.size() == 1);
  CHECK(driver.policy().eviction(HeadId(0)).evicted.empty());
}

TEST_CASE("where a hidden token is not enough, the last one takes its slot and the policy sees living tokens alone") {
  // A budget that shrinks below the window while decoding: relative to the prompt it cannot, so the prompt streams.
  PolicyTraits traits;
  traits.schedule = Schedule::kPrefillOnly;
  Driver grown = scripted({.victims = {{0, 1}}}, traits, {.prompt = 4, .decode = 3, .window = 6}, "2");
  grown.prompt();
  for (std::uint32_t t = 4; t < 7; ++t) grown.row(t);
  CHECK(grown.kept(0) == Positions{2, 3, 4, 5, 6});
  CHECK(script.excess == std::vector<std::uint32_t>{2});
}
