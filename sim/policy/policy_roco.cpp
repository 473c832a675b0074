#include <algorithm>
#include <limits>

#include "sim/policy/layer_budgets.hpp"
#include "sim/policy/table_helpers.hpp"

namespace kvroof {
namespace {

constexpr TokensOrShare kDefaultRobust = {true, 0.3};
constexpr TokensOrShare kDefaultRecent = {false, 10};
constexpr std::uint32_t kDefaultSinks = 4;
constexpr float kStays = std::numeric_limits<float>::max();

// Of each token the mean and the variance of the attention that the rows since it came, its own included, paid to it.
// How many rows these are follows from its position.
class RoCo final : public EvictionPolicy {
 public:
  RoCo(const PolicySpec& spec, const PolicyContext& context)
      : robust_(tokens_or_share(spec, "robust", kDefaultRobust)),
        recent_(tokens_or_share(spec, "recent", kDefaultRecent)),
        sinks_(spec.count("sinks", kDefaultSinks)),
        heads_(context.storage_heads) {}

  void admit(HeadId head, SlotId slot, TokenPos) override { heads_[head.value].columns.admit(slot); }

  // Welford's update: rows that pay alike leave no variance.
  void observe(HeadId head, const AttentionRows& rows) override {
    Head& h = heads_[head.value];
    h.row.assign(rows.slots(), 0.0F);
    accumulate(GroupReduction::kMean, rows.weights, rows.group, h.row);
    const std::span<float> means = h.columns.column(kMean, rows.slots());
    const std::span<float> distances = h.columns.column(kDistances, rows.slots());
    for (std::uint32_t s = 0; s < rows.slots(); ++s) {
      const float off = h.row[s] - means[s];
      means[s] += off / rows_since(rows.query, rows.positions[s]);
      distances[s] += off * (h.row[s] - means[s]);
    }
    h.walked += 2 * (means.size_bytes() + distances.size_bytes());
  }

  // In the scope are the tokens with the lowest variances, all but robust + sinks + 1; of these the lowest means go.
  void evict(HeadId head, const EvictRequest& request, std::vector<SlotId>& victims) override {
    Head& h = heads_[head.value];
    const Candidates old = outside_recent(request, recent_);
    const std::uint32_t free = find_variances(h, request, old);
    const auto slots = static_cast<std::uint32_t>(request.positions.size());
    const std::uint64_t stay = std::uint64_t{robust_.of(request.budget)} + sinks_ + 1;
    const auto scope = static_cast<std::uint32_t>(stay < slots ? slots - stay : 0);
    h.scope.clear();
    lowest(h.variances, old, std::max(request.excess, std::min(scope, free)), h.scope);
    const std::span<const float> means = h.columns.column(kMean, slots);
    h.scores.assign(slots, kStays);
    for (const SlotId s : h.scope) h.scores[s.value] = means[s.value];
    lowest(h.scores, old, request.excess, victims);
    h.walked += slots * h.columns.bytes_per_slot();
  }

  // A token outside the scope would go if its variance were the lower one.
  [[nodiscard]] double score_gap(HeadId head, SlotId a, SlotId b) const override {
    const Head& h = heads_[head.value];
    const bool in_scope = std::max(h.scores[a.value], h.scores[b.value]) < kStays;
    const std::vector<float>& decide = in_scope ? h.scores : h.variances;
    return relative_gap(decide[a.value], decide[b.value]);
  }

  void move(HeadId head, std::span<const SlotMove> moves) override {
    Head& h = heads_[head.value];
    h.columns.move(moves);
    h.walked += moves.size() * 2 * h.columns.bytes_per_slot();
  }

  [[nodiscard]] std::unique_ptr<EvictionPolicy> clone() const override { return std::make_unique<RoCo>(*this); }
  [[nodiscard]] std::uint64_t walked_state_bytes(HeadId head) const override { return heads_[head.value].walked; }

 private:
  static constexpr std::uint32_t kMean = 0;
  static constexpr std::uint32_t kDistances = 1;  // squared, from the mean, added up
  struct Head {
    SlotColumns<float> columns{2};
    std::vector<float> row;
    std::vector<float> variances, scores;  // of the last eviction, by slot
    std::vector<SlotId> scope;
    std::uint64_t walked = 0;
  };

  static float rows_since(TokenPos query, TokenPos position) {
    return static_cast<float>(query.value - position.value + 1);
  }

  // How many tokens are neither first nor recent ones.
  std::uint32_t find_variances(Head& h, const EvictRequest& request, const Candidates& old) const {
    const auto slots = static_cast<std::uint32_t>(request.positions.size());
    const std::span<const float> distances = h.columns.column(kDistances, slots);
    std::uint32_t free = 0;
    h.variances.resize(slots);
    for (std::uint32_t s = 0; s < slots; ++s) {
      const TokenPos position = request.positions[s];
      const bool is_sink = position.value < sinks_;
      h.variances[s] = is_sink ? kStays : distances[s] / rows_since(request.newest, position);
      if (!is_sink && old.has(s)) ++free;
    }
    return free;
  }

  TokensOrShare robust_, recent_;
  std::uint32_t sinks_;
  std::vector<Head> heads_;
};

PolicyTraits traits(const PolicySpec& spec) {
  (void)tokens_or_share(spec, "robust", kDefaultRobust);
  (void)tokens_or_share(spec, "recent", kDefaultRecent);
  (void)spec.count("sinks", kDefaultSinks);
  PolicyTraits t;
  t.rows = RowNeed::kAll;
  t.needs_weights = true;
  t.reads_logits = false;
  t.unit = mean_or_none_unit(spec);
  t.streams_prompt = spec.choice("prompt", {"once", "stream"}, "once") == "stream";
  t.state_bytes = t.state_read = t.state_written = t.evict_read = 2 * sizeof(float);
  t.flops_per_slot = 7;
  read_layers(spec, t);
  return t;
}

constexpr ParamInfo kParams[] = {
    {"robust", "tokens | share of k", "0.3",
     "tokens that stay, beside one and the sinks, because the attention to them varies most from row to row"},
    {"recent", "tokens | share of k", "10", "most recent tokens, which always stay"},
    {"sinks", "tokens", "4", "first tokens that stay before all others"},
    {"prompt", "once | stream", "once", "one eviction after the prompt, or token by token"},
    {"group", "mean | none", "mean",
     "take the mean attention of the query heads that share a KV head; none: a set for each, k and v stored for each"},
    kLayersParam,
};

std::string advice(const PolicySpec& spec, std::uint32_t k) {
  return room_for_sinks_advice(spec.count("sinks", kDefaultSinks), tokens_or_share(spec, "recent", kDefaultRecent), k);
}

}  // namespace

extern const PolicyInfo kRoCoPolicy;
constinit const PolicyInfo kRoCoPolicy = {
    .name = "roco",
    .summary = "Keeps the tokens whose attention varies most from row to row, and of the others those with the largest "
               "mean attention.",
    .source = "RoCo: Ren and Zhu, 2024; as its code, EasyKV, evicts",
    .params = kParams,
    .traits = traits,
    .make = [](const PolicySpec& spec, const PolicyContext& context) -> std::unique_ptr<EvictionPolicy> {
      return std::make_unique<RoCo>(spec, context);
    },
    .advice = advice,
};

}  // namespace kvroof
