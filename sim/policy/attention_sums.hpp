// AttentionSums: scores that add up the attention of all rows, for H2O and what follows from it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sim/policy/layer_budgets.hpp"
#include "sim/policy/page_victims.hpp"
#include "sim/policy/table_helpers.hpp"

namespace kvroof {

// The score of a token is the attention that all rows since it came, its own included, paid to it; with every row,
// what earlier rows paid counts `forgetting` times what it did.
class AttentionSums final : public EvictionPolicy {
 public:
  AttentionSums(TokensOrShare recent, GroupReduction reduction, std::uint32_t page, float forgetting,
                const PolicyContext& context)
      : recent_(recent), reduction_(reduction), forgetting_(forgetting), heads_(context.storage_heads, Head(page)) {}

  void admit(HeadId head, SlotId slot, TokenPos position) override {
    heads_[head.value].scores.admit(slot, position);
  }
  void observe(HeadId head, const AttentionRows& rows) override;
  void evict(HeadId head, const EvictRequest& request, std::vector<SlotId>& victims) override;
  [[nodiscard]] double score_gap(HeadId head, SlotId a, SlotId b) const override;
  void move(HeadId head, std::span<const SlotMove> moves) override;
  [[nodiscard]] std::unique_ptr<EvictionPolicy> clone() const override {
    return std::make_unique<AttentionSums>(*this);
  }
  [[nodiscard]] std::uint64_t walked_state_bytes(HeadId head) const override { return heads_[head.value].walked; }

 private:
  struct Head {
    explicit Head(std::uint32_t page) : choice(page) {}
    GrowingScores scores;
    PageVictims choice;
    std::uint64_t walked = 0;
  };
  TokensOrShare recent_;
  GroupReduction reduction_;
  float forgetting_;
  std::vector<Head> heads_;
};

// Traits of such policies: parameters recent, group, page, when and layers.
PolicyTraits attention_sums_traits(const PolicySpec& spec, TokensOrShare default_recent);

}  // namespace kvroof
