#include <limits>

#include "sim/attention/attention.hpp"
#include "sim/policy/table_helpers.hpp"

namespace kvroof {
namespace {

constexpr std::uint32_t kDefaultStart = 100;
constexpr std::uint32_t kDefaultHistory = 100;
constexpr std::uint32_t kDefaultRecent = 10;

// From row `start` on, query i sees itself, the `recent` tokens before it, and each token that one of the `history`
// rows before it paid more than that row's threshold: entry ⌊0.9·n⌋ of the ascending row of exact attention over the n
// tokens of the prompt, later tokens as zeros. What such a row pays is then taken from its own masked attention.
// Decoded rows, of which the published code has none, count the tokens so far as n.
class ScissorhandsRefcompat final : public EvictionPolicy {
 public:
  ScissorhandsRefcompat(const PolicySpec& spec, const PolicyContext& context)
      : prompt_(context.prompt),
        start_(spec.count("start", kDefaultStart)),
        history_(spec.count("history", kDefaultHistory, 1)),
        recent_(spec.count("recent", kDefaultRecent)),
        heads_(context.storage_heads, Head(context.group)) {}

  void admit(HeadId head, SlotId slot, TokenPos) override { heads_[head.value].rows_to_hit.admit(slot); }

  void select(HeadId head, std::uint32_t g, const AttentionRows& rows, std::vector<SlotId>& read) override {
    const std::uint32_t query = rows.query.value;
    if (query < start_) return EvictionPolicy::select(head, g, rows, read);
    const std::span<const std::uint32_t> rows_to_hit = heads_[head.value].rows_to_hit.column(g, rows.slots());
    for (std::uint32_t s = 0; s < rows.slots(); ++s) {
      const bool hit = rows_to_hit[s] > 0 && query - rows_to_hit[s] < history_;
      if (hit || query - rows.positions[s].value <= recent_) read.emplace_back(s);
    }
  }

  void observe(HeadId head, const AttentionRows& rows) override {
    Head& h = heads_[head.value];
    for (std::uint32_t g = 0; g < rows.group; ++g) {
      const float threshold = threshold_of(h, rows, g);
      h.slots.clear();
      select(head, g, rows, h.slots);
      h.row.clear();
      for (const SlotId slot : h.slots) h.row.push_back(rows.logits_of(g)[slot.value]);
      softmax(h.row, h.row);
      for (std::size_t i = 0; i < h.slots.size(); ++i) {
        if (h.row[i] > threshold) h.rows_to_hit.at(g, h.slots[i]) = rows.query.value + 1;
      }
      h.walked += 2 * sizeof(std::uint32_t) * rows.slots();
    }
  }

  // All of the sequence stays in the cache.
  void capacities(TokenPos, std::uint32_t, std::span<std::uint32_t> slots) override {
    std::ranges::fill(slots, std::numeric_limits<std::uint32_t>::max());
  }
  void evict(HeadId, const EvictRequest&, std::vector<SlotId>&) override {
    check(false, "a masked simulation is never asked to evict");
  }
  void move(HeadId head, std::span<const SlotMove> moves) override { heads_[head.value].rows_to_hit.move(moves); }
  [[nodiscard]] std::uint64_t walked_state_bytes(HeadId head) const override { return heads_[head.value].walked; }

 private:
  struct Head {
    explicit Head(std::uint32_t group) : rows_to_hit(group) {}
    SlotColumns<std::uint32_t> rows_to_hit;  // rows up to the last that paid the token enough; 0: none did
    std::uint64_t walked = 0;
    // Of a row.
    std::vector<SlotId> slots;
    std::vector<float> row;
  };

  float threshold_of(Head& h, const AttentionRows& rows, std::uint32_t g) const {
    const std::uint32_t tokens = rows.query.value + 1;
    const std::uint32_t length = std::max(prompt_, tokens);
    const auto rank = static_cast<std::uint32_t>(0.9 * length);
    const std::uint32_t zeros = length - rows.slots();  // later tokens, and those that a window hides
    if (rank < zeros) return 0;
    const std::span<const float> logits = rows.logits_of(g);
    h.row.resize(logits.size());
    softmax(logits, h.row);
    const auto entry = h.row.begin() + (rank - zeros);
    std::nth_element(h.row.begin(), entry, h.row.end());
    return *entry;
  }

  std::uint32_t prompt_;
  std::uint32_t start_, history_, recent_;
  std::vector<Head> heads_;
};

PolicyTraits traits(const PolicySpec& spec) {
  (void)spec.count("start", kDefaultStart);
  (void)spec.count("history", kDefaultHistory, 1);
  (void)spec.count("recent", kDefaultRecent);
  PolicyTraits t;
  t.rows = RowNeed::kAll;
  t.needs_weights = true;  // whose logits are of all slots, read or not
  t.selects = true;
  t.streams_prompt = true;
  t.capacities = Capacities::kByLayer;
  t.query_head_sums = sizeof(std::uint32_t);
  t.flops_per_slot = 1;
  return t;
}

constexpr ParamInfo kParams[] = {
    {"start", "tokens", "100", "the first row from which tokens are hidden"},
    {"history", "tokens", "100", "rows that a token stays visible for after one that paid it more than its threshold"},
    {"recent", "tokens", "10", "last tokens before its own that each query sees"},
};

}  // namespace

extern const PolicyInfo kScissorhandsRefcompatPolicy;
constinit const PolicyInfo kScissorhandsRefcompatPolicy = {
    .name = "scissorhands-refcompat",
    .summary = "Scissorhands as its published code masks the prompt: everything stays in the cache, each query sees "
               "what the best tenth of a recent row was.",
    .source = "lzcemma/Scissorhands, the prompt pass of its OPT model; no budget, and not the paper's algorithm",
    .params = kParams,
    .traits = traits,
    .make = [](const PolicySpec& spec, const PolicyContext& context) -> std::unique_ptr<EvictionPolicy> {
      return std::make_unique<ScissorhandsRefcompat>(spec, context);
    },
    .takes_budget = false,
};

}  // namespace kvroof
