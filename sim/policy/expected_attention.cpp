#include "sim/policy/expected_attention.hpp"

#include <algorithm>

namespace kvroof {

ExpectedAttention::ExpectedAttention(const PolicySpec& spec, const PolicyContext& context)
    : covariance_(yes_or_no(spec, "covariance", true)),
      vnorm_(yes_or_no(spec, "vnorm", true)),
      epsilon_(spec.number("epsilon", 0, 0, 1e6)),
      scale_(static_cast<double>(context.scale)),
      group_(context.group),
      queries_(spec, context, covariance_) {}

TensorNeed ExpectedAttention::needs(const PolicySpec& spec) {
  FutureQueries::validate(spec);
  (void)yes_or_no(spec, "covariance", true);
  (void)spec.number("epsilon", 0, 0, 1e6);
  return {.keys = true, .values = yes_or_no(spec, "vnorm", true), .queries = TensorNeed::kWholePrompt};
}

// Adds the softmax of the expected logits of the tokens from `first` on, divided by the group.
void ExpectedAttention::add_group_scores(std::size_t first, std::span<float> scores) {
  const std::span<const double> mean = queries_.mean();
  const std::span<const double> spread = queries_.spread();
  logits_.resize(scores.size() - first);
  for (std::size_t j = 0; j < logits_.size(); ++j) {
    const float* key = keys_.data() + (first + j) * width_;
    double linear = 0;
    for (std::size_t c = 0; c < width_; ++c) linear += mean[c] * static_cast<double>(key[c]);
    double square = 0;
    if (covariance_) {
      product_.assign(width_, 0.0);
      for (std::size_t r = 0; r < width_; ++r) {
        const double factor = static_cast<double>(key[r]);
        for (std::size_t c = 0; c < width_; ++c) product_[c] += factor * spread[r * width_ + c];
      }
      for (std::size_t c = 0; c < width_; ++c) square += product_[c] * static_cast<double>(key[c]);
    }
    logits_[j] = static_cast<float>(scale_ * linear + scale_ * scale_ / 2 * square);
  }
  softmax(logits_, logits_);
  for (std::size_t j = 0; j < logits_.size(); ++j) scores[first + j] += logits_[j] / static_cast<float>(group_);
}

void ExpectedAttention::score(HeadTensors& tensors, std::span<const SlotId> order, std::vector<float>& scores) {
  width_ = tensors.key_width();
  const std::size_t n = order.size();
  queries_.read(tensors);
  tensors.read_keys(order, keys_);
  if (vnorm_) tensors.read_values(order, values_);
  scores.assign(n, 0.0F);
  const std::size_t first = protected_of(n);
  for (std::uint32_t g = 0; g < group_ && !queries_.empty(); ++g) {
    queries_.find(g);
    add_group_scores(first, scores);
  }
  const auto d = static_cast<double>(width_);
  const double per_element = covariance_ ? 2 * d : 2;
  tensors.count_flops(per_element * static_cast<double>(queries_.elements() + group_ * (n - first) * width_));
  const std::size_t v_width = tensors.value_width();
  for (std::size_t j = first; vnorm_ && j < n; ++j) {
    const double norm = norm_of(std::span(values_).subspan(j * v_width, v_width));
    scores[j] = static_cast<float>((static_cast<double>(scores[j]) + epsilon_) * norm);
  }
  const float largest = *std::max_element(scores.begin() + static_cast<std::ptrdiff_t>(first), scores.end());
  std::fill_n(scores.begin(), first, largest + 1);  // above all others, also where these are alike
}

}  // namespace kvroof
