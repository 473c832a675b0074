#include <algorithm>

#include "sim/policy/attention_sums.hpp"

namespace kvroof {
namespace {

constexpr TokensOrShare kDefaultRecent = {true, 0.5};

// Once after the prompt and group=max: the query heads' sums meet only then, as in KVCache-Factory's H2OKVCluster. At
// every step rows meet as they come, so that one sum a slot suffices; for sums and means that is the same.
bool takes_largest_sum(const PolicySpec& spec) {
  PolicyTraits t;
  read_schedule(spec, t);
  return t.schedule == Schedule::kPrefillOnly && group_reduction(spec) == GroupReduction::kMax;
}

// The score of a token: the largest of the query heads' sums of the attention that the prompt's rows pay to it.
class LargestSums final : public EvictionPolicy {
 public:
  LargestSums(TokensOrShare recent, std::uint32_t page, const PolicyContext& context)
      : recent_(recent), context_(context), heads_(context.storage_heads, Head(context.group, page)) {}

  void admit(HeadId head, SlotId slot, TokenPos position) override {
    if (position.value < context_.prompt) heads_[head.value].sums.admit(slot);
  }

  void observe(HeadId head, const AttentionRows& rows) override {
    Head& h = heads_[head.value];
    const std::span<float> largest = h.sums.column(0, rows.slots());
    for (std::uint32_t g = 0; g < rows.group; ++g) {
      const std::span<float> sums = h.sums.column(g, rows.slots());
      accumulate(GroupReduction::kSum, rows.weights_of(g).data(), 1, sums);
      h.walked += 2 * sums.size_bytes();
    }
    if (rows.query.value + 1 != context_.prompt) return;
    for (std::uint32_t g = 1; g < rows.group; ++g) {
      std::ranges::transform(largest, h.sums.column(g, rows.slots()), largest.begin(),
                             [](float a, float b) { return std::max(a, b); });
    }
  }

  void evict(HeadId head, const EvictRequest& request, std::vector<SlotId>& victims) override {
    Head& h = heads_[head.value];
    const std::span<float> scores = h.sums.column(0, static_cast<std::uint32_t>(request.positions.size()));
    h.choice.choose(scores, outside_recent(request, recent_), request.excess, victims);
    h.walked += scores.size_bytes();
  }

  [[nodiscard]] double score_gap(HeadId head, SlotId a, SlotId b) const override {
    const Head& h = heads_[head.value];
    return h.choice.gap(h.sums.column(0, std::max(a.value, b.value) + 1), a, b);
  }

  void move(HeadId head, std::span<const SlotMove> moves) override { heads_[head.value].sums.move(moves); }

  [[nodiscard]] std::uint64_t walked_state_bytes(HeadId head) const override { return heads_[head.value].walked; }

 private:
  struct Head {
    Head(std::uint32_t group, std::uint32_t page) : sums(group), choice(page) {}
    SlotColumns<float> sums;  // of each query head; after the prompt's last row the first holds the largest
    PageVictims choice;
    std::uint64_t walked = 0;
  };

  TokensOrShare recent_;
  PolicyContext context_;
  std::vector<Head> heads_;
};

PolicyTraits traits(const PolicySpec& spec) {
  PolicyTraits t = attention_sums_traits(spec, kDefaultRecent);
  if (!takes_largest_sum(spec)) return t;
  t.scales_weights = false;
  t.state_bytes = t.state_read = t.state_written = 0;
  t.query_head_sums = sizeof(float);
  return t;
}

std::unique_ptr<EvictionPolicy> make(const PolicySpec& spec, const PolicyContext& context) {
  const TokensOrShare recent = tokens_or_share(spec, "recent", kDefaultRecent);
  const std::uint32_t page = spec.count("page", 1);
  if (takes_largest_sum(spec)) return std::make_unique<LargestSums>(recent, page, context);
  return std::make_unique<AttentionSums>(recent, group_reduction(spec), page, 1, context);
}

ScoreRecipe recipe(const PolicySpec& spec) {
  return {.kind = ScoreRecipe::Kind::kAttentionSum,
          .complete = !takes_largest_sum(spec),
          .recent = tokens_or_share(spec, "recent", kDefaultRecent),
          .reduction = group_reduction(spec)};
}

constexpr ParamInfo kParams[] = {
    {"recent", "tokens | share of k", "0.5", "most recent tokens, which always stay; the others are heavy hitters"},
    kGroupParam,
    kPageParam,
    kWhenParam,
    kLayersParam,
};

}  // namespace

extern const PolicyInfo kH2oPolicy;
constinit const PolicyInfo kH2oPolicy = {
    .name = "h2o",
    .summary = "Keeps recent tokens and heavy hitters: those with the largest attention summed over all rows so far.",
    .source = "H2O: Zhang et al., NeurIPS 2023; as its real-drop code evicts",
    .params = kParams,
    .traits = traits,
    .make = make,
    .recipe = recipe,
};

}  // namespace kvroof
