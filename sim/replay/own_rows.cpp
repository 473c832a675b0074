#include "sim/replay/own_rows.hpp"

#include <cstring>

namespace kvroof {
namespace {

// Rows [tokens, heads, …] with each head `times` times.
std::vector<std::byte> repeated(const std::vector<std::byte>& rows, std::size_t head_bytes, std::uint32_t times) {
  std::vector<std::byte> all(rows.size() * times);
  for (std::size_t head = 0; head < rows.size() / head_bytes; ++head) {
    for (std::uint32_t i = 0; i < times; ++i) {
      std::memcpy(all.data() + (head * times + i) * head_bytes, rows.data() + head * head_bytes, head_bytes);
    }
  }
  return all;
}

}  // namespace

OwnRows::OwnRows(const LayerTensors& recorded, std::uint32_t storage_heads) : layer_(*recorded.layer) {
  const LayerKeysValues& kv = *recorded.keys_values;
  const std::uint32_t times = storage_heads / layer_.kv_heads;
  const std::size_t size = size_of(recorded.type);
  rows_ = {kv.tokens, repeated(kv.k, layer_.k_width * size, times), repeated(kv.v, layer_.v_width * size, times)};
  layer_.kv_heads = storage_heads;
  tensors_ = {&layer_, recorded.type, &rows_, {}};
  merged_.resize(std::size_t{storage_heads} * kv.tokens);
}

void OwnRows::merge(HeadId head, std::span<const RowMerge> merges) {
  const auto merge_in = [&](std::vector<std::byte>& rows, std::size_t width, const RowMerge& m) {
    const std::size_t row_bytes = width * size_of(tensors_.type);
    const auto row = [&](std::uint32_t token) {
      return rows.data() + (std::size_t{token} * layer_.kv_heads + head.value) * row_bytes;
    };
    merge_row(tensors_.type, width, m, row(m.from), row(m.to));
  };
  changed_ = changed_ || !merges.empty();
  for (const RowMerge& m : merges) {
    merge_in(rows_.k, layer_.k_width, m);
    merge_in(rows_.v, layer_.v_width, m);
    merged_[std::size_t{head.value} * rows_.tokens + m.to] = true;
  }
}

}  // namespace kvroof
