// Orders of eviction of a prefix cache: against counts by hand, a model that is written another way, and the best of
// all choices.
#include "sim/serving/prefix_eviction.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "sim/serving/prefix_curve.hpp"
#include "tests/catch.hpp"
#include "tests/support/prefix_prompts.hpp"

namespace kvroof {
namespace {

using test::Ids;
using test::kBlock;
using test::Prompts;
using test::prompts_of;
using test::random_ids;

const PrefixEviction& order(std::string_view name) { return *prefix_eviction(name).value(); }

std::uint64_t found(const Prompts& prompts, std::string_view name, std::size_t blocks) {
  return PrefixReplay(prompts.tree, prompts.requests).finds(order(name), blocks * kBlock).tokens;
}

// A cache as a plain map from paths to what is known of them, searched from end to end.
class PlainCache {
 public:
  PlainCache(std::string name, std::size_t most, const std::vector<Ids>& requests)
      : name_(std::move(name)), most_(most), requests_(requests) {}

  std::uint64_t found() {
    std::uint64_t tokens = 0;
    for (now_ = 0; now_ < requests_.size(); ++now_) tokens += serve(requests_[now_]);
    return tokens;
  }

 private:
  struct Block {
    std::size_t came = 0, uses = 0, last = 0;
    double rank = 0;
  };

  static Ids first(const Ids& ids, std::size_t n) { return {ids.begin(), ids.begin() + static_cast<long>(n)}; }
  static bool begins(const Ids& ids, const Ids& with) {
    return ids.size() >= with.size() && first(ids, with.size()) == with;
  }

  std::uint64_t serve(const Ids& ids) {
    std::size_t known = 0;
    while (known < ids.size() && blocks_.count(first(ids, known + 1)) > 0) ++known;
    for (std::size_t n = 1; n <= ids.size(); ++n) {
      Block& block = blocks_.try_emplace(first(ids, n), Block{now_, 0, 0, 0}).first->second;
      ++block.uses;
      block.last = now_;
      block.rank = rank(first(ids, n), block);
    }
    while (blocks_.size() > most_) evict();
    const auto tokens = static_cast<std::uint64_t>(known) * kBlock;
    return std::min(tokens, static_cast<std::uint64_t>(ids.size()) * kBlock - 1);
  }

  double rank(const Ids& path, const Block& block) const {
    if (name_ == "lru") return static_cast<double>(block.last);
    if (name_ == "fifo") return static_cast<double>(block.came);
    if (name_ == "lfu") return static_cast<double>(block.uses);
    if (name_ == "lfu-da") return age_ + static_cast<double>(block.uses);
    if (name_ == "slru") return block.uses >= 2 ? 1 : 0;
    std::size_t next = now_ + 1;
    while (next < requests_.size() && !begins(requests_[next], path)) ++next;
    return next < requests_.size() ? -static_cast<double>(next) : -1e9;
  }

  void evict() {
    auto victim = blocks_.end();
    for (auto at = blocks_.begin(); at != blocks_.end(); ++at) {
      const bool leaf = std::none_of(blocks_.begin(), blocks_.end(), [&](const auto& other) {
        return other.first.size() > at->first.size() && begins(other.first, at->first);
      });
      if (!leaf) continue;
      const auto key = [](const Block& b) { return std::pair(b.rank, b.last); };
      if (victim == blocks_.end() || key(at->second) < key(victim->second)) victim = at;
    }
    age_ = victim->second.rank;
    blocks_.erase(victim);
  }

  std::string name_;
  std::size_t most_;
  const std::vector<Ids>& requests_;
  std::map<Ids, Block> blocks_;
  std::size_t now_ = 0;
  double age_ = 0;
};

TEST_CASE("orders of eviction give up what they say: counted by hand") {
  // Room for two blocks. 1 comes, 2 comes, 1 is found, 3 comes; then either 1 or 2 is asked for.
  const auto of = [](std::uint64_t last) { return prompts_of({{1}, {2}, {1}, {3}, {last}}, 1); };
  // Of a prompt of one block all but its last token are found: 3. Each finds the 1 of the third request.
  CHECK(found(of(1), "lru", 2) == 6);   // 2 went
  CHECK(found(of(1), "fifo", 2) == 3);  // 1 went
  CHECK(found(of(2), "fifo", 2) == 6);
  CHECK(found(of(1), "lfu", 2) == 6);
  CHECK(found(of(1), "slru", 2) == 6);
  CHECK(found(of(1), "belady", 2) == 6);
  CHECK(found(of(2), "belady", 2) == 6);
  // 1 is used three times, and never again: what is used least often goes for ever, but not with aging.
  const Prompts turns = prompts_of({{1}, {1}, {1}, {2}, {3}, {2}, {3}, {2}, {3}, {2}, {3}}, 1);
  CHECK(found(turns, "lfu", 2) == 6);
  CHECK(found(turns, "slru", 2) == 6);
  CHECK(found(turns, "lru", 2) == 6 + 6 * 3);
  CHECK(found(turns, "lfu-da", 2) > 6);
  // A block goes after those that follow it, however rarely it is used: the first came first, and stays.
  CHECK(found(prompts_of({{1, 2}, {1, 3}, {1}}, 1), "fifo", 2) == 4 + 3);
}

TEST_CASE("every order finds what a plain map of blocks has, whatever the prompts share") {
  std::mt19937 random(17);
  for (int round = 0; round < 60; ++round) {
    const std::vector<Ids> ids = random_ids(random, 30);
    const Prompts prompts = prompts_of(ids, 1);
    for (const PrefixEviction& eviction : prefix_evictions()) {
      const std::size_t blocks = random() % 25;
      INFO("round " << round << ", " << eviction.name << ", " << blocks << " blocks");
      CHECK(found(prompts, eviction.name, blocks) == PlainCache(std::string(eviction.name), blocks, ids).found());
    }
  }
}

// The most that any choice of blocks to give up can find of the requests from `from` on.
class BestChoice {
 public:
  BestChoice(const Prompts& prompts, std::size_t most) : prompts_(prompts), most_(most) {}
  std::uint64_t found(const std::set<PrefixBlock>& kept, std::size_t from) {
    if (from == prompts_.requests.size()) return 0;
    const auto key = std::pair(kept, from);
    if (const auto known = known_.find(key); known != known_.end()) return known->second;
    std::vector<PrefixBlock> path;
    const PrefixTree& tree = prompts_.tree;
    for (PrefixBlock b = prompts_.requests[from].prefix; b != kNoPrefix; b = tree.parent(b)) path.push_back(b);
    std::uint64_t tokens = 0;
    for (auto b = path.rbegin(); b != path.rend() && kept.count(*b) > 0; ++b) tokens += kBlock;
    std::set<PrefixBlock> all = kept;
    all.insert(path.begin(), path.end());
    std::uint64_t best = 0;
    choose(all, std::set<PrefixBlock>(), all.begin(), [&](const std::set<PrefixBlock>& some) {
      best = std::max(best, found(some, from + 1));
    });
    return known_[key] = best + std::min<std::uint64_t>(tokens, prompts_.requests[from].prompt - 1);
  }

 private:
  using Set = std::set<PrefixBlock>;
  // Every subset that fits and holds what comes before its blocks (parents have lower numbers).
  void choose(const Set& all, Set some, Set::const_iterator at, const std::function<void(const Set&)>& visit) {
    if (at == all.end()) return visit(some);
    const PrefixBlock block = *at++;
    choose(all, some, at, visit);
    const PrefixBlock before = prompts_.tree.parent(block);
    if (some.size() == most_ || (before != kNoPrefix && some.count(before) == 0)) return;
    some.insert(block);
    choose(all, some, at, visit);
  }

  const Prompts& prompts_;
  std::size_t most_;
  std::map<std::pair<Set, std::size_t>, std::uint64_t> known_;
};

TEST_CASE("belady finds as much as the best of all choices, and no order finds more") {
  std::mt19937 random(23);
  for (int round = 0; round < 40; ++round) {
    // No prompt is found whole, so that all blocks are worth the same.
    std::vector<Ids> ids = random_ids(random, 7);
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i].push_back(1000 + i);
    const Prompts prompts = prompts_of(ids, 1);
    for (std::size_t blocks = 0; blocks <= 4; ++blocks) {
      const std::uint64_t best = BestChoice(prompts, blocks).found({}, 0);
      INFO("round " << round << ", " << blocks << " blocks");
      CHECK(found(prompts, "belady", blocks) == best);
      for (const PrefixEviction& eviction : prefix_evictions()) CHECK(found(prompts, eviction.name, blocks) <= best);
    }
  }
}

TEST_CASE("a cache with room for all finds what earlier prompts began with, under every order") {
  std::mt19937 random(29);
  const Prompts prompts = prompts_of(random_ids(random, 200), 1);
  PrefixTreeBuilder tree;
  std::uint64_t known = 0;
  for (std::size_t i = 0; i < prompts.requests.size(); ++i) {
    const std::uint32_t prompt = prompts.requests[i].prompt;
    known += std::min(tree.add(prompts.ids[i], kBlock, prompt).known, prompt - 1);
  }
  const PrefixReplay replay(prompts.tree, prompts.requests);
  CHECK(replay.distinct_tokens() == (prompts.tree.size() - 1) * kBlock);
  for (const PrefixEviction& eviction : prefix_evictions()) {
    for (const std::uint64_t capacity : {PrefixReplay::kInfinite, replay.distinct_tokens()}) {
      const PrefixFinds finds = replay.finds(eviction, capacity);
      CHECK(finds.tokens == known);
      CHECK(finds.evicted == 0);
    }
    CHECK(replay.finds(eviction, 0).tokens == 0);
    CHECK(replay.finds(eviction, 0).requests == 0);
  }
}

TEST_CASE("the least recently used and belady find no less in a larger cache") {
  std::mt19937 random(31);
  for (int round = 0; round < 30; ++round) {
    const Prompts prompts = prompts_of(random_ids(random, 80), 1);
    for (const char* name : {"lru", "belady"}) {
      std::uint64_t smaller = 0;
      for (std::size_t blocks = 0; blocks < 60; blocks += 3) {
        const std::uint64_t larger = found(prompts, name, blocks);
        CHECK(larger >= smaller);
        smaller = larger;
      }
    }
  }
}

TEST_CASE("an order that there is none of is told with the nearest") {
  CHECK(prefix_eviction("lru").value()->name == "lru");
  const auto wrong = prefix_eviction("lruu");
  REQUIRE(!wrong.ok());
  CHECK(wrong.error() ==
        "'lruu' is no order of eviction: expected lru | fifo | lfu | lfu-da | slru | belady; did you mean lru?");
}

}  // namespace
}  // namespace kvroof
