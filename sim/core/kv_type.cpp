#include "sim/core/kv_type.hpp"

#include <algorithm>
#include <array>

namespace kvroof {
namespace {
constexpr std::array<std::string_view, 9> kKvNames = {"f32",  "f16",     "bf16",  "fp8",  "int8",
                                                    "int4", "int4g64", "kivi2", "kivi4"};
}

std::string_view name_of(KvType type) { return kKvNames[type.kind()]; }

std::optional<KvType> parse_kv_type(std::string_view text) {
  const auto plain = parse_dtype(text);
  if (plain == DType::kF32 || plain == DType::kF16 || plain == DType::kBF16) return KvType(*plain);
  for (std::size_t i = KvType::kInt8; i < kKvNames.size(); ++i) {
    if (text == kKvNames[i]) return KvType(static_cast<KvType::Kind>(i));
  }
  return std::nullopt;
}

AgedRows kivi_rows(std::uint64_t tokens, std::uint64_t held) {
  const std::uint64_t first = tokens - held;
  const std::uint64_t keys = std::max(kivi_packed_keys(tokens), first);
  const std::uint64_t values = std::max(kivi_packed_values(tokens), first);
  const std::uint64_t groups = (keys + kKiviGroup - 1) / kKiviGroup - first / kKiviGroup;
  return {tokens - keys, tokens - values, keys > first ? groups * kKiviGroup : 0, values - first};
}

KvBytes aged_bytes(KvType type, std::uint32_t k_width, std::uint32_t v_width, const AgedRows& rows) {
  KvBytes bytes = type.row(v_width) * rows.packed_values;
  // A group's codes of one channel fill whole bytes, and share a minimum and a scale of 2 bytes each.
  bytes.elements += rows.packed_keys * k_width * type.bits() / 8;
  bytes.scales += rows.packed_keys / kKiviGroup * k_width * 4;
  bytes.residual += 2 * (rows.keys16 * k_width + rows.values16 * v_width);
  return bytes;
}

}  // namespace kvroof
