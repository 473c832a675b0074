// ExpectedAttention: the attention that later queries are expected to pay to each token (Devoto et al. 2025).
#pragma once

#include <algorithm>
#include <vector>

#include "sim/policy/prompt_scorer.hpp"

namespace kvroof {

// Queries before rotary embedding are taken to be normally distributed, with the mean μ and the covariance Σ of the
// prompt's without its first tokens; R is the mean of the rotations of the `future` positions after the prompt. Then
//   z_j = scale · (Rμ)·k_j + scale² / 2 · k_jᵀ (R Σ Rᵀ) k_j
// and a token's score is the mean over the group of softmax(z)_j over the tokens after the first `sinks`, plus epsilon,
// times ‖v_j‖. The first tokens get the largest score.
class ExpectedAttention {
 public:
  // Parameters future, sinks, covariance, vnorm and epsilon.
  ExpectedAttention(const PolicySpec& spec, const PolicyContext& context);
  static TensorNeed needs(const PolicySpec& spec);  // validates the parameters

  void score(HeadTensors& tensors, std::span<const SlotId> order, std::vector<float>& scores);
  // Of n tokens, the first that get the largest score.
  [[nodiscard]] std::size_t protected_of(std::size_t n) const { return std::min<std::size_t>(sinks_, n - 1); }
  // The rows of v that score() read, in its order; empty without vnorm.
  [[nodiscard]] std::span<const float> values() const { return values_; }

 private:
  void find_mean_rotation();
  void read_queries(HeadTensors& tensors);
  void find_statistics(std::uint32_t g);
  void add_group_scores(std::size_t first, std::span<float> scores);

  std::uint32_t future_;
  std::uint32_t sinks_;
  bool covariance_;
  bool vnorm_;
  double epsilon_;
  PolicyContext context_;
  std::size_t width_ = 0;
  std::vector<double> cosines_, sines_;  // of each pair, mean over the future positions
  std::vector<float> queries_;           // [prompt rows after the first, group, width], before rotary embedding
  std::vector<double> mean_, spread_, product_;  // [width], [width, width], [width]
  std::vector<float> keys_, values_, logits_;
};

inline constexpr ParamInfo kFutureParam = {"future", "tokens", "512", "positions after the prompt to look ahead"};
inline constexpr ParamInfo kExpectedSinksParam = {
    "sinks", "tokens", "4", "first tokens: they stay, and neither their queries nor their keys count"};
inline constexpr ParamInfo kCovarianceParam = {"covariance", "yes | no", "yes",
                                               "count the spread of the queries, not their mean alone"};
inline constexpr ParamInfo kVnormParam = {"vnorm", "yes | no", "yes", "multiply by the norm of v"};
inline constexpr ParamInfo kEpsilonParam = {"epsilon", "number", "0",
                                            "added to the expected weight before that product"};

}  // namespace kvroof
