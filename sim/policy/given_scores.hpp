// GivenScores: keeps the tokens of a prompt with the largest scores that somebody else gave them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "sim/policy/prompt_scorer.hpp"
#include "sim/policy/token_scores.hpp"

namespace kvroof {

// Whose best tokens stay: k of each head, or as many as k a head in all of the heads of a layer or of the model.
enum class ScorePool : std::uint8_t { kHead, kLayer, kModel };

// Those of PolicySpec::token_scores; without any, all tokens are alike, and the youngest stay. A head that none of the
// best is in keeps one.
class GivenScores final : public PromptScorer {
 public:
  // Throws Error (usage) as token_scores() does.
  GivenScores(const PolicySpec& spec, const PolicyContext& context, ScorePool pool);
  void capacities(TokenPos newest, std::uint32_t budget, std::span<std::uint32_t> slots) override;

 private:
  void score(HeadId head, const EvictRequest& request, std::span<const SlotId> order,
             std::vector<float>& scores) override;
  [[nodiscard]] std::span<const float> of_head(std::size_t head) const;
  [[nodiscard]] std::span<const float> seen_of(std::size_t head) const;
  [[nodiscard]] float score_of(HeadId head, TokenPos position) const;
  [[nodiscard]] std::size_t staying(std::uint32_t budget, std::size_t heads) const;

  ScorePool pool_;
  Budget budget_;
  PolicyContext context_;
  std::shared_ptr<const TokenScores> owner_;
  std::span<const float> all_;  // [layers, heads, tokens]
};

inline constexpr ParamInfo kScoresFileParam = {
    "file", "FILE", "none",
    "a safetensors file with a tensor `scores` [layers, KV heads, tokens of the prompt]; `scores.0`, `scores.1` … for "
    "several sequences"};

}  // namespace kvroof
