#include "sim/policy/table_helpers.hpp"

namespace kvroof {
namespace {

// Score of a token: the mean attention that the prompt's rows which see it pay to it. Sums over all rows are divided by
// the number of rows when victims are chosen.
class ObservedAttention final : public EvictionPolicy {
 public:
  ObservedAttention(GroupReduction reduction, const PolicyContext& context)
      : reduction_(reduction), context_(context), heads_(context.storage_heads) {}

  void admit(HeadId head, SlotId slot, TokenPos position) override {
    if (position.value < context_.prompt) heads_[head.value].sums.admit(slot);
  }

  void observe(HeadId head, const AttentionRows& rows) override {
    Head& h = heads_[head.value];
    const std::span<float> sums = h.sums.column(0, rows.slots());
    accumulate(reduction_, rows.weights, rows.group, sums);
    h.walked += 2 * sums.size_bytes();
  }

  void evict(HeadId head, const EvictRequest& request, std::vector<SlotId>& victims) override {
    Head& h = heads_[head.value];
    const std::span<float> sums = h.sums.column(0, static_cast<std::uint32_t>(request.positions.size()));
    h.walked += sums.size_bytes();
    h.means.resize(sums.size());
    for (std::size_t s = 0; s < sums.size(); ++s) {
      h.means[s] = sums[s] / static_cast<float>(rows_that_see(request.positions[s]));
    }
    lowest(h.means, {request.positions, request.newest, 0}, request.excess, victims);
  }

  [[nodiscard]] double score_gap(HeadId head, SlotId a, SlotId b) const override {
    const std::vector<float>& means = heads_[head.value].means;
    return relative_gap(means[a.value], means[b.value]);
  }

  void move(HeadId head, std::span<const SlotMove> moves) override { heads_[head.value].sums.move(moves); }

  [[nodiscard]] std::uint64_t walked_state_bytes(HeadId head) const override { return heads_[head.value].walked; }

 private:
  struct Head {
    SlotColumns<float> sums{1};
    std::vector<float> means;
    std::uint64_t walked = 0;
  };
  [[nodiscard]] std::uint32_t rows_that_see(TokenPos position) const {
    const std::uint32_t rows = context_.prompt - position.value;
    return context_.window > 0 ? std::min(rows, context_.window) : rows;
  }

  GroupReduction reduction_;
  PolicyContext context_;
  std::vector<Head> heads_;
};

PolicyTraits traits(const PolicySpec& spec) {
  (void)group_reduction(spec);
  PolicyTraits t;
  t.rows = RowNeed::kAll;
  t.needs_weights = true;
  t.reads_logits = false;
  t.adds_up_rows = true;
  t.unit = group_unit(spec);
  t.schedule = Schedule::kPrefillOnly;
  t.state_read = t.state_written = t.evict_read = sizeof(float);
  t.flops_per_slot = 1;
  return t;
}

constexpr ParamInfo kParams[] = {kGroupParam};

}  // namespace

extern const PolicyInfo kObservedAttentionPolicy;
constinit const PolicyInfo kObservedAttentionPolicy = {
    .name = "observed-attention",
    .summary = "Once after the prompt: keeps the tokens with the largest mean attention of the rows that see them.",
    .source = "kvpress, ObservedAttentionPress; H2O's prompt phase, corrected for the age of a token",
    .params = kParams,
    .traits = traits,
    .make = [](const PolicySpec& spec, const PolicyContext& context) -> std::unique_ptr<EvictionPolicy> {
      return std::make_unique<ObservedAttention>(group_reduction(spec), context);
    },
};

}  // namespace kvroof
