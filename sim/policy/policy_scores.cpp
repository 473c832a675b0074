#include <algorithm>

#include "sim/policy/prompt_scorer.hpp"
#include "sim/policy/shared_slots.hpp"
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
class GivenScores final : public PromptScorer {
 public:
  GivenScores(const PolicySpec& spec, const PolicyContext& context)
      : PromptScorer(spec, context),
        pool_(pool_of(spec)),
        budget_(spec.budget),
        context_(context),
        file_(spec.token_scores),
        all_(token_scores(spec, context)) {}

  void capacities(TokenPos, std::uint32_t budget, std::span<std::uint32_t> slots) override {
    if (pool_ == Pool::kHead || budget >= context_.prompt || all_.empty()) return;
    const std::size_t heads = slots.size();
    const std::size_t first = pool_ == Pool::kLayer ? context_.layer.value * heads : 0;
    const std::size_t last = pool_ == Pool::kLayer ? first + heads : std::size_t{context_.layers} * heads;
    std::vector<std::span<const float>> pool;
    for (std::size_t head = first; head < last; ++head) {
      pool.push_back(pool_ == Pool::kLayer ? seen_of(head) : of_head(head));
    }
    const std::vector<std::uint32_t> shared = share_slots(pool, 0, staying(budget, last - first));
    const std::size_t own = context_.layer.value * heads - first;
    std::copy_n(shared.begin() + static_cast<std::ptrdiff_t>(own), heads, slots.begin());
  }

 private:
  void score(HeadId head, const EvictRequest& request, std::span<const SlotId> order,
             std::vector<float>& scores) override {
    scores.clear();
    for (const SlotId slot : order) scores.push_back(score_of(head, request.positions[slot.value]));
  }

  // Heads are numbered through the model.
  [[nodiscard]] std::span<const float> of_head(std::size_t head) const {
    return all_.subspan(head * context_.prompt, context_.prompt);
  }
  // Of the tokens that the layer still sees after the prompt; what windows other layers have is not known here.
  [[nodiscard]] std::span<const float> seen_of(std::size_t head) const {
    const std::uint32_t window = context_.window;
    return window == 0 || window >= context_.prompt ? of_head(head) : of_head(head).last(window);
  }
  [[nodiscard]] float score_of(HeadId head, TokenPos position) const {
    if (all_.empty()) return 0;
    return of_head(std::size_t{context_.layer.value} * context_.storage_heads + head.value)[position.value];
  }

  // Of the tokens of so many heads; as kvpress' KVzipPress drops a compression's share of them.
  [[nodiscard]] std::size_t staying(std::uint32_t budget, std::size_t heads) const {
    if (budget_.kind != Budget::Kind::kCompression) return heads * budget;
    const std::size_t tokens = heads * context_.prompt;
    return tokens - static_cast<std::size_t>(static_cast<double>(tokens) * budget_.value);
  }

  Pool pool_;
  Budget budget_;
  PolicyContext context_;
  std::shared_ptr<const TokenScores> file_;
  std::span<const float> all_;  // [layers, heads, tokens], of the file
};

PolicyTraits traits(const PolicySpec& spec) {
  const Pool pool = pool_of(spec);
  PolicyTraits t = prompt_scorer_traits(spec, {});
  if (pool != Pool::kHead) t.capacities = Capacities::kByHead;
  t.tells_heads_apart = true;
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
    .source = "a file of one's own; budgets over the heads of a layer or the model as in kvpress' KVzipPress",
    .params = kParams,
    .traits = traits,
    .make = [](const PolicySpec& spec, const PolicyContext& context) -> std::unique_ptr<EvictionPolicy> {
      return std::make_unique<GivenScores>(spec, context);
    },
};

}  // namespace kvroof
