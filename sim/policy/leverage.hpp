// LeverageScores: how far the key of each token stands out of the span of the others (Chari and Van Durme, 2025).
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "sim/policy/prompt_scorer.hpp"
#include "sim/policy/ridged_gram.hpp"

namespace kvroof {

// out becomes a matrix [rows, columns] whose entries are drawn from the standard normal distribution.
using SketchSource = std::function<void(std::uint64_t seed, std::size_t rows, std::size_t columns,
                                        std::vector<float>& out)>;

// One matrix for all heads and layers, so that a head decides alike wherever it lies: it depends on the seed and its
// size alone.
void draw_sketch(std::uint64_t seed, std::size_t rows, std::size_t columns, std::vector<float>& out);

// With x the rows less their mean, times Φ / √columns where a sketch Φ is given, a row's score is
//   xᵀ (Σ x xᵀ + 0.01 · 1)⁻¹ x.
class LeverageScores {
 public:
  // Parameter sketch.
  LeverageScores(const PolicySpec& spec, const PolicyContext& context, SketchSource source = draw_sketch);
  static TensorNeed needs(const PolicySpec& spec);  // validates the parameters

  // `keys` [positions.size(), width] as the cache holds them; they are turned back. One score for each.
  void score(std::span<const TokenPos> positions, std::size_t width, std::span<float> keys,
             std::vector<double>& scores);
  // Of the last score().
  [[nodiscard]] double flops() const { return flops_; }

 private:
  void project(std::span<const float> keys, std::size_t width);

  std::uint32_t sketch_;
  SketchSource source_;
  LayerRotation rotation_;
  std::uint64_t seed_;
  std::size_t columns_ = 0;      // of rows_
  std::vector<float> matrix_;    // Φ, [width, columns_]; empty: rows stay as they are
  std::vector<double> mean_;
  std::vector<double> rows_;     // x, [rows, columns_]
  RidgedGram gram_;
  double flops_ = 0;
};

inline constexpr ParamInfo kSketchParam = {
    "sketch", "count | 0", "48",
    "columns of the random matrix by which keys are shortened; 0: none, which gives exact leverage"};

// The policies with another source of their sketch than draw_sketch.
std::unique_ptr<EvictionPolicy> make_leverage(const PolicySpec& spec, const PolicyContext& context,
                                              SketchSource source);
std::unique_ptr<EvictionPolicy> make_compactor(const PolicySpec& spec, const PolicyContext& context,
                                               SketchSource source);

}  // namespace kvroof
