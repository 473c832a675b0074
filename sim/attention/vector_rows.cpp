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

using RowPointers = std::array<const float*, kInterleavedRows>;

#if HWY_TARGET == HWY_SCALAR
Range range_on(const float* x, std::size_t count) { return plain::range_of(x, count); }
float exponentials_on(const float* x, std::size_t count, const ExponentOrigin& origin, float* e) {
  return plain::exponentials(x, count, origin, e);
}
float sum_on(const float* x, std::size_t count) { return plain::sum(x, count); }
void scale_on(const float* x, std::size_t count, float factor, float* out) { plain::scale(x, count, factor, out); }
void interleave_on(const RowPointers& rows, std::size_t count, float* out) { plain::interleave(rows, count, out); }
void gather_on(const float* rows, std::span<const TokenPos> index, float* out, std::size_t stride) {
  plain::gather_interleaved(rows, index, out, stride);
}
#else
namespace hn = hwy::HWY_NAMESPACE;

using F = hn::CappedTag<float, 16>;
using V = hn::Vec<F>;
using F4 = hn::FixedTag<float, 4>;
using V4 = hn::Vec<F4>;
constexpr std::size_t kLanes = hn::MaxLanes(F());
constexpr std::size_t kParts = kSumLanes / kLanes;  // vectors that hold the interleaved sums
static_assert(kLanes >= 4 && kLanes * kParts == kSumLanes);

HWY_INLINE float fold(const V* sums) {
  alignas(64) std::array<float, kSumLanes> lanes;
  for (std::size_t p = 0; p < kParts; ++p) hn::Store(sums[p], F(), lanes.data() + p * kLanes);
  return portable::fold_by_halves(lanes);
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
  alignas(64) std::array<float, kSumLanes> low;
  alignas(64) std::array<float, kSumLanes> high;
  for (std::size_t p = 0; p < kParts; ++p) {
    hn::Store(least[p], f, low.data() + p * kLanes);
    hn::Store(most[p], f, high.data() + p * kLanes);
  }
  Range range{*std::min_element(low.begin(), low.end()), *std::max_element(high.begin(), high.end())};
  for (; i < count; ++i) range = {std::min(range.least, x[i]), std::max(range.most, x[i])};
  return range;
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
  if (i < count) {
    alignas(64) std::array<float, kSumLanes> tail{};
    std::copy(x + i, x + count, tail.begin());
    for (std::size_t p = 0; p < kParts; ++p) sums[p] = hn::Add(sums[p], hn::Load(f, tail.data() + p * kLanes));
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
HWY_INLINE void transpose_squares(const V (&in)[4], V (&out)[4]) {
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

// A vector of the blocks of four floats at place(0), place(4), place(8) and so on.
template <class Place>
HWY_INLINE V load_blocks(Place place) {
  const F4 f4;
  if constexpr (kLanes == 4) {
    return hn::LoadU(f4, place(0));
  } else {
#if HWY_MAX_BYTES >= 32
    const hn::FixedTag<float, 8> f8;
    const auto low = hn::Combine(f8, hn::LoadU(f4, place(4)), hn::LoadU(f4, place(0)));
    if constexpr (kLanes == 8) {
      return low;
    } else {
#if HWY_MAX_BYTES >= 64
      return hn::Combine(F(), hn::Combine(f8, hn::LoadU(f4, place(12)), hn::LoadU(f4, place(8))), low);
#endif
    }
#endif
  }
}

HWY_ATTR void interleave_on(const RowPointers& rows, std::size_t count, float* out) {
  const F4 f4;
  std::size_t i = 0;
  for (; i + 4 <= count; i += 4) {
    for (std::size_t half = 0; half < kInterleavedRows; half += 4) {
      const V4 a = hn::LoadU(f4, rows[half] + i);
      const V4 b = hn::LoadU(f4, rows[half + 1] + i);
      const V4 c = hn::LoadU(f4, rows[half + 2] + i);
      const V4 d = hn::LoadU(f4, rows[half + 3] + i);
      const V4 ac_low = hn::InterleaveLower(f4, a, c);
      const V4 bd_low = hn::InterleaveLower(f4, b, d);
      const V4 ac_high = hn::InterleaveUpper(f4, a, c);
      const V4 bd_high = hn::InterleaveUpper(f4, b, d);
      float* to = out + i * kInterleavedRows + half;
      hn::StoreU(hn::InterleaveLower(f4, ac_low, bd_low), f4, to);
      hn::StoreU(hn::InterleaveUpper(f4, ac_low, bd_low), f4, to + kInterleavedRows);
      hn::StoreU(hn::InterleaveLower(f4, ac_high, bd_high), f4, to + 2 * kInterleavedRows);
      hn::StoreU(hn::InterleaveUpper(f4, ac_high, bd_high), f4, to + 3 * kInterleavedRows);
    }
  }
  for (; i < count; ++i) {
    for (std::size_t r = 0; r < kInterleavedRows; ++r) out[i * kInterleavedRows + r] = rows[r][i];
  }
}

HWY_ATTR void gather_on(const float* rows, std::span<const TokenPos> index, float* out, std::size_t stride) {
  const F f;
  const std::size_t count = index.size();
  std::size_t s = 0;
  for (; s + kLanes <= count; s += kLanes) {
    for (std::size_t half = 0; half < kInterleavedRows; half += 4) {
      V in[4];
      V square[4];
      for (std::size_t c = 0; c < 4; ++c) {
        const auto place = [&](std::size_t block) {
          return rows + std::size_t{index[s + block + c].value} * kInterleavedRows + half;
        };
        in[c] = load_blocks(place);
      }
      transpose_squares(in, square);
      for (std::size_t r = 0; r < 4; ++r) hn::StoreU(square[r], f, out + (half + r) * stride + s);
    }
  }
  plain::gather_interleaved(rows, index.subspan(s), out + s, stride);
}
#endif  // HWY_TARGET == HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace kvroof
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvroof::vector {

HWY_EXPORT(range_on);
HWY_EXPORT(exponentials_on);
HWY_EXPORT(sum_on);
HWY_EXPORT(scale_on);
HWY_EXPORT(interleave_on);
HWY_EXPORT(gather_on);

Range range_of(const float* x, std::size_t count) { return HWY_DYNAMIC_DISPATCH(range_on)(x, count); }
float exponentials(const float* x, std::size_t count, const ExponentOrigin& origin, float* e) {
  return HWY_DYNAMIC_DISPATCH(exponentials_on)(x, count, origin, e);
}
float sum(const float* x, std::size_t count) { return HWY_DYNAMIC_DISPATCH(sum_on)(x, count); }
void scale(const float* x, std::size_t count, float factor, float* out) {
  HWY_DYNAMIC_DISPATCH(scale_on)(x, count, factor, out);
}
void interleave(const std::array<const float*, kInterleavedRows>& rows, std::size_t count, float* out) {
  HWY_DYNAMIC_DISPATCH(interleave_on)(rows, count, out);
}
void gather_interleaved(const float* rows, std::span<const TokenPos> index, float* out, std::size_t stride) {
  HWY_DYNAMIC_DISPATCH(gather_on)(rows, index, out, stride);
}

}  // namespace kvroof::vector
#endif
