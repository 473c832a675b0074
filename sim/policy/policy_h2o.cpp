#include "sim/policy/table_helpers.hpp"

namespace kvroof {
namespace {

constexpr TokensOrShare kDefaultRecent = {true, 0.5};

// The score of a token is the attention that all rows since it came, its own included, paid to it.
class H2o final : public EvictionPolicy {
 public:
  H2o(const PolicySpec& spec, const PolicyContext& context)
      : recent_(tokens_or_share(spec, "recent", kDefaultRecent)),
        reduction_(group_reduction(spec)),
        heads_(context.storage_heads) {}

  void admit(HeadId head, SlotId slot, TokenPos) override { heads_[head.value].scores.admit(slot); }

  void observe(HeadId head, const AttentionRows& rows) override {
    Head& h = heads_[head.value];
    const std::span<float> scores = h.scores.column(0, rows.slots());
    accumulate(reduction_, rows.weights, rows.group, scores);
    h.walked += 2 * scores.size_bytes();
  }

  void evict(HeadId head, const EvictRequest& request, std::vector<SlotId>& victims) override {
    Head& h = heads_[head.value];
    const std::span<float> scores = h.scores.column(0, static_cast<std::uint32_t>(request.positions.size()));
    lowest(scores, outside_recent(request, recent_), request.excess, victims);
    h.walked += scores.size_bytes();
  }

  [[nodiscard]] double score_gap(HeadId head, SlotId a, SlotId b) const override {
    const auto& scores = heads_[head.value].scores;
    return relative_gap(scores.at(0, a), scores.at(0, b));
  }

  void move(HeadId head, std::span<const SlotMove> moves) override {
    Head& h = heads_[head.value];
    h.scores.move(moves);
    h.walked += moves.size() * 2 * h.scores.bytes_per_slot();
  }

  [[nodiscard]] std::uint64_t walked_state_bytes(HeadId head) const override { return heads_[head.value].walked; }

 private:
  struct Head {
    SlotColumns<float> scores{1};
    std::uint64_t walked = 0;
  };
  TokensOrShare recent_;
  GroupReduction reduction_;
  std::vector<Head> heads_;
};

PolicyTraits traits(const PolicySpec& spec) {
  (void)tokens_or_share(spec, "recent", kDefaultRecent);
  (void)group_reduction(spec);
  PolicyTraits t;
  t.rows = RowNeed::kAll;
  t.needs_weights = true;
  t.unit = group_unit(spec);
  read_schedule(spec, t);
  t.state_bytes = t.state_read = t.state_written = t.evict_read = sizeof(float);
  t.flops_per_slot = 1;
  return t;
}

ScoreRecipe recipe(const PolicySpec& spec) {
  return {.kind = ScoreRecipe::Kind::kAttentionSum,
          .recent = tokens_or_share(spec, "recent", kDefaultRecent),
          .reduction = group_reduction(spec)};
}

constexpr ParamInfo kParams[] = {
    {"recent", "tokens | share of k", "0.5", "most recent tokens, which always stay; the others are heavy hitters"},
    kGroupParam,
    kWhenParam,
};

}  // namespace

extern const PolicyInfo kH2oPolicy;
constinit const PolicyInfo kH2oPolicy = {
    .name = "h2o",
    .summary = "Keeps recent tokens and heavy hitters: those with the largest attention summed over all rows so far.",
    .source = "H2O: Zhang et al., NeurIPS 2023; as its real-drop code evicts",
    .params = kParams,
    .traits = traits,
    .make = [](const PolicySpec& spec, const PolicyContext& context) -> std::unique_ptr<EvictionPolicy> {
      return std::make_unique<H2o>(spec, context);
    },
    .recipe = recipe,
};

}  // namespace kvroof
