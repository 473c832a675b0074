#include <algorithm>

#include "sim/policy/prompt_scorer.hpp"
#include "sim/policy/table_helpers.hpp"
#include "sim/policy/window_scores.hpp"

namespace kvroof {
namespace {

WindowRule rule_of(const PolicySpec& spec) {
  WindowRule rule = window_rule(spec);
  rule.pool_first = true;
  return rule;
}

std::uint32_t chunk_of(const PolicySpec& spec) { return spec.count("chunk", 20, 1); }

// SnapKV's scores of all heads decide about chunks of neighbouring tokens; every head keeps the same chunks. What the
// heads hold differs only where the prompt has no whole chunk: there each head keeps SnapKV's tokens.
class ChunkKv final : public WindowScoredPolicy {
 public:
  ChunkKv(const PolicySpec& spec, const PolicyContext& context)
      : WindowScoredPolicy(rule_of(spec), context), chunk_(chunk_of(spec)), budget_(spec.budget) {
    const bool sums_group = rule_of(spec).reduction == GroupReduction::kSum;
    one_ = static_cast<double>(window()) * (sums_group ? context.group : 1);
  }

  void capacities(TokenPos newest, std::uint32_t budget, std::span<std::uint32_t> slots) override {
    const std::uint32_t tokens = this->tokens(HeadId(0));
    if (budget >= tokens || tokens < chunk_) return;
    first_ = newest.value + 1 - tokens;
    score_chunks(static_cast<std::uint32_t>(slots.size()), tokens);
    const double share = kept_share(budget_, budget, tokens);
    const std::size_t chunks = chunk_scores_.size();
    const auto stay = std::max<std::size_t>(1, static_cast<std::size_t>(static_cast<double>(chunks) * share));
    std::vector<SlotId> drop;
    drop_lowest(chunk_scores_, 0, chunks, chunks - std::min(chunks, stay), drop);
    stays_.assign(chunks, true);
    std::size_t left = tokens;
    for (const SlotId chunk : drop) {
      stays_[chunk.value] = false;
      left -= std::min<std::size_t>(chunk_, tokens - std::size_t{chunk.value} * chunk_);
    }
    std::ranges::fill(slots, static_cast<std::uint32_t>(left));
  }

  void evict(HeadId head, const EvictRequest& request, std::vector<SlotId>& victims) override {
    if (stays_.empty()) return WindowScoredPolicy::evict(head, request, victims);
    for (std::uint32_t s = 0; s < request.positions.size(); ++s) {
      if (!stays_[chunk_at(request.positions[s])]) victims.emplace_back(s);
    }
    replace_scores(head, request.positions.size(),
                   [&](std::size_t s) { return chunk_scores_[chunk_at(request.positions[s])]; });
  }

 private:
  [[nodiscard]] std::size_t chunk_at(TokenPos position) const { return (position.value - first_) / chunk_; }

  // Means over the chunks' tokens of the sums over the heads; the last chunk may be shorter. The tokens of the window
  // count a whole weight more than the best token of the layer, so a chunk with one of them seldom goes.
  void score_chunks(std::uint32_t heads, std::size_t tokens) {
    std::vector<double> sums(tokens);
    float largest = 0;
    for (std::uint32_t h = 0; h < heads; ++h) {
      const std::span<const float> values = scores(HeadId(h));
      for (std::size_t i = 0; i < values.size(); ++i) {
        sums[i] += static_cast<double>(values[i]);
        largest = std::max(largest, values[i]);
      }
    }
    const std::size_t scored = scores(HeadId(0)).size();
    std::fill(sums.begin() + static_cast<std::ptrdiff_t>(scored), sums.end(),
              (static_cast<double>(largest) + one_) * heads);
    chunk_scores_.clear();
    for (std::size_t begin = 0; begin < tokens; begin += chunk_) {
      const std::size_t length = std::min<std::size_t>(chunk_, tokens - begin);
      double sum = 0;
      for (std::size_t i = begin; i < begin + length; ++i) sum += sums[i];
      chunk_scores_.push_back(static_cast<float>(sum / static_cast<double>(length)));
    }
  }

  std::uint32_t chunk_;
  double one_;  // what a weight of one from every scored row and query head adds to a score
  Budget budget_;
  std::uint32_t first_ = 0;          // position of the first chunk's first token
  std::vector<float> chunk_scores_;  // by chunk
  std::vector<bool> stays_;          // by chunk; empty: the chunks have no say
};

PolicyTraits traits(const PolicySpec& spec) {
  (void)chunk_of(spec);
  PolicyTraits t = window_traits(spec, rule_of(spec));
  t.capacities = Capacities::kByLayer;
  return t;
}

constexpr ParamInfo kParams[] = {
    {"chunk", "tokens", "20", "neighbours that stay or go together; a last, shorter chunk counts as one"},
    kWindowParam,
    kKernelParam,
    kPoolParam,
};

std::string advice(const PolicySpec& spec, std::uint32_t k) {
  return first_window_advice(rule_of(spec).window, k);
}

}  // namespace

extern const PolicyInfo kChunkKvPolicy;
constinit const PolicyInfo kChunkKvPolicy = {
    .name = "chunkkv",
    .summary = "SnapKV's scores, summed over the heads of a layer, choose whole chunks of the prompt: of c chunks "
               "int(c · share) stay, at least one.",
    .source = "ChunkKV: Liu et al., 2025; as kvpress evicts with SnapKV's scores, once after the prompt",
    .params = kParams,
    .traits = traits,
    .make = [](const PolicySpec& spec, const PolicyContext& context) -> std::unique_ptr<EvictionPolicy> {
      return std::make_unique<ChunkKv>(spec, context);
    },
    .advice = advice,
};

}  // namespace kvroof
