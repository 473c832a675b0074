#include "sim/policy/ridged_gram.hpp"

#include <algorithm>
#include <cmath>

namespace kvroof {

// factor_ · factor_ᵀ is the matrix, of which the lower half is made in place.
void RidgedGram::factorise(std::span<const double> rows, std::size_t columns, double ridge) {
  const std::size_t k = columns_ = columns;
  solved_.resize(k);
  factor_.assign(k * k, 0.0);
  for (std::size_t row = 0; row < rows.size(); row += k) {
    for (std::size_t i = 0; i < k; ++i) {
      for (std::size_t j = 0; j <= i; ++j) factor_[i * k + j] += rows[row + i] * rows[row + j];
    }
  }
  for (std::size_t i = 0; i < k; ++i) {
    factor_[i * k + i] += ridge;
    for (std::size_t j = 0; j <= i; ++j) {
      double rest = factor_[i * k + j];
      for (std::size_t c = 0; c < j; ++c) rest -= factor_[i * k + c] * factor_[j * k + c];
      // No pivot is below the ridge but by rounding.
      factor_[i * k + j] = i == j ? std::sqrt(std::max(rest, ridge)) : rest / factor_[j * k + j];
    }
  }
}

// ‖y‖², where factor_ · y = x.
double RidgedGram::leverage_of(std::span<const double> row) {
  double length = 0;
  for (std::size_t i = 0; i < columns_; ++i) {
    double rest = row[i];
    for (std::size_t c = 0; c < i; ++c) rest -= factor_[i * columns_ + c] * solved_[c];
    solved_[i] = rest / factor_[i * columns_ + i];
    length += solved_[i] * solved_[i];
  }
  return length;
}

double RidgedGram::flops(std::size_t rows, std::size_t columns) {
  const auto k = static_cast<double>(columns);
  return static_cast<double>(rows) * 2 * k * k + k * k * k / 3;
}

}  // namespace kvroof
