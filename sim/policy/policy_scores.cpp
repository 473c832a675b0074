#include <algorithm>
#include <numeric>

#include "sim/policy/prompt_scorer.hpp"
#include "sim/policy/token_scores.hpp"

namespace kvroof {
namespace {

enum class Pool : std::uint8_t { kHead, kLayer, kModel };

Pool pool_of(const PolicySpec& spec) {
  const std::string share = spec.choice("share", {"head", "layer", "model"}, "head");
  return share == "head" ? Pool::kHead : share == "layer" ? Pool::kLayer : Pool::kModel;
}

// Scores come from a file. The k best tokens of a head stay, or of the heads of a layer or of the model together as
// many as k a head. Without a file all are alike.
class GivenScores final : public StatelessPolicy {
 public:
  GivenScores(const PolicySpec& spec, const PolicyContext& context)
      : pool_(pool_of(spec)),
        budget_(spec.budget),
        context_(context),
        file_(spec.token_scores),
        all_(token_scores(spec, context)) {}

  void capacities(TokenPos, std::uint32_t budget, std::span<std::uint32_t> slots) override {
    if (pool_ == Pool::kHead || budget >= context_.prompt || all_.empty()) return;
    const std::size_t layer = of_layer(context_.layer.value);
    const std::size_t first = pool_ == Pool::kLayer ? layer : 0;
    const std::size_t last = pool_ == Pool::kLayer ? of_layer(context_.layer.value + 1) : all_.size();
    std::ranges::fill(slots, 0U);
    for (const std::size_t index : best(first, last, staying(budget, last - first))) {
      if (index >= layer && index < layer + slots.size() * context_.prompt) ++slots[(index - layer) / context_.prompt];
    }
  }

  void evict(HeadId head, const EvictRequest& request, std::vector<SlotId>& victims) override {
    slots_by_age(request.positions, order_);
    scores_.clear();
    for (const SlotId slot : order_) scores_.push_back(score_of(head, request.positions[slot.value]));
    drop_.clear();
    drop_lowest(scores_, 0, scores_.size(), request.excess, drop_);
    for (const SlotId index : drop_) victims.push_back(order_[index.value]);
    by_slot_.resize(scores_.size());
    for (std::size_t i = 0; i < scores_.size(); ++i) by_slot_[order_[i].value] = scores_[i];
  }

  [[nodiscard]] double score_gap(HeadId, SlotId a, SlotId b) const override {
    return relative_gap(by_slot_[a.value], by_slot_[b.value]);
  }

 private:
  [[nodiscard]] std::size_t of_layer(std::size_t layer) const {
    return layer * context_.storage_heads * context_.prompt;
  }
  [[nodiscard]] float score_of(HeadId head, TokenPos position) const {
    if (all_.empty()) return 0;
    return all_[of_layer(context_.layer.value) + std::size_t{head.value} * context_.prompt + position.value];
  }

  // Of so many tokens of all heads; as kvpress' KVzipPress drops a compression's share of them.
  [[nodiscard]] std::size_t staying(std::uint32_t budget, std::size_t tokens) const {
    if (budget_.kind != Budget::Kind::kCompression) return tokens / context_.prompt * budget;
    return tokens - static_cast<std::size_t>(static_cast<double>(tokens) * budget_.value);
  }

  // Of [first, last), the `count` with the largest scores, of equals the youngest tokens.
  [[nodiscard]] std::vector<std::size_t> best(std::size_t first, std::size_t last, std::size_t count) const {
    std::vector<std::size_t> indices(last - first);
    std::iota(indices.begin(), indices.end(), first);
    const auto end = indices.begin() + static_cast<std::ptrdiff_t>(count);
    std::nth_element(indices.begin(), end, indices.end(), [&](std::size_t a, std::size_t b) {
      if (all_[a] != all_[b]) return all_[a] > all_[b];
      const std::size_t age_a = a % context_.prompt;
      const std::size_t age_b = b % context_.prompt;
      return age_a != age_b ? age_a > age_b : a < b;
    });
    indices.erase(end, indices.end());
    return indices;
  }

  Pool pool_;
  Budget budget_;
  PolicyContext context_;
  std::shared_ptr<const TokenScores> file_;
  std::span<const float> all_;  // [layers, heads, tokens], of the file
  std::vector<SlotId> order_, drop_;
  std::vector<float> scores_, by_slot_;
};

PolicyTraits traits(const PolicySpec& spec) {
  const Pool pool = pool_of(spec);
  PolicyTraits t = prompt_scorer_traits(spec, {});
  if (pool != Pool::kHead) t.capacities = Capacities::kByHead;
  return t;
}

constexpr ParamInfo kParams[] = {
    {"file", "FILE", "none",
     "a safetensors file with a tensor `scores` [layers, KV heads, tokens of the prompt]; `scores.0`, `scores.1` … for "
     "several sequences"},
    {"share", "head | layer | model", "head",
     "whose best tokens stay: k of each head, or as many in all of the heads of a layer or of the model together"},
    {"group", "mean | none", "mean",
     "none: a set for each query head, k and v stored for each, and the file has scores for each; mean: one a KV head"},
};

}  // namespace

extern const PolicyInfo kScoresPolicy;
constinit const PolicyInfo kScoresPolicy = {
    .name = "scores",
    .summary = "Keeps the tokens of the prompt with the largest scores of a file: any method that scores a prompt "
               "outside the program.",
    .source = "a file of one's own; budgets over heads and layers as in kvpress' KVzipPress and AdaKVPress",
    .params = kParams,
    .traits = traits,
    .make = [](const PolicySpec& spec, const PolicyContext& context) -> std::unique_ptr<EvictionPolicy> {
      return std::make_unique<GivenScores>(spec, context);
    },
};

}  // namespace kvroof
