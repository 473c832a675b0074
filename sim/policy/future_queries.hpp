// FutureQueries: the mean and the spread of the queries that are expected after a prompt (Devoto et al., 2025).
#pragma once

#include <algorithm>
#include <vector>

#include "sim/policy/head_tensors.hpp"
#include "sim/policy/policy.hpp"

namespace kvroof {

// Queries before rotary embedding are taken to be distributed as the prompt's are without its first tokens; R is the
// mean of the rotations of the `future` positions after the prompt.
class FutureQueries {
 public:
  // Parameters future and sinks. Without covariance no spread is found.
  FutureQueries(const PolicySpec& spec, const PolicyContext& context, bool covariance);
  static void validate(const PolicySpec& spec);

  void read(HeadTensors& tensors);
  // Of query head g of those that were read, into mean() and spread(). They are not to be empty.
  void find(std::uint32_t g);
  [[nodiscard]] bool empty() const { return queries_.empty(); }
  [[nodiscard]] std::size_t elements() const { return queries_.size(); }
  [[nodiscard]] std::span<const double> mean() const { return mean_; }      // Rμ: [width]
  [[nodiscard]] std::span<const double> spread() const { return spread_; }  // R Σ Rᵀ, over the count: [width, width]
  // Of the last n tokens of the prompt, which a window may show alone, the first that are among the first of the text:
  // all but one at most.
  [[nodiscard]] std::size_t first_of(std::size_t n) const {
    const std::size_t hidden = context_.prompt - std::min<std::size_t>(n, context_.prompt);
    return sinks_ > hidden ? std::min(sinks_ - hidden, n - 1) : 0;
  }

 private:
  void find_mean_rotation();
  void turn();

  std::uint32_t future_;
  std::uint32_t sinks_;
  bool covariance_;
  PolicyContext context_;
  std::size_t width_ = 0;
  std::vector<double> cosines_, sines_;  // of each pair, mean over the future positions
  std::vector<float> queries_;           // [prompt rows after the first, group, width], before rotary embedding
  std::vector<double> mean_, spread_;
};

inline constexpr ParamInfo kFutureParam = {"future", "tokens", "512", "positions after the prompt to look ahead"};
inline constexpr ParamInfo kExpectedSinksParam = {
    "sinks", "tokens", "4", "first tokens: they stay, and neither their queries nor their keys count"};

}  // namespace kvroof
