#include "sim/policy/layer_budgets.hpp"
#include "sim/policy/table_helpers.hpp"

namespace kvroof {
namespace {

constexpr std::uint32_t kDefaultHistory = 400;
constexpr TokensOrShare kDefaultRecent = {false, 10};
constexpr TokensOrShare kDefaultDrop = {true, 0.5};

std::uint32_t history_rows(const PolicySpec& spec) { return remembered_rows(spec, "history", kDefaultHistory); }

std::uint32_t history_words(const PolicySpec& spec) { return (history_rows(spec) + 31) / 32; }

bool is_reading_a(const PolicySpec& spec) { return spec.choice("reading", {"A", "B"}, "A") == "A"; }
bool threshold_is_count(const PolicySpec& spec) {
  return spec.choice("threshold", {"count", "length"}, "count") == "count";
}

// Reading A counts, of the last `history` rows, those that paid a token less than the threshold, and drops the largest
// counts; reading B counts those that paid it more, and drops the smallest. Equal to the threshold is neither. A ring
// of one bit a row remembers what leaves the count.
class Scissorhands final : public EvictionPolicy {
 public:
  Scissorhands(const PolicySpec& spec, const PolicyContext& context)
      : recent_(tokens_or_share(spec, "recent", kDefaultRecent)),
        drop_(tokens_or_share(spec, "drop", kDefaultDrop)),
        history_(history_rows(spec)),
        reading_a_(is_reading_a(spec)),
        threshold_is_count_(threshold_is_count(spec)),
        heads_(context.storage_heads, Head(1 + history_words(spec))) {}

  void admit(HeadId head, SlotId slot, TokenPos) override { heads_[head.value].columns.admit(slot); }

  void observe(HeadId head, const AttentionRows& rows) override {
    Head& h = heads_[head.value];
    const std::uint32_t slots = rows.slots();
    const float* attention = group_mean(h, rows);
    const float threshold = 1.0F / static_cast<float>(threshold_is_count_ ? slots : rows.query.value + 1);
    const std::uint32_t row = rows.query.value % history_;
    const std::uint32_t shift = row % 32;
    const std::span<std::uint32_t> counts = h.columns.column(0, slots);
    const std::span<std::uint32_t> ring = h.columns.column(1 + row / 32, slots);
    for (std::uint32_t s = 0; s < slots; ++s) {
      const std::uint32_t hit = (reading_a_ ? attention[s] < threshold : attention[s] > threshold) ? 1 : 0;
      const std::uint32_t gone = ring[s] >> shift & 1U;
      counts[s] += hit - gone;
      ring[s] ^= (hit ^ gone) << shift;
    }
    h.walked += 2 * (counts.size_bytes() + ring.size_bytes());
  }

  void evict(HeadId head, const EvictRequest& request, std::vector<SlotId>& victims) override {
    Head& h = heads_[head.value];
    const auto slots = static_cast<std::uint32_t>(request.positions.size());
    const std::span<std::uint32_t> counts = h.columns.column(0, slots);
    h.row.resize(slots);
    for (std::uint32_t s = 0; s < slots; ++s) {
      h.row[s] = reading_a_ ? -static_cast<float>(counts[s]) : static_cast<float>(counts[s]);
    }
    const std::uint32_t drop = std::max(drop_.of(request.budget), request.excess);
    lowest(h.row, outside_recent(request, recent_), drop, victims);
    h.walked += counts.size_bytes();
  }

  // Attention within rounding of the threshold makes one more or one less of a count.
  [[nodiscard]] double score_gap(HeadId head, SlotId a, SlotId b) const override {
    const auto& counts = heads_[head.value].columns;
    const auto [less, more] = std::minmax(counts.at(0, a), counts.at(0, b));
    return more - less <= 1 ? 0 : relative_gap(less + 1, more);
  }

  void move(HeadId head, std::span<const SlotMove> moves) override {
    Head& h = heads_[head.value];
    h.columns.move(moves);
    h.walked += moves.size() * 2 * h.columns.bytes_per_slot();
  }

  [[nodiscard]] std::uint64_t walked_state_bytes(HeadId head) const override { return heads_[head.value].walked; }

 private:
  struct Head {
    explicit Head(std::uint32_t count) : columns(count) {}
    SlotColumns<std::uint32_t> columns;  // count, then the words of the ring
    std::vector<float> row;
    std::uint64_t walked = 0;
  };

  static const float* group_mean(Head& head, const AttentionRows& rows) {
    if (rows.group == 1) return rows.weights;
    head.row.assign(rows.slots(), 0.0F);
    accumulate(GroupReduction::kMean, rows.weights, rows.group, head.row);
    return head.row.data();
  }

  TokensOrShare recent_;
  TokensOrShare drop_;
  std::uint32_t history_;
  bool reading_a_;
  bool threshold_is_count_;
  std::vector<Head> heads_;
};

PolicyTraits traits(const PolicySpec& spec) {
  (void)tokens_or_share(spec, "recent", kDefaultRecent);
  (void)tokens_or_share(spec, "drop", kDefaultDrop);
  (void)is_reading_a(spec);
  (void)threshold_is_count(spec);
  PolicyTraits t;
  t.rows = RowNeed::kAll;
  t.needs_weights = true;
  t.reads_logits = false;
  t.unit = mean_or_none_unit(spec);
  t.streams_prompt = spec.choice("prompt", {"once", "stream"}, "once") == "stream";
  t.state_bytes = sizeof(std::uint32_t) * (1 + history_words(spec));
  t.state_read = t.state_written = 2 * sizeof(std::uint32_t);
  t.evict_read = sizeof(std::uint32_t);
  t.flops_per_slot = 1;
  read_layers(spec, t);
  return t;
}

ScoreRecipe recipe(const PolicySpec& spec) {
  return {.kind = ScoreRecipe::Kind::kCounts,
          .recent = tokens_or_share(spec, "recent", kDefaultRecent),
          .reduction = GroupReduction::kMean,
          .history = history_rows(spec),
          .counts_low = is_reading_a(spec),
          .threshold_is_count = threshold_is_count(spec),
          .drop = tokens_or_share(spec, "drop", kDefaultDrop)};
}

// Every compression after the prompt's then drops all that is not recent, whatever was counted.
std::string advice(const PolicySpec& spec, std::uint32_t k) {
  const std::uint32_t recent = tokens_or_share(spec, "recent", kDefaultRecent).of(k);
  const std::uint32_t drop = tokens_or_share(spec, "drop", kDefaultDrop).of(k);
  if (recent + drop <= k) return {};
  return fmt::format(
      "recent {} and drop {} leave no choice within a budget of {}: while decoding, each compression keeps the last {} "
      "tokens alone, as a window would",
      recent, drop, k, recent);
}

constexpr ParamInfo kParams[] = {
    {"reading", "A | B", "A",
     "two readings of the paper's listing. A drops what was below the threshold most often, B what was above it least "
     "often"},
    {"threshold", "count | length", "count", "1 / cached tokens, or 1 / tokens so far"},
    {"history", "rows", "400", "rows that the count looks back on"},
    {"recent", "tokens | share of k", "10", "most recent tokens, which always stay"},
    {"drop", "tokens | share of k", "0.5", "tokens that go at once when the cache is over budget"},
    {"prompt", "once | stream", "once",
     "one compression after the prompt, which drops max(drop, prompt - k); or token by token"},
    {"group", "mean | none", "mean",
     "compare the mean attention of the query heads that share a KV head; none: a set for "
     "each, k and v stored for each"},
    kLayersParam,
};

}  // namespace

extern const PolicyInfo kScissorhandsPolicy;
constinit const PolicyInfo kScissorhandsPolicy = {
    .name = "scissorhands",
    .summary = "Drops many tokens at once when full: those that the recent rows found unimportant most often.",
    .source = "Scissorhands: Liu et al., NeurIPS 2023; two consistent readings of its Algorithm 2",
    .params = kParams,
    .traits = traits,
    .make = [](const PolicySpec& spec, const PolicyContext& context) -> std::unique_ptr<EvictionPolicy> {
      return std::make_unique<Scissorhands>(spec, context);
    },
    .advice = advice,
    .recipe = recipe,
};

}  // namespace kvroof
