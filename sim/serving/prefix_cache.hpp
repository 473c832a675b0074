// The prefix cache of one server: blocks of prompts that running sequences share, and that stay after these until
// their memory is needed.
//
// A block is held by the sequences whose prompts it is part of, once for all of them. When the last of them ends, it
// stays as long as there is room. A block goes before those in front of it, so that none stays which cannot be found;
// of the last blocks that are left the one that prefix_eviction.hpp's order says, by default the least recently used.
// So does RadixAttention (Zheng et al., NeurIPS 2024), and vLLM V1 (automatic prefix caching), which frees blocks from
// the last to the first. What goes may stay in the host's memory, where what came first goes first, and be read back.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "sim/serving/prefix_eviction.hpp"
#include "sim/serving/prefix_tree.hpp"

namespace kvroof {

struct PrefixCacheSetup {
  const PrefixTree* tree = nullptr;  // outlives the caches
  const PrefixEviction* eviction = &prefix_evictions()[0];
  // For orders that foresee: the next request that begins with each block, kNeverUsed if none. Outlives the caches.
  const std::vector<std::uint32_t>* next_uses = nullptr;
  double token_bytes = 1;            // of one device: a token of a prompt in all layers
  // Most bytes of one device that blocks take which no running sequence holds, where that much is free.
  double most_bytes = std::numeric_limits<double>::infinity();
  bool loses_nothing = false;        // blocks that no sequence holds take no memory and stay for ever
  // The policy evicts from prompts: what a sequence keeps is not made of whole blocks. It holds those that were found
  // until its prompt is computed, whole, and then keeps what the policy holds as its own beside them.
  bool copies = false;
  double host_bytes = 0;             // of the host's memory, for one device
  double host_bytes_per_s = 1;       // from there to the device
};

class PrefixCache {
 public:
  explicit PrefixCache(const PrefixCacheSetup& setup);
  PrefixCache(PrefixCache&&) noexcept = default;

  // The longest part of the prompt that ends with `last` which is there, on the device or on the host.
  [[nodiscard]] PrefixBlock find(PrefixBlock last) const;
  // The longest part of it that ends by so many tokens.
  [[nodiscard]] PrefixBlock until(PrefixBlock last, std::uint32_t tokens) const;
  // Bytes on the device that holding it would take from what may go: blocks that no sequence holds now.
  [[nodiscard]] double newly_held_bytes(PrefixBlock block) const;
  // A sequence that holds `from` holds `to`, which is the same or comes after it, as well. Those that are not on the
  // device are put there.
  void hold(PrefixBlock from, PrefixBlock to);
  // A sequence that holds `from` holds `to`, which is of the same prompt and need not come after it.
  void hold_instead(PrefixBlock from, PrefixBlock to);
  void let_go(PrefixBlock held) { let_go(kNoPrefix, held); }
  // Blocks that no sequence holds go until the others take no more than `room` bytes of the device.
  void shrink(double room);

  [[nodiscard]] const PrefixCacheSetup& setup() const { return setup_; }
  [[nodiscard]] double bytes_of(std::uint64_t tokens) const { return setup_.token_bytes * static_cast<double>(tokens); }
  [[nodiscard]] double held_bytes() const { return bytes_of(held_tokens_); }
  [[nodiscard]] double idle_bytes() const { return bytes_of(idle_tokens_); }  // of blocks that no sequence holds
  [[nodiscard]] double host_bytes() const { return bytes_of(host_.tokens); }
  [[nodiscard]] std::uint64_t evicted() const { return evicted_; }  // blocks that left the device
  [[nodiscard]] std::uint64_t host_tokens_read() const { return host_tokens_read_; }
  // Seconds in which what hold() took from the host since the last call is read.
  double read_seconds();

  enum class Place : std::uint8_t { kNowhere, kHost, kDevice };
  [[nodiscard]] Place place(PrefixBlock block) const { return state(block).place; }
  [[nodiscard]] std::uint32_t holders(PrefixBlock block) const { return state(block).holders; }

 private:
  struct State {
    double rank = 0;
    std::uint32_t holders = 0;
    std::uint32_t children = 0;     // on the device
    std::uint32_t came = 0, uses = 0, let_go = 0;
    PrefixBlock older = kNoPrefix, newer = kNoPrefix;  // on the host
    Place place = Place::kNowhere;
  };
  // Blocks on the host in the order in which they came.
  struct Queue {
    PrefixBlock oldest = kNoPrefix, newest = kNoPrefix;
    std::uint64_t tokens = 0;
  };
  // A last block that no sequence holds, as it was when it became one.
  struct Leaf {
    double rank;
    std::uint32_t let_go;
    PrefixBlock block;
  };
  // Requests of a trace meet many servers: each has memory for the blocks that it saw.
  static constexpr std::size_t kPage = 64;
  using Page = std::array<State, kPage>;

  [[nodiscard]] const State& state(PrefixBlock block) const;
  State& state(PrefixBlock block);
  [[nodiscard]] bool is_leaf(const State& s) const {
    return s.place == Place::kDevice && s.holders == 0 && s.children == 0;
  }
  [[nodiscard]] static bool goes_after(const Leaf& a, const Leaf& b);
  void to_host(PrefixBlock block);
  void from_host(PrefixBlock block);
  void hold_one(PrefixBlock block);
  void let_go(PrefixBlock before, PrefixBlock held);
  void let_go_one(PrefixBlock block);
  void add_leaf(PrefixBlock block);
  PrefixBlock take_leaf();
  void evict_one();

  PrefixCacheSetup setup_;
  std::vector<std::unique_ptr<Page>> pages_;
  // A heap, the next to go in front. Blocks that were held again, or followed by others, are passed over: they are in
  // it once more when they are leaves again.
  std::vector<Leaf> leaves_;
  Queue host_;
  double age_ = 0;            // rank of the block that went last
  std::uint32_t clock_ = 0;   // counts what sequences hold and let go
  std::uint64_t idle_blocks_ = 0, idle_tokens_ = 0;
  std::uint64_t held_tokens_ = 0, evicted_ = 0;
  std::uint64_t host_tokens_read_ = 0, to_read_ = 0;
};

}  // namespace kvroof
