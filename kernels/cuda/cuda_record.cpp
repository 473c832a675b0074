// What CudaBackend tells a recorder of the rows that it makes.
#include <algorithm>

#include "kernels/cuda/cuda_backend.hpp"

namespace kvroof::cuda {
namespace {

// The leading `width` bytes of every row of `rows`.
std::vector<std::byte> leading(std::span<const std::byte> rows, std::size_t row_bytes, std::size_t width) {
  std::vector<std::byte> out;
  out.reserve(rows.size() / row_bytes * width);
  for (std::size_t at = 0; at < rows.size(); at += row_bytes) {
    const auto row = rows.subspan(at, width);
    out.insert(out.end(), row.begin(), row.end());
  }
  return out;
}

}  // namespace

void CudaBackend::record(const AttentionInput& input, std::uint32_t offset) {
  if (recorder_ == nullptr) return;
  const std::size_t n = input.tokens;
  std::vector<float> q(n * shape().heads * shape().head_dim);
  copy_to_host(stream_, std::as_writable_bytes(std::span(q)), reinterpret_cast<const std::byte*>(input.queries));
  std::vector<std::byte> q_bytes(q.size() * 2);
  convert_from_float(options_.kv_type, q, q_bytes.data());
  std::vector<std::byte> keys(2 * n * shape().kv_heads * shape().head_dim);
  copy_to_host(stream_, keys, new_rows_.at());
  std::vector<std::byte> values(2 * n * shape().kv_heads * format_.stored_value_dim());
  copy_to_host(stream_, values, new_rows_.at(keys.size()));
  if (format_.v_in_k) values = leading(keys, std::size_t{2} * format_.key_dim, std::size_t{2} * format_.value_dim);
  const std::size_t parts = active_.size();
  const auto part = [&](std::span<const std::byte> bytes, std::size_t i) {
    return bytes.subspan(i * (bytes.size() / parts), bytes.size() / parts);
  };
  for (std::size_t i = 0; i < parts; ++i) {
    recorder_->rows(active_[i]->id, input.layer, active_[i]->tokens + offset, static_cast<std::uint32_t>(n / parts),
                    part(q_bytes, i), part(keys, i), part(values, i));
  }
}

}  // namespace kvroof::cuda
