#include "sim/policy/future_queries.hpp"

#include <cmath>

namespace kvroof {
namespace {

constexpr std::uint32_t kDefaultFuture = 512;
constexpr std::uint32_t kDefaultSinks = 4;
constexpr std::uint32_t kMostFuture = 1U << 20;

// a and b of a pair, turned by the mean rotation.
void turn_pair(double cosine, double sine, double& a, double& b) {
  const double turned = a * cosine - b * sine;
  b = b * cosine + a * sine;
  a = turned;
}

}  // namespace

FutureQueries::FutureQueries(const PolicySpec& spec, const PolicyContext& context, bool covariance)
    : future_(spec.count("future", kDefaultFuture, 1)),
      sinks_(spec.count("sinks", kDefaultSinks)),
      covariance_(covariance),
      context_(context) {}

void FutureQueries::validate(const PolicySpec& spec) {
  if (spec.count("future", kDefaultFuture, 1) > kMostFuture) {
    throw usage_error(fmt::format("policy {}: future: at most {} positions", spec.name, kMostFuture));
  }
  (void)spec.count("sinks", kDefaultSinks);
}

// Angles and cosines are rounded to float where the published models round them.
void FutureQueries::find_mean_rotation() {
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

void FutureQueries::read(HeadTensors& tensors) {
  find_mean_rotation();
  width_ = tensors.key_width();
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

void FutureQueries::find(std::uint32_t g) {
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
  turn();
}

// The mean and, first by columns and then by rows, the spread.
void FutureQueries::turn() {
  for (std::size_t pair = 0; pair < cosines_.size(); ++pair) {
    const auto [one, other] = context_.rotation.elements(pair);
    turn_pair(cosines_[pair], sines_[pair], mean_[one], mean_[other]);
    for (std::size_t i = 0; covariance_ && i < width_; ++i) {
      turn_pair(cosines_[pair], sines_[pair], spread_[i * width_ + one], spread_[i * width_ + other]);
    }
  }
  for (std::size_t pair = 0; covariance_ && pair < cosines_.size(); ++pair) {
    const auto [one, other] = context_.rotation.elements(pair);
    for (std::size_t i = 0; i < width_; ++i) {
      turn_pair(cosines_[pair], sines_[pair], spread_[one * width_ + i], spread_[other * width_ + i]);
    }
  }
}

}  // namespace kvroof
