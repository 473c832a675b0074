#include "sim/attention/vector.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "sim/attention/plain.hpp"
#include "sim/core/dtype.hpp"
#include "sim/core/error.hpp"

// Vectors of a length unknown to the compiler cannot be kept in arrays; such machines have a fixed-length set as well.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "sim/attention/vector.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kvroof {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR
void scaled_dots_on(const float* q, const RowsView& keys, float scale, float* out) {
  plain::scaled_dots(q, keys, scale, out);
}
void weighted_sum_on(const float* weights, const RowsView& values, float* out) {
  plain::weighted_sum(weights, values, out);
}
void turn_on(const RowsView& rows, std::size_t stride, float* out) { plain::turn(rows, stride, out); }
void column_dots_on(std::span<const float* const> q, const float* columns, std::size_t width, std::size_t stride,
                    float scale, float* out) {
  plain::scaled_dots(q, columns, width, stride, scale, out);
}
#else
namespace hn = hwy::HWY_NAMESPACE;

using F = hn::CappedTag<float, 16>;
using V = hn::Vec<F>;
using F4 = hn::FixedTag<float, 4>;
constexpr std::size_t kLanes = hn::MaxLanes(F());
constexpr std::size_t kParts = 16 / kLanes;  // vectors that hold the sixteen interleaved sums
static_assert(kLanes >= 4 && kLanes * kParts == 16);

// How a row's elements become floats; each conversion is exact.
struct FromF32 {
  static constexpr std::size_t kBytes = 4;
  static HWY_INLINE V load(const std::byte* p) { return hn::LoadU(F(), reinterpret_cast<const float*>(p)); }
};
struct FromBF16 {
  static constexpr std::size_t kBytes = 2;
  static HWY_INLINE V load(const std::byte* p) {
    const hn::Rebind<std::uint16_t, F> half;
    const hn::Rebind<std::uint32_t, F> full;
    const auto bits = hn::LoadU(half, reinterpret_cast<const std::uint16_t*>(p));
    return hn::BitCast(F(), hn::ShiftLeft<16>(hn::PromoteTo(full, bits)));
  }
};
struct FromF16 {
  static constexpr std::size_t kBytes = 2;
  static HWY_INLINE V load(const std::byte* p) {
#if HWY_TARGET <= HWY_AVX2 || HWY_TARGET == HWY_NEON
    const hn::Rebind<hwy::float16_t, F> half;
    return hn::PromoteTo(F(), hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(p)));
#else
    // Sets without a conversion instruction.
    alignas(16) std::array<float, kLanes> values;
    convert_to_float(DType::kF16, p, values);
    return hn::Load(F(), values.data());
#endif
  }
};

// Lanes i and i + 8 of the sixteen sums are added, then i and i + 4: four sums remain.
HWY_INLINE hn::Vec<F4> fold_to_four(const V* sums) {
#if HWY_MAX_BYTES >= 64
  if constexpr (kLanes == 16) {
    const hn::Half<F> f8;
    const auto eight = hn::Add(hn::LowerHalf(f8, sums[0]), hn::UpperHalf(f8, sums[0]));
    return hn::Add(hn::LowerHalf(F4(), eight), hn::UpperHalf(F4(), eight));
  }
#elif HWY_MAX_BYTES >= 32
  if constexpr (kLanes == 8) {
    const auto eight = hn::Add(sums[0], sums[1]);
    return hn::Add(hn::LowerHalf(F4(), eight), hn::UpperHalf(F4(), eight));
  }
#else
  return hn::Add(hn::Add(sums[0], sums[2]), hn::Add(sums[1], sums[3]));
#endif
}

// Finishes the fold of four rows at once: element r of the result is the whole sum of row r.
HWY_INLINE hn::Vec<F4> fold_rows(hn::Vec<F4> a, hn::Vec<F4> b, hn::Vec<F4> c, hn::Vec<F4> d) {
  const F4 f4;
  const auto ab = hn::Add(hn::ConcatLowerLower(f4, b, a), hn::ConcatUpperUpper(f4, b, a));
  const auto cd = hn::Add(hn::ConcatLowerLower(f4, d, c), hn::ConcatUpperUpper(f4, d, c));
  return hn::Add(hn::ConcatEven(f4, cd, ab), hn::ConcatOdd(f4, cd, ab));
}

constexpr std::size_t kRows = kLanes == 16 ? 8 : 4;  // rows in flight, so that additions do not wait for each other

// The last width % 16 elements of a row, padded with zeros to one chunk.
template <class From>
HWY_INLINE void load_tail(const std::byte* row, std::size_t begin, std::size_t width, float* chunk) {
  std::fill(chunk, chunk + 16, 0.0F);
  const DType type = std::is_same_v<From, FromF32>    ? DType::kF32
                     : std::is_same_v<From, FromBF16> ? DType::kBF16
                                                      : DType::kF16;
  convert_to_float(type, row + begin * From::kBytes, std::span(chunk, width - begin));
}

// The dot products of q with kRows rows.
template <class From>
HWY_INLINE void dot_rows(const float* q, const std::array<const std::byte*, kRows>& rows, std::size_t width,
                         float* out) {
  const F f;
  V sums[kRows][kParts];
  for (std::size_t r = 0; r < kRows; ++r) {
    for (std::size_t p = 0; p < kParts; ++p) sums[r][p] = hn::Zero(f);
  }
  std::size_t j = 0;
  for (; j + 16 <= width; j += 16) {
    for (std::size_t p = 0; p < kParts; ++p) {
      const std::size_t at = j + p * kLanes;
      const V query = hn::LoadU(f, q + at);
      for (std::size_t r = 0; r < kRows; ++r) {
        sums[r][p] = hn::Add(sums[r][p], hn::Mul(query, From::load(rows[r] + at * From::kBytes)));
      }
    }
  }
  if (j < width) {
    alignas(64) float query[16] = {};
    alignas(64) float key[16];
    std::copy(q + j, q + width, query);
    for (std::size_t r = 0; r < kRows; ++r) {
      load_tail<From>(rows[r], j, width, key);
      for (std::size_t p = 0; p < kParts; ++p) {
        const V product = hn::Mul(hn::Load(f, query + p * kLanes), hn::Load(f, key + p * kLanes));
        sums[r][p] = hn::Add(sums[r][p], product);
      }
    }
  }
  for (std::size_t r = 0; r < kRows; r += 4) {
    hn::StoreU(fold_rows(fold_to_four(sums[r]), fold_to_four(sums[r + 1]), fold_to_four(sums[r + 2]),
                         fold_to_four(sums[r + 3])),
               F4(), out + r);
  }
}

template <class From>
HWY_INLINE void dots(const float* q, const RowsView& keys, float scale, float* out) {
  for (std::size_t i = 0; i < keys.count; i += kRows) {
    const std::size_t rows_here = std::min(kRows, keys.count - i);
    std::array<const std::byte*, kRows> rows;
    for (std::size_t r = 0; r < kRows; ++r) rows[r] = keys.row(i + std::min(r, rows_here - 1));
    alignas(64) std::array<float, kRows> sums;
    dot_rows<From>(q, rows, keys.width, sums.data());
    for (std::size_t r = 0; r < rows_here; ++r) out[i + r] = sums[r] * scale;
  }
}

HWY_ATTR void scaled_dots_on(const float* q, const RowsView& keys, float scale, float* out) {
  switch (keys.type) {
    case DType::kF32: return dots<FromF32>(q, keys, scale, out);
    case DType::kBF16: return dots<FromBF16>(q, keys, scale, out);
    case DType::kF16: return dots<FromF16>(q, keys, scale, out);
    default: check(false, "keys are f32, f16 or bf16");
  }
}

// The sums of lanes kLane, kLane + kStep … of the sixteen, each of every sixteenth product, folded as fold_by_halves
// does, for a vector of columns and a few queries.
template <std::size_t kLane, std::size_t kStep, std::size_t kQueries>
HWY_INLINE void sum_lanes(const std::array<const float*, kQueries>& q, const float* columns, std::size_t width,
                          std::size_t stride, V* sums) {
  const F f;
  if constexpr (kStep == 16) {
    for (std::size_t c = 0; c < kQueries; ++c) sums[c] = hn::Zero(f);
    for (std::size_t j = kLane; j < width; j += kStep) {
      const V column = hn::LoadU(f, columns + j * stride);
      for (std::size_t c = 0; c < kQueries; ++c) sums[c] = hn::Add(sums[c], hn::Mul(hn::Set(f, q[c][j]), column));
    }
  } else {
    V others[kQueries];
    sum_lanes<kLane, 2 * kStep, kQueries>(q, columns, width, stride, sums);
    sum_lanes<kLane + kStep, 2 * kStep, kQueries>(q, columns, width, stride, others);
    for (std::size_t c = 0; c < kQueries; ++c) sums[c] = hn::Add(sums[c], others[c]);
  }
}

HWY_ATTR void column_dots_on(std::span<const float* const> q, const float* columns, std::size_t width,
                             std::size_t stride, float scale, float* out) {
  constexpr std::size_t kQueries = kLanes == 16 ? 4 : 2;  // as registers allow
  const V by = hn::Set(F(), scale);
  for (std::size_t i = 0; i < q.size(); i += kQueries) {
    std::array<const float*, kQueries> some;
    for (std::size_t c = 0; c < kQueries; ++c) some[c] = q[std::min(i + c, q.size() - 1)];
    for (std::size_t r = 0; r < stride; r += kLanes) {
      V sums[kQueries];
      sum_lanes<0, 1, kQueries>(some, columns + r, width, stride, sums);
      for (std::size_t c = 0; c < kQueries && i + c < q.size(); ++c) {
        hn::StoreU(hn::Mul(sums[c], by), F(), out + (i + c) * stride + r);
      }
    }
  }
}

template <class From>
HWY_INLINE void convert_row(const std::byte* row, std::size_t width, float* out) {
  std::size_t j = 0;
  for (; j + kLanes <= width; j += kLanes) hn::StoreU(From::load(row + j * From::kBytes), F(), out + j);
  if (j == width) return;
  alignas(64) float rest[16];
  load_tail<From>(row, j, width, rest);
  std::copy_n(rest, width - j, out + j);
}

// A few rows at a time are converted, and interleaved where they go.
template <class From>
HWY_INLINE void turn_rows(const RowsView& rows, std::size_t stride, float* out) {
  thread_local std::vector<float> converted;
  converted.resize(kInterleavedRows * rows.width);
  for (std::size_t i = 0; i < stride; i += kInterleavedRows) {
    RowPointers some;
    for (std::size_t r = 0; r < kInterleavedRows; ++r) {
      float* row = converted.data() + r * rows.width;
      convert_row<From>(rows.row(std::min(i + r, rows.count - 1)), rows.width, row);
      some[r] = row;
    }
    vector::interleave(some, rows.width, out + i, stride);
  }
}

HWY_ATTR void turn_on(const RowsView& rows, std::size_t stride, float* out) {
  switch (rows.type) {
    case DType::kF32: return turn_rows<FromF32>(rows, stride, out);
    case DType::kBF16: return turn_rows<FromBF16>(rows, stride, out);
    case DType::kF16: return turn_rows<FromF16>(rows, stride, out);
    default: check(false, "rows are f32, f16 or bf16");
  }
}

// Columns [begin, begin + kColumns · kLanes) of the output.
template <class From, std::size_t kColumns>
HWY_INLINE void weighted_columns(const float* weights, const RowsView& values, std::size_t begin, float* out) {
  const F f;
  V sums[kColumns];
  for (std::size_t c = 0; c < kColumns; ++c) sums[c] = hn::Zero(f);
  for (std::size_t i = 0; i < values.count; ++i) {
    const std::byte* row = values.row(i) + begin * From::kBytes;
    const V weight = hn::Set(f, weights[i]);
    for (std::size_t c = 0; c < kColumns; ++c) {
      sums[c] = hn::Add(sums[c], hn::Mul(weight, From::load(row + c * kLanes * From::kBytes)));
    }
  }
  for (std::size_t c = 0; c < kColumns; ++c) hn::StoreU(sums[c], f, out + begin + c * kLanes);
}

template <class From>
HWY_INLINE void weighted_rows(const float* weights, const RowsView& values, float* out) {
  std::size_t j = 0;
  for (; j + 8 * kLanes <= values.width; j += 8 * kLanes) weighted_columns<From, 8>(weights, values, j, out);
  for (; j + 4 * kLanes <= values.width; j += 4 * kLanes) weighted_columns<From, 4>(weights, values, j, out);
  for (; j + kLanes <= values.width; j += kLanes) weighted_columns<From, 1>(weights, values, j, out);
  if (j == values.width) return;
  alignas(64) float value[16];
  std::fill(out + j, out + values.width, 0.0F);
  for (std::size_t i = 0; i < values.count; ++i) {
    load_tail<From>(values.row(i), j, values.width, value);
    for (std::size_t c = j; c < values.width; ++c) out[c] += weights[i] * value[c - j];
  }
}

HWY_ATTR void weighted_sum_on(const float* weights, const RowsView& values, float* out) {
  switch (values.type) {
    case DType::kF32: return weighted_rows<FromF32>(weights, values, out);
    case DType::kBF16: return weighted_rows<FromBF16>(weights, values, out);
    case DType::kF16: return weighted_rows<FromF16>(weights, values, out);
    default: check(false, "values are f32, f16 or bf16");
  }
}
#endif  // HWY_TARGET == HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace kvroof
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvroof::vector {

HWY_EXPORT(scaled_dots_on);
HWY_EXPORT(weighted_sum_on);
HWY_EXPORT(turn_on);
HWY_EXPORT(column_dots_on);

void scaled_dots(const float* q, const RowsView& keys, float scale, float* out) {
  HWY_DYNAMIC_DISPATCH(scaled_dots_on)(q, keys, scale, out);
}
void weighted_sum(const float* weights, const RowsView& values, float* out) {
  HWY_DYNAMIC_DISPATCH(weighted_sum_on)(weights, values, out);
}
void turn(const RowsView& rows, std::size_t stride, float* out) { HWY_DYNAMIC_DISPATCH(turn_on)(rows, stride, out); }
void scaled_dots(std::span<const float* const> q, const float* columns, std::size_t width, std::size_t stride,
                 float scale, float* out) {
  HWY_DYNAMIC_DISPATCH(column_dots_on)(q, columns, width, stride, scale, out);
}

}  // namespace kvroof::vector
#endif
