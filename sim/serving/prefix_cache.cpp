#include "sim/serving/prefix_cache.hpp"

#include <algorithm>
#include <utility>

#include "sim/core/error.hpp"

namespace kvroof {

PrefixCache::PrefixCache(const PrefixCacheSetup& setup)
    : setup_(setup), pages_((setup.tree->size() + kPage - 1) / kPage) {}

const PrefixCache::State& PrefixCache::state(PrefixBlock block) const {
  static const State kNever{};
  const auto& page = pages_[block / kPage];
  return page ? (*page)[block % kPage] : kNever;
}

PrefixCache::State& PrefixCache::state(PrefixBlock block) {
  auto& page = pages_[block / kPage];
  if (!page) page = std::make_unique<Page>();
  return (*page)[block % kPage];
}

PrefixBlock PrefixCache::find(PrefixBlock last) const {
  while (last != kNoPrefix && place(last) == Place::kNowhere) last = setup_.tree->parent(last);
  return last;
}

PrefixBlock PrefixCache::until(PrefixBlock last, std::uint32_t tokens) const {
  while (setup_.tree->end(last) > tokens) last = setup_.tree->parent(last);
  return last;
}

double PrefixCache::newly_held_bytes(PrefixBlock block) const {
  std::uint64_t tokens = 0;
  for (; block != kNoPrefix && holders(block) == 0; block = setup_.tree->parent(block)) {
    tokens += setup_.tree->tokens(block);
  }
  return bytes_of(tokens);
}

void PrefixCache::to_host(PrefixBlock block) {
  State& s = state(block);
  s.place = Place::kHost;
  s.older = host_.newest;
  s.newer = kNoPrefix;
  (host_.newest == kNoPrefix ? host_.oldest : state(host_.newest).newer) = block;
  host_.newest = block;
  host_.tokens += setup_.tree->tokens(block);
}

void PrefixCache::from_host(PrefixBlock block) {
  State& s = state(block);
  (s.older == kNoPrefix ? host_.oldest : state(s.older).newer) = s.newer;
  (s.newer == kNoPrefix ? host_.newest : state(s.newer).older) = s.older;
  host_.tokens -= setup_.tree->tokens(block);
  s.place = Place::kNowhere;
}

void PrefixCache::hold(PrefixBlock from, PrefixBlock to) {
  ++clock_;
  for (; to != from; to = setup_.tree->parent(to)) {
    check(to != kNoPrefix, "a sequence holds more of the prompt that it holds a part of");
    hold_one(to);
  }
}

void PrefixCache::hold_one(PrefixBlock block) {
  State& s = state(block);
  const std::uint32_t tokens = setup_.tree->tokens(block);
  if (s.place == Place::kNowhere) s.came = clock_, s.uses = 0;
  ++s.uses;
  if (s.holders++ > 0) return;
  held_tokens_ += tokens;
  if (s.place == Place::kDevice) {
    --idle_blocks_;
    idle_tokens_ -= tokens;
    return;
  }
  if (s.place == Place::kHost) {
    from_host(block);
    to_read_ += tokens;
    host_tokens_read_ += tokens;
  }
  s.place = Place::kDevice;
  ++state(setup_.tree->parent(block)).children;
}

void PrefixCache::hold_instead(PrefixBlock from, PrefixBlock to) {
  PrefixBlock both = from, other = to;  // the last block that both end behind
  while (both != other) {
    PrefixBlock& later = both > other ? both : other;
    later = setup_.tree->parent(later);
  }
  hold(both, to);
  let_go(both, from);
}

// From the last block to the first, so that the last goes first.
void PrefixCache::let_go(PrefixBlock before, PrefixBlock held) {
  ++clock_;
  for (; held != before; held = setup_.tree->parent(held)) let_go_one(held);
}

void PrefixCache::let_go_one(PrefixBlock block) {
  State& s = state(block);
  check(s.holders > 0, "a block is let go as often as it is held");
  if (--s.holders > 0) return;
  const std::uint32_t tokens = setup_.tree->tokens(block);
  held_tokens_ -= tokens;
  idle_tokens_ += tokens;
  ++idle_blocks_;
  s.let_go = clock_;
  const std::uint32_t next = setup_.next_uses != nullptr ? (*setup_.next_uses)[block] : kNeverUsed;
  s.rank = setup_.eviction->rank({s.came, s.uses, next, age_});
  if (s.children == 0) add_leaf(block);
}

void PrefixCache::shrink(double room) {
  while (idle_tokens_ > 0 && idle_bytes() > room) evict_one();
}

bool PrefixCache::goes_after(const Leaf& a, const Leaf& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.let_go > b.let_go;
}

void PrefixCache::add_leaf(PrefixBlock block) {
  if (leaves_.size() > 2 * idle_blocks_ + kPage) {  // most of them are leaves no longer
    std::erase_if(leaves_, [&](const Leaf& leaf) {
      const State& s = state(leaf.block);
      return !is_leaf(s) || s.let_go != leaf.let_go;
    });
    std::make_heap(leaves_.begin(), leaves_.end(), goes_after);
  }
  const State& s = state(block);
  leaves_.push_back({s.rank, s.let_go, block});
  std::push_heap(leaves_.begin(), leaves_.end(), goes_after);
}

PrefixBlock PrefixCache::take_leaf() {
  while (true) {
    check(!leaves_.empty(), "of blocks that no sequence holds, one is the last of its prompt");
    std::pop_heap(leaves_.begin(), leaves_.end(), goes_after);
    const Leaf leaf = leaves_.back();
    leaves_.pop_back();
    const State& s = state(leaf.block);
    if (is_leaf(s) && s.let_go == leaf.let_go) return leaf.block;
  }
}

void PrefixCache::evict_one() {
  const PrefixBlock block = take_leaf();
  State& s = state(block);
  --idle_blocks_;
  idle_tokens_ -= setup_.tree->tokens(block);
  s.place = Place::kNowhere;
  age_ = s.rank;
  ++evicted_;
  const PrefixBlock before = setup_.tree->parent(block);
  --state(before).children;
  if (before != kNoPrefix && is_leaf(state(before))) add_leaf(before);
  if (setup_.host_bytes <= 0) return;
  to_host(block);
  while (host_.oldest != kNoPrefix && host_bytes() > setup_.host_bytes) from_host(host_.oldest);
}

double PrefixCache::read_seconds() {
  return bytes_of(std::exchange(to_read_, 0)) / setup_.host_bytes_per_s;
}

}  // namespace kvroof
