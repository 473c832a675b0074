#include <algorithm>
#include <cmath>
#include <numeric>

#include "sim/policy/table_helpers.hpp"
#include "sim/policy/window_scores.hpp"

namespace kvroof {
namespace {

constexpr double kEpsilon = 1e-8;  // of kvpress, in shares and in their logarithms

struct ChunkRule {
  explicit ChunkRule(const PolicySpec& spec) : chunk(spec.count("chunk", 10, 2)), low(spec.count("low", 4, 1)) {
    if (low < chunk) return;
    throw usage_error(fmt::format("policy {}: low={}: expected fewer tokens than chunk={} has", spec.name, low, chunk));
  }

  std::uint32_t chunk, low;
};

WindowRule rule_of(const PolicySpec& spec) {
  WindowRule rule = window_rule(spec);
  rule.pool_first = true;
  return rule;
}

// Of the shares that the scores have of their sum, as a part of the most that so many can have. Scores ≥ 0.
double entropy_of(std::span<const double> scores) {
  if (scores.size() < 2) return 0;
  const double sum = std::accumulate(scores.begin(), scores.end(), kEpsilon);
  double entropy = 0;
  for (const double score : scores) entropy -= score / sum * std::log(score / sum + kEpsilon);
  return std::clamp(entropy / std::log(static_cast<double>(scores.size())), 0.0, 1.0);
}

// The lower of the two in the middle where they are an even number, as PyTorch has it.
double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

// SnapKV's scores of all heads, added up, decide about chunks of neighbouring tokens, from the best chunk on. A chunk
// that is as good as most and has less entropy than most gives only its best tokens. All heads keep the same tokens.
class EntropyGatedChunkKv final : public WindowScoredPolicy {
 public:
  EntropyGatedChunkKv(const PolicySpec& spec, const PolicyContext& context)
      : WindowScoredPolicy(rule_of(spec), context), rule_(spec) {
    const bool sums_group = rule_of(spec).reduction == GroupReduction::kSum;
    one_ = static_cast<double>(window()) * (sums_group ? context.group : 1);
  }

  void evict(HeadId head, const EvictRequest& request, std::vector<SlotId>& victims) override {
    if (stays_.empty()) choose(request);
    for (std::uint32_t s = 0; s < request.positions.size(); ++s) {
      if (!stays_[index_of(request.positions[s])]) victims.emplace_back(s);
    }
    replace_scores(head, request.positions.size(), [&](std::size_t s) {
      return static_cast<float>(tokens_[index_of(request.positions[s])]);
    });
    positions_.assign(request.positions.begin(), request.positions.end());
  }

  // Chunks are compared first, and tokens of all chunks where slots are left.
  [[nodiscard]] double score_gap(HeadId, SlotId a, SlotId b) const override {
    const std::size_t one = index_of(positions_[a.value]);
    const std::size_t other = index_of(positions_[b.value]);
    const double of_tokens = relative_gap(tokens_[one], tokens_[other]);
    if (one / rule_.chunk == other / rule_.chunk) return of_tokens;
    return std::min(of_tokens, relative_gap(chunks_[one / rule_.chunk], chunks_[other / rule_.chunk]));
  }

 private:
  [[nodiscard]] std::size_t index_of(TokenPos position) const { return position.value - first_; }

  void choose(const EvictRequest& request) {
    const std::size_t n = tokens(HeadId(0));
    first_ = request.newest.value + 1 - static_cast<std::uint32_t>(n);
    score_tokens(n);
    std::vector<double> entropies;
    for (std::size_t begin = 0; begin < n; begin += rule_.chunk) {
      const std::span<const double> chunk = chunk_at(begin);
      chunks_.push_back(std::accumulate(chunk.begin(), chunk.end(), 0.0) / static_cast<double>(chunk.size()));
      entropies.push_back(entropy_of(chunk));
    }
    take_chunks(entropies, request.budget);
  }

  // Means over the rows and the group, added up over the heads. The tokens of the window count a whole weight more than
  // the best token of the layer.
  void score_tokens(std::size_t n) {
    tokens_.assign(n, 0.0);
    double largest = 0;
    for (std::uint32_t h = 0; h < context().storage_heads; ++h) {
      const std::span<const float> values = scores(HeadId(h));
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double score = static_cast<double>(values[i]) / one_;
        tokens_[i] += score;
        largest = std::max(largest, score);
      }
    }
    const auto scored = static_cast<std::ptrdiff_t>(scores(HeadId(0)).size());
    std::fill(tokens_.begin() + scored, tokens_.end(), (largest + 1) * context().storage_heads);
  }

  [[nodiscard]] std::span<const double> chunk_at(std::size_t begin) const {
    return std::span(tokens_).subspan(begin, std::min<std::size_t>(rule_.chunk, tokens_.size() - begin));
  }

  // Best chunks first, of equals the youngest, until the budget is spent; what is left goes to the best other tokens.
  void take_chunks(const std::vector<double>& entropies, std::size_t budget) {
    stays_.assign(tokens_.size(), false);
    const double good = median_of(chunks_);
    const double even = median_of(entropies);
    std::vector<std::size_t> order(chunks_.size());
    std::iota(order.rbegin(), order.rend(), std::size_t{0});
    std::ranges::stable_sort(order, std::ranges::greater(), [&](std::size_t chunk) { return chunks_[chunk]; });
    for (const std::size_t chunk : order) {
      const std::size_t begin = chunk * rule_.chunk;
      const std::size_t length = chunk_at(begin).size();
      const bool spiky = chunks_[chunk] >= good && entropies[chunk] < even;
      budget -= take_best(begin, begin + length, std::min({length, budget, spiky ? rule_.low : length}));
    }
    take_best(0, tokens_.size(), budget);
  }

  // Of tokens [begin, end) the best that do not stay yet; of equals the youngest. Returns how many.
  std::size_t take_best(std::size_t begin, std::size_t end, std::size_t count) {
    std::vector<std::size_t> left;
    for (std::size_t i = end; i-- > begin;) {
      if (!stays_[i]) left.push_back(i);
    }
    std::ranges::stable_sort(left, std::ranges::greater(), [&](std::size_t i) { return tokens_[i]; });
    left.resize(std::min(count, left.size()));
    for (const std::size_t i : left) stays_[i] = true;
    return left.size();
  }

  ChunkRule rule_;
  double one_;  // what a weight of one from every scored row and query head adds to a score
  std::uint32_t first_ = 0;              // position of the first token
  std::vector<double> tokens_, chunks_;  // scores, oldest first
  std::vector<bool> stays_;              // by token; empty: not chosen yet
  std::vector<TokenPos> positions_;      // by slot
};

PolicyTraits traits(const PolicySpec& spec) {
  (void)ChunkRule(spec);
  return window_traits(spec, rule_of(spec));
}

constexpr ParamInfo kParams[] = {
    {"chunk", "tokens", "10", "neighbours that are compared together; a last, shorter chunk counts as one"},
    {"low", "tokens", "4", "the most that a chunk keeps which is as good as most and has less entropy than most"},
    {"window", "tokens", "32",
     "the prompt's last rows, which score the others; their tokens count a weight more than the best of the others"},
    kKernelParam,
    kPoolParam,
};

std::string advice(const PolicySpec& spec, std::uint32_t k) {
  return first_window_advice(rule_of(spec).window, k);
}

}  // namespace

extern const PolicyInfo kEntropyGatedChunkKvPolicy;
constinit const PolicyInfo kEntropyGatedChunkKvPolicy = {
    .name = "entropy-gated-chunkkv",
    .summary = "Keeps chunks of the prompt by SnapKV's scores, as chunkkv, but of good chunks whose score lies in few "
               "tokens the best tokens alone.",
    .source = "kvpress, EntropyGatedChunkKVPress with SnapKV's scores, once after the prompt",
    .params = kParams,
    .traits = traits,
    .make = [](const PolicySpec& spec, const PolicyContext& context) -> std::unique_ptr<EvictionPolicy> {
      return std::make_unique<EntropyGatedChunkKv>(spec, context);
    },
    .advice = advice,
};

}  // namespace kvroof
