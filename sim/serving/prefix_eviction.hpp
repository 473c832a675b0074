// In which order a prefix cache gives up blocks that no running sequence holds.
//
// Whatever the order says, a block goes after those that follow it in a prompt: it is not found without the ones in
// front of it. Of the last blocks that are left, the one with the lowest rank goes, of equal ranks the one that was let
// go first.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include "sim/core/error.hpp"

namespace kvroof {

inline constexpr std::uint32_t kNeverUsed = std::numeric_limits<std::uint32_t>::max();

// What is known of a block when the last sequence lets it go.
struct BlockHistory {
  std::uint32_t came = 0;           // when it came into the cache, on a clock that counts what happens
  std::uint32_t uses = 0;           // sequences that have held it since
  std::uint32_t next = kNeverUsed;  // number of the next request that begins with it, where that is known
  double age = 0;                   // rank of the block that went last
};

struct PrefixEviction {
  std::string_view name;
  std::string_view summary;  // one line
  std::string_view source;
  double (*rank)(const BlockHistory& block);
  bool foresees = false;  // knows the requests to come: a bound, which no server reaches
};

// LRU first, which is what a cache does that is not told.
std::span<const PrefixEviction> prefix_evictions();
// Fails with the names that there are; `foreseeing`: also of orders that know what comes.
Result<const PrefixEviction*> prefix_eviction(std::string_view name, bool foreseeing = true);

}  // namespace kvroof
