// The prefix cache of one server: blocks of prompts that running sequences share, and that stay after these until
// their memory is needed.
//
// A block is held by the sequences whose prompts it is part of, once for all of them. When the last of them ends, it
// stays as long as there is room: the one that was let go first goes first, of one prompt the last. So a block goes
// before those in front of it, and no block stays that cannot be found: what vLLM V1 does (automatic prefix caching,
// blocks are freed from the last to the first), and RadixAttention (Zheng et al., NeurIPS 2024: the least recently used
// leaf). What goes may stay in the host's memory, in the same order, and be read back from there.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "sim/serving/prefix_tree.hpp"

namespace kvroof {

struct PrefixCacheSetup {
  const PrefixTree* tree = nullptr;  // outlives the caches
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
  void let_go(PrefixBlock held);
  // Blocks that no sequence holds go until the others take no more than `room` bytes of the device.
  void shrink(double room);

  [[nodiscard]] const PrefixCacheSetup& setup() const { return setup_; }
  [[nodiscard]] double bytes_of(std::uint64_t tokens) const { return setup_.token_bytes * static_cast<double>(tokens); }
  [[nodiscard]] double held_bytes() const { return bytes_of(held_tokens_); }
  [[nodiscard]] double idle_bytes() const { return bytes_of(idle_.tokens); }  // of blocks that no sequence holds
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
    std::uint32_t holders = 0;
    std::uint32_t children = 0;  // on the device
    PrefixBlock older = kNoPrefix, newer = kNoPrefix;  // in the queue that it is in
    Place place = Place::kNowhere;
  };
  // Blocks in the order in which they go.
  struct Queue {
    PrefixBlock oldest = kNoPrefix, newest = kNoPrefix;
    std::uint64_t tokens = 0;
  };
  // Requests of a trace meet many servers: each has memory for the blocks that it saw.
  static constexpr std::size_t kPage = 64;
  using Page = std::array<State, kPage>;

  [[nodiscard]] const State& state(PrefixBlock block) const;
  State& state(PrefixBlock block);
  void put(Queue& queue, PrefixBlock block);
  void take(Queue& queue, PrefixBlock block);
  void hold_one(PrefixBlock block);
  void evict_oldest();

  PrefixCacheSetup setup_;
  std::vector<std::unique_ptr<Page>> pages_;
  Queue idle_, host_;
  std::uint64_t held_tokens_ = 0, evicted_ = 0;
  std::uint64_t host_tokens_read_ = 0, to_read_ = 0;
};

}  // namespace kvroof
