// What tests of the operators share: random matrices, poisoned outputs, comparison with double precision, instruction
// sets.
#pragma once

#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "kernels/cpu/fast_ops.hpp"
#include "kernels/cpu/reference_ops.hpp"
#include "sim/core/philox.hpp"
#include "tests/catch.hpp"
#include "tests/support/loaded_model.hpp"

namespace kvroof::twin {

inline constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

// Uniform numbers in (−1, 1); every stream is another one.
inline std::vector<float> numbers(std::size_t count, std::uint32_t stream) {
  std::vector<float> x(count);
  for (std::size_t i = 0; i < count; ++i) {
    x[i] = 2 * uniform_open(philox4x32_10({{static_cast<std::uint32_t>(i), stream, 0, 0}}, 11).x[0]) - 1;
  }
  return x;
}

// What an operator must overwrite.
inline std::vector<float> poisoned(std::size_t count) {
  return std::vector<float>(count, std::numeric_limits<float>::quiet_NaN());
}

inline Weight random_weight(DType type, std::size_t rows, std::size_t cols, std::uint32_t stream) {
  const std::vector<float> x = numbers(rows * cols, stream);
  return make_weight(DType::kF32, reinterpret_cast<const std::byte*>(x.data()), rows, cols, type);
}

// Element (row, col) of what a weight holds after rounding to its type.
inline double at(const RowsView& rows, std::size_t row, std::size_t col) {
  float x = 0;
  convert_to_float(rows.type, rows.row(row) + col * size_of(rows.type), {&x, 1});
  return static_cast<double>(x);
}

// Largest difference relative to the largest expected magnitude; infinite where a result is no number.
inline double deviation(std::span<const float> results, std::span<const double> expected) {
  REQUIRE(results.size() == expected.size());
  double largest = 0;
  double difference = 0;
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!std::isfinite(results[i])) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, std::abs(expected[i]));
    difference = std::max(difference, std::abs(static_cast<double>(results[i]) - expected[i]));
  }
  return largest == 0 ? difference : difference / largest;
}

inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

// Runs `body` once under each instruction set that this processor offers.
template <class Body>
void on_every_target(Body body) {
  for (std::int64_t left = hwy::SupportedTargets(); left != 0; left &= left - 1) {
    const std::int64_t target = left & -left;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    INFO("instruction set " << hwy::TargetName(target));
    body();
    hwy::SetSupportedTargetsForTest(0);
  }
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

// Runs body(ops) with new operators of the reference, and of the fast back end on one and on three threads under every
// instruction set.
template <class Body>
void on_every_back_end(Body body) {
  {
    INFO("reference");
    ReferenceOps ops;
    body(static_cast<Ops&>(ops));
  }
  on_every_target([&] {
    for (const unsigned threads : {1U, 3U}) {
      INFO("fast, threads " << threads);
      body(*make_fast_ops(threads));
    }
  });
}

}  // namespace kvroof::twin
