#include "sim/policy/expected_attention.hpp"

#include <algorithm>
#include <cmath>

namespace kvroof {
namespace {

constexpr std::uint32_t kDefaultFuture = 512;
constexpr std::uint32_t kDefaultSinks = 4;
constexpr std::uint32_t kMostFuture = 1U << 20;

// a and b of a pair, turned by the mean rotation.
void turn(double cosine, double sine, double& a, double& b) {
  const double turned = a * cosine - b * sine;
  b = b * cosine + a * sine;
  a = turned;
}

}  // namespace

ExpectedAttention::ExpectedAttention(const PolicySpec& spec, const PolicyContext& context)
    : future_(spec.count("future", kDefaultFuture, 1)),
      sinks_(spec.count("sinks", kDefaultSinks)),
      covariance_(yes_or_no(spec, "covariance", true)),
      vnorm_(yes_or_no(spec, "vnorm", true)),
      epsilon_(spec.number("epsilon", 0, 0, 1e6)),
      context_(context) {}

TensorNeed ExpectedAttention::needs(const PolicySpec& spec) {
  if (spec.count("future", kDefaultFuture, 1) > kMostFuture) {
    throw usage_error(fmt::format("policy {}: future: at most {} positions", spec.name, kMostFuture));
  }
  (void)spec.count("sinks", kDefaultSinks);
  (void)yes_or_no(spec, "covariance", true);
  (void)spec.number("epsilon", 0, 0, 1e6);
  return {.keys = true, .values = yes_or_no(spec, "vnorm", true), .queries = TensorNeed::kWholePrompt};
}

// Angles and cosines are rounded to float where the published models round them.
void ExpectedAttention::find_mean_rotation() {
  const std::span<const float> frequencies = context_.rotation.frequencies();
  if (frequencies.empty() || !cosines_.empty()) return;
  const double magnitude = static_cast<double>(context_.rotation.rule->magnitude) / future_;
  for (const float frequency : frequencies) {
    double cosine = 0;
    double sine = 0;
    for (std::uint32_t i = 0; i < future_; ++i) {
      const auto angle = static_cast<double>(static_cast<float>(context_.prompt + i) * frequency);
      cosine += std::cos(angle);
      sine += std::sin(angle);
    }
    cosines_.push_back(cosine * magnitude);
    sines_.push_back(sine * magnitude);
  }
}

void ExpectedAttention::read_queries(HeadTensors& tensors) {
  tensors.read_queries(context_.prompt, queries_);
  const std::size_t row = context_.group * width_;
  const std::size_t rows = queries_.size() / row;
  for (std::size_t i = 0; i < rows; ++i) {
    const TokenPos position(static_cast<std::uint32_t>(context_.prompt - rows + i));
    undo_rotation(context_.rotation, position, width_, std::span(queries_).subspan(i * row, row));
  }
  const std::size_t first = std::min<std::size_t>(sinks_, rows);
  queries_.erase(queries_.begin(), queries_.begin() + static_cast<std::ptrdiff_t>(first * row));
}

// Mean and covariance (over the count) of query head g, turned by the mean rotation.
void ExpectedAttention::find_statistics(std::uint32_t g) {
  const std::size_t step = context_.group * width_;
  const auto rows = static_cast<double>(queries_.size() / step);
  mean_.assign(width_, 0.0);
  for (std::size_t at = g * width_; at < queries_.size(); at += step) {
    for (std::size_t c = 0; c < width_; ++c) mean_[c] += static_cast<double>(queries_[at + c]);
  }
  for (double& x : mean_) x /= rows;
  spread_.assign(covariance_ ? width_ * width_ : 0, 0.0);
  for (std::size_t at = g * width_; covariance_ && at < queries_.size(); at += step) {
    for (std::size_t r = 0; r < width_; ++r) {
      const double centred = (static_cast<double>(queries_[at + r]) - mean_[r]) / rows;
      double* out = spread_.data() + r * width_;
      for (std::size_t c = 0; c < width_; ++c) out[c] += centred * (static_cast<double>(queries_[at + c]) - mean_[c]);
    }
  }
  for (std::size_t pair = 0; pair < cosines_.size(); ++pair) {
    const auto [one, other] = context_.rotation.elements(pair);
    turn(cosines_[pair], sines_[pair], mean_[one], mean_[other]);
    for (std::size_t i = 0; covariance_ && i < width_; ++i) {
      turn(cosines_[pair], sines_[pair], spread_[i * width_ + one], spread_[i * width_ + other]);
    }
  }
  for (std::size_t pair = 0; covariance_ && pair < cosines_.size(); ++pair) {
    const auto [one, other] = context_.rotation.elements(pair);
    for (std::size_t i = 0; i < width_; ++i) {
      turn(cosines_[pair], sines_[pair], spread_[one * width_ + i], spread_[other * width_ + i]);
    }
  }
}

// Adds the softmax of the expected logits of the tokens from `first` on, divided by the group.
void ExpectedAttention::add_group_scores(std::size_t first, std::span<float> scores) {
  const auto scale = static_cast<double>(context_.scale);
  logits_.resize(scores.size() - first);
  for (std::size_t j = 0; j < logits_.size(); ++j) {
    const float* key = keys_.data() + (first + j) * width_;
    double linear = 0;
    for (std::size_t c = 0; c < width_; ++c) linear += mean_[c] * static_cast<double>(key[c]);
    double square = 0;
    if (covariance_) {
      product_.assign(width_, 0.0);
      for (std::size_t r = 0; r < width_; ++r) {
        const double factor = static_cast<double>(key[r]);
        for (std::size_t c = 0; c < width_; ++c) product_[c] += factor * spread_[r * width_ + c];
      }
      for (std::size_t c = 0; c < width_; ++c) square += product_[c] * static_cast<double>(key[c]);
    }
    logits_[j] = static_cast<float>(scale * linear + scale * scale / 2 * square);
  }
  softmax(logits_, logits_);
  for (std::size_t j = 0; j < logits_.size(); ++j) {
    scores[first + j] += logits_[j] / static_cast<float>(context_.group);
  }
}

void ExpectedAttention::score(HeadTensors& tensors, std::span<const SlotId> order, std::vector<float>& scores) {
  width_ = tensors.key_width();
  const std::size_t n = order.size();
  find_mean_rotation();
  read_queries(tensors);
  tensors.read_keys(order, keys_);
  if (vnorm_) tensors.read_values(order, values_);
  scores.assign(n, 0.0F);
  const std::size_t first = protected_of(n);
  for (std::uint32_t g = 0; g < context_.group && !queries_.empty(); ++g) {
    find_statistics(g);
    add_group_scores(first, scores);
  }
  const auto d = static_cast<double>(width_);
  const double per_element = covariance_ ? 2 * d : 2;
  tensors.count_flops(per_element * static_cast<double>(queries_.size() + context_.group * (n - first) * width_));
  const std::size_t v_width = tensors.value_width();
  for (std::size_t j = first; vnorm_ && j < n; ++j) {
    const double norm = norm_of(std::span(values_).subspan(j * v_width, v_width));
    scores[j] = static_cast<float>((static_cast<double>(scores[j]) + epsilon_) * norm);
  }
  const float largest = *std::max_element(scores.begin() + static_cast<std::ptrdiff_t>(first), scores.end());
  std::fill_n(scores.begin(), first, largest + 1);  // above all others, also where these are alike
}

}  // namespace kvroof
