// LayerPolicy: slots, eviction and accounting of one (sequence, layer) under one policy; stepped alike by engine and replay.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "sim/core/ids.hpp"
#include "sim/core/residency.hpp"
#include "sim/policy/policy.hpp"
#include "sim/policy/spec.hpp"

namespace kvroof {

// What the end of a row did to one storage head.
struct HeadEviction {
  std::vector<TokenPos> evicted;  // ascending positions
  std::vector<SlotMove> moves;    // to be applied to k and v in this order (to ≠ from)
};

// Slots of a head are dense whenever attention runs: positions(h)[s] is the token in slot s, for all s < positions(h).size().
// After a single eviction its slot is a hole, which the next admitted token fills; after several, the last survivors
// fill the holes (moves). After the prompt, if anything was evicted, the survivors are packed in ascending order and all
// of them count as moved: they are copied from the layer's prompt buffer into the cache.
class LayerPolicy {
 public:
  // `kv_heads` and `query_heads` are the model's; traits().unit decides which of them is the storage head.
  LayerPolicy(const PolicySpec& spec, const PolicyContext& model_context, std::uint32_t query_heads, std::uint32_t kv_heads);

  [[nodiscard]] const PolicyTraits& traits() const { return traits_; }
  [[nodiscard]] std::uint32_t storage_heads() const { return context_.storage_heads; }
  [[nodiscard]] std::uint32_t group() const { return context_.group; }  // query heads of a storage head

  // The slot that the token at `position` takes in this head; every head admits every token, in order.
  SlotId admit(HeadId head, TokenPos position);
  [[nodiscard]] std::span<const TokenPos> positions(HeadId head) const;

  // Shows the row to the policy if it wants rows. Safe for different heads at once.
  void observe(HeadId head, const AttentionRows& rows);
  // For policies that select: the slots that query head g reads.
  void select(HeadId head, std::uint32_t g, const AttentionRows& rows, std::vector<SlotId>& read);

  // Ends the row of the query at `position` (after all heads observed): evicts where the policy's schedule and the budget say so.
  // What happened to each head is in eviction(head) until the next call.
  void finish_row(TokenPos position);
  [[nodiscard]] const HeadEviction& eviction(HeadId head) const { return evictions_[head.value]; }
  // Whether the last finish_row packed the prompt's survivors (moves are copies out of the prompt buffer).
  [[nodiscard]] bool packed_prompt() const { return packed_prompt_; }

  // Called in finish_row with the slots that a head is about to give up, once for each head that evicts (also where one set
  // serves the layer). A comparison with a recording may put other occupied slots, as many, in their place.
  using Review = std::function<void(HeadId head, std::span<const TokenPos> positions, std::vector<SlotId>& victims)>;
  void set_review(Review review) { review_ = std::move(review); }

  // Step of a query position: 0 for the prompt, i for the i-th decoded token.
  [[nodiscard]] StepId step_of(TokenPos position) const;

  // Counts of the step so far; take() returns them and starts the next step.
  LayerCounts take_counts();
  // Policy state that the policy itself walked in all heads since the last call, in bytes.
  std::uint64_t take_walked_state_bytes();

 private:
  struct Head {
    std::vector<TokenPos> positions;  // by slot; a hole is marked in `hole`
    std::int64_t hole = -1;
    std::uint64_t walked = 0;
  };
  void evict_head(HeadId head, std::span<const SlotId> victims, bool pack);

  PolicyTraits traits_;
  PolicyContext context_;
  Budget budget_;
  std::unique_ptr<EvictionPolicy> policy_;
  std::vector<Head> heads_;
  std::vector<HeadEviction> evictions_;
  std::vector<SlotId> victims_;
  LayerCounts counts_;
  std::uint64_t allocated_ = 0;
  bool packed_prompt_ = false;
  Review review_;
};

}  // namespace kvroof
