#include "sim/policy/table_helpers.hpp"

namespace kvroof {
namespace {

constexpr std::uint32_t kDefaultRecent = 128;

struct Options {
  explicit Options(const PolicySpec& spec)
      : threshold(static_cast<float>(spec.number("threshold", 0.25, 0, 1e6))),
        even_shares(spec.choice("unit", {"even", "weight"}, "even") == "even"),
        once(spec.choice("decide", {"once", "always"}, "once") == "once"),
        recent(spec.count("recent", kDefaultRecent, 1)) {}

  float threshold;
  bool even_shares;
  bool once;
  std::uint32_t recent;
};

// The score of a token is the mean attention that the rows since it came, its own included, paid to it. How many
// tokens a head holds is what the threshold leaves of them.
class Threshold final : public EvictionPolicy {
 public:
  Threshold(const PolicySpec& spec, const PolicyContext& context)
      : options_(spec), window_(context.window), heads_(context.storage_heads) {}

  void admit(HeadId head, SlotId slot, TokenPos) override { heads_[head.value].sums.admit(slot); }

  void observe(HeadId head, const AttentionRows& rows) override {
    Head& h = heads_[head.value];
    const std::uint32_t slots = rows.slots();
    const std::span<float> sums = h.sums.column(0, slots);
    h.row.assign(slots, 0.0F);
    accumulate(GroupReduction::kMean, rows.weights, rows.group, h.row);
    const float unit = options_.even_shares ? static_cast<float>(slots) : 1;
    for (std::uint32_t s = 0; s < slots; ++s) sums[s] += unit * h.row[s];
    h.walked += 2 * sums.size_bytes();
    h.first_undecided = h.next_undecided;
    std::uint32_t gone = 0;
    bool hides = false;  // the token that no later query of the layer sees: it goes before those that are judged
    for (std::uint32_t s = 0; s < slots; ++s) {
      const TokenPos position = rows.positions[s];
      const bool hidden = window_ > 0 && position.value + window_ == rows.query.value + 1;
      hides = hides || hidden;
      if (!hidden && goes(h, sums[s], position, rows.query)) ++gone;
    }
    h.stay = slots - gone - (gone > 0 && hides ? 1 : 0);
  }

  void capacities(TokenPos newest, std::uint32_t, std::span<std::uint32_t> slots) override {
    for (std::size_t h = 0; h < slots.size(); ++h) {
      slots[h] = heads_[h].stay;
      if (options_.once && newest.value + 1 > options_.recent) {
        heads_[h].next_undecided = newest.value + 1 - options_.recent;
      }
    }
  }

  void evict(HeadId head, const EvictRequest& request, std::vector<SlotId>& victims) override {
    Head& h = heads_[head.value];
    const std::span<const float> sums = h.sums.column(0, static_cast<std::uint32_t>(request.positions.size()));
    for (std::uint32_t s = 0; s < sums.size(); ++s) {
      if (goes(h, sums[s], request.positions[s], request.newest)) victims.emplace_back(s);
    }
    h.walked += sums.size_bytes();
  }

  [[nodiscard]] double score_gap(HeadId head, SlotId a, SlotId b) const override {
    const auto& sums = heads_[head.value].sums;
    return relative_gap(sums.at(0, a), sums.at(0, b));
  }

  void move(HeadId head, std::span<const SlotMove> moves) override {
    Head& h = heads_[head.value];
    h.sums.move(moves);
    h.walked += moves.size() * 2 * h.sums.bytes_per_slot();
  }

  [[nodiscard]] std::uint64_t walked_state_bytes(HeadId head) const override { return heads_[head.value].walked; }

 private:
  struct Head {
    SlotColumns<float> sums{1};
    std::vector<float> row;
    std::uint32_t stay = 0;  // tokens that would be held if the last row evicted
    // Tokens before it have passed the threshold, where that is asked once; and after the row at hand.
    std::uint32_t first_undecided = 0, next_undecided = 0;
    std::uint64_t walked = 0;
  };

  [[nodiscard]] bool goes(const Head& h, float sum, TokenPos position, TokenPos newest) const {
    const std::uint32_t rows = newest.value - position.value + 1;
    if (rows <= options_.recent || position.value < h.first_undecided) return false;
    return sum < options_.threshold * static_cast<float>(rows);
  }

  Options options_;
  std::uint32_t window_;
  std::vector<Head> heads_;
};

PolicyTraits traits(const PolicySpec& spec) {
  (void)Options(spec);
  PolicyTraits t;
  t.rows = RowNeed::kAll;
  t.needs_weights = true;
  t.reads_logits = false;
  t.unit = mean_or_none_unit(spec);
  read_schedule(spec, t);
  t.capacities = Capacities::kByHead;
  t.state_bytes = t.state_read = t.state_written = t.evict_read = sizeof(float);
  t.flops_per_slot = 2;
  return t;
}

constexpr ParamInfo kParams[] = {
    {"threshold", "number", "0.25", "the least mean attention with which a token stays"},
    {"unit", "even | weight", "even",
     "of the threshold: even shares, 1 / tokens that the row attends to, or softmax weights as they are"},
    {"decide", "once | always", "once", "when a token becomes older than `recent`, or at every eviction from then on"},
    {"recent", "tokens | 6", "128", "most recent tokens, which always stay"},
    {"group", "mean | none", "mean",
     "over the query heads that share a KV head; none: a set for each, k and v stored for each"},
    kWhenParam,
};

}  // namespace

extern const PolicyInfo kThresholdPolicy;
constinit const PolicyInfo kThresholdPolicy = {
    .name = "threshold",
    .summary = "Evicts tokens whose mean attention is below a threshold once they are no longer recent: heads hold as "
               "many as pass it.",
    .source = "the rule of kvpress' DMSPress (Dynamic Memory Sparsification: Łańcucki et al., 2025, without its "
              "trained scores), with attention as the score",
    .params = kParams,
    .traits = traits,
    .make = [](const PolicySpec& spec, const PolicyContext& context) -> std::unique_ptr<EvictionPolicy> {
      return std::make_unique<Threshold>(spec, context);
    },
    .takes_budget = false,
};

}  // namespace kvroof
