#include "sim/policy/given_scores.hpp"

#include <algorithm>

#include "sim/policy/shared_slots.hpp"

namespace kvroof {

GivenScores::GivenScores(const PolicySpec& spec, const PolicyContext& context, ScorePool pool)
    : PromptScorer(spec, context),
      pool_(pool),
      budget_(spec.budget),
      context_(context),
      owner_(spec.token_scores),
      all_(token_scores(spec, context)) {}

void GivenScores::capacities(TokenPos, std::uint32_t budget, std::span<std::uint32_t> slots) {
  if (pool_ == ScorePool::kHead || budget >= context_.prompt || all_.empty()) return;
  const std::size_t heads = slots.size();
  const std::size_t first = pool_ == ScorePool::kLayer ? context_.layer.value * heads : 0;
  const std::size_t last = pool_ == ScorePool::kLayer ? first + heads : std::size_t{context_.layers} * heads;
  std::vector<std::span<const float>> pool;
  for (std::size_t head = first; head < last; ++head) {
    pool.push_back(pool_ == ScorePool::kLayer ? seen_of(head) : of_head(head));
  }
  const std::vector<std::uint32_t> shared = share_slots(pool, 0, staying(budget, last - first));
  const std::size_t own = context_.layer.value * heads - first;
  std::copy_n(shared.begin() + static_cast<std::ptrdiff_t>(own), heads, slots.begin());
}

void GivenScores::score(HeadId head, const EvictRequest& request, std::span<const SlotId> order,
                        std::vector<float>& scores) {
  scores.clear();
  for (const SlotId slot : order) scores.push_back(score_of(head, request.positions[slot.value]));
}

// Heads are numbered through the model.
std::span<const float> GivenScores::of_head(std::size_t head) const {
  return all_.subspan(head * context_.prompt, context_.prompt);
}

// Of the tokens that the layer still sees after the prompt; what windows other layers have is not known here.
std::span<const float> GivenScores::seen_of(std::size_t head) const {
  const std::uint32_t window = context_.window;
  return window == 0 || window >= context_.prompt ? of_head(head) : of_head(head).last(window);
}

float GivenScores::score_of(HeadId head, TokenPos position) const {
  if (all_.empty()) return 0;
  return of_head(std::size_t{context_.layer.value} * context_.storage_heads + head.value)[position.value];
}

// Of the tokens of so many heads; as kvpress' KVzipPress drops a compression's share of them.
std::size_t GivenScores::staying(std::uint32_t budget, std::size_t heads) const {
  if (budget_.kind != Budget::Kind::kCompression) return heads * budget;
  const std::size_t tokens = heads * context_.prompt;
  return tokens - static_cast<std::size_t>(static_cast<double>(tokens) * budget_.value);
}

}  // namespace kvroof
