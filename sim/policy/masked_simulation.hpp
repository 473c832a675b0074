// MaskedSimulation: policies whose published code hides tokens from attention and keeps all of them in the cache.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/policy/table_helpers.hpp"

namespace kvroof {

// With K tokens after a row, the mask for the next query has K + 1 entries. Its last `recent` ones are visible, the
// incoming token among them; of the first K − recent tokens the `heavy` with the largest sums of attention are. The
// token between the two is not, so that every token that leaves the recent window is invisible at once. Sets are those
// of each query head; nothing is evicted.
class MaskedSimulation : public EvictionPolicy {
 public:
  struct Sizes {
    std::uint32_t heavy = 0;
    std::uint32_t recent = 0;
  };
  explicit MaskedSimulation(const PolicyContext& context)
      : context_(context), heads_(context.storage_heads, Head(context.group)) {}

  void admit(HeadId head, SlotId slot, TokenPos position) final;
  void select(HeadId head, std::uint32_t g, const AttentionRows& rows, std::vector<SlotId>& read) final;
  void observe(HeadId head, const AttentionRows& rows) final;
  void evict(HeadId head, const EvictRequest& request, std::vector<SlotId>& victims) final;
  void move(HeadId head, std::span<const SlotMove> moves) final;
  [[nodiscard]] std::uint64_t walked_state_bytes(HeadId head) const final { return heads_[head.value].walked; }

 protected:
  [[nodiscard]] const PolicyContext& context() const { return context_; }
  // Of the mask that follows a row with so many tokens.
  [[nodiscard]] virtual Sizes sizes(std::uint32_t tokens) const = 0;
  // What a row adds to the sums of the tokens that it sees: weights [positions.size()] of their logits.
  virtual void weigh(HeadId head, std::uint32_t g, const AttentionRows& rows, std::span<const TokenPos> positions,
                     std::span<const float> logits, std::span<float> weights) = 0;
  // Whether a token that was invisible may be seen again. The sum of one that is dropped is 0 from then on, except, if
  // so, that of the token between heavy and recent ones.
  [[nodiscard]] virtual bool returns() const = 0;

 private:
  struct Head {
    explicit Head(std::uint32_t group) : sums(group), visible(group) {}
    SlotColumns<float> sums;  // of each query head
    SlotColumns<std::uint8_t> visible;
    std::uint64_t walked = 0;
    // Of a row: what is visible.
    std::vector<SlotId> slots;
    std::vector<TokenPos> positions;
    std::vector<float> logits, weights;
  };
  void add_row(HeadId head, std::uint32_t g, const AttentionRows& rows);
  void choose(Head& head, std::uint32_t g, const AttentionRows& rows);

  PolicyContext context_;
  std::vector<Head> heads_;
};

// Traits of such policies. Its sums and masks belong to the simulation: what rows do to the sums is counted, as memory
// they are not.
PolicyTraits masked_traits();

}  // namespace kvroof
