// What every policy of the table must hold, found through the table: a new policy is tested without a line here.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <new>
#include <set>

#include "sim/core/thread_pool.hpp"
#include "tests/catch.hpp"
#include "tests/support/all_policies.hpp"
#include "tests/support/policy_laws.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {
std::atomic<std::uint64_t> allocations{0};
}  // namespace

void* operator new(std::size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t size, std::align_val_t line) {
  ++allocations;
  const auto bytes = static_cast<std::size_t>(line);
  if (void* memory = std::aligned_alloc(bytes, (size + bytes - 1) / bytes * bytes)) return memory;
  throw std::bad_alloc();
}
// Not inline: GCC would see a free() of what it takes for the memory of another operator new.
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

TEST_CASE("the policy table is sorted, and every entry says what it is, where it comes from and what it takes") {
  std::string_view last;
  for (const PolicyInfo& info : policy_table()) {
    INFO(info.name);
    CHECK(info.name > last);
    last = info.name;
    CHECK(info.summary.ends_with('.'));
    CHECK_FALSE(info.source.empty());
    for (const ParamInfo& param : info.params) {
      CHECK_FALSE(param.values.empty());
      CHECK_FALSE(param.fallback.empty());
      CHECK_FALSE(param.help.empty());
    }
    CHECK(&policy_info(info.name) == &info);
  }
  CHECK(policy_table().size() >= 8);
  const auto twice = std::ranges::adjacent_find(policy_table(), std::ranges::greater_equal(), &PolicyInfo::name);
  CHECK(twice == policy_table().end());  // sorted by name, no name twice
}

TEST_CASE("the defaults that the table names are the defaults") {
  for (const PolicyInfo& info : policy_table()) {
    for (const ParamInfo& param : info.params) {
      const std::string budget = info.takes_budget ? ":budget=0.5" : "";
      const auto plain = spec_of(fmt::format("{}{}", info.name, budget));
      const auto spelled = spec_of(fmt::format("{}{}:{}={}", info.name, budget, param.name, param.fallback));
      INFO(spelled.text());
      CHECK(same_decisions(plain, spelled) == !param.by_rule);
      CHECK(history(plain, kShape, random_logit) == history(spelled, kShape, random_logit));
    }
  }
}

TEST_CASE("after each row that may evict a head holds at most its capacity: the budget unless the policy has its own") {
  for (const PolicySpec& spec : all_specs()) {
    INFO(spec.text());
    Driver driver(spec, kShape, random_logit);
    const PolicyTraits& traits = driver.policy().traits();
    if (traits.bound) continue;
    driver.prompt();
    for (std::uint32_t t = kShape.prompt;; ++t) {
      const std::uint32_t budget = spec.budget.tokens(kShape.prompt, t);
      const bool may_evict = (t - kShape.prompt) % traits.interval == 0;
      for (std::uint32_t h = 0; h < driver.policy().storage_heads() && may_evict; ++h) {
        // What selects its reads holds everything.
        const std::uint32_t room = traits.selects ? Budget{}.tokens(kShape.prompt, t) : budget;
        if (traits.capacities == Capacities::kBudget) CHECK(driver.policy().capacity(HeadId(h)) == room);
        CHECK(driver.kept(h).size() <= driver.policy().capacity(HeadId(h)));
      }
      if (t == kShape.prompt + kShape.decode || traits.schedule == Schedule::kPrefillOnly) break;
      driver.row(t);
    }
  }
}

TEST_CASE("the sets of two steps differ by the new token and by what was evicted, no evicted token comes back") {
  for (const PolicySpec& spec : all_specs()) {
    INFO(spec.text());
    Driver driver(spec, kShape, random_logit);
    driver.prompt();
    const std::uint32_t heads = driver.policy().storage_heads();
    std::vector<std::set<std::uint32_t>> held(heads);
    for (std::uint32_t h = 0; h < heads; ++h) {
      const Positions kept = driver.kept(h);
      held[h] = {kept.begin(), kept.end()};
      CHECK(held[h].size() == kept.size());
    }
    for (std::uint32_t t = kShape.prompt; t < kShape.prompt + kShape.decode; ++t) {
      driver.row(t);
      for (std::uint32_t h = 0; h < heads; ++h) {
        held[h].insert(t);
        for (const TokenPos p : driver.policy().eviction(HeadId(h)).evicted) CHECK(held[h].erase(p.value) == 1);
        const Positions kept = driver.kept(h);
        CHECK(std::ranges::equal(kept, held[h]));
      }
    }
  }
}

TEST_CASE("counts are conserved: resident is what was resident, plus written, less evicted") {
  for (const PolicySpec& spec : all_specs()) {
    INFO(spec.text());
    Driver driver(spec, kShape, random_logit);
    const PolicyTraits& traits = driver.policy().traits();
    if (traits.bound) continue;
    const std::uint32_t heads = driver.policy().storage_heads();
    driver.prompt();
    std::uint64_t resident = driver.policy().take_counts().resident;
    for (std::uint32_t t = kShape.prompt; t < kShape.prompt + kShape.decode; ++t) {
      driver.row(t);
      std::uint64_t evicted = 0;
      for (std::uint32_t h = 0; h < heads; ++h) evicted += driver.policy().eviction(HeadId(h)).evicted.size();
      const LayerCounts counts = driver.policy().take_counts();
      CHECK(counts.written == heads);
      if (!traits.selects) CHECK(counts.attended == resident + heads);
      CHECK(counts.resident == resident + heads - evicted);
      CHECK(counts.allocated >= resident + heads);
      resident = counts.resident;
    }
  }
}

TEST_CASE("a policy reads the state and the rows of k, v and q that its traits announce, in every step") {
  for (const std::uint32_t window : {0U, 11U, 30U}) {
    Shape shape = kShape;
    shape.window = window;
    for (const PolicySpec& spec : all_specs()) {
      INFO(spec.text() << " window " << window);
      Driver driver(spec, shape, random_logit);
      driver.prompt();
      for (std::uint32_t t = shape.prompt;; ++t) {
        const LayerCounts counts = driver.policy().take_counts();
        CHECK(driver.policy().take_walked_state_bytes() == counts.state_read + counts.state_written);
        CHECK(driver.policy().take_read_elements() == counts.scored);
        if (t == shape.prompt + shape.decode) break;
        driver.row(t);
      }
    }
  }
}

TEST_CASE("the same seed gives the same sets") {
  for (const PolicySpec& spec : all_specs()) {
    INFO(spec.text());
    CHECK(history(spec, kShape, random_logit) == history(spec, kShape, random_logit));
  }
}

TEST_CASE("policies that draw give other sets for another seed and another layer") {
  for (const char* text : {"random:budget=0.5", "keyformer:budget=0.5", "keyformer:budget=0.5:noise=query"}) {
    INFO(text);
    Shape other_seed = kShape;
    other_seed.seed = 6;
    Shape other_layer = kShape;
    other_layer.layer = 1;
    const auto sets = history(spec_of(text), kShape, random_logit);
    CHECK(sets != history(spec_of(text), other_seed, random_logit));
    CHECK(sets != history(spec_of(text), other_layer, random_logit));
  }
}

TEST_CASE("policies that draw do so for each head by itself") {
  // All heads see the same attention, so that only their draws can tell them apart.
  const auto same = [](std::uint32_t, std::uint32_t t, std::uint32_t j) { return random_logit(0, t, j); };
  for (const char* text : {"random:budget=0.5", "keyformer:budget=0.5", "keyformer:budget=0.5:noise=query"}) {
    INFO(text);
    const auto sets = history(spec_of(text), kShape, same);
    CHECK(sets.front()[0] != sets.front()[1]);
  }
}

TEST_CASE("a budget of at least all tokens evicts nothing and reads everything") {
  for (const PolicySpec& spec : specs({"budget=88", "budget=4000", "budget=1.0@current"})) {
    if (!exempt(law::kWhole, spec).empty()) continue;
    INFO(spec.text());
    Driver driver(spec, kShape, random_logit);
    driver.prompt();
    for (std::uint32_t t = kShape.prompt; t < kShape.prompt + kShape.decode; ++t) {
      driver.row(t);
      CHECK(driver.kept(0).size() == t + 1);
      const bool chooses = driver.policy().traits().selects && policy_info(spec.name).takes_budget;
      if (chooses && exempt(law::kAll, spec).empty()) CHECK(driver.read(0).size() == t + 1);
    }
    CHECK(driver.policy().take_counts().moved == 0);
  }
}

TEST_CASE("adding a constant to all logits of a row changes nothing") {
  const auto shifted = [](std::uint32_t h, std::uint32_t t, std::uint32_t j) { return random_logit(h, t, j) + 8; };
  for (const PolicySpec& spec : all_specs()) {
    INFO(spec.text());
    CHECK(history(spec, kShape, random_logit) == history(spec, kShape, shifted));
  }
}

TEST_CASE("heads can be served in any order, and at once") {
  // The driver serves one head after the other; here four threads serve them together.
  ThreadPool pool(4);
  for (const PolicySpec& spec : specs({"budget=0.5"})) {
    INFO(spec.text());
    Driver expected(spec, kShape, random_logit);
    expected.prompt();
    if (expected.policy().traits().streams_prompt) continue;
    LayerPolicy policy(with_scores_drawn(spec, kShape), expected.context(), kShape.query_heads, kShape.kv_heads);
    const std::uint32_t group = policy.group();
    pool.parallel_for(policy.storage_heads(), [&](std::size_t h) {
      const HeadId head(static_cast<std::uint32_t>(h));
      for (std::uint32_t t = 0; t < kShape.prompt; ++t) {
        policy.admit(head, TokenPos(t));
        const auto positions = policy.positions(head);
        std::vector<float> logits, weights(group * positions.size());
        for (std::uint32_t g = 0; g < group; ++g) {
          for (const TokenPos p : positions) logits.push_back(random_logit(head.value * group + g, t, p.value));
        }
        AttentionRows rows{StepId(0), TokenPos(t), positions, group, logits.data(), weights.data()};
        for (std::uint32_t g = 0; g < group; ++g) {
          softmax(rows.logits_of(g), std::span(weights).subspan(g * positions.size(), positions.size()));
        }
        policy.observe(head, rows);
      }
    });
    policy.finish_row(TokenPos(kShape.prompt - 1), &expected.rows());
    for (std::uint32_t h = 0; h < policy.storage_heads(); ++h) {
      CHECK(std::ranges::equal(policy.positions(HeadId(h)), expected.kept(h), {}, [](TokenPos p) { return p.value; }));
    }
  }
}

TEST_CASE("the recent tokens that a policy protects are always there") {
  struct Protected {
    const char* spec;
    std::uint32_t recent;
  };
  for (const Protected& p :
       {Protected{"h2o:budget=20", 10}, Protected{"h2o:budget=21:recent=0.3", 6}, Protected{"keyformer:budget=20", 6},
        Protected{"keyformer:budget=20:recent=12", 12}, Protected{"scissorhands:budget=20", 10},
        Protected{"scissorhands:budget=20:recent=3", 3}, Protected{"window:budget=20", 20},
        Protected{"a2sf:budget=20", 16},
        Protected{"streaming:budget=20", 16}, Protected{"random:budget=20:recent=5", 5},
        Protected{"snapkv:budget=20:window=6", 6}, Protected{"pyramidkv:budget=20:window=6", 6},
        Protected{"adakv:budget=20:window=6", 6}, Protected{"tova:budget=20:rule=kvpress", 1}}) {
    INFO(p.spec);
    const auto sets = history(spec_of(p.spec), kShape, random_logit);
    for (std::size_t row = 0; row < sets.size(); ++row) {
      for (const Positions& kept : sets[row]) {
        const auto newest = static_cast<std::uint32_t>(kShape.prompt + row - 1);
        for (std::uint32_t i = 0; i < p.recent; ++i) CHECK(std::ranges::binary_search(kept, newest - i));
      }
    }
  }
}

TEST_CASE("a policy that decides by attention says how far apart the scores of two slots are") {
  std::vector<std::string> asked, decided;  // of policies without a budget not every variant evicts
  for (const PolicySpec& spec : specs({"budget=0.5"})) {
    INFO(spec.text());
    Driver driver(spec, kShape, random_logit);
    LayerPolicy& policy = driver.policy();
    if (policy.traits().rows == RowNeed::kNone || policy.traits().selects) continue;
    std::size_t wrong = 0, decisions = 0;
    policy.set_review([&](HeadId head, std::span<const TokenPos> positions, std::vector<SlotId>& victims) {
      ++decisions;
      for (std::uint32_t s = 0; s < positions.size(); ++s) {
        const double gap = policy.score_gap(head, victims.front(), SlotId(s));
        const bool same = SlotId(s) == victims.front();
        wrong += gap >= 0 && std::isfinite(gap) && (!same || gap == 0) ? 0 : 1;
      }
    });
    driver.prompt();
    for (std::uint32_t t = kShape.prompt; t < kShape.prompt + kShape.decode; ++t) driver.row(t);
    CHECK((decisions > 0 || spec.budget.kind == Budget::Kind::kUnlimited));
    CHECK(wrong == 0);
    (decisions > 0 ? decided : asked).push_back(spec.name);
  }
  for (const std::string& name : asked) {
    INFO(name);
    CHECK(std::ranges::find(decided, name) != decided.end());
  }
}

TEST_CASE("a policy that selects reads the same tokens where it is shown no logits of what it does not read") {
  std::size_t policies = 0;
  for (const PolicySpec& spec : specs({"budget=0.5", "budget=13"})) {
    const PolicyTraits traits = policy_info(spec.name).traits(spec);
    // Exact weights, and what bounds know, are of all tokens.
    if (!traits.selects || traits.bound || traits.needs_weights) continue;
    INFO(spec.text());
    Driver all(spec, kShape, random_logit), few(spec, kShape, random_logit);
    few.hide_unread();
    all.prompt();
    few.prompt();
    for (std::uint32_t t = kShape.prompt; t < kShape.prompt + kShape.decode; ++t) {
      all.row(t);
      few.row(t);
      for (std::uint32_t h = 0; h < kShape.query_heads; ++h) CHECK(all.read(h) == few.read(h));
    }
    ++policies;
  }
  CHECK(policies > 0);
}

TEST_CASE("once the budget is filled, no row allocates memory") {
  for (const PolicySpec& spec : specs({"budget=0.5", "budget=13"})) {
    const PolicyTraits traits = policy_info(spec.name).traits(spec);
    // Memory has its size after the second eviction while decoding.
    const std::uint32_t filled = std::max(60U, 2 * traits.interval);
    Shape shape = kShape;
    shape.decode = 2 * filled + 80;
    Driver driver(spec, shape, random_logit);
    if (spec.budget.kind == Budget::Kind::kUnlimited || traits.selects) continue;
    if (traits.schedule == Schedule::kPrefillOnly) continue;
    INFO(spec.text());
    driver.prompt();
    for (std::uint32_t t = shape.prompt; t < shape.prompt + filled; ++t) driver.row(t);
    const std::uint64_t before = allocations;
    for (std::uint32_t t = shape.prompt + filled; t < shape.prompt + shape.decode; ++t) driver.row(t);
    CHECK(allocations == before);
  }
}

TEST_CASE("a policy takes no memory for the scores of a prompt that a device keeps") {
  for (const PolicyInfo& info : policy_table()) {
    if (info.recipe == nullptr || !info.takes_budget) continue;
    INFO(info.name);
    PolicyContext context;
    context.prompt = 1000;
    LayerPolicy policy(info, spec_of(fmt::format("{}:budget=0.5", info.name)), context, 2, 2);
    const std::uint64_t before = allocations;
    policy.admit_first(context.prompt);
    CHECK(allocations - before == policy.storage_heads());  // the positions of each head
  }
}
