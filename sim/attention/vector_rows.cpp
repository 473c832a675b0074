#include <algorithm>
#include <array>
#include <limits>

#include "sim/attention/plain.hpp"
#include "sim/attention/portable_math.hpp"
#include "sim/attention/vector.hpp"

// Rows of logits: softmax in its parts, and gathering.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "sim/attention/vector_rows.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kvroof {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR
Range range_on(const float* x, std::size_t count) { return plain::range_of(x, count); }
Range scaled_sums_on(const float* x, const float* y, std::size_t count, float factor, float* out) {
  return plain::scaled_sums(x, y, count, factor, out);
}
float exponentials_on(const float* x, std::size_t count, const ExponentOrigin& origin, float* e) {
  return plain::exponentials(x, count, origin, e);
}
float sum_on(const float* x, std::size_t count) { return plain::sum(x, count); }
void scale_on(const float* x, std::size_t count, float factor, float* out) { plain::scale(x, count, factor, out); }
void interleave_on(const RowPointers& rows, std::size_t count, float* out, std::size_t stride) {
  plain::interleave(rows, count, out, stride);
}
void interleaved_exponentials_on(const RowPointers& x, const RowOrigins& origins, std::size_t count, float* out) {
  plain::interleaved_exponentials(x, origins, count, out);
}
void interleaved_noisy_on(const RowPointers& x, const RowNoise& noise, const RowOrigins& origins, std::size_t count,
                          float* out) {
  plain::interleaved_exponentials(x, noise, origins, count, out);
}
void gather_on(const float* rows, std::span<const TokenPos> index, float* out, std::size_t stride) {
  plain::gather_interleaved(rows, index, out, stride);
}
#else
namespace hn = hwy::HWY_NAMESPACE;

using F = hn::CappedTag<float, 16>;
using V = hn::Vec<F>;
constexpr std::size_t kLanes = hn::MaxLanes(F());
constexpr std::size_t kParts = kSumLanes / kLanes;  // vectors that hold the interleaved sums
static_assert(kLanes >= 4 && kLanes * kParts == kSumLanes);

// As portable::fold_by_halves, in registers.
template <class D>
HWY_INLINE float fold_lanes(D d, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(d) == 4) {
    v = hn::Add(v, hn::Shuffle1032(v));
    return hn::GetLane(hn::Add(v, hn::Shuffle2301(v)));
  } else {
    const hn::Half<D> half;
    return fold_lanes(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}
HWY_INLINE float fold(V* sums) {
  for (std::size_t half = kParts / 2; half > 0; half /= 2) {
    for (std::size_t p = 0; p < half; ++p) sums[p] = hn::Add(sums[p], sums[p + half]);
  }
  return fold_lanes(F(), sums[0]);
}

// The first `count` of a vector's elements, and zeros.
HWY_INLINE V load_first(const float* x, std::size_t count) {
#if HWY_TARGET <= HWY_AVX2
  return hn::MaskedLoad(hn::FirstN(F(), count), F(), x);
#else
  alignas(64) std::array<float, kLanes> part{};
  std::copy_n(x, count, part.begin());
  return hn::Load(F(), part.data());
#endif
}

HWY_ATTR Range range_on(const float* x, std::size_t count) {
  const F f;
  V least[kParts];
  V most[kParts];
  for (std::size_t p = 0; p < kParts; ++p) least[p] = most[p] = hn::Set(f, x[0]);
  std::size_t i = 0;
  for (; i + kSumLanes <= count; i += kSumLanes) {
    for (std::size_t p = 0; p < kParts; ++p) {
      const V here = hn::LoadU(f, x + i + p * kLanes);
      least[p] = hn::Min(least[p], here);
      most[p] = hn::Max(most[p], here);
    }
  }
  for (std::size_t p = 1; p < kParts; ++p) {
    least[0] = hn::Min(least[0], least[p]);
    most[0] = hn::Max(most[0], most[p]);
  }
  Range range{hn::GetLane(hn::MinOfLanes(f, least[0])), hn::GetLane(hn::MaxOfLanes(f, most[0]))};
  for (; i < count; ++i) range = {std::min(range.least, x[i]), std::max(range.most, x[i])};
  return range;
}

HWY_ATTR Range scaled_sums_on(const float* x, const float* y, std::size_t count, float factor, float* out) {
  if (count < kLanes) return plain::scaled_sums(x, y, count, factor, out);
  const F f;
  const V by = hn::Set(f, factor);
  V least = hn::Set(f, std::numeric_limits<float>::infinity());
  V most = hn::Neg(least);
  for (std::size_t i = 0; i < count; i += kLanes) {
    const std::size_t from = std::min(i, count - kLanes);  // the last vector makes some elements again
    V sum = hn::LoadU(f, x + from);
    if (y != nullptr) sum = hn::Add(sum, hn::LoadU(f, y + from));
    const V here = hn::Mul(sum, by);
    hn::StoreU(here, f, out + from);
    least = hn::Min(least, here);
    most = hn::Max(most, here);
  }
  return {hn::GetLane(hn::MinOfLanes(f, least)), hn::GetLane(hn::MaxOfLanes(f, most))};
}

// portable::exp_over of each lane.
HWY_INLINE V exp_over(V x, V reference) {
  const F f;
  const hn::RebindToUnsigned<F> u;
  const V shift = hn::Set(f, portable::kRound);
  const V shifted = hn::Add(hn::Mul(x, hn::Set(f, portable::kLog2E)), shift);
  const V n = hn::Sub(shifted, shift);
  const V r =
      hn::Sub(hn::Sub(x, hn::Mul(n, hn::Set(f, portable::kLn2High))), hn::Mul(n, hn::Set(f, portable::kLn2Low)));
  V p = hn::Set(f, portable::kExp5);
  p = hn::Add(hn::Mul(p, r), hn::Set(f, portable::kExp4));
  p = hn::Add(hn::Mul(p, r), hn::Set(f, portable::kExp3));
  p = hn::Add(hn::Mul(p, r), hn::Set(f, portable::kExp2));
  p = hn::Add(hn::Mul(p, r), hn::Set(f, portable::kExp1));
  p = hn::Add(hn::Mul(p, r), hn::Set(f, portable::kExp0));
  const V y = hn::Add(hn::Add(hn::Mul(p, hn::Mul(r, r)), r), hn::Set(f, 1.0F));
  const auto from_reference = hn::Sub(hn::BitCast(u, shifted), hn::BitCast(u, reference));
  const auto exponent = hn::ShiftLeft<23>(hn::Add(from_reference, hn::Set(u, 127U)));
  const auto in_range = hn::Ge(shifted, hn::Sub(reference, hn::Set(f, portable::kExpRange)));
  return hn::IfThenElseZero(in_range, hn::Mul(y, hn::BitCast(f, exponent)));
}

HWY_ATTR float exponentials_on(const float* x, std::size_t count, const ExponentOrigin& origin, float* e) {
  const F f;
  const V shift = hn::Set(f, origin.shift);
  const V reference = hn::Set(f, origin.reference);
  V sums[kParts];
  for (std::size_t p = 0; p < kParts; ++p) sums[p] = hn::Zero(f);
  const auto all_lanes = [&](const float* from, float* to) HWY_ATTR {
    for (std::size_t p = 0; p < kParts; ++p) {
      const V here = exp_over(hn::Sub(hn::LoadU(f, from + p * kLanes), shift), reference);
      hn::StoreU(here, f, to + p * kLanes);
      sums[p] = hn::Add(sums[p], here);
    }
  };
  std::size_t i = 0;
  for (; i + kSumLanes <= count; i += kSumLanes) all_lanes(x + i, e + i);
  if (i < count) {
    // The padding becomes e^−∞ = 0 and leaves the sums as they are.
    alignas(64) std::array<float, kSumLanes> tail;
    tail.fill(-std::numeric_limits<float>::infinity());
    std::copy(x + i, x + count, tail.begin());
    all_lanes(tail.data(), tail.data());
    std::copy_n(tail.begin(), count - i, e + i);
  }
  return fold(sums);
}

HWY_ATTR float sum_on(const float* x, std::size_t count) {
  const F f;
  V sums[kParts];
  for (std::size_t p = 0; p < kParts; ++p) sums[p] = hn::Zero(f);
  std::size_t i = 0;
  for (; i + kSumLanes <= count; i += kSumLanes) {
    for (std::size_t p = 0; p < kParts; ++p) sums[p] = hn::Add(sums[p], hn::LoadU(f, x + i + p * kLanes));
  }
  for (std::size_t p = 0; p < kParts && i < count; ++p, i += kLanes) {
    // Adding zero leaves a sum as it is: none is −0.
    sums[p] = hn::Add(sums[p], load_first(x + i, std::min(count - i, kLanes)));
  }
  return fold(sums);
}

HWY_ATTR void scale_on(const float* x, std::size_t count, float factor, float* out) {
  const F f;
  const V by = hn::Set(f, factor);
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) hn::StoreU(hn::Mul(hn::LoadU(f, x + i), by), f, out + i);
  for (; i < count; ++i) out[i] = x[i] * factor;
}

// The 4 × 4 squares of four vectors, block by block: element c of block b of result r is element r of block b of the
// c-th vector.
HWY_INLINE void transpose_squares(const V* in, V* out) {
  const F f;
  const V even_low = hn::InterleaveLower(f, in[0], in[2]);
  const V odd_low = hn::InterleaveLower(f, in[1], in[3]);
  const V even_high = hn::InterleaveUpper(f, in[0], in[2]);
  const V odd_high = hn::InterleaveUpper(f, in[1], in[3]);
  out[0] = hn::InterleaveLower(f, even_low, odd_low);
  out[1] = hn::InterleaveUpper(f, even_low, odd_low);
  out[2] = hn::InterleaveLower(f, even_high, odd_high);
  out[3] = hn::InterleaveUpper(f, even_high, odd_high);
}

#if HWY_MAX_BYTES >= 32
// Blocks 0, 2, … of two vectors in turn, and blocks 1, 3, ….
HWY_INLINE V even_blocks(V low, V high) { return hn::OddEvenBlocks(hn::SwapAdjacentBlocks(high), low); }
HWY_INLINE V odd_blocks(V low, V high) { return hn::OddEvenBlocks(high, hn::SwapAdjacentBlocks(low)); }

#if HWY_MAX_BYTES >= 64
// Sixteen slots of all rows. Vectors have the tokens of two slots that are four apart, so that one shuffle of blocks
// puts a row together.
template <class Place>
HWY_INLINE void gather_slots(Place place, float* out, std::size_t stride) {
  const hn::FixedTag<float, 8> f8;
  V in[8];
  V squares[8];
  for (std::size_t c = 0; c < 8; ++c) {
    const std::size_t slot = c % 4 + c / 4 * 8;
    in[c] = hn::Combine(F(), hn::LoadU(f8, place(slot + 4)), hn::LoadU(f8, place(slot)));
  }
  transpose_squares(in, squares);
  transpose_squares(in + 4, squares + 4);
  for (std::size_t r = 0; r < 4; ++r) {
    hn::StoreU(V{_mm512_shuffle_f32x4(squares[r].raw, squares[r + 4].raw, 0x88)}, F(), out + r * stride);
    hn::StoreU(V{_mm512_shuffle_f32x4(squares[r].raw, squares[r + 4].raw, 0xdd)}, F(), out + (r + 4) * stride);
  }
}
#else
// Eight slots of all rows.
template <class Place>
HWY_INLINE void gather_slots(Place place, float* out, std::size_t stride) {
  V in[8];
  V squares[8];
  for (std::size_t c = 0; c < 8; ++c) in[c] = hn::LoadU(F(), place(c));
  transpose_squares(in, squares);
  transpose_squares(in + 4, squares + 4);
  for (std::size_t r = 0; r < 4; ++r) {
    hn::StoreU(even_blocks(squares[r], squares[r + 4]), F(), out + r * stride);
    hn::StoreU(odd_blocks(squares[r], squares[r + 4]), F(), out + (r + 4) * stride);
  }
}
#endif

// A vector has the rows of one token, or of two that are eight apart.
HWY_INLINE void store_tokens(V rows, float* out, std::size_t stride) {
#if HWY_MAX_BYTES >= 64
  const hn::FixedTag<float, 8> f8;
  hn::StoreU(hn::LowerHalf(f8, rows), f8, out);
  hn::StoreU(hn::UpperHalf(f8, rows), f8, out + 8 * stride);
#else
  (void)stride;
  hn::StoreU(rows, F(), out);
#endif
}

// kLanes tokens of all rows.
HWY_INLINE void interleave_tokens(const V* in, float* out, std::size_t stride) {
  static_assert(kInterleavedRows == 8);
  V squares[8];
  transpose_squares(in, squares);
  transpose_squares(in + 4, squares + 4);
  for (std::size_t t = 0; t < 4; ++t) {
    store_tokens(even_blocks(squares[t], squares[t + 4]), out + t * stride, stride);
    store_tokens(odd_blocks(squares[t], squares[t + 4]), out + (t + 4) * stride, stride);
  }
}
#else
template <class Place>
HWY_INLINE void gather_slots(Place place, float* out, std::size_t stride) {
  for (std::size_t half = 0; half < kInterleavedRows; half += 4) {
    V in[4];
    V square[4];
    for (std::size_t c = 0; c < 4; ++c) in[c] = hn::LoadU(F(), place(c) + half);
    transpose_squares(in, square);
    for (std::size_t r = 0; r < 4; ++r) hn::StoreU(square[r], F(), out + (half + r) * stride);
  }
}

HWY_INLINE void interleave_tokens(const V* in, float* out, std::size_t stride) {
  for (std::size_t half = 0; half < kInterleavedRows; half += 4) {
    V square[4];
    transpose_squares(in + half, square);
    for (std::size_t t = 0; t < 4; ++t) hn::StoreU(square[t], F(), out + t * stride + half);
  }
}
#endif

// `at(r, i)`: elements i … of row r; returns how many tokens that were.
template <class At>
HWY_INLINE std::size_t interleave_exponentials_of(At at, const RowOrigins& origins, std::size_t count, float* out) {
  const F f;
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    V e[kInterleavedRows];
    for (std::size_t r = 0; r < kInterleavedRows; ++r) {
      e[r] = exp_over(hn::Sub(at(r, i), hn::Set(f, origins[r].shift)), hn::Set(f, origins[r].reference));
    }
    interleave_tokens(e, out + i * kInterleavedRows, kInterleavedRows);
  }
  return i;
}

HWY_ATTR void interleaved_exponentials_on(const RowPointers& x, const RowOrigins& origins, std::size_t count,
                                          float* out) {
  const auto at = [&](std::size_t r, std::size_t i) HWY_ATTR { return hn::LoadU(F(), x[r] + i); };
  const std::size_t i = interleave_exponentials_of(at, origins, count, out);
  if (i < count) plain::interleaved_exponentials(rows_from(x, i), origins, count - i, out + i * kInterleavedRows);
}

HWY_ATTR void interleaved_noisy_on(const RowPointers& x, const RowNoise& noise, const RowOrigins& origins,
                                   std::size_t count, float* out) {
  const auto at = [&](std::size_t r, std::size_t i) HWY_ATTR {
    const V sum = hn::Add(hn::LoadU(F(), x[r] + i), hn::LoadU(F(), noise.draws[r] + i));
    return hn::Mul(sum, hn::Set(F(), noise.factors[r]));
  };
  const std::size_t i = interleave_exponentials_of(at, origins, count, out);
  if (i == count) return;
  const RowNoise rest{rows_from(noise.draws, i), noise.factors};
  plain::interleaved_exponentials(rows_from(x, i), rest, origins, count - i, out + i * kInterleavedRows);
}

HWY_ATTR void interleave_on(const RowPointers& rows, std::size_t count, float* out, std::size_t stride) {
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    V in[kInterleavedRows];
    for (std::size_t r = 0; r < kInterleavedRows; ++r) in[r] = hn::LoadU(F(), rows[r] + i);
    interleave_tokens(in, out + i * stride, stride);
  }
  if (i < count) plain::interleave(rows_from(rows, i), count - i, out + i * stride, stride);
}

HWY_ATTR void gather_on(const float* rows, std::span<const TokenPos> index, float* out, std::size_t stride) {
  const std::size_t count = index.size();
  if (count < kLanes) return plain::gather_interleaved(rows, index, out, stride);
  for (std::size_t s = 0; s < count; s += kLanes) {
    const std::size_t from = std::min(s, count - kLanes);  // the last vector begins before the slots that it is of
    gather_slots([&](std::size_t c) { return rows + std::size_t{index[from + c].value} * kInterleavedRows; },
                 out + from, stride);
  }
}
#endif  // HWY_TARGET == HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace kvroof
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvroof::vector {

HWY_EXPORT(range_on);
HWY_EXPORT(scaled_sums_on);
HWY_EXPORT(exponentials_on);
HWY_EXPORT(sum_on);
HWY_EXPORT(scale_on);
HWY_EXPORT(interleave_on);
HWY_EXPORT(interleaved_exponentials_on);
HWY_EXPORT(interleaved_noisy_on);
HWY_EXPORT(gather_on);

Range range_of(const float* x, std::size_t count) { return HWY_DYNAMIC_DISPATCH(range_on)(x, count); }
Range scaled_sums(const float* x, const float* y, std::size_t count, float factor, float* out) {
  return HWY_DYNAMIC_DISPATCH(scaled_sums_on)(x, y, count, factor, out);
}
float exponentials(const float* x, std::size_t count, const ExponentOrigin& origin, float* e) {
  return HWY_DYNAMIC_DISPATCH(exponentials_on)(x, count, origin, e);
}
float sum(const float* x, std::size_t count) { return HWY_DYNAMIC_DISPATCH(sum_on)(x, count); }
void scale(const float* x, std::size_t count, float factor, float* out) {
  HWY_DYNAMIC_DISPATCH(scale_on)(x, count, factor, out);
}
void interleave(const RowPointers& rows, std::size_t count, float* out, std::size_t stride) {
  HWY_DYNAMIC_DISPATCH(interleave_on)(rows, count, out, stride);
}
void interleaved_exponentials(const RowPointers& x, const RowOrigins& origins, std::size_t count, float* out) {
  HWY_DYNAMIC_DISPATCH(interleaved_exponentials_on)(x, origins, count, out);
}
void interleaved_exponentials(const RowPointers& x, const RowNoise& noise, const RowOrigins& origins,
                              std::size_t count, float* out) {
  HWY_DYNAMIC_DISPATCH(interleaved_noisy_on)(x, noise, origins, count, out);
}
void gather_interleaved(const float* rows, std::span<const TokenPos> index, float* out, std::size_t stride) {
  HWY_DYNAMIC_DISPATCH(gather_on)(rows, index, out, stride);
}

}  // namespace kvroof::vector
#endif
