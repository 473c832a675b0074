// What a prefix cache finds and loses, against counts by hand and against a model that is written another way.
#include <algorithm>
#include <array>
#include <limits>
#include <list>
#include <numeric>
#include <random>

#include "sim/serving/simulate.hpp"
#include "tests/catch.hpp"
#include "tests/support/hand_costs.hpp"
#include "tests/support/prefix_prompts.hpp"

namespace kvroof {
namespace {

using test::HandCosts;
using test::Ids;
using test::kBlock;
using test::Prompts;
using test::prompts_of;
using test::random_ids;

ServingOutcome serve(const Prompts& prompts, const HandCosts& costs, PrefixCacheSetup cache = {},
                     std::uint64_t sequences = 64, bool by_prompt = false) {
  SchedulerLimits limits;
  limits.sequences = sequences;
  limits.step_tokens = 1000;
  limits.admits_by_prompt = by_prompt;
  cache.tree = &prompts.tree;
  return simulate_serving(costs, {limits, 1, 0, cache}, prompts.requests);
}

std::vector<std::uint32_t> found(const ServingOutcome& outcome) {
  std::vector<std::uint32_t> tokens;
  for (const ServedRequest& r : outcome.requests) tokens.push_back(r.cached);
  return tokens;
}

// Least recently used, of sequences one by one: blocks by their path, in one list, oldest first.
class PlainLru {
 public:
  explicit PlainLru(std::size_t most) : most_(most) {}
  std::uint32_t serve(const Ids& ids) {
    std::vector<Ids> paths;
    for (std::size_t n = 1; n <= ids.size(); ++n) paths.emplace_back(ids.begin(), ids.begin() + static_cast<long>(n));
    const auto known = std::find_if(paths.begin(), paths.end(), [&](const Ids& path) {
      return std::find(blocks_.begin(), blocks_.end(), path) == blocks_.end();
    });
    const auto tokens = static_cast<std::uint32_t>(known - paths.begin()) * kBlock;
    for (auto path = paths.rbegin(); path != paths.rend(); ++path) {
      blocks_.remove(*path);
      blocks_.push_back(*path);
    }
    while (blocks_.size() > most_) blocks_.pop_front();
    return std::min(tokens, static_cast<std::uint32_t>(ids.size()) * kBlock - 1);
  }

 private:
  std::size_t most_;
  std::list<Ids> blocks_;
};

PrefixCacheSetup of_blocks(std::size_t blocks) {
  PrefixCacheSetup cache;
  cache.most_bytes = static_cast<double>(blocks * kBlock);
  return cache;
}

TEST_CASE("the least recently used block goes first, of one prompt the last: counted by hand") {
  // Four blocks may stay, in the order in which they go:  3 2 1;  2 1 5 4 (without 3);  4 3 2 1 (without 5, and 1 2
  // were found);  1 6 5 4 (without 3 2; 4 was found);  5 4 2 1 (without 6; 1 was found).
  const Prompts prompts = prompts_of({{1, 2, 3}, {4, 5}, {1, 2, 3}, {4, 5, 6}, {1, 2}}, 100);
  const ServingOutcome outcome = serve(prompts, HandCosts(), of_blocks(4));
  CHECK(found(outcome) == std::vector<std::uint32_t>{0, 0, 8, 4, 4});
  CHECK(outcome.totals.evicted_blocks == 5);
}

TEST_CASE("one by one, each prompt finds what a plain list of least recently used blocks has") {
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    const Prompts prompts = prompts_of(random_ids(random, 30), 1000);
    const std::size_t blocks = random() % 25;
    PlainLru plain(blocks);
    std::vector<std::uint32_t> expected;
    for (const Ids& ids : prompts.ids) expected.push_back(plain.serve(ids));
    INFO("round " << round << ", " << blocks << " blocks");
    REQUIRE(found(serve(prompts, HandCosts(), of_blocks(blocks))) == expected);
    // On the host they are found as well, where the device keeps none.
    PrefixCacheSetup host = of_blocks(0);
    host.host_bytes = static_cast<double>(blocks * kBlock);
    REQUIRE(found(serve(prompts, HandCosts(), host)) == expected);
    // In all, device and host are one list.
    host = of_blocks(blocks / 3);
    host.host_bytes = static_cast<double>((blocks - blocks / 3) * kBlock);
    REQUIRE(found(serve(prompts, HandCosts(), host)) == expected);
  }
}

TEST_CASE("one by one, a larger cache never finds less of any prompt") {
  std::mt19937 random(11);
  for (int round = 0; round < 50; ++round) {
    const Prompts prompts = prompts_of(random_ids(random, 60), 1000);
    std::vector<std::uint32_t> smaller(prompts.requests.size(), 0);
    for (std::size_t blocks = 0; blocks <= 40; blocks += 4) {
      const std::vector<std::uint32_t> larger = found(serve(prompts, HandCosts(), of_blocks(blocks)));
      CHECK(std::equal(smaller.begin(), smaller.end(), larger.begin(), std::less_equal<>()));
      smaller = larger;
    }
  }
}

TEST_CASE("a cache that loses nothing finds what earlier prompts began with, one of no memory what none finds") {
  std::mt19937 random(3);
  Prompts prompts = prompts_of(random_ids(random, 80), 1000, 3);
  PrefixCacheSetup cache;
  cache.loses_nothing = true;
  const ServingOutcome all = serve(prompts, HandCosts(), cache);
  const ServingOutcome none = serve(prompts, HandCosts(), of_blocks(0));
  CHECK(all.totals.evicted_blocks == 0);
  // What is found is as good as what is said to be there.
  PrefixTreeBuilder tree;
  for (std::size_t i = 0; i < prompts.requests.size(); ++i) {
    Request& r = prompts.requests[i];
    r.cached = std::min(tree.add(prompts.ids[i], kBlock, r.prompt).known, r.prompt - 1);
    CHECK(all.requests[i].cached == r.cached);
    CHECK(none.requests[i].cached == 0);
  }
  const auto plain = [](const std::vector<Request>& requests) {
    SchedulerLimits limits;
    limits.sequences = 64;
    limits.step_tokens = 1000;
    return simulate_serving(HandCosts(), {limits}, requests);
  };
  const ServingOutcome said = plain(prompts.requests);
  for (Request& r : prompts.requests) r.cached = 0;
  const ServingOutcome whole = plain(prompts.requests);
  for (std::size_t i = 0; i < prompts.requests.size(); ++i) {
    CHECK(all.requests[i].finished == said.requests[i].finished);
    CHECK(none.requests[i].finished == whole.requests[i].finished);
  }
}

TEST_CASE("blocks that running sequences share count once, and are found while they are computed") {
  // Ten prompts of four blocks, of which three are alike, and an answer of one token more than the prompt's first.
  std::vector<Ids> ids;
  for (std::uint64_t i = 0; i < 10; ++i) ids.push_back({1, 2, 3, 10 + i});
  const Prompts prompts = prompts_of(ids, 0, 5);
  const ServingOutcome outcome = serve(prompts, HandCosts(), {});
  CHECK(outcome.totals.most_running == 10);
  // 12 tokens of all, and of each four of its prompt and five of its answer (the last is not in the cache).
  CHECK(outcome.totals.most_cache_bytes == 12 + 10 * (4 + 5));
  CHECK(found(outcome) == std::vector<std::uint32_t>{0, 12, 12, 12, 12, 12, 12, 12, 12, 12});
  // The first prompt takes 16 tokens, the others 4 each, all in the first step.
  CHECK(outcome.requests[9].first_token == Approx(0.1 * (16 + 9 * 4)));
  // So more of them fit: whole answers are reserved, 16 + 5 bytes for the first, 9 for each other.
  CHECK(serve(prompts, HandCosts(21 + 4 * 9), {}).totals.most_running == 5);
  CHECK(serve(prompts, HandCosts(21 + 4 * 9 - 1), {}).totals.most_running == 4);
}

TEST_CASE("sequences take the memory of their own lengths, whatever lengths their caches are taken for") {
  std::vector<Ids> ids;
  for (std::uint64_t i = 0; i < 10; ++i) ids.push_back({1, 2, 10 + i});
  const Prompts prompts = prompts_of(ids, 0, 5);
  HandCosts costs;
  costs.profiled = 7;  // 12 tokens for 14
  CHECK(serve(prompts, costs, {}).totals.most_cache_bytes == 8 + 10 * (4 + 5));
}

TEST_CASE("a block is one of the prompts that are alike up to it, and the last of a prompt may be shorter") {
  PrefixTreeBuilder builder;
  const auto add = [&](const Ids& ids, std::uint32_t prompt) { return builder.add(ids, kBlock, prompt); };
  CHECK(add({1, 2}, 7).known == 0);
  CHECK(add({3, 2}, 8).known == 0);     // 2 after 3 is another block
  CHECK(add({1, 2}, 7).known == 7);
  CHECK(add({1, 9}, 5).known == 4);
  CHECK(add({1, 2, 5, 6}, 9).known == 8);  // more names than blocks
  const PrefixTree tree = builder.take();
  CHECK(tree.size() == 1 + 6);
  // In all: 1, its 2 (of four tokens in the longest prompt), 3, its 2, 9 of one token, and 5 of one.
  std::uint32_t tokens = 0;
  for (PrefixBlock block = 1; block < tree.size(); ++block) tokens += tree.tokens(block);
  CHECK(tokens == 4 + 4 + 4 + 4 + 1 + 1);
}

TEST_CASE("what no sequence holds leaves the device when running sequences need its memory") {
  // The first prompt of 32 bytes leaves its blocks; the second needs 28 + 1 of 40 bytes.
  const Prompts prompts = prompts_of({{1, 2, 3, 4, 5, 6, 7, 8}, {11, 12, 13, 14, 15, 16, 17}, {1, 2, 3, 4}}, 100);
  const ServingOutcome outcome = serve(prompts, HandCosts(40), {});
  CHECK(found(outcome) == std::vector<std::uint32_t>{0, 0, 8});  // 40 − 29 is two blocks
}

TEST_CASE("reading blocks from the host takes their bytes over its bandwidth") {
  const Prompts prompts = prompts_of({{1, 2, 3, 4, 5}, {1, 2, 3, 4, 6}}, 100);
  PrefixCacheSetup cache = of_blocks(0);
  cache.host_bytes = 1e9;
  cache.host_bytes_per_s = 8;
  const ServingOutcome outcome = serve(prompts, HandCosts(), cache);
  CHECK(outcome.requests[1].cached == 16);
  CHECK(outcome.totals.host_tokens_read == 16);
  CHECK(outcome.requests[1].first_token == Approx(100 + 0.1 * 4 + 16.0 / 8));
}

TEST_CASE("a router that looks at prefixes sends a prompt to the server that has most of it, if that is not too busy") {
  // One at a time, all servers are idle: by number of requests the first has all; so two come at once.
  std::vector<Ids> ids = {{1, 2, 3, 4}, {5, 6, 7, 8}, {5, 6, 7, 9}, {1, 2, 3, 9}, {5, 11, 12, 13}};
  Prompts prompts = prompts_of(ids, 100);
  prompts.requests[1].arrival = prompts.requests[0].arrival;
  PrefixCacheSetup cache;
  cache.tree = &prompts.tree;
  const auto servers = [&](bool routes) {
    SchedulerLimits limits;
    limits.sequences = 64;
    limits.step_tokens = 1000;
    std::vector<std::uint32_t> of;
    const ServingOutcome outcome = simulate_serving(HandCosts(), {limits, 2, 0, cache, routes}, prompts.requests);
    for (const ServedRequest& r : outcome.requests) of.push_back(r.replica);
    return of;
  };
  CHECK(servers(false) == std::vector<std::uint32_t>{0, 1, 0, 0, 0});
  CHECK(servers(true) == std::vector<std::uint32_t>{0, 1, 1, 0, 0});  // a quarter of the last is too little
  // Of 200 alike at once, the 66th finds 65 on the first server and none on the other; then they take turns so that it
  // stays within 64 more, or one and a half times as many.
  prompts = prompts_of(std::vector<Ids>(200, Ids{1, 2, 3}), 0);
  prompts.requests.insert(prompts.requests.begin(), prompts.requests[0]);
  for (std::size_t i = 1; i < prompts.requests.size(); ++i) prompts.requests[i].arrival = 100;
  cache.tree = &prompts.tree;
  const std::vector<std::uint32_t> of = servers(true);
  CHECK(std::count(of.begin(), of.begin() + 66, 0U) == 66);
  CHECK(of[66] == 1);
  CHECK(std::count(of.begin(), of.end(), 1U) > 50);
}

TEST_CASE("where the policy evicts from prompts, copies of whole ones are found, and nothing is shared") {
  HandCosts costs(1e9);
  costs.kept = 6;
  const Prompts prompts = prompts_of({{1, 2, 3, 4, 5}, {1, 2, 3, 4, 6}, {1, 2, 3, 4, 6}}, 1.5, 9);
  PrefixCacheSetup cache;
  cache.copies = true;
  const ServingOutcome outcome = serve(prompts, costs, cache);
  // The second comes while the first is answered; its prompt, as that of the first, is then there whole.
  CHECK(found(outcome) == std::vector<std::uint32_t>{0, 16, 19});
  // Three sequences of six bytes each; while its prompt is computed the third holds 20 more, of what was found.
  CHECK(outcome.totals.most_cache_bytes == 3 * 6 + 20);
}

TEST_CASE("beside what it keeps as its own, a sequence holds no more of a found prompt than memory has room for") {
  const Prompts prompts = prompts_of({{1, 2}, {1, 2}}, 100);
  PrefixCacheSetup setup;
  setup.copies = true;
  // A sequence keeps nine bytes: in 23, all eight of the prompt are beside them, in 14 one block of four, in 10 none.
  for (const auto& [capacity, tokens] : {std::pair{23.0, 2 * kBlock - 1}, {14.0, kBlock}, {10.0, 0U}}) {
    for (const bool loses_nothing : {false, true}) {
      setup.loses_nothing = loses_nothing;
      const ServingOutcome outcome = serve(prompts, HandCosts(capacity), setup);
      INFO(capacity);
      CHECK(outcome.totals.most_cache_bytes <= capacity);
      if (loses_nothing) CHECK(found(outcome) == std::vector<std::uint32_t>{0, tokens});
    }
  }
}

TEST_CASE("a preempted sequence lets its blocks go and finds those again that are still there") {
  // Two prompts of 12 bytes fit 30 with three tokens each; then the second loses its place until the first has ended.
  const Prompts prompts = prompts_of({{1, 2, 3}, {4, 5, 6}}, 0, 8);
  const ServingOutcome outcome = serve(prompts, HandCosts(30), {}, 64, true);
  CHECK(outcome.requests[1].preemptions == 1);
  // Its 12 bytes stay while the first, of 12 + 8, leaves 10: two blocks. So the second computes one block and the three
  // tokens that it had generated, 0.7 s, which makes its fourth token; four more follow.
  CHECK(outcome.requests[1].finished == Approx(outcome.requests[0].finished + 0.7 + 4));
  CHECK(outcome.requests[1].cached == 0);  // when it was first begun
}

TEST_CASE("blocks are held as often as sequences hold them, and go when they do: whatever happens to many at once") {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    const Prompts prompts = prompts_of(random_ids(random, 12), 0);
    PrefixCacheSetup setup;
    setup.tree = &prompts.tree;
    setup.host_bytes = static_cast<double>(random() % 8 * kBlock);
    PrefixCache cache(setup);
    std::vector<PrefixBlock> held(prompts.requests.size(), kNoPrefix);
    for (int event = 0; event < 60; ++event) {
      const std::size_t i = random() % held.size();
      const PrefixBlock last = prompts.requests[i].prefix;
      if (random() % 2 == 0) {
        cache.let_go(std::exchange(held[i], kNoPrefix));
      } else {
        const PrefixBlock to = random() % 2 == 0 ? cache.find(last) : last;
        if (prompts.tree.end(to) > prompts.tree.end(held[i])) cache.hold(std::exchange(held[i], to), to);
      }
      if (random() % 3 == 0) cache.shrink(static_cast<double>(random() % 20 * kBlock));
      std::vector<std::uint32_t> holders(prompts.tree.size(), 0);
      for (PrefixBlock block : held) {
        for (; block != kNoPrefix; block = prompts.tree.parent(block)) ++holders[block];
      }
      std::array<double, 3> bytes{};  // held, idle, on the host
      for (PrefixBlock block = 1; block < prompts.tree.size(); ++block) {
        REQUIRE(cache.holders(block) == holders[block]);
        const auto place = cache.place(block);
        const auto before = cache.place(prompts.tree.parent(block));
        const bool first = prompts.tree.parent(block) == kNoPrefix;
        if (place == PrefixCache::Place::kDevice) {
          REQUIRE((first || before == PrefixCache::Place::kDevice));
          bytes[holders[block] > 0 ? 0 : 1] += prompts.tree.tokens(block);
        } else {
          REQUIRE(holders[block] == 0);
        }
        if (place == PrefixCache::Place::kHost) {
          REQUIRE((first || before != PrefixCache::Place::kNowhere));
          bytes[2] += prompts.tree.tokens(block);
        }
      }
      REQUIRE(cache.held_bytes() == bytes[0]);
      REQUIRE(cache.idle_bytes() == bytes[1]);
      REQUIRE(cache.host_bytes() == bytes[2]);
      REQUIRE(bytes[2] <= setup.host_bytes);
    }
  }
}

TEST_CASE("a busy server never has more in memory than it has, and ends with every request answered") {
  std::mt19937 random(13);
  for (int round = 0; round < 100; ++round) {
    const bool by_prompt = round % 2 == 0;
    const Prompts prompts = prompts_of(random_ids(random, 60), 0.2, 1 + static_cast<std::uint32_t>(random() % 12));
    std::uint32_t longest = 0;
    for (const Request& r : prompts.requests) longest = std::max(longest, r.prompt + r.output);
    const double capacity = longest + static_cast<double>(random() % 100);
    PrefixCacheSetup cache;
    cache.copies = round % 5 == 0;
    const ServingOutcome outcome = serve(prompts, HandCosts(capacity), cache, 64, by_prompt);
    CHECK(outcome.totals.most_cache_bytes <= capacity);
    CHECK(outcome.totals.idle_byte_seconds + outcome.totals.cache_byte_seconds <=
          capacity * outcome.totals.busy_seconds + 1e-6);
    for (const ServedRequest& r : outcome.requests) {
      CHECK(r.finished > 0);
      CHECK(r.cached < r.request.prompt);
    }
    const ServingOutcome again = serve(prompts, HandCosts(capacity), cache, 64, by_prompt);
    CHECK(found(again) == found(outcome));
    CHECK(again.seconds == outcome.seconds);
  }
}

}  // namespace
}  // namespace kvroof
