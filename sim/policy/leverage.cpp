#include "sim/policy/leverage.hpp"

#include <cmath>
#include <utility>

#include "sim/policy/noise.hpp"

namespace kvroof {
namespace {

constexpr std::uint32_t kDefaultSketch = 48;
constexpr std::uint32_t kMostSketch = 1024;
constexpr double kRidge = 0.01;  // of kvpress

}  // namespace

void draw_sketch(std::uint64_t seed, std::size_t rows, std::size_t columns, std::vector<float>& out) {
  out.resize(rows * columns);
  for (std::size_t i = 0; i < out.size(); ++i) {
    // No token is meant: the query's position keeps these draws apart from those of tokens.
    out[i] = static_cast<float>(normal_draw(
        {.seed = seed, .position = static_cast<std::uint32_t>(i), .query_position = 0xfffffffeU}));
  }
}

LeverageScores::LeverageScores(const PolicySpec& spec, const PolicyContext& context, SketchSource source)
    : sketch_(spec.count("sketch", kDefaultSketch)),
      source_(std::move(source)),
      rotation_(context.rotation),
      seed_(context.seed) {}

TensorNeed LeverageScores::needs(const PolicySpec& spec) {
  if (const std::uint32_t sketch = spec.count("sketch", kDefaultSketch); sketch > kMostSketch) {
    throw usage_error(fmt::format("policy {}: sketch={}: expected at most {} columns; 0 for exact leverage", spec.name,
                                  sketch, kMostSketch));
  }
  return {.keys = true};
}

// Centred, and shortened by the sketch.
void LeverageScores::project(std::span<const float> keys, std::size_t width) {
  const std::size_t n = keys.size() / width;
  if (sketch_ > 0 && matrix_.empty()) source_(seed_, width, sketch_, matrix_);
  columns_ = sketch_ > 0 ? sketch_ : width;
  mean_.assign(width, 0.0);
  for (std::size_t i = 0; i < keys.size(); ++i) mean_[i % width] += static_cast<double>(keys[i]);
  for (double& x : mean_) x /= static_cast<double>(n);
  rows_.assign(n * columns_, 0.0);
  const double scale = 1 / std::sqrt(static_cast<double>(columns_));
  for (std::size_t row = 0; row < n; ++row) {
    double* out = rows_.data() + row * columns_;
    for (std::size_t i = 0; i < width; ++i) {
      const double x = static_cast<double>(keys[row * width + i]) - mean_[i];
      if (sketch_ == 0) {
        out[i] = x;
        continue;
      }
      const float* factors = matrix_.data() + i * columns_;
      for (std::size_t c = 0; c < columns_; ++c) out[c] += x * scale * static_cast<double>(factors[c]);
    }
  }
}

void LeverageScores::score(std::span<const TokenPos> positions, std::size_t width, std::span<float> keys,
                           std::vector<double>& scores) {
  const std::size_t n = positions.size();
  for (std::size_t i = 0; i < n; ++i) undo_rotation(rotation_, positions[i], width, keys.subspan(i * width, width));
  project(keys, width);
  gram_.factorise(rows_, columns_, kRidge);
  scores.resize(n);
  for (std::size_t i = 0; i < n; ++i) {
    scores[i] = gram_.leverage_of(std::span<const double>(rows_).subspan(i * columns_, columns_));
  }
  const auto d = static_cast<double>(width);
  const auto k = static_cast<double>(columns_);
  flops_ = static_cast<double>(n) * (sketch_ > 0 ? 2 * d * k : d) + RidgedGram::flops(n, columns_);
}

}  // namespace kvroof
