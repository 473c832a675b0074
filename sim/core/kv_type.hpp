// KvType: how a KV cache stores k and v, and what that takes, to the byte.
//
//   type            a row of w elements of k or of v                                         source
//   f32 f16 bf16    w elements
//   int8 int4       w codes and one float32 scale: symmetric, a scale for each token         the CUDA back end's caches
//   int4g64         w codes of 4 bits, and a float16 minimum and scale for each 64 channels  FlexGen (arXiv:2303.06865)
//   kivi2 kivi4     the tokens of the residual window in float16; before it, codes of 2 or   KIVI (arXiv:2402.02750)
//                   4 bits with a float16 minimum and scale for each group of 32: for k, 32 tokens of one channel; for
//                   v, 32 channels of one token
//
// KIVI's window: with n tokens cached, k of the last n mod 128 is in float16, and v of the last 128. A query meets what
// the tokens before it left, and its own row in float16. A prompt is attended to in float16 and quantised after it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "sim/core/dtype.hpp"
#include "sim/core/fields.hpp"
#include "sim/core/units.hpp"

namespace kvroof {

inline constexpr std::uint32_t kKiviGroup = 32;      // elements that share a minimum and a scale
inline constexpr std::uint32_t kKiviResidual = 128;  // tokens

// Bytes, by what they are for.
struct KvBytes {
  std::uint64_t elements = 0;  // plain elements, or codes
  std::uint64_t scales = 0;    // scales and minima
  std::uint64_t residual = 0;  // float16 rows of a residual window

  [[nodiscard]] std::uint64_t total() const { return elements + scales + residual; }
  KvBytes& operator+=(const KvBytes& other) {
    elements += other.elements;
    scales += other.scales;
    residual += other.residual;
    return *this;
  }
  friend KvBytes operator+(KvBytes a, const KvBytes& b) { return a += b; }
  friend KvBytes operator*(KvBytes a, std::uint64_t times) {
    return {a.elements * times, a.scales * times, a.residual * times};
  }
  friend bool operator==(const KvBytes&, const KvBytes&) = default;
};

class KvType {
 public:
  enum Kind : std::uint8_t { kF32, kF16, kBF16, kFp8, kInt8, kInt4, kInt4G64, kKivi2, kKivi4 };

  constexpr KvType(Kind kind) : kind_(kind) {}  // NOLINT: a kind is a type
  constexpr KvType(DType plain)                 // NOLINT: of f32, f16, bf16, and of a type of one byte (fp8)
      : kind_(plain == DType::kF32    ? kF32
              : plain == DType::kF16  ? kF16
              : plain == DType::kBF16 ? kBF16
                                      : kFp8) {}

  [[nodiscard]] constexpr Kind kind() const { return kind_; }
  friend constexpr bool operator==(KvType, KvType) = default;

  // Stored with scales of their own.
  [[nodiscard]] constexpr bool quantised() const { return kind_ >= kInt8; }
  // With groups of tokens and a residual window: what a token takes depends on its age.
  [[nodiscard]] constexpr bool by_age() const { return kind_ >= kKivi2; }
  // The type in which attention meets rows, which holds every value of the cache exactly; q is rounded to it.
  [[nodiscard]] constexpr DType rows() const {
    if (kind_ == kBF16) return DType::kBF16;
    return kind_ == kF32 || kind_ == kInt8 || kind_ == kInt4 ? DType::kF32 : DType::kF16;
  }
  // Of one element or code.
  [[nodiscard]] constexpr std::uint32_t bits() const {
    constexpr std::uint32_t kBits[] = {32, 16, 16, 8, 8, 4, 4, 2, 4};
    return kBits[kind_];
  }
  // Read by a policy that scores tokens by elements of k, v or q; of a residual window's type, as float16.
  [[nodiscard]] constexpr std::uint64_t scored_bytes(std::uint64_t elements) const {
    return by_age() ? 2 * elements : (elements * bits() + 7) / 8;
  }
  // A row of k or of v of one token; of KIVI, one of v before the residual window.
  [[nodiscard]] constexpr KvBytes row(std::uint32_t width) const {
    return {(std::uint64_t{width} * bits() + 7) / 8, width == 0 ? 0 : scale_bytes(width), 0};
  }

 private:
  [[nodiscard]] constexpr std::uint64_t scale_bytes(std::uint32_t width) const {
    if (!quantised()) return 0;
    if (kind_ == kInt8 || kind_ == kInt4) return sizeof(float);
    const std::uint32_t group = kind_ == kInt4G64 ? 64 : kKiviGroup;
    return std::uint64_t{4} * ((width + group - 1) / group);
  }

  Kind kind_;
};

// "f32", "int8", "kivi2", ... as options and reports spell them.
std::string_view name_of(KvType type);
// Those names, and the other spellings that parse_dtype knows of float types.
std::optional<KvType> parse_kv_type(std::string_view text);

// Rows that a cache with a residual window holds, or that attention reads of it.
struct AgedRows {
  std::uint64_t keys16 = 0, values16 = 0;  // in float16
  // Quantised. Of k, those of whole groups: a token that was evicted out of its group leaves a hole, which is stored
  // and read until its group is empty, and counts.
  std::uint64_t packed_keys = 0, packed_values = 0;

  friend bool operator==(const AgedRows&, const AgedRows&) = default;
};

inline constexpr std::array kAgedFields = {&AgedRows::keys16, &AgedRows::values16, &AgedRows::packed_keys,
                                           &AgedRows::packed_values};
static_assert(sizeof(AgedRows) == kAgedFields.size() * sizeof(std::uint64_t), "every count is in the table");
// Shows f each count of one, or the same count of several.
template <class F, class... Rows>
void for_each_count_of(const F& f, Rows&... rows) {
  for_each_field<kAgedFields>(f, rows...);
}

inline AgedRows& operator+=(AgedRows& sum, const AgedRows& rows) {
  for_each_count_of([](std::uint64_t& a, std::uint64_t b) { a += b; }, sum, rows);
  return sum;
}
inline AgedRows operator*(std::uint64_t times, AgedRows rows) {
  for_each_count_of([times](std::uint64_t& a) { a *= times; }, rows);
  return rows;
}
inline AgedRows scaled(AgedRows rows, double factor) {
  for_each_count_of([factor](std::uint64_t& a) { a = scaled(a, factor); }, rows);
  return rows;
}
inline AgedRows nearest_mean(AgedRows sum, std::uint64_t count) {
  for_each_count_of([count](std::uint64_t& a) { a = nearest_mean(a, count); }, sum);
  return sum;
}

// Tokens whose k is quantised when `tokens` are cached: the first so many. Likewise of v.
constexpr std::uint64_t kivi_packed_keys(std::uint64_t tokens) { return tokens - tokens % kKiviResidual; }
constexpr std::uint64_t kivi_packed_values(std::uint64_t tokens) {
  return tokens > kKiviResidual ? tokens - kKiviResidual : 0;
}

// The newest `held` of `tokens` cached ones, as KIVI keeps them: groups of which a part is gone are stored whole.
AgedRows kivi_rows(std::uint64_t tokens, std::uint64_t held);

// Of a type that is by_age(). A latent row holds its v inside k: v_width 0.
KvBytes aged_bytes(KvType type, std::uint32_t k_width, std::uint32_t v_width, const AgedRows& rows);

}  // namespace kvroof
