#include <algorithm>
#include <limits>

#include "sim/policy/table_helpers.hpp"

namespace kvroof {
namespace {

// A layer is lazy where its last prompt rows pay more than the threshold to the sinks and the tokens before these rows.
struct LazyRule {
  explicit LazyRule(const PolicySpec& spec)
      : threshold(spec.number("threshold", 0.9, 0, 1)),
        last(spec.count("last", 1, 1)),
        recent(spec.count("recent", 1024, 1)),
        sinks(spec.count("sinks", 4)) {
    if (recent <= last) {
      throw usage_error(fmt::format("policy {}: recent={}: expected more than last={}, whose tokens are among them",
                                    spec.name, recent, last));
    }
  }

  double threshold;
  std::uint32_t last, recent, sinks;
};

// Lazy layers keep sinks and recent tokens, the others everything. Whether a layer is lazy is decided once, after the
// prompt, by the mean over all its query heads.
class SimLayerKv final : public StatelessPolicy {
 public:
  SimLayerKv(const PolicySpec& spec, const PolicyContext& context)
      : rule_(spec), context_(context), paid_(context.storage_heads) {}

  // In double, so that the order of the slots does not show.
  void observe(HeadId head, const AttentionRows& rows) override {
    const std::uint64_t end = context_.prompt - std::min(rule_.last, context_.prompt);
    const std::uint64_t first_recent = end > rule_.recent ? end - rule_.recent : 0;
    for (std::uint32_t g = 0; g < rows.group; ++g) {
      const std::span<const float> weights = rows.weights_of(g);
      for (std::size_t s = 0; s < weights.size(); ++s) {
        const std::uint32_t position = rows.positions[s].value;
        const bool counts = position < rule_.sinks || position >= first_recent;
        if (counts && position < end) paid_[head.value] += static_cast<double>(weights[s]);
      }
    }
  }

  // A prompt that is no longer than what a lazy layer would look at loses nothing.
  void capacities(TokenPos, std::uint32_t, std::span<std::uint32_t> slots) override {
    const std::uint64_t whole = std::uint64_t{rule_.sinks} + rule_.recent + rule_.last;
    const bool is_lazy = rule_.threshold < 1 && context_.prompt > whole && paid() > rule_.threshold;
    const auto lazy = static_cast<std::uint32_t>(std::uint64_t{rule_.sinks} + rule_.recent - rule_.last);
    std::ranges::fill(slots, is_lazy ? lazy : std::numeric_limits<std::uint32_t>::max());
  }

  void evict(HeadId, const EvictRequest& request, std::vector<SlotId>& victims) override {
    evict_oldest(request, rule_.sinks, victims);
  }

  // Age orders the slots; what rounding may turn is whether the layer is lazy.
  [[nodiscard]] double score_gap(HeadId, SlotId a, SlotId b) const override {
    return a == b ? 0 : relative_gap(paid(), rule_.threshold);
  }

 private:
  [[nodiscard]] double paid() const {
    double sum = 0;
    for (const double of_head : paid_) sum += of_head;
    return sum / static_cast<double>(std::uint64_t{context_.storage_heads} * context_.group * rule_.last);
  }

  LazyRule rule_;
  PolicyContext context_;
  std::vector<double> paid_;  // by head: to sinks and recent tokens, by the last rows of all its query heads
};

PolicyTraits traits(const PolicySpec& spec) {
  PolicyTraits t;
  t.rows = RowNeed::kLast;
  t.last_rows = LazyRule(spec).last;
  t.needs_weights = true;
  t.reads_logits = false;
  t.schedule = Schedule::kPrefillOnly;
  t.capacities = Capacities::kByHead;  // all alike, as the recorded attention says
  t.flops_per_slot = 1;
  return t;
}

constexpr ParamInfo kParams[] = {
    {"threshold", "share | 0.1", "0.9",
     "of their attention, more than which the last rows of a lazy layer pay; 1: none is lazy"},
    {"last", "tokens", "1", "the prompt's last rows, which decide"},
    {"recent", "tokens | 8", "1024",
     "tokens before these rows that count as recent; a lazy layer keeps so many, less `last`, of the most recent ones"},
    {"sinks", "tokens", "4", "first tokens, which count as well and stay"},
};

}  // namespace

extern const PolicyInfo kSimLayerKvPolicy;
constinit const PolicyInfo kSimLayerKvPolicy = {
    .name = "simlayerkv",
    .summary = "Layers whose last prompt rows attend almost only to the first and the recent tokens keep these alone, "
               "the others everything.",
    .source = "SimLayerKV: Zhang et al., 2024; as kvpress evicts, once after the prompt",
    .params = kParams,
    .traits = traits,
    .make = [](const PolicySpec& spec, const PolicyContext& context) -> std::unique_ptr<EvictionPolicy> {
      return std::make_unique<SimLayerKv>(spec, context);
    },
    .takes_budget = false,
};

}  // namespace kvroof
