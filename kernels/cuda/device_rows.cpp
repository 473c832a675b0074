#include "kernels/cuda/device_rows.hpp"

#include <algorithm>

namespace kvroof::cuda {
namespace {

// Element i of a row of signed integers, the first in the lowest bits.
int element(const std::byte* row, Stored type, std::uint32_t i) {
  if (type == Stored::kInt8) return static_cast<std::int8_t>(row[i]);
  const auto two = static_cast<unsigned>(row[i / 2]);
  const int nibble = static_cast<int>(two >> (i % 2 * 4) & 15U);
  return nibble < 8 ? nibble : nibble - 16;
}

}  // namespace

DeviceRows::DeviceRows(Stream& stream, const CacheFormat& format, const DeviceCache& buffer, std::uint32_t n,
                       const float* q, std::uint32_t query_heads, std::uint32_t last_queries)
    : stream_(stream),
      format_(format),
      cache_(buffer),
      tokens_(n),
      query_heads_(query_heads),
      query_rows_(std::min(n, last_queries)),
      q_(q + std::size_t{n - query_rows_} * query_heads * format.key_dim) {}

RowsView DeviceRows::read(const std::byte* rows, const float* scales, std::uint32_t dim, std::uint32_t row_bytes,
                          std::uint32_t count, Copy& copy) const {
  copy.rows.resize(std::size_t{count} * row_bytes);
  copy_to_host(stream_, copy.rows, rows);
  if (!format_.has_scales()) {
    return {copy.rows.data(), format_.type == Stored::kBF16 ? DType::kBF16 : DType::kF16, row_bytes / 2, dim, count};
  }
  copy.scales.resize(count);
  copy_to_host(stream_, std::as_writable_bytes(std::span(copy.scales)), reinterpret_cast<const std::byte*>(scales));
  copy.floats.resize(std::size_t{count} * dim);
  for (std::uint32_t r = 0; r < count; ++r) {
    const std::byte* row = copy.rows.data() + std::size_t{r} * row_bytes;
    for (std::uint32_t i = 0; i < dim; ++i) {
      copy.floats[std::size_t{r} * dim + i] = static_cast<float>(element(row, format_.type, i)) * copy.scales[r];
    }
  }
  return {reinterpret_cast<const std::byte*>(copy.floats.data()), DType::kF32, dim, dim, count};
}

HeadRows DeviceRows::rows(HeadId head) const {
  const bool in_prompt = tokens_ > 0;
  const CacheSlots slots = cache_.slots(head.value);
  const std::uint32_t count = in_prompt ? tokens_ : cache_.capacity(head.value);
  HeadRows out;
  out.keys = read(slots.keys, slots.key_scales, format_.key_dim, format_.key_row_bytes(), count, keys_);
  if (format_.v_in_k) {
    out.values = out.keys;
    out.values.width = format_.value_dim;
  } else {
    out.values = read(slots.values, slots.value_scales, format_.value_dim, format_.value_row_bytes(), count, values_);
  }
  out.by_position = in_prompt;
  if (query_rows_ == 0) return out;
  const std::size_t all_heads = std::size_t{query_heads_} * format_.key_dim;
  if (queries_.empty()) {
    queries_.resize(query_rows_ * all_heads);
    copy_to_host(stream_, std::as_writable_bytes(std::span(queries_)), reinterpret_cast<const std::byte*>(q_));
  }
  const std::size_t width = all_heads / cache_.heads();
  const float* first = queries_.data() + head.value * width;
  out.queries = {reinterpret_cast<const std::byte*>(first), DType::kF32, all_heads, width, query_rows_};
  return out;
}

}  // namespace kvroof::cuda
