// LayerPolicy: slots, eviction and accounting of one (sequence, layer) under one policy; stepped alike by engine and
// replay.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "sim/core/aligned_vector.hpp"
#include "sim/core/ids.hpp"
#include "sim/core/residency.hpp"
#include "sim/policy/policy.hpp"
#include "sim/policy/spec.hpp"

namespace kvroof {

// What the end of a row did to one storage head.
struct HeadEviction {
  std::vector<TokenPos> evicted;  // what the policy gave up, ascending; what a window hides is not among them
  std::vector<RowMerge> merges;   // to be applied to k and v first, rows numbered as those shown to finish_row()
  std::vector<SlotMove> moves;    // to be applied to k and v in this order (to ≠ from)

  void clear() {
    evicted.clear();
    merges.clear();
    moves.clear();
  }
};

// Slots of a head are dense whenever attention runs: positions(h)[s] is the token in slot s, for every slot. After a
// single eviction its slot is a hole, which the next admitted token fills; after several, the last survivors fill the
// holes (moves). After the prompt, if it is not whole, the survivors are packed in the order of their slots and all of
// them count as moved: they are copied from the layer's prompt buffer into the cache. That buffer is not allocated
// cache: the rows allocated after such a prompt are the survivors, from the first decoded token on one more a head. A
// bound that selects (the oracle) keeps every token, so that it can choose anew at each row; its counts are those of a
// cache of its budget.
//
// Where a layer has a sliding window w, a head never holds a token that the window hides, so that every count is that
// of a cache of at most w slots: the token that the window leaves behind gives its slot to the one that comes, without
// a word to the policy. While a prompt is admitted, token t thus lies in slot t mod w. A head over its budget first
// gives up the token that no later row will see; the policy is asked for what is still too much.
class LayerPolicy {
 public:
  // `kv_heads` and `query_heads` are the model's; traits().unit decides which of them is the storage head.
  LayerPolicy(const PolicySpec& spec, const PolicyContext& model_context, std::uint32_t query_heads,
              std::uint32_t kv_heads);

  // The same with an entry of one's own, which need not be in the table.
  LayerPolicy(const PolicyInfo& info, const PolicySpec& spec, const PolicyContext& model_context,
              std::uint32_t query_heads, std::uint32_t kv_heads);

  [[nodiscard]] const PolicyTraits& traits() const { return traits_; }
  [[nodiscard]] std::uint32_t storage_heads() const { return context_.storage_heads; }
  [[nodiscard]] std::uint32_t group() const { return context_.group; }  // query heads of a storage head
  [[nodiscard]] std::uint32_t window() const { return context_.window; }
  [[nodiscard]] const LayerRotation& rotation() const { return context_.rotation; }
  // Whether the logits of the query at `position` are to be relocated (relocate_logits()).
  [[nodiscard]] bool relocates(TokenPos position) const {
    return traits_.slot_positions() && position.value >= context_.prompt;
  }
  [[nodiscard]] std::uint64_t rows_held() const;  // in all heads
  // Slots that a head may hold after the last finish_row that might evict; before the first, by the budget alone.
  [[nodiscard]] std::uint32_t capacity(HeadId head) const { return capacities_[head.value]; }
  // Whether policy and window keep every token of the prompt, as far as the budget tells, so that its rows may go
  // straight into the cache. Of a policy whose heads have capacities that no budget tells it is never said.
  [[nodiscard]] bool keeps_prompt() const;
  // The most rows that the head will hold at once from now on, the incoming token counted, in a sequence of
  // `most_tokens` tokens at the end. Where the policy gives its heads more later, it is what is known now.
  [[nodiscard]] std::uint32_t most_rows(HeadId head, std::uint32_t most_tokens) const;

  // The slot that the token at `position` takes in this head; every head admits every token, in order.
  // Safe for different heads at once. Counts a row that reads every slot the head then holds.
  SlotId admit(HeadId head, TokenPos position);
  // The same for the first tokens of the prompt, in every head, where nothing looks at the rows between.
  void admit_first(std::uint32_t count);
  // By slot. Between finish_row and the next admit a head may have a hole; then these are the tokens without it.
  [[nodiscard]] std::span<const TokenPos> positions(HeadId head) const;

  // Whether the policy looks at the attention of the query at `position`.
  [[nodiscard]] bool observes(TokenPos position) const;
  // Shows the row to the policy if it observes it. Safe for different heads at once.
  void observe(HeadId head, const AttentionRows& rows);
  // For policies that select: appends the slots that query head g reads; called for each g of the group, from 0 on.
  // Where traits().page > 0, `source` knows the rows of every slot, the new token's among them. Not for several heads
  // at once.
  void select(HeadId head, std::uint32_t g, const AttentionRows& rows, std::vector<SlotId>& read,
              const HeadRowsSource* source = nullptr);

  // Whether one object may look at a prompt for others of the same policy and parameters, whatever their budgets; these
  // take over what it has seen before any row is finished.
  [[nodiscard]] bool shares_prompt() const { return !traits_.streams_prompt && policy_->clone() != nullptr; }
  void share_prompt(const LayerPolicy& seen);

  // Ends the row of the query at `position` (after all heads observed): evicts where the policy's schedule and the
  // budget say so. What happened to each head is in eviction(head) until the next call. Where traits().tensors asks
  // for rows, `rows` knows them: those of every slot, as they lie before what this call moves.
  void finish_row(TokenPos position, const HeadRowsSource* rows = nullptr);
  // Whether decode rows may also be ended head by head: no head's victims depend on what another holds. Then a head may
  // be taken through several rows before the next, or different heads at once. What take_head_counts() says after
  // each is added up by row, and count_allocated() of the rows in turn makes that what take_counts() returns.
  [[nodiscard]] bool ends_heads() const;
  void finish_head(HeadId head, TokenPos position);
  LayerCounts take_head_counts(HeadId head);
  void count_allocated(LayerCounts& counts);
  [[nodiscard]] const HeadEviction& eviction(HeadId head) const { return evictions_[head.value]; }
  // Whether the last finish_row packed the prompt's survivors (moves are copies out of the prompt buffer).
  [[nodiscard]] bool packed_prompt() const { return packed_prompt_; }

  // Called in finish_row with the slots that a head is about to give up, once for each head that evicts (also where one
  // set serves the layer). A comparison with a recording may put other occupied slots, as many, in their place.
  using Review = std::function<void(HeadId head, std::span<const TokenPos> positions, std::vector<SlotId>& victims)>;
  void set_review(Review review) { review_ = std::move(review); }
  // EvictionPolicy::score_gap of the decision under review.
  [[nodiscard]] double score_gap(HeadId head, SlotId a, SlotId b) const {
    return policy_->score_gap(traits_.one_set_per_layer() ? HeadId(0) : head, a, b);
  }

  // Step of a query position: 0 for the prompt, i for the i-th decoded token.
  [[nodiscard]] StepId step_of(TokenPos position) const;

  // Counts of the step so far; take() returns them and starts the next step.
  LayerCounts take_counts();
  // Policy state that the policy itself walked in all heads since the last call, in bytes.
  std::uint64_t take_walked_state_bytes();
  // Where an engine reads elements of k for what the policy looks at and no row does.
  void note_read(HeadId head, std::uint64_t elements) { heads_[head.value].read_elements += elements; }
  // Elements of k, v and q that the policy itself read in all heads since the last call.
  std::uint64_t take_read_elements();

 private:
  // Where freed slots lead: a hole for the next token when it is one, or dense slots, those of a prompt in their order.
  enum class Close : std::uint8_t { kLeaveHole, kFill, kPack };
  struct Head {
    AlignedVector<TokenPos> positions;  // by slot
    std::optional<SlotId> hole;
    std::uint32_t visible_from = 0;  // tokens before it were taken out because a window hides them
    mutable AlignedVector<TokenPos> without_hole;
    // Of the step so far, with the head, so that heads can be served at once; allocated is what finish_head() found.
    LayerCounts counts;
    std::uint64_t walked = 0;  // what was taken of the policy's count
    std::uint64_t read_elements = 0;
    std::uint64_t walked_pages = 0;       // elements
    std::uint32_t paged = 0;              // tokens whose keys joined the bounds of their pages
    std::uint32_t scored = 0;             // tokens of which a policy that reads rows once was shown those it holds
    std::vector<std::uint8_t> is_read;    // by slot: some query head of the group reads it in this row

    [[nodiscard]] std::uint64_t present() const { return positions.size() - (hole ? 1 : 0); }
  };
  [[nodiscard]] std::uint32_t budget_at(TokenPos position) const;
  [[nodiscard]] bool evicts_after(TokenPos position) const;
  [[nodiscard]] double keys_turned(const Head& head, TokenPos position) const;
  std::optional<SlotId> take_hidden(Head& head, TokenPos query) const;
  void set_capacities(TokenPos newest, std::uint32_t budget);
  std::uint32_t budget_of_layer(std::uint32_t budget, std::uint32_t tokens);
  [[nodiscard]] std::uint32_t budget_of_layer_at(std::uint32_t tokens) const;
  void drop_hidden(HeadId head, TokenPos position, bool pack);
  void bring_to_capacity(HeadId head, TokenPos position, bool pack);
  void order(HeadId head, TokenPos newest);
  [[nodiscard]] std::uint64_t elements_to_score(const HeadRows& rows, const Head& head, TokenPos newest) const;
  void score_heads(TokenPos newest);
  [[nodiscard]] EvictRequest request_for(HeadId head, TokenPos newest) const;
  [[nodiscard]] std::uint64_t pages_from(const Head& head, std::uint32_t first) const;
  void show_keys(HeadId head, const HeadRowsSource* source);
  void show_request(HeadId head, TokenPos newest, const std::function<void(const EvictRequest&)>& show);
  void choose_victims(HeadId head, TokenPos newest);
  void review_victims(HeadId head);
  void merge_victims(HeadId head, TokenPos newest);
  void free_slots(HeadId head, Close close);
  void plan_packing(const Head& head, HeadEviction& eviction) const;
  void plan_filling(const Head& head, HeadEviction& eviction, std::size_t left) const;
  void evict_from_heads(TokenPos position, std::uint32_t budget);
  void pack_prompt();
  void leave_prompt_buffer();

  PolicyTraits traits_;
  PolicyContext context_;
  Budget budget_;
  std::unique_ptr<EvictionPolicy> policy_;
  std::vector<Head> heads_;
  std::vector<HeadEviction> evictions_;
  std::vector<std::uint32_t> capacities_;  // by head
  Review review_;
  HeadTensors::Scratch tensor_scratch_;
  const HeadRowsSource* rows_ = nullptr;  // of the row that is being finished
  std::uint64_t allocated_ = 0;
  std::uint64_t allocated_paged_ = 0;
  std::uint32_t budget_now_ = 0;  // of a bound
  std::uint32_t shared_ = 0, own_share_ = 0;  // a budget, and what of it is this layer's
  bool packed_prompt_ = false;
};

}  // namespace kvroof
