#include "sim/serving/prefix_curve.hpp"

#include <algorithm>

namespace kvroof {

PrefixReplay::PrefixReplay(const PrefixTree& tree, std::span<const Request> requests)
    : tree_(tree), requests_(requests) {
  for (const Request& r : requests) prompt_tokens_ += r.prompt;
  for (PrefixBlock block = 1; block < tree.size(); ++block) {
    distinct_tokens_ += tree.tokens(block);
    block_tokens_ = std::max<std::uint64_t>(block_tokens_, tree.tokens(block));
  }
  // From the last request back: what is met first is the next use of those before.
  std::vector<std::uint32_t> upcoming(tree.size(), kNeverUsed);
  for (std::size_t i = requests.size(); i-- > 0;) {
    const std::size_t begin = next_uses_.size();
    for (PrefixBlock b = requests[i].prefix; b != kNoPrefix; b = tree.parent(b)) {
      next_uses_.push_back(upcoming[b]);
      upcoming[b] = static_cast<std::uint32_t>(i);
    }
    std::reverse(next_uses_.begin() + static_cast<std::ptrdiff_t>(begin), next_uses_.end());
  }
  std::reverse(next_uses_.begin(), next_uses_.end());
}

PrefixFinds PrefixReplay::finds(const PrefixEviction& eviction, std::uint64_t capacity) const {
  std::vector<std::uint32_t> next(tree_.size(), kNeverUsed);
  PrefixCacheSetup setup;
  setup.tree = &tree_;
  setup.eviction = &eviction;
  setup.next_uses = &next;
  PrefixCache cache(setup);
  PrefixFinds finds;
  std::size_t at = 0;
  for (const Request& r : requests_) {
    for (PrefixBlock b = r.prefix; b != kNoPrefix; b = tree_.parent(b)) next[b] = next_uses_[at++];
    const std::uint32_t found = std::min(tree_.end(cache.find(r.prefix)), r.prompt - 1);
    finds.tokens += found;
    finds.requests += found > 0 ? 1 : 0;
    cache.hold(kNoPrefix, r.prefix);
    cache.let_go(r.prefix);
    cache.shrink(static_cast<double>(capacity));
  }
  finds.evicted = cache.evicted();
  return finds;
}

}  // namespace kvroof
