#include <algorithm>
#include <cmath>
#include <limits>

#include "sim/policy/layer_budgets.hpp"
#include "sim/policy/table_helpers.hpp"

namespace kvroof {
namespace {

constexpr std::uint32_t kDefaultSinks = 20;
constexpr TokensOrShare kDefaultRecent = {true, 0.5};
constexpr float kProtected = std::numeric_limits<float>::max();
constexpr float kUnknown = -1;  // no norm

// 0: all rows of the prompt count.
std::uint32_t last_rows(const PolicySpec& spec) {
  return spec.find("rows").value_or("all") == "all" ? 0 : spec.count("rows", 0, 1);
}

// The score of a token is the attention that rows paid to it, as H2O adds it up, times ‖v‖₁. First and recent tokens
// stay before all others.
class Vatp final : public EvictionPolicy {
 public:
  Vatp(const PolicySpec& spec, const PolicyContext& context)
      : sinks_(spec.count("sinks", kDefaultSinks)),
        recent_(tokens_or_share(spec, "recent", kDefaultRecent)),
        reduction_(group_reduction(spec)),
        heads_(context.storage_heads) {}

  void admit(HeadId head, SlotId slot, TokenPos) override {
    SlotColumns<float>& columns = heads_[head.value].columns;
    columns.admit(slot);
    columns.at(kNorm, slot) = kUnknown;
  }

  void observe(HeadId head, const AttentionRows& rows) override {
    Head& h = heads_[head.value];
    const std::span<float> sums = h.columns.column(kSum, rows.slots());
    accumulate({rows.scaled_weights(), rows.group, reduction_}, sums);
    h.walked += 2 * sums.size_bytes();
  }

  void evict(HeadId head, const EvictRequest& request, std::vector<SlotId>& victims) override {
    Head& h = heads_[head.value];
    find_norms(h, request);
    const auto slots = static_cast<std::uint32_t>(request.positions.size());
    const std::span<const float> sums = h.columns.column(kSum, slots);
    const std::span<const float> norms = h.columns.column(kNorm, slots);
    h.scores.resize(slots);
    for (std::uint32_t s = 0; s < slots; ++s) {
      h.scores[s] = request.positions[s].value < sinks_ ? kProtected : sums[s] * norms[s];
    }
    h.walked += sums.size_bytes() + norms.size_bytes();
    lowest(h.scores, outside_recent(request, recent_), request.excess, victims);
  }

  [[nodiscard]] double score_gap(HeadId head, SlotId a, SlotId b) const override {
    return relative_gap(heads_[head.value].scores[a.value], heads_[head.value].scores[b.value]);
  }

  void move(HeadId head, std::span<const SlotMove> moves) override {
    Head& h = heads_[head.value];
    h.columns.move(moves);
    h.walked += moves.size() * 2 * h.columns.bytes_per_slot();
  }

  [[nodiscard]] std::unique_ptr<EvictionPolicy> clone() const override { return std::make_unique<Vatp>(*this); }
  [[nodiscard]] std::uint64_t walked_state_bytes(HeadId head) const override { return heads_[head.value].walked; }

 private:
  static constexpr std::uint32_t kSum = 0;
  static constexpr std::uint32_t kNorm = 1;
  struct Head {
    SlotColumns<float> columns{2};
    std::vector<float> scores;  // of the last eviction, by slot
    std::vector<SlotId> order;  // slots whose norms it found
    std::vector<float> values;  // v of these
    std::uint64_t walked = 0;
  };

  // Of the tokens that came since the last eviction.
  void find_norms(Head& h, const EvictRequest& request) {
    HeadTensors& tensors = *request.tensors;
    h.order.clear();
    for (std::uint32_t s = 0; s < request.positions.size(); ++s) {
      if (h.columns.at(kNorm, SlotId(s)) == kUnknown) h.order.emplace_back(s);
    }
    tensors.read_values(h.order, h.values);
    const std::size_t width = tensors.value_width();
    for (std::size_t i = 0; i < h.order.size(); ++i) {
      double norm = 0;
      for (std::size_t c = 0; c < width; ++c) norm += std::abs(static_cast<double>(h.values[i * width + c]));
      h.columns.at(kNorm, h.order[i]) = static_cast<float>(norm);
    }
    tensors.count_flops(static_cast<double>(h.values.size()));
  }

  std::uint32_t sinks_;
  TokensOrShare recent_;
  GroupReduction reduction_;
  std::vector<Head> heads_;
};

PolicyTraits traits(const PolicySpec& spec) {
  (void)spec.count("sinks", kDefaultSinks);
  (void)tokens_or_share(spec, "recent", kDefaultRecent);
  (void)group_reduction(spec);
  PolicyTraits t;
  t.last_rows = last_rows(spec);
  t.rows = t.last_rows > 0 ? RowNeed::kLast : RowNeed::kAll;
  t.needs_weights = t.scales_weights = t.adds_up_rows = true;
  t.reads_logits = false;
  t.tensors = {.values = true, .once = true};
  t.unit = group_unit(spec);
  read_schedule(spec, t);
  read_layers(spec, t);
  t.state_read = t.state_written = sizeof(float);
  t.state_bytes = t.evict_read = 2 * sizeof(float);
  t.flops_per_slot = 1;
  return t;
}

constexpr ParamInfo kParams[] = {
    {"sinks", "tokens", "20", "first tokens that stay before all others"},
    {"recent", "tokens | share of k", "0.5", "most recent tokens, which always stay"},
    {"rows", "all | 16", "all",
     "rows of the prompt whose attention is added up: all, as h2o, or the last so many, as Scissorhands has them"},
    kGroupParam,
    kWhenParam,
    kLayersParam,
};

// Sinks are tied at the top: the oldest go.
std::string advice(const PolicySpec& spec, std::uint32_t k) {
  return room_for_sinks_advice(spec.count("sinks", kDefaultSinks), tokens_or_share(spec, "recent", kDefaultRecent), k);
}

}  // namespace

extern const PolicyInfo kVatpPolicy;
constinit const PolicyInfo kVatpPolicy = {
    .name = "vatp",
    .summary = "Keeps the first and the recent tokens and those with the largest attention summed over rows, times the "
               "L1 norm of v.",
    .source = "VATP: Guo et al., EMNLP 2024; its rule, with tokens that are gone for good",
    .params = kParams,
    .traits = traits,
    .make = [](const PolicySpec& spec, const PolicyContext& context) -> std::unique_ptr<EvictionPolicy> {
      return std::make_unique<Vatp>(spec, context);
    },
    .advice = advice,
};

}  // namespace kvroof
