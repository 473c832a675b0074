// What a prefix cache of some size finds of a trace's prompts under an order of eviction (a miss-ratio curve, of which
// this is the complement): without a server, so that thousands of requests take milliseconds.
//
// Requests come one after the other. Each finds the longest part of its prompt that is there, then has all of it there,
// and what is more than the cache has room for goes. The last token of a prompt is never found: it makes the answer.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "sim/serving/prefix_cache.hpp"
#include "sim/serving/requests.hpp"

namespace kvroof {

struct PrefixFinds {
  std::uint64_t tokens = 0;    // of prompts, that were found
  std::uint64_t requests = 0;  // that found some of their prompt
  std::uint64_t evicted = 0;   // blocks
};

// Requests of which `prefix` names the last block in a tree, which both outlive it.
class PrefixReplay {
 public:
  PrefixReplay(const PrefixTree& tree, std::span<const Request> requests);

  [[nodiscard]] std::uint64_t prompt_tokens() const { return prompt_tokens_; }  // of all prompts
  [[nodiscard]] std::uint64_t distinct_tokens() const { return distinct_tokens_; }  // of all blocks, each once

  [[nodiscard]] std::uint64_t block_tokens() const { return block_tokens_; }  // of the longest block

  static constexpr std::uint64_t kInfinite = std::numeric_limits<std::uint64_t>::max();
  // By a cache with room for `capacity` tokens. May be called by several threads at once.
  [[nodiscard]] PrefixFinds finds(const PrefixEviction& eviction, std::uint64_t capacity) const;

 private:
  const PrefixTree& tree_;
  std::span<const Request> requests_;
  std::uint64_t prompt_tokens_ = 0, distinct_tokens_ = 0, block_tokens_ = 0;
  std::vector<std::uint32_t> next_uses_;  // of each block of each request, the last of its prompt first
};

}  // namespace kvroof
