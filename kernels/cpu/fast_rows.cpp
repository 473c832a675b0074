// Kernels over rows of f32, f16 and bf16: dot products, weighted sums, conversion.
#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/cpu/fast_kernels.hpp"
#include "sim/core/error.hpp"

// The fallback is four emulated lanes; the compiler bug that makes Highway avoid it concerns integer products, none of
// which are here. Hosts between the fallback and AVX2 are too old to be worth their compile time.
#define HWY_BROKEN_EMU128 0
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/fast_rows.cpp"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace kvroof::fast::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
constexpr std::size_t kLanes = HWY_LANES(float);
constexpr std::size_t kStep = 2 * kLanes;  // elements of a row that one load() takes
// A tile of dot products is kRows rows times kVectors packed vectors: with one vector many rows, so that x is read
// seldom and additions need not wait for each other; with more as many as there are registers.
constexpr std::size_t kMaxVectors = HWY_TARGET <= HWY_AVX3 ? 4 : 2;
constexpr std::size_t kMaxRows = 8;
constexpr std::size_t kPrefetchBytes = 256;  // ahead in each stream of rows: found by measurement

struct Pair {
  V a, b;
};

// How a step of a row becomes two float vectors, and how vectors in that order go back to natural order.
struct F32Rows {
  using Element = float;
  static constexpr std::size_t kTileRows = 4;  // with one vector: streams of rows that memory serves best, measured
  static Pair load(const Element* p) { return {hn::LoadU(D(), p), hn::LoadU(D(), p + kLanes)}; }
  static Pair load_natural(const float* p) { return {hn::LoadU(D(), p), hn::LoadU(D(), p + kLanes)}; }
  static void store_natural(Pair v, float* p) {
    hn::StoreU(v.a, D(), p);
    hn::StoreU(v.b, D(), p + kLanes);
  }
};

struct F16Rows : F32Rows {
  using Element = hwy::float16_t;
  static constexpr std::size_t kTileRows = kMaxRows;
  static Pair load(const Element* p) {
#if HWY_TARGET == HWY_EMU128  // whose conversion knows neither infinities nor NaN
    alignas(64) std::array<float, kStep> floats;
    convert_to_float(DType::kF16, p, floats);
    return F32Rows::load(floats.data());
#else
    const hn::Rebind<hwy::float16_t, D> half;
    return {hn::PromoteTo(D(), hn::LoadU(half, p)), hn::PromoteTo(D(), hn::LoadU(half, p + kLanes))};
#endif
  }
};

// Even elements are shifted up, odd ones masked: two cheap operations a step, but even and odd come apart.
struct BF16Rows {
  using Element = hwy::bfloat16_t;
  static constexpr std::size_t kTileRows = kMaxRows;
  static Pair load(const Element* p) {
    const hn::RebindToUnsigned<D> words;
    const hn::Repartition<std::uint16_t, D> halves;
    const auto bits = hn::BitCast(words, hn::LoadU(halves, reinterpret_cast<const std::uint16_t*>(p)));
    return {hn::BitCast(D(), hn::ShiftLeft<16>(bits)), hn::BitCast(D(), hn::And(bits, hn::Set(words, 0xffff0000U)))};
  }
  static Pair load_natural(const float* p) {
    Pair v{hn::Zero(D()), hn::Zero(D())};
    hn::LoadInterleaved2(D(), p, v.a, v.b);
    return v;
  }
  static void store_natural(Pair v, float* p) { hn::StoreInterleaved2(v.a, v.b, D(), p); }
};

// The last, incomplete step of a row, filled up with zeros.
template <class Rows>
class Tail {
 public:
  Tail(const typename Rows::Element* p, std::size_t count) {
    std::memcpy(elements_.data(), p, count * sizeof(elements_[0]));
  }
  [[nodiscard]] Pair load() const { return Rows::load(elements_.data()); }

 private:
  alignas(64) std::array<typename Rows::Element, kStep> elements_{};
};

// The sums of the lanes of four vectors.
HWY_INLINE std::array<float, 4> lane_sums(V v0, V v1, V v2, V v3) {
  const D d;
  const V u0 = hn::Add(hn::InterleaveLower(d, v0, v2), hn::InterleaveUpper(d, v0, v2));
  const V u1 = hn::Add(hn::InterleaveLower(d, v1, v3), hn::InterleaveUpper(d, v1, v3));
  alignas(64) std::array<float, kLanes> blocks;  // of four lanes: one partial sum of each vector
  hn::Store(hn::Add(hn::InterleaveLower(d, u0, u1), hn::InterleaveUpper(d, u0, u1)), d, blocks.data());
  const hn::FixedTag<float, 4> four;
  auto total = hn::Load(four, blocks.data());
  for (std::size_t block = 4; block < kLanes; block += 4) total = hn::Add(total, hn::Load(four, blocks.data() + block));
  std::array<float, 4> sums;
  hn::StoreU(total, four, sums.data());
  return sums;
}

template <std::size_t kVectors>
HWY_INLINE void multiply_add(Pair row, const std::array<Pair, kVectors>& x, std::array<V, kVectors>& sums) {
  for (std::size_t t = 0; t < kVectors; ++t) {
    sums[t] = hn::MulAdd(row.a, x[t].a, sums[t]);
    sums[t] = hn::MulAdd(row.b, x[t].b, sums[t]);
  }
}

template <std::size_t kVectors>
HWY_INLINE std::array<Pair, kVectors> load_packed(const float* packed, std::size_t size) {
  std::array<Pair, kVectors> x;
  for (std::size_t t = 0; t < kVectors; ++t) x[t] = F32Rows::load(packed + t * size);
  return x;
}

// A tile: sums[r][t] = row at[r] · vector t, each added up in the order of the columns.
template <class Rows, std::size_t kRows, std::size_t kVectors>
HWY_INLINE void dot_tile(const std::array<const typename Rows::Element*, kRows>& at, std::size_t width,
                         const float* packed, std::array<std::array<float, kRows>, kVectors>& out) {
  const std::size_t size = (width + kStep - 1) / kStep * kStep;
  std::array<std::array<V, kVectors>, kRows> sums;
  for (auto& of_row : sums) of_row.fill(hn::Zero(D()));
  std::size_t c = 0;
  for (; c + kStep <= width; c += kStep) {
    const auto x = load_packed<kVectors>(packed + c, size);
    for (std::size_t r = 0; r < kRows; ++r) {
      __builtin_prefetch(reinterpret_cast<const char*>(at[r] + c) + kPrefetchBytes);
      multiply_add<kVectors>(Rows::load(at[r] + c), x, sums[r]);
    }
  }
  if (c < width) {
    const auto x = load_packed<kVectors>(packed + c, size);
    for (std::size_t r = 0; r < kRows; ++r) multiply_add<kVectors>(Tail<Rows>(at[r] + c, width - c).load(), x, sums[r]);
  }
  for (std::size_t t = 0; t < kVectors; ++t) {
    for (std::size_t r = 0; r < kRows; r += 4) {
      const auto four = lane_sums(sums[r][t], sums[r + 1][t], sums[r + 2][t], sums[r + 3][t]);
      std::copy(four.begin(), four.end(), out[t].begin() + r);
    }
  }
}

// The rows first, first + apart, … (up to the last one, which stands in for missing ones) against kVectors vectors.
template <class Rows, std::size_t kRows, std::size_t kVectors>
HWY_INLINE void dot_spaced(const RowsView& rows, std::size_t first, std::size_t apart, const float* packed, float* out,
                           std::size_t out_stride) {
  std::array<const typename Rows::Element*, kRows> at;
  for (std::size_t r = 0; r < kRows; ++r) {
    at[r] = reinterpret_cast<const typename Rows::Element*>(rows.row(std::min(first + r * apart, rows.count - 1)));
  }
  std::array<std::array<float, kRows>, kVectors> sums;
  dot_tile<Rows, kRows, kVectors>(at, rows.width, packed, sums);
  for (std::size_t t = 0; t < kVectors; ++t) {
    for (std::size_t r = 0; r < kRows && first + r * apart < rows.count; ++r)
      out[t * out_stride + first + r * apart] = sums[t][r];
  }
}

// Rows of a tile lie far apart, each the head of its own sequential stream: the hardware prefetcher follows such
// streams, but loses rows that are read side by side within a few pages.
template <class Rows, std::size_t kRows, std::size_t kVectors>
void dot_vectors(const RowsView& rows, const float* packed, float* out, std::size_t out_stride) {
  std::size_t apart = rows.count / kRows;
  if (apart > kRows && apart % 2 == 0) --apart;  // streams a power of two apart would meet in one set of the cache
  for (std::size_t r = 0; r < apart; ++r) dot_spaced<Rows, kRows, kVectors>(rows, r, apart, packed, out, out_stride);
  for (std::size_t r = apart * kRows; r < rows.count; r += kRows) {
    dot_spaced<Rows, kRows, kVectors>(rows, r, 1, packed, out, out_stride);
  }
}

// Rows that stay in the second-level cache while further vectors pass over them.
constexpr std::size_t kDotBlockBytes = 256 * 1024;

template <class Rows>
void dot_rows_of(const RowsView& rows, const float* packed, std::size_t count, float* out, std::size_t out_stride) {
  const std::size_t size = (rows.width + kStep - 1) / kStep * kStep;
  const std::size_t row_bytes = std::max<std::size_t>(1, rows.width * sizeof(typename Rows::Element));
  const bool once = count <= kMaxVectors;
  const std::size_t block = once ? rows.count : std::max(kMaxRows, kDotBlockBytes / row_bytes / kMaxRows * kMaxRows);
  for (std::size_t first = 0; first < rows.count; first += block) {
    RowsView part = rows;
    part.data = rows.row(first);
    part.count = std::min(block, rows.count - first);
    std::size_t t = 0;
    for (; t + kMaxVectors <= count; t += kMaxVectors) {
      dot_vectors<Rows, 4, kMaxVectors>(part, packed + t * size, out + t * out_stride + first, out_stride);
    }
    for (; t < count; ++t)
      dot_vectors<Rows, Rows::kTileRows, 1>(part, packed + t * size, out + t * out_stride + first, out_stride);
  }
}

// Rows that stay in the first-level cache while every query head and every part of the width passes over them.
constexpr std::size_t kRowBlock = 64;

// Adds rows [first, last) to columns [c, c + kParts · kStep) of one output.
template <class Rows, std::size_t kParts>
HWY_INLINE void add_weighted(const float* weights, const RowsView& rows, std::size_t first, std::size_t last,
                             std::size_t c, float* out) {
  using Element = typename Rows::Element;
  std::array<Pair, kParts> sums;
  for (std::size_t p = 0; p < kParts; ++p) sums[p] = Rows::load_natural(out + c + p * kStep);
  for (std::size_t s = first; s < last; ++s) {
    const V weight = hn::Set(D(), weights[s]);
    const auto* row = reinterpret_cast<const Element*>(rows.row(s)) + c;
    for (std::size_t p = 0; p < kParts; ++p) {
      const Pair v = Rows::load(row + p * kStep);
      sums[p] = {hn::MulAdd(weight, v.a, sums[p].a), hn::MulAdd(weight, v.b, sums[p].b)};
    }
  }
  for (std::size_t p = 0; p < kParts; ++p) Rows::store_natural(sums[p], out + c + p * kStep);
}

// The columns behind the last whole step.
template <class Rows>
HWY_INLINE void add_weighted_tail(const float* weights, const RowsView& rows, std::size_t first, std::size_t last,
                                  std::size_t c, float* out) {
  using Element = typename Rows::Element;
  alignas(64) std::array<float, kStep> part{};
  std::memcpy(part.data(), out + c, (rows.width - c) * sizeof(float));
  Pair sums = Rows::load_natural(part.data());
  for (std::size_t s = first; s < last; ++s) {
    const V weight = hn::Set(D(), weights[s]);
    const Pair v = Tail<Rows>(reinterpret_cast<const Element*>(rows.row(s)) + c, rows.width - c).load();
    sums = {hn::MulAdd(weight, v.a, sums.a), hn::MulAdd(weight, v.b, sums.b)};
  }
  Rows::store_natural(sums, part.data());
  std::memcpy(out + c, part.data(), (rows.width - c) * sizeof(float));
}

template <class Rows>
void weighted_rows_of(const float* weights, std::size_t weights_stride, std::size_t group, const RowsView& rows,
                      float* out, std::size_t out_stride) {
  for (std::size_t g = 0; g < group; ++g) std::fill_n(out + g * out_stride, rows.width, 0.0F);
  for (std::size_t first = 0; first < rows.count; first += kRowBlock) {
    const std::size_t last = std::min(first + kRowBlock, rows.count);
    for (std::size_t g = 0; g < group; ++g) {
      const float* w = weights + g * weights_stride;
      float* o = out + g * out_stride;
      std::size_t c = 0;
      for (; c + 4 * kStep <= rows.width; c += 4 * kStep) add_weighted<Rows, 4>(w, rows, first, last, c, o);
      for (; c + 2 * kStep <= rows.width; c += 2 * kStep) add_weighted<Rows, 2>(w, rows, first, last, c, o);
      for (; c + kStep <= rows.width; c += kStep) add_weighted<Rows, 1>(w, rows, first, last, c, o);
      if (c < rows.width) add_weighted_tail<Rows>(w, rows, first, last, c, o);
    }
  }
}

template <class Rows>
void convert_rows_of(const RowsView& rows, float* out) {
  using Element = typename Rows::Element;
  for (std::size_t r = 0; r < rows.count; ++r, out += rows.width) {
    const auto* row = reinterpret_cast<const Element*>(rows.row(r));
    std::size_t c = 0;
    for (; c + kStep <= rows.width; c += kStep) Rows::store_natural(Rows::load(row + c), out + c);
    if (c == rows.width) continue;
    alignas(64) std::array<float, kStep> part;
    Rows::store_natural(Tail<Rows>(row + c, rows.width - c).load(), part.data());
    std::memcpy(out + c, part.data(), (rows.width - c) * sizeof(float));
  }
}

template <class Rows>
void pack_vectors_of(const float* x, std::size_t stride, std::size_t count, std::size_t cols, float* packed) {
  const std::size_t size = (cols + kStep - 1) / kStep * kStep;
  for (std::size_t t = 0; t < count; ++t, x += stride, packed += size) {
    std::size_t c = 0;
    for (; c + kStep <= cols; c += kStep) F32Rows::store_natural(Rows::load_natural(x + c), packed + c);
    if (c == cols) continue;
    alignas(64) std::array<float, kStep> part{};
    std::memcpy(part.data(), x + c, (cols - c) * sizeof(float));
    F32Rows::store_natural(Rows::load_natural(part.data()), packed + c);
  }
}

// Calls body with the row type for a dtype.
template <class Body>
void with_rows(DType type, const Body& body) {
  switch (type) {
    case DType::kF32: return body(F32Rows());
    case DType::kF16: return body(F16Rows());
    case DType::kBF16: return body(BF16Rows());
    default: check(false, "rows are f32, f16 or bf16");
  }
}

std::size_t packed_size(std::size_t cols) { return (cols + kStep - 1) / kStep * kStep; }

void pack_vectors(DType type, const float* x, std::size_t stride, std::size_t count, std::size_t cols, float* packed) {
  with_rows(type, [&]<class Rows>(Rows) { pack_vectors_of<Rows>(x, stride, count, cols, packed); });
}

void dot_rows(const RowsView& rows, const float* packed, std::size_t count, float* out, std::size_t out_stride) {
  with_rows(rows.type, [&]<class Rows>(Rows) { dot_rows_of<Rows>(rows, packed, count, out, out_stride); });
}

void weighted_rows(const float* weights, std::size_t weights_stride, std::size_t group, const RowsView& rows,
                   float* out, std::size_t out_stride) {
  with_rows(rows.type,
            [&]<class Rows>(Rows) { weighted_rows_of<Rows>(weights, weights_stride, group, rows, out, out_stride); });
}

void convert_rows(const RowsView& rows, float* out) {
  with_rows(rows.type, [&]<class Rows>(Rows) { convert_rows_of<Rows>(rows, out); });
}

}  // namespace kvroof::fast::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvroof::fast {

HWY_EXPORT(packed_size);
HWY_EXPORT(pack_vectors);
HWY_EXPORT(dot_rows);
HWY_EXPORT(weighted_rows);
HWY_EXPORT(convert_rows);

std::size_t packed_size(std::size_t cols) { return HWY_DYNAMIC_DISPATCH(packed_size)(cols); }

void pack_vectors(DType type, const float* x, std::size_t stride, std::size_t count, std::size_t cols, float* packed) {
  HWY_DYNAMIC_DISPATCH(pack_vectors)(type, x, stride, count, cols, packed);
}

void dot_rows(const RowsView& rows, const float* packed, std::size_t count, float* out, std::size_t out_stride) {
  HWY_DYNAMIC_DISPATCH(dot_rows)(rows, packed, count, out, out_stride);
}

void weighted_rows(const float* weights, std::size_t weights_stride, std::size_t group, const RowsView& rows,
                   float* out, std::size_t out_stride) {
  HWY_DYNAMIC_DISPATCH(weighted_rows)(weights, weights_stride, group, rows, out, out_stride);
}

void convert_rows(const RowsView& rows, float* out) { HWY_DYNAMIC_DISPATCH(convert_rows)(rows, out); }

}  // namespace kvroof::fast
#endif
