// ExpectedAttention: the attention that later queries are expected to pay to each token (Devoto et al. 2025).
#pragma once

#include <vector>

#include "sim/policy/future_queries.hpp"
#include "sim/policy/prompt_scorer.hpp"

namespace kvroof {

// Later queries are taken to be normally distributed, with the mean Rμ and the covariance R Σ Rᵀ of FutureQueries. Then
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
  [[nodiscard]] std::size_t protected_of(std::size_t n) const { return queries_.first_of(n); }
  // The rows of v that score() read, in its order; empty without vnorm.
  [[nodiscard]] std::span<const float> values() const { return values_; }

 private:
  void add_group_scores(std::size_t first, std::span<float> scores);

  bool covariance_;
  bool vnorm_;
  double epsilon_;
  double scale_;
  std::uint32_t group_;
  FutureQueries queries_;
  std::size_t width_ = 0;
  std::vector<double> product_;  // [width]
  std::vector<float> keys_, values_, logits_;
};

inline constexpr ParamInfo kCovarianceParam = {"covariance", "yes | no", "yes",
                                               "count the spread of the queries, not their mean alone"};
inline constexpr ParamInfo kVnormParam = {"vnorm", "yes | no", "yes", "multiply by the norm of v"};
inline constexpr ParamInfo kEpsilonParam = {"epsilon", "number", "0",
                                            "added to the expected weight before that product"};

}  // namespace kvroof
