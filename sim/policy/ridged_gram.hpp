// RidgedGram: r · 1 + Σ x xᵀ over rows x, and how far another row stands out of it.
#pragma once

#include <span>
#include <vector>

namespace kvroof {

class RidgedGram {
 public:
  // `rows` [rows, columns]; the ridge r is above 0, so that the matrix is positive definite whatever the rows.
  void factorise(std::span<const double> rows, std::size_t columns, double ridge);
  // xᵀ (r · 1 + Σ x xᵀ)⁻¹ x
  [[nodiscard]] double leverage_of(std::span<const double> row);
  // Of both, for so many rows.
  [[nodiscard]] static double flops(std::size_t rows, std::size_t columns);

 private:
  std::size_t columns_ = 0;
  std::vector<double> factor_;  // Cholesky's, lower: [columns, columns]
  std::vector<double> solved_;
};

}  // namespace kvroof
