// What a device chose of rows of logits, against the sampler of the host.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>

#include "kernels/engine/sampler.hpp"
#include "tests/gpu/suite/report.hpp"

namespace kvroof::suite {

class ChoiceReview {
 public:
  void add(std::int64_t token, float logprob, std::span<const float> row) {
    const std::int64_t expected = sample(row, {}, 0, 0);
    ++rows_;
    others_ += token == expected ? 0 : 1;
    const float apart = std::abs(logprob - log_probability(row, expected));
    others_ += std::isfinite(logprob) ? 0 : 1;
    if (apart > farthest_) farthest_ = apart;
  }
  [[nodiscard]] bool agrees() const { return rows_ > 0 && others_ == 0 && farthest_ <= kTolerance; }
  [[nodiscard]] Json results() const {
    return {{"rows", rows_}, {"others", others_}, {"logprob_apart", farthest_}, {"tolerance", kTolerance}};
  }

 private:
  static constexpr float kTolerance = 1e-5F;
  std::size_t rows_ = 0, others_ = 0;  // others: another token, or no probability
  float farthest_ = 0;
};

}  // namespace kvroof::suite
