#include "sim/serving/prefix_cache.hpp"

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

void PrefixCache::put(Queue& queue, PrefixBlock block) {
  State& s = state(block);
  s.older = queue.newest;
  s.newer = kNoPrefix;
  (queue.newest == kNoPrefix ? queue.oldest : state(queue.newest).newer) = block;
  queue.newest = block;
  queue.tokens += setup_.tree->tokens(block);
}

void PrefixCache::take(Queue& queue, PrefixBlock block) {
  const State& s = state(block);
  (s.older == kNoPrefix ? queue.oldest : state(s.older).newer) = s.newer;
  (s.newer == kNoPrefix ? queue.newest : state(s.newer).older) = s.older;
  queue.tokens -= setup_.tree->tokens(block);
}

void PrefixCache::hold(PrefixBlock from, PrefixBlock to) {
  for (; to != from; to = setup_.tree->parent(to)) {
    check(to != kNoPrefix, "a sequence holds more of the prompt that it holds a part of");
    hold_one(to);
  }
}

void PrefixCache::hold_one(PrefixBlock block) {
  State& s = state(block);
  if (s.holders++ > 0) return;
  const std::uint32_t tokens = setup_.tree->tokens(block);
  held_tokens_ += tokens;
  if (s.place == Place::kDevice) return take(idle_, block);
  if (s.place == Place::kHost) {
    take(host_, block);
    to_read_ += tokens;
    host_tokens_read_ += tokens;
  }
  s.place = Place::kDevice;
  ++state(setup_.tree->parent(block)).children;
}

// From the last block to the first, so that the last goes first.
void PrefixCache::let_go(PrefixBlock held) {
  for (; held != kNoPrefix; held = setup_.tree->parent(held)) {
    State& s = state(held);
    check(s.holders > 0, "a block is let go as often as it is held");
    if (--s.holders > 0) continue;
    held_tokens_ -= setup_.tree->tokens(held);
    put(idle_, held);
  }
}

void PrefixCache::shrink(double room) {
  while (idle_.oldest != kNoPrefix && idle_bytes() > room) evict_oldest();
}

void PrefixCache::evict_oldest() {
  const PrefixBlock block = idle_.oldest;
  State& s = state(block);
  check(s.children == 0 && s.holders == 0, "a block goes after those that follow it");
  take(idle_, block);
  --state(setup_.tree->parent(block)).children;
  ++evicted_;
  s.place = Place::kNowhere;
  if (setup_.host_bytes <= 0) return;
  s.place = Place::kHost;
  put(host_, block);
  while (host_.oldest != kNoPrefix && host_bytes() > setup_.host_bytes) {
    const PrefixBlock oldest = host_.oldest;
    take(host_, oldest);
    state(oldest).place = Place::kNowhere;
  }
}

double PrefixCache::read_seconds() {
  return bytes_of(std::exchange(to_read_, 0)) / setup_.host_bytes_per_s;
}

}  // namespace kvroof
