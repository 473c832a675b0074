#include <algorithm>
#include <limits>

#include "sim/policy/table_helpers.hpp"

namespace kvroof {
namespace {

struct Options {
  explicit Options(const PolicySpec& spec)
      : recovery(spec.number("recovery", 0.95, 0, 1)),
        frequent(spec.number("frequent", 0.3, 0, 1)),
        local(spec.number("local", 0.3, 0, 1)),
        sinks(spec.count("sinks", 1)),
        kinds(spec.choice("kinds", {"tokenizer", "none"}, "tokenizer") == "tokenizer") {}

  double recovery, frequent, local;
  std::uint32_t sinks;
  bool kinds;
};

// What a head keeps, each with all before it, from the cheapest on.
enum class Rung : std::uint8_t { kSpecial, kPunctuation, kFrequent, kLocal, kFull };

// In the prompt each head takes the cheapest rung that recovers enough of the attention that the prompt's rows paid,
// and stays with it. What a rung names always stays; of the others the frequent ones do: those with the largest sums of
// attention over all rows so far.
class FastGen final : public EvictionPolicy {
 public:
  FastGen(const PolicySpec& spec, const PolicyContext& context)
      : options_(spec),
        context_(context),
        frequent_(static_cast<std::uint32_t>(options_.frequent * context.prompt)),
        local_(std::max(1U, static_cast<std::uint32_t>(options_.local * context.prompt))),
        heads_(context.storage_heads) {}

  void admit(HeadId head, SlotId slot, TokenPos) override { heads_[head.value].sums.admit(slot); }

  void observe(HeadId head, const AttentionRows& rows) override {
    Head& h = heads_[head.value];
    const std::uint32_t slots = rows.slots();
    const std::span<float> all = h.sums.column(kAll, slots);
    const std::span<float> nearby = h.sums.column(kNearby, slots);
    h.row.assign(slots, 0.0F);
    accumulate(GroupReduction::kMean, rows.weights, rows.group, h.row);
    for (std::uint32_t s = 0; s < slots; ++s) {
      all[s] += h.row[s];
      if (is_local(rows.positions[s], rows.query)) nearby[s] += h.row[s];
    }
    h.walked += 2 * (all.size_bytes() + nearby.size_bytes());
    if (rows.query.value + 1 == context_.prompt) h.rung = cheapest(h, rows);
    h.named = 0;
    for (const TokenPos position : rows.positions) {
      // The token that no later query of the layer sees goes by itself.
      const bool hidden = context_.window > 0 && position.value + context_.window == rows.query.value + 1;
      if (!hidden && is_named(h.rung, position, rows.query)) ++h.named;
    }
  }

  void capacities(TokenPos, std::uint32_t, std::span<std::uint32_t> slots) override {
    for (std::size_t h = 0; h < slots.size(); ++h) {
      const Head& head = heads_[h];
      slots[h] = head.rung == Rung::kFull ? std::numeric_limits<std::uint32_t>::max()
                                          : head.named + (head.rung >= Rung::kFrequent ? frequent_ : 0);
    }
  }

  void evict(HeadId head, const EvictRequest& request, std::vector<SlotId>& victims) override {
    Head& h = heads_[head.value];
    const std::span<const float> all = h.sums.column(kAll, static_cast<std::uint32_t>(request.positions.size()));
    h.row.assign(all.begin(), all.end());
    h.stays.assign(h.row.size(), 0);
    for (std::uint32_t s = 0; s < h.row.size(); ++s) {
      if (!is_named(h.rung, request.positions[s], request.newest)) continue;
      h.stays[s] = 1;
      h.row[s] = std::numeric_limits<float>::max();
    }
    lowest(h.row, {request.positions, request.newest}, request.excess, victims);
    h.walked += all.size_bytes();
  }

  [[nodiscard]] double score_gap(HeadId head, SlotId a, SlotId b) const override {
    const Head& h = heads_[head.value];
    if (h.stays[a.value] != h.stays[b.value]) return 1;  // no rounding decides what is named
    return relative_gap(h.sums.at(kAll, a), h.sums.at(kAll, b));
  }

  void move(HeadId head, std::span<const SlotMove> moves) override {
    Head& h = heads_[head.value];
    h.sums.move(moves);
    h.walked += moves.size() * 2 * h.sums.bytes_per_slot();
  }

  [[nodiscard]] std::uint64_t walked_state_bytes(HeadId head) const override { return heads_[head.value].walked; }

 private:
  static constexpr std::uint32_t kAll = 0;     // column: attention of all rows
  static constexpr std::uint32_t kNearby = 1;  // of those to which the token was local

  struct Head {
    SlotColumns<float> sums{2};
    Rung rung = Rung::kFull;
    std::uint32_t named = 0;  // tokens held that always stay
    std::uint64_t walked = 0;
    std::vector<float> row;
    std::vector<std::uint8_t> stays;  // by slot, at the last eviction
    std::vector<std::uint32_t> order;
  };

  [[nodiscard]] bool is_local(TokenPos position, TokenPos query) const {
    return query.value - position.value < local_;
  }
  [[nodiscard]] bool is_named(Rung rung, TokenPos position, TokenPos newest) const {
    if (rung == Rung::kFull || position.value < options_.sinks) return true;
    if (rung == Rung::kLocal && is_local(position, newest)) return true;
    if (!options_.kinds) return false;
    const TokenKind kind = (*context_.token_kinds)[position.value];
    return kind == TokenKind::kSpecial || (kind == TokenKind::kPunctuation && rung >= Rung::kPunctuation);
  }

  Rung cheapest(Head& h, const AttentionRows& rows) const {
    double paid = 0;
    for (const float sum : h.sums.column(kAll, rows.slots())) paid += static_cast<double>(sum);
    for (const Rung rung : {Rung::kSpecial, Rung::kPunctuation, Rung::kFrequent, Rung::kLocal}) {
      if (recovered(h, rows, rung) >= options_.recovery * paid) return rung;
    }
    return Rung::kFull;
  }

  // Attention of the prompt's rows to what the rung would have let them see.
  double recovered(Head& h, const AttentionRows& rows, Rung rung) const {
    const std::span<const float> all = h.sums.column(kAll, rows.slots());
    const std::span<const float> nearby = h.sums.column(kNearby, rows.slots());
    double sum = 0;
    h.order.clear();
    for (std::uint32_t s = 0; s < all.size(); ++s) {
      if (is_named(rung == Rung::kLocal ? Rung::kFrequent : rung, rows.positions[s], rows.query)) {
        sum += static_cast<double>(all[s]);
      } else if (rung == Rung::kLocal && is_local(rows.positions[s], rows.query)) {
        sum += static_cast<double>(nearby[s]);
      } else {
        h.order.push_back(s);
      }
    }
    if (rung < Rung::kFrequent) return sum;
    const std::size_t count = std::min<std::size_t>(frequent_, h.order.size());
    std::ranges::nth_element(h.order, h.order.begin() + static_cast<std::ptrdiff_t>(count),
                             [&](std::uint32_t a, std::uint32_t b) {
                               return all[a] != all[b] ? all[a] > all[b] : rows.positions[a] > rows.positions[b];
                             });
    for (std::size_t i = 0; i < h.order.size(); ++i) {
      const std::uint32_t s = h.order[i];
      if (i < count || rung == Rung::kLocal) sum += static_cast<double>(i < count ? all[s] : nearby[s]);
    }
    return sum;
  }

  Options options_;
  PolicyContext context_;
  std::uint32_t frequent_, local_;
  std::vector<Head> heads_;
};

PolicyTraits traits(const PolicySpec& spec) {
  const Options options(spec);
  PolicyTraits t;
  t.rows = RowNeed::kAll;
  t.needs_weights = true;
  t.reads_logits = false;
  t.needs.add(HostNeed::kTokenKinds, options.kinds);
  t.unit = mean_or_none_unit(spec);
  t.capacities = Capacities::kByHead;
  t.state_bytes = t.state_read = t.state_written = 2 * sizeof(float);
  t.evict_read = sizeof(float);
  t.flops_per_slot = 2;
  return t;
}

constexpr ParamInfo kParams[] = {
    {"recovery", "share | 0.5", "0.95", "of the prompt's attention, that a head must recover with what it keeps"},
    {"frequent", "share", "0.3", "most attended tokens, of the prompt's length"},
    {"local", "share", "0.3", "most recent tokens, of the prompt's length"},
    {"sinks", "tokens", "1", "first tokens, which always stay"},
    {"kinds", "tokenizer | none", "tokenizer",
     "where special tokens and punctuation are told from; none: they count as others"},
    {"group", "mean | none", "mean",
     "over the query heads that share a KV head; none: a set for each, k and v stored for each"},
};

}  // namespace

extern const PolicyInfo kFastGenPolicy;
constinit const PolicyInfo kFastGenPolicy = {
    .name = "fastgen",
    .summary = "Each head keeps the cheapest of special tokens, punctuation, frequent and local tokens, or everything, "
               "that recovers enough of the prompt's attention.",
    .source = "FastGen: Ge et al., ICLR 2024; recovery as cold-compress measures it",
    .params = kParams,
    .traits = traits,
    .make = [](const PolicySpec& spec, const PolicyContext& context) -> std::unique_ptr<EvictionPolicy> {
      if (Options(spec).kinds && context.token_kinds == nullptr) {
        throw usage_error(
            "policy fastgen tells special tokens and punctuation by the model's tokenizer, which is not at hand here; "
            "expected a model folder with tokenizer.json, in the engine or named by the replayed trace, or "
            "kinds=none, which lets them count as others");
      }
      return std::make_unique<FastGen>(spec, context);
    },
    .takes_budget = false,
};

}  // namespace kvroof
